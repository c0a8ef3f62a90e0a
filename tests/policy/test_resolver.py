"""Who answers before the human is asked: ledger, facts, the human, and what is assumed without one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.messages import BaseChatMessage, ThoughtEvent, UserInputRequestedEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from cryptography.fernet import Fernet
from scenario import CLEAR, PLAN, TASK, script, upcall
from settings_files import write_settings
from worlds import MakeTeam, app_of, at_once, model_of, pausing, results_in, solo, team_of

from upcall import Answer, AnsweredBy, Outcome, PausableAgent, Question, Run, RunStatus, Settings, Upcall
from upcall.agents import NestedTeam
from upcall.errors import AlreadyAnswered, ConfigurationError, UserInputRequired
from upcall.options import ResolutionOptions
from upcall.policy.facts import parse_facts
from upcall.policy.resolver import AnswerResolver, Moment, answer_by_default
from upcall.questions.choices import OwnWords
from upcall.questions.matching import parse_answer
from upcall.questions.record import QuestionRecords
from upcall.testing import Call, Calls, Fail, Reply, Request, ScriptedModelClient
from upcall.testing.server import LoopbackServer

FRAMEWORKS = ["Express", "FastAPI", "Django"]
RISK = Call("ask_user", {"question": "Which table should I drop?", "clarification_type": "risk_confirmation"})


def ask(question: str = "Which framework should I use?", **fields: Any) -> Call:
    return Call("ask_user", {"question": question, **fields})


def alone(*replies: Reply, **options: Any) -> tuple[ScriptedModelClient, MakeTeam]:
    """Return a team of one agent."""
    model = ScriptedModelClient(list(replies))
    return model, solo(model, **options)


def by_whom(run: Run) -> list[str]:
    return [answer.by.value for answer in run.answers]


# -- the ledger -------------------------------------------------------------------------------------------------------

FOUR = ("one", "two", "three", "four")
WORDINGS = {
    "one": "Which framework should I use?",
    "two": "What framework do you want?",
    "three": "Please choose a framework.",
    "four": "Which framework would you like me to use?",
}


async def test_same_fact_for_four_parallel_agents_is_asked_once() -> None:
    replies = {name: [ask(text, options=FRAMEWORKS), f"{name} is done."] for name, text in WORDINGS.items()}
    model = model_of(lead=[at_once(*FOUR), "All done."], **replies)
    asked = await app_of(team_of(model, *FOUR)).start("Build it")
    assert (len(asked.questions), len(asked.duplicates)) == (1, 3)
    assert {question.path for question in asked.open_questions} == {("lead", name) for name in FOUR}
    done = await app_of(team_of(model, *FOUR)).answer(asked.id, "express")
    assert (done.status, done.result) == (RunStatus.COMPLETED, "All done.")
    assert [results_in(model, f"<{name}>") for name in FOUR] == [["Express"]] * 4
    assert sorted(by_whom(done)) == ["human", "ledger", "ledger", "ledger"]
    assert not done.open_questions
    model.assert_used_up()


async def test_number_in_own_words_is_no_option_when_repeated() -> None:
    sizes = ["4", "8"]
    replies = {name: [ask(WORDINGS[name], options=sizes), f"{name} is done."] for name in FOUR}
    model = model_of(lead=[at_once(*FOUR), "All done."], **replies)
    asked = await app_of(team_of(model, *FOUR)).start("Build it")
    await app_of(team_of(model, *FOUR)).answer(asked.id, OwnWords("2"))
    assert [results_in(model, f"<{name}>") for name in FOUR] == [["2"]] * 4


async def test_same_fact_for_four_successive_agents_is_asked_once() -> None:
    calls = [Call(name, {"task": "Your part"}) for name in FOUR]
    replies = {name: [ask(text, options=FRAMEWORKS), f"{name} is done."] for name, text in WORDINGS.items()}
    model = model_of(lead=[*calls, "All done."], **replies)
    asked = await app_of(team_of(model, *FOUR)).start("Build it")
    done = await app_of(team_of(model, *FOUR)).answer(asked.id, "2")
    assert (done.status, done.result) == (RunStatus.COMPLETED, "All done.")
    assert [results_in(model, f"<{name}>") for name in FOUR] == [["FastAPI"]] * 4
    assert by_whom(done) == ["human", "ledger", "ledger", "ledger"]
    assert [question.path for question in done.answered_questions] == [("lead", name) for name in FOUR]
    assert {len(question.calls) for question in done.answered_questions} == {2}
    assert str(done.answers[-1].reason).startswith("the user answered lead > one the same")


async def test_without_a_ledger_each_agent_asks_for_itself() -> None:
    model = model_of(lead=[at_once("one", "two"), "All done."], one=[ask(), "1"], two=[ask(), "2"])
    asked = await app_of(team_of(model, "one", "two"), questions={"ledger": False}).start("Build it")
    first, second = asked.questions
    done = await app_of(team_of(model, "one", "two")).answer(asked.id, {first.id: "Express", second.id: "Django"})
    assert [answer.text for answer in done.answers] == ["Express", "Django"]


async def test_only_what_has_another_meaning_is_asked_too() -> None:
    texts = ["Which framework should I use?", "Which testing framework should I use?"]
    model = model_of(lead=[at_once("one", "two"), "."], one=[ask(texts[0]), "1"], two=[ask(texts[1]), "2"])
    asked = await app_of(team_of(model, "one", "two")).start("Build it")
    assert sorted(question.question for question in asked.questions) == sorted(texts)


async def test_answer_a_repeated_question_refuses_leaves_it_open() -> None:
    must, may = ask(), ask(required=False)
    model = model_of(lead=[at_once("one", "two"), "Done."], one=[may, "1"], two=[must, "2"])
    asked = await app_of(team_of(model, "one", "two")).start("Build it")
    (optional,) = [each.id for each in asked.open_questions if each.path[-1] == "one"]  # Either was put first.
    skipped = Answer(question_id=optional, outcome=Outcome.SKIPPED)
    waits = await app_of(team_of(model, "one", "two")).answer(asked.id, skipped)
    assert ([each.path[-1] for each in waits.questions], waits.duplicates) == (["two"], ())
    assert (await app_of(team_of(model, "one", "two")).answer(asked.id, "Express")).result == "Done."


async def test_answer_may_name_a_question_that_is_hidden() -> None:
    model = model_of(lead=[at_once("one", "two"), "Done."], one=[ask(), "1"], two=[ask(), "2"])
    asked = await app_of(team_of(model, "one", "two")).start("Build it")
    done = await app_of(team_of(model, "one", "two")).answer(asked.id, {asked.duplicates[0].id: "Express"})
    assert (done.result, [results_in(model, "<one>"), results_in(model, "<two>")]) == (
        "Done.",
        [["Express"], ["Express"]],
    )


async def test_what_the_human_declined_is_not_asked_again() -> None:
    model, team = alone(ask(), ask("What framework do you want?"), "Done without.")
    asked = await app_of(team).start("Build it")
    declined = Answer(question_id=asked.questions[0].id, outcome=Outcome.DECLINED, text="Ask Bob.")
    done = await app_of(team).answer(asked.id, declined)
    assert (done.result, done.answers[1].outcome) == ("Done without.", Outcome.DECLINED)
    emitted = (
        "The user declined to answer. They said: Ask Bob. Do not ask again; do without, or say what cannot be done."
    )
    assert results_in(model) == [emitted] * 2


@pytest.mark.parametrize("text", ["What are the choices?", "skip", "Proceed."])
async def test_what_was_no_answer_is_not_given_again(text: str) -> None:
    _, team = alone(ask(), ask())
    asked = await app_of(team).start("Build it")
    again = await app_of(team).answer(asked.id, text)
    assert (again.status, len(again.answers)) == (RunStatus.AWAITING_CLARIFICATION, 1)


async def test_risk_confirmation_is_asked_every_time() -> None:
    model = model_of(lead=[at_once("one", "two"), RISK, "Done."], one=[RISK, "1"], two=[RISK, "2"])
    asked = await app_of(team_of(model, "one", "two")).start("Tidy up", facts={"table drop": "logs"})
    assert (len(asked.questions), asked.duplicates) == (2, ())
    first, second = asked.questions
    again = await app_of(team_of(model, "one", "two")).answer(asked.id, {first.id: "logs", second.id: "none"})
    assert [question.path for question in again.questions] == [("lead",)]


async def test_secret_is_reused_for_its_own_asker_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_SECRET_KEY", Fernet.generate_key().decode())

    def question(*path: str, secret: bool = True, tool: str | None = "deploy") -> Question:
        text = "Which password should I use?"
        return Question(question=text, secret=secret, tool=tool, path=path, calls=path)

    asked = question("lead", "one")
    facts = [parse_facts({"password": "swordfish"}, lambda _: "a file")]
    records = QuestionRecords.build([], [(asked, parse_answer(asked, "hunter2"))])
    resolver = AnswerResolver(ResolutionOptions(), records, facts)
    again = await resolver.answer_to(question("lead", "one"))
    assert again is not None
    assert (again.sealed, again.unseal().text) == (True, "hunter2")
    assert await resolver.answer_to(question("lead", "two")) is None
    assert await resolver.answer_to(question("lead", "one", tool="mail")) is None
    in_clear = await resolver.answer_to(question("lead", "one", secret=False, tool=None))
    assert in_clear is not None
    assert in_clear.text == "swordfish"
    both = [question("lead", "one"), question("lead", "two")]
    assert len(await resolver.decide(both, Moment.AT_DRIVER)) == 2
    assert not resolver.records.duplicates
    monkeypatch.setenv("UPCALL_SECRET_KEY", Fernet.generate_key().decode())
    assert await resolver.answer_to(question("lead", "one")) is None


def test_default_of_a_secret_question_is_no_secret() -> None:
    assumed = answer_by_default(Question(question="Which account?", secret=True, default="guest"), "Nobody is there.")
    assert (assumed.outcome, assumed.text, assumed.sealed) == (Outcome.ASSUMED, "guest", False)


async def test_tool_that_needs_the_user_gets_the_earlier_answer() -> None:
    def deploy() -> str:
        """Deploy it."""
        raise UserInputRequired("What framework do you want?", FRAMEWORKS)

    model, team = alone(ask(options=FRAMEWORKS), Call("deploy"), "Done.", tools=[deploy])
    asked = await app_of(team).start("Build it")
    done = await app_of(team).answer(asked.id, "Express")
    assert (done.result, results_in(model)) == ("Done.", ["Express", "Express"])


async def test_answer_outlives_the_failure_of_its_segment() -> None:
    model, team = alone(ask(), Fail(500), "Done.")
    failed = await app_of(team, questions={"facts": {"framework": "Express"}}).start("Build it")
    done = await app_of(team).resume(failed.id)
    assert (failed.status, by_whom(failed)) == (RunStatus.FAILED, ["facts"])
    assert (done.result, by_whom(done), results_in(model)) == ("Done.", ["facts"], ["Express"])


# -- a model judges ---------------------------------------------------------------------------------------------------


def judging(reply: Reply) -> Callable[[Request], Reply]:
    """Return the root team's model; what it says when it is asked whether two questions are the same."""
    asks = ask("Which web framework suits you?")
    replies = {name: list(text) for name, text in script(coder=[ask(), asks, "Done.", "Done."]).items()}

    def reply_to(request: Request) -> Reply:
        if "were put to the user and answered" in str(request.messages[-1]["content"]):
            return reply
        return next(text for name, text in replies.items() if name in request.system).pop(0)

    return reply_to


@pytest.mark.needs("workspace")
@pytest.mark.parametrize(
    ("reply", "by"),
    [
        ('{"new_asks": "framework", "nearest_asks": "framework", "number": 1}', ["human", "ledger"]),
        ('{"new_asks": "web framework", "nearest_asks": "framework", "number": null}', ["human"]),
        ('{"number": 7}', ["human"]),
        ("I cannot tell.", ["human"]),
        (Fail(500), ["human"]),
    ],
)
async def test_model_judges_sameness_only_where_it_is_clear(reply: Reply, by: list[str]) -> None:
    model = ScriptedModelClient(judging(reply))
    settings = Settings.read(None, questions={"ledger_model": True})
    asked = await Upcall(model, store="runs.db", settings=settings).start(TASK)
    run = await Upcall(model, store="runs.db", settings=Settings.read(None)).answer(asked.id, "Express")
    assert (by_whom(run), run.waiting) == (by, by == ["human"])
    assert ("ledger" in run.usage) == isinstance(reply, str)


@pytest.mark.needs("workspace")
async def test_without_the_setting_no_model_judges() -> None:
    model = ScriptedModelClient(judging('{"number": 1}'))
    asked = await Upcall(model, store="runs.db").start(TASK)
    assert (await Upcall(model, store="runs.db").answer(asked.id, "Express")).waiting


async def test_team_of_ones_own_needs_a_model_to_judge() -> None:
    with pytest.raises(ConfigurationError, match="ledger_model is true, but there is no model"):
        await app_of(alone()[1], questions={"ledger_model": True}).start("Build it")


# -- facts ------------------------------------------------------------------------------------------------------------


async def test_fact_of_the_project_answers_and_names_its_file() -> None:
    """S4-25"""
    write_settings("users: {user: alice}\nquestions:\n  facts:\n    framework: Express\n")
    model, team = alone(ask(options=FRAMEWORKS), "Done.")
    done = await app_of(team).start("Build it")
    assert (done.result, results_in(model), len(done.answered_questions)) == ("Done.", ["Express"], 1)
    (answer,) = done.answers
    assert (answer.by, answer.selected) == (AnsweredBy.FACTS, ("Express",))
    assert answer.reason == "the fact 'framework' (upcall.yaml, line 4)"


async def test_fact_of_a_run_precedes_those_of_the_project() -> None:
    """S4-25"""
    model, team = alone(ask(), ask("Which database?"), "Done.")
    app = app_of(team, questions={"facts": {"framework": "Express", "database": "SQLite"}})
    done = await app.start("Build it", facts={"framework": "Flask"})
    assert results_in(model) == ["Flask", "SQLite"]
    assert done.answers[0].reason == "the fact 'framework' (this run)"


async def test_run_keeps_the_facts_it_was_started_with() -> None:
    model, team = alone(ask("Which color?"), ask(), "Done.")
    asked = await app_of(team, questions={"facts": {"framework": "Express"}}).start("Build it")
    await app_of(team, questions={"facts": {"framework": "Flask"}}).answer(asked.id, "Red")
    assert results_in(model) == ["Red", "Express"]


@pytest.mark.parametrize(
    "question",
    [
        ask("Which testing framework?"),
        ask("Should I replace the framework?"),
        ask(options=["FastAPI", "Django"]),
        ask(options=["FastAPI", "Django"], allow_free_text=False),
        RISK,
    ],
)
async def test_where_no_fact_fits_the_human_is_asked(question: Call) -> None:
    facts = {"framework": "Express", "table drop": "logs"}
    assert (await app_of(alone(question)[1], questions={"facts": facts}).start("Build it")).waiting


async def test_fact_that_is_a_number_picks_no_option() -> None:
    question = ask("How many replicas?", options=["one", "two", "three"])
    assert (await app_of(alone(question)[1], questions={"facts": {"how many replicas": 2}}).start("Build it")).waiting


async def test_two_facts_that_disagree_answer_nothing() -> None:
    facts = {"framework": "Express", "Which framework?": "Flask"}
    assert (await app_of(alone(ask())[1], questions={"facts": facts}).start("Build it")).waiting


async def test_answer_of_the_run_precedes_a_fact() -> None:
    """The ledger is the first step."""
    earlier = Question(question="Which framework?", path=("solo",))
    ladder_facts = Settings.read(None, questions={"facts": {"framework": "Express"}}).standing_facts()
    records = QuestionRecords.build([], [(earlier, Answer(question_id=earlier.id, text="Flask"))])
    new = Question(question="What framework do you want?", path=("solo",))
    first = await AnswerResolver(ResolutionOptions(), records, facts=[ladder_facts]).answer_to(new)
    off = await AnswerResolver(ResolutionOptions(ledger=False), records, facts=[ladder_facts]).answer_to(new)
    assert first is not None
    assert off is not None
    assert (first.by, first.text, off.by, off.text) == (AnsweredBy.LEDGER, "Flask", AnsweredBy.FACTS, "Express")


@pytest.mark.parametrize(
    ("text", "error"),
    [
        (
            "questions:\n  facts:\n    framework:\n      web: Express\n",
            "upcall.yaml, line 3: questions.facts.framework is wrong",
        ),
        (
            "questions:\n  facts:\n    database: x\n    framework:\n",
            "upcall.yaml, line 4: questions.facts.framework = None is wrong",
        ),
        (
            "questions:\n  facts:\n    which: Express\n",
            "upcall.yaml, line 3: the fact 'which' has no word to recognise a question by",
        ),
        ("questions: {facts: [Express]}\n", "upcall.yaml, line 1: questions.facts is wrong"),
        ("questions: {facts: missing.yaml}\n", "Cannot read the configuration missing.yaml"),
        ("questions: {facts: bad.yaml}\n", "bad.yaml, line 2: the fact 'database' = a list is wrong"),
    ],
)
def test_wrong_fact_is_reported_with_its_line(text: str, error: str) -> None:
    write_settings(text)
    Path("bad.yaml").write_text("framework: Express\ndatabase: [a]\n")
    with pytest.raises(ConfigurationError, match=error.replace("[", r"\[")):
        Settings.read()


def test_facts_are_read_from_file_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("facts.yaml").write_text("framework: Express\nport: 8080\nuse tests: yes\n")
    facts = Settings.read(None, questions={"facts": "facts.yaml"}).standing_facts()
    assert [(fact.answer, fact.where) for fact in facts] == [
        ("Express", "facts.yaml, line 1"),
        ("8080", "facts.yaml, line 2"),
        ("yes", "facts.yaml, line 3"),
    ]
    monkeypatch.setenv("UPCALL_QUESTIONS__FACTS", '{"framework": "Flask"}')
    (fact,) = Settings.read().standing_facts()
    assert (fact.answer, fact.where) == ("Flask", "UPCALL_QUESTIONS__FACTS or the program")


async def test_fact_that_is_wrong_is_refused_before_storing() -> None:
    app = app_of(alone()[1])
    with pytest.raises(ConfigurationError, match="this run: the fact 'framework' = a list is wrong"):
        await app.start("Build it", facts={"framework": ["Express"]})
    assert await app.list() == []


# -- the agents that answer in JSON -----------------------------------------------------------------------------------


@pytest.mark.needs("workspace")
async def test_fact_lets_clarifier_and_planner_continue_their_turn() -> None:
    clarifies = json.dumps({"needs_clarification": True, "clarification_question": "Which framework?"})
    aspect = {"aspect": "db", "clarification_question": "Which database should I use?"}
    unclear = json.dumps({"needs_clarification": True, "ambiguity_details": [aspect]})
    replies = script(clarifier=[clarifies, CLEAR], planner=[unclear, CLEAR, PLAN], coder=["Done.", "Done."])
    model = ScriptedModelClient(replies)
    app = Upcall(model, store="runs.db", settings=Settings.read(None, questions={"facts": {"framework": "Express"}}))
    done = await app.start(TASK, facts={"database": "SQLite"})
    assert (done.status, by_whom(done)) == (RunStatus.COMPLETED, ["facts", "facts"])
    assert done.clarifier_log == "Question: Which framework?\nAnswer: Express"
    planned = next(each for each in reversed(model.requests) if "You are the planner" in each.system)
    assert "Which database should I use? - SQLite" in planned.system
    model.assert_used_up()


async def test_fact_of_no_does_not_end_clarification() -> None:
    asks = [
        {"needs_clarification": True, "clarification_question": f"Do you want {each}?"} for each in ("ads", "tests")
    ]
    model = ScriptedModelClient(script(clarifier=[json.dumps(each) for each in asks]))
    run = await Upcall(model, store="runs.db", settings=Settings.read(None, questions={"facts": {"ads": False}})).start(
        TASK
    )
    assert [question.question for question in run.questions] == ["Do you want tests?"]


@pytest.mark.needs("workspace")
async def test_structured_agent_waits_for_the_unknown_of_two_answers() -> None:
    details = [{"aspect": "x", "clarification_question": f"Which {each}?"} for each in ("database", "framework")]
    unclear = json.dumps({"needs_clarification": True, "ambiguity_details": details})
    model = ScriptedModelClient(script(planner=[unclear, CLEAR, PLAN], coder=["Done.", "Done."]))
    app = Upcall(model, store="runs.db", settings=Settings.read(None, questions={"facts": {"framework": "Express"}}))
    asked = await app.start(TASK)
    assert [question.question for question in asked.questions] == ["Which database?"]
    done = await Upcall(model, store="runs.db").answer(asked.id, "SQLite")
    planned = next(each for each in reversed(model.requests) if "You are the planner" in each.system)
    assert (done.status, by_whom(done)) == (RunStatus.COMPLETED, ["facts", "human"])
    assert all(line in planned.system for line in ("Which database? - SQLite", "Which framework? - Express"))


# -- nobody is there --------------------------------------------------------------------------------------------------


async def test_unattended_a_weighty_question_waits() -> None:
    options = ResolutionOptions(unattended=True, unattended_limit=0.6)
    for weight, waits in ((None, False), (0.6, False), (0.61, True)):
        question = Question(question="Which one?", default="A", weight=weight)
        (record,) = await AnswerResolver(options, QuestionRecords()).decide([question], Moment.AT_DRIVER)
        assert record.is_closed is not waits, weight


async def test_unattended_a_question_comes_to_its_own_default() -> None:
    """S4-22: assumed, instructed to the model as that, and listed with the run."""
    model, team = alone(ask(options=FRAMEWORKS, default="express"), "Done.")
    done = await app_of(team).start("Build it", unattended=True)
    ((question, answer),) = done.assumptions
    assert (done.status, answer.outcome, answer.by) == (RunStatus.COMPLETED, Outcome.ASSUMED, AnsweredBy.POLICY)
    assert (question.path, answer.text, answer.reason) == (("solo",), "Express", "Nobody was there to answer.")
    assert results_in(model) == [
        "Nobody was there to answer; assumed: Express. Go on with this and list it as an assumption."
    ]
    (shown,) = done.as_json()["assumptions"]
    asked = {"id": question.id, "question": question.question}
    assert shown == {**asked, "assumed": "Express", "path": ["solo"], "weight": None}


@pytest.mark.parametrize("default", [None, " ", "Flask"])
async def test_unattended_question_without_a_default_expires(default: str | None) -> None:
    model, team = alone(ask(options=FRAMEWORKS, allow_free_text=False, default=default), "Done.")
    done = await app_of(team, questions={"unattended": True}).start("Build it")
    assert (done.result, done.answers[0].outcome, done.assumptions) == ("Done.", Outcome.EXPIRED, [])
    assert results_in(model) == [
        "Nobody was there to answer. Do not take this as consent; do without, or say what stays open."
    ]


async def test_unattended_nested_agents_get_each_its_own_default() -> None:
    replies = {name: [ask(default=name), "."] for name in ("one", "two")}
    model = model_of(lead=[at_once("one", "two"), "Done."], **replies)
    done = await app_of(team_of(model, "one", "two"), questions={"unattended": True}).start("Build it")
    assert {(question.path, answer.text) for question, answer in done.assumptions} == {
        (("lead", "one"), "one"),
        (("lead", "two"), "two"),
    }


async def test_unattended_a_fact_still_comes_first() -> None:
    model, team = alone(ask(default="Flask"), "Done.")
    done = await app_of(team, questions={"unattended": True, "facts": {"framework": "Express"}}).start("Build it")
    assert (results_in(model), done.assumptions) == (["Express"], [])


async def test_unattended_a_risk_confirmation_waits_for_the_human() -> None:
    model, team = alone(Calls([RISK, ask(default="Express")]), "Done.")
    asked = await app_of(team, questions={"unattended": True}).start("Tidy up")
    assert [question.question for question in asked.questions] == ["Which table should I drop?"]
    assert [answer.outcome for answer in asked.answers] == [Outcome.ASSUMED]
    done = await app_of(team).answer(asked.id, "logs")
    assert (done.result, results_in(model)[0]) == ("Done.", "logs")


def test_unattended_risk_confirmation_expires_without_consent() -> None:
    answer = answer_by_default(Question(question="Drop it?", clarification_type="risk_confirmation"), "Too late.")
    assert answer.outcome is Outcome.EXPIRED
    assert answer.as_text().startswith("Too late. Do not take this as consent")


async def test_unattended_a_plan_is_not_approved_by_anybody() -> None:
    model = ScriptedModelClient(script(lead=[], coder=[]))
    settings = Settings.read(None, questions={"unattended": True}, planning={"enable_plan_approval": True})
    run = await Upcall(model, store="runs.db", settings=settings).start(TASK)
    assert (run.waiting, run.plan is not None and run.plan.approved) == (True, False)


async def test_unattended_question_of_a_stock_agent_expires() -> None:
    model = ScriptedModelClient([Call("transfer_to_user"), "Done."])

    def team() -> Team:
        return pausing(AssistantAgent("stock", model, handoffs=["user"]))

    done = await app_of(team, questions={"unattended": True}).start("Build it")
    assert (done.result, done.answers[0].outcome) == ("Done.", Outcome.EXPIRED)
    assert "Do not take this as consent" in str(model.requests[-1].messages[-1]["content"])


@pytest.mark.slow
async def test_stock_agent_that_asks_forever_finally_waits() -> None:
    model = ScriptedModelClient(lambda request: Call("transfer_to_user"))

    def team() -> Team:
        return pausing(AssistantAgent("stock", model, handoffs=["user"]))

    assert (await app_of(team, questions={"unattended": True}).start("Build it")).waiting


async def test_attended_a_default_is_only_shown() -> None:
    assert (await app_of(alone(ask(default="Express"))[1]).start("Build it")).waiting


@pytest.mark.parametrize("as_json", [pytest.param(True, marks=pytest.mark.slow), False])
@pytest.mark.slow
def test_command_line_says_what_was_assumed(as_json: bool) -> None:
    coder = [ask("Which framework?", default="Express"), "Built.", "Built."]
    with LoopbackServer(script(coder=coder)) as server:
        options = ("--model", "m", "--base-url", server.base_url, *(["--json"] if as_json else []))
        ended = upcall("run", TASK, "--unattended", *options, UPCALL_QUESTIONS__CHECK_QUESTIONS="false")
    assert ended.status == 0
    if as_json:
        assert [each["assumed"] for each in ended.json["assumptions"]] == ["Express"]
    else:
        assert "Assumed, since nobody answered:\n- Which framework? Express (lead > coder)" in ended.out
        assert ended.err.count("Which framework?") == 1


@pytest.mark.slow
def test_command_line_keeps_running_unattended_without_a_default() -> None:
    ended = upcall("run", TASK, "--unattended", "--json")
    assert (ended.status, ended.json["status"], ended.json["questions"]) == (0, "completed", [])
    assert (ended.json["assumptions"], "with Express" in ended.json["result"]) == ([], True)


# -- budgets ----------------------------------------------------------------------------------------------------------

SUBJECTS = ["color", "port", "database", "host"]


def about(subject: str, **fields: Any) -> Call:
    return ask(f"Which {subject}?", **fields)


async def test_question_budget_beyond_its_limit_is_explained_to_askers() -> None:
    model, team = alone(about("color"), about("port"), about("host"), about("database", default="SQLite"), "Done.")
    run = await app_of(team, questions={"max_questions_run": 2}).start("Build it")
    run = await app_of(team).answer(run.id, "red")
    done = await app_of(team).answer(run.id, "80")
    limit = "This was not asked of the user: 2 questions of this run were, the limit"
    assert (done.result, by_whom(done)) == ("Done.", ["human", "human", "policy", "policy"])
    assert results_in(model)[2:] == [
        f"{limit}. Do not take this as consent; do without, or say what stays open.",
        f"{limit}; assumed: SQLite. Go on with this and list it as an assumption.",
    ]


async def test_question_budget_lets_the_first_ones_through() -> None:
    model, team = alone(Calls([about(subject) for subject in SUBJECTS]), "Done.")
    run = await app_of(team, questions={"max_questions_run": 3}).start("Build it")
    assert [question.question for question in run.questions] == ["Which color?", "Which port?", "Which database?"]
    done = await app_of(team).answer(run.id, {question.id: "x" for question in run.questions})
    assert (done.result, len([each for each in results_in(model) if "the limit" in each])) == ("Done.", 1)


async def test_what_does_not_reach_the_human_does_not_count() -> None:
    model, team = alone(about("color"), about("port"), about("host"), about("host"), "Done.")
    app = app_of(team, questions={"max_questions_run": 1, "facts": {"color": "red", "port": 80}})
    run = await app.start("Build it")
    done = await app_of(team).answer(run.id, "localhost")
    assert results_in(model) == ["red", "80", "localhost", "localhost"]
    assert by_whom(done) == ["facts", "facts", "human", "ledger"]


async def test_with_a_budget_of_nothing_nobody_is_asked() -> None:
    done = await app_of(alone(about("color"), "Done.")[1], questions={"max_questions_run": 0}).start("Build it")
    assert (done.result, by_whom(done)) == ("Done.", ["policy"])


async def test_several_that_ask_the_same_count_once() -> None:
    model = model_of(lead=[at_once("one", "two"), "Done."], one=[ask(), "1"], two=[ask(), "2"])
    run = await app_of(team_of(model, "one", "two"), questions={"max_questions_run": 1}).start("Build it")
    assert (len(run.questions), len(run.duplicates), run.answers) == (1, 1, ())


async def test_question_budget_of_the_planner_is_separate() -> None:
    details = [{"aspect": "x", "clarification_question": f"Which {each}?"} for each in SUBJECTS]
    unclear = json.dumps({"needs_clarification": True, "ambiguity_details": details})
    model = ScriptedModelClient(script(planner=[unclear]))
    run = await Upcall(model, store="runs.db", settings=Settings.read(None, questions={"max_questions_run": 0})).start(
        TASK
    )
    assert len(run.questions) == 4


async def test_risk_beyond_the_budget_is_no_consent() -> None:
    model, team = alone(about("color"), RISK, "Done.")
    run = await app_of(team, questions={"max_questions_run": 1}).start("Build it")
    done = await app_of(team).answer(run.id, "red")
    assert done.answers[1].outcome is Outcome.EXPIRED
    assert "Do not take this as consent" in results_in(model)[1]


# -- what is emitted and stored
# ------------------------------------------------------------------------------------------


async def items_of(app: Upcall, **choices: Any) -> list[Any]:
    return [item async for item in app.start_stream("Build it", **choices)]


async def test_stream_shows_who_answered_and_requests_nothing() -> None:
    model = model_of(lead=[at_once("one"), "Done."], one=[ask(), "1"])
    items = await items_of(app_of(team_of(model, "one")), facts={"framework": "Express"})
    (thought,) = [item for item in items if isinstance(item, ThoughtEvent)]
    assert thought.content == "Which framework should I use? - Express (facts: the fact 'framework' (this run))"
    assert json.loads(thought.metadata["upcall.questions"])[0]["path"] == ["lead", "one"]
    assert not any(isinstance(item, UserInputRequestedEvent) for item in items)
    kinds = [type(item).__name__ for item in items if getattr(item, "metadata", {}).get("upcall.path") == "lead/one"]
    assert kinds[:3] == ["ToolCallRequestEvent", "ThoughtEvent", "ToolCallExecutionEvent"]


async def test_questions_of_one_meaning_emit_one_request() -> None:
    model = model_of(lead=[at_once("one", "two"), "."], one=[ask(), "1"], two=[ask(), "2"])
    items = await items_of(app_of(team_of(model, "one", "two")))
    requested = [item.request_id for item in items if isinstance(item, UserInputRequestedEvent)]
    assert requested == [question.id for question in items[-1].questions]


async def test_assumption_is_emitted_in_place_of_the_request() -> None:
    _, team = alone(ask(default="Express"), "Done.")
    items = await items_of(app_of(team), unattended=True)
    assert not any(isinstance(item, UserInputRequestedEvent) for item in items)
    (thought,) = [item for item in items if isinstance(item, ThoughtEvent)]
    assert "assumed: Express" in thought.content


async def test_answer_of_a_rung_cannot_be_overruled_silently() -> None:
    _, team = alone(ask(), "Done.")
    done = await app_of(team, questions={"facts": {"framework": "Express"}}).start("Build it")
    asked = done.answered_questions[0].id
    with pytest.raises(
        AlreadyAnswered, match=r"was answered by facts \(the fact 'framework'.*fork the run at this question"
    ):
        await app_of(team).answer(done.id, {asked: "Flask"})
    assert (await app_of(team).answer(done.id, {asked: "Express"})).answers == done.answers


async def test_answer_repeated_is_harmless_after_reuse_too() -> None:
    _, team = alone(ask(), ask("What framework do you want?"), "Done.")
    asked = await app_of(team).start("Build it")
    done = await app_of(team).answer(asked.id, "Express")
    assert (await app_of(team).answer(asked.id, "Express")).answers == done.answers


async def test_cancelled_run_closes_repeated_questions_too() -> None:
    model = model_of(lead=[at_once("one", "two"), "."], one=[ask(), "1"], two=[ask(), "2"])
    asked = await app_of(team_of(model, "one", "two")).start("Build it")
    cancelled = await app_of(team_of(model, "one", "two")).cancel(asked.id)
    assert [answer.outcome for answer in cancelled.answers] == [Outcome.CANCELLED] * 2
    assert not cancelled.open_questions


@pytest.mark.parametrize("below", [True, False])
async def test_answer_reaches_an_inner_member_by_its_whole_path(below: bool) -> None:
    """The team nested in an agent, or a member of the root team."""
    model = ScriptedModelClient({"<lead>": [Call("crew", {"task": "x"}), "Done."], "<one>": [ask(), "1"]})

    def team() -> Team:
        member = PausableAgent("one", model, system_message="<one>")
        team_of = NestedTeam(RoundRobinGroupChat([member], max_turns=1), name="crew")
        outermost = PausableAgent("lead", model, system_message="<lead>", agents=[team_of]) if below else team_of
        return pausing(outermost)

    done = await app_of(team, questions={"facts": {"framework": "Express"}}).start("Build it")
    assert (done.status, results_in(model, "<one>")) == (RunStatus.COMPLETED, ["Express"])
    assert done.answered_questions[0].path == (("lead", "crew", "one") if below else ("crew", "one"))


async def test_path_includes_a_stock_team_as_member() -> None:
    model = ScriptedModelClient({"<one>": [ask(), "1"], "<two>": [ask(), "2"]})

    def team() -> Team:
        def team_of(name: str, member: str) -> Team:
            agent = PausableAgent(member, model, system_message=f"<{member}>")
            return RoundRobinGroupChat([agent], max_turns=1, name=name)

        return RoundRobinGroupChat([team_of("first", "one"), team_of("second", "two")], max_turns=2)

    asked = await app_of(team).start("Build it")
    done = await app_of(team).answer(asked.id, "Express")
    assert (done.status, results_in(model, "<two>")) == (RunStatus.COMPLETED, ["Express"])
    assert [question.path for question in done.answered_questions] == [("first", "one"), ("second", "two")]


async def test_without_a_driver_every_question_goes_up() -> None:
    model = model_of(lead=[at_once("one", "two"), "."], one=[ask(), "1"], two=[ask(), "2"])
    result = await team_of(model, "one", "two")().run(task="Build it")
    assert isinstance(result.messages[-1], BaseChatMessage)
    assert len(json.loads(result.messages[-1].metadata["upcall.questions"])) == 2
