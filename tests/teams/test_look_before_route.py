"""Whether a shallow task lacks something is decided before it is routed, and what it lacks is asked for first."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from ask_replies import CLEAR_LOOK, LACKING_LOOK, Judge, for_run, list_needs, write_question
from autogen_agentchat.messages import HandoffMessage, TextMessage
from conversation import answers, run, send, turn
from scenario import for_team, new_app, requests_of
from worlds import roles_in

from upcall import Run, RunStatus, Settings, Upcall
from upcall.agents import Clarifier, Classifier
from upcall.agents.asking import AskPolicy, AskVerdict
from upcall.autogen.messages import ASK_VERDICT, CLASSIFICATION, event_warnings
from upcall.options import TeamOptions
from upcall.questions.question import Detail
from upcall.runs.asked_topics import AskedTopic
from upcall.runs.outputs import Classification, Intent
from upcall.teams import TeamResources, root_team
from upcall.testing import Call, Fail, LoopbackServer, Reply, ScriptedModelClient

pytestmark = pytest.mark.needs("workspace")

TASK = "Convert the temperatures into the other unit"
SMALL_TALK = '{"intent": "meta", "meta_response": "I am sorry."}'
UNIT, NAMED = "the other unit", "the unit"
ASKS = json.dumps({"needs_clarification": True, "clarification_question": "Which unit?"})
CLEAR = '{"needs_clarification": false}'
WRITE = Call("write_file", {"path": "temperatures.csv", "content": "68\n"})
DONE = [WRITE, '{"summary": "Converted them.", "files": ["temperatures.csv"]}']
SHORT = '{"summary": "I was unable to find them."}'
PLAN = json.dumps({"title": "Units", "sections": ["Convert"], "steps": []})


def classified(missing: object = None, depth: str = "shallow") -> str:
    return json.dumps({"intent": "coding", "research_depth": depth, "missing": missing})


def scripted(missing: object = UNIT, written: Sequence[Reply] = (), **said: Sequence[Reply]) -> ScriptedModelClient:
    """Return a model, not a small one, by which a shallow task lacks something; an agent that is not in `said` says
    nothing, and `written` is what it says to the request for a question."""
    replies = for_team(**{"classifier": [classified(missing)], **said})
    return ScriptedModelClient({"You read a task ": [*written], **replies}, small=False)


def team_with(judge: AskPolicy, client: ScriptedModelClient, folder: Path) -> Any:
    resources = TeamResources(roles_in(folder), ask_policies=[judge])
    return root_team(lambda _: client, resources, TeamOptions(check_questions=False))


# -- the model's own word ---------------------------------------------------------------------------------------------


async def test_shallow_task_that_lacks_something_is_asked_about() -> None:
    with scripted(clarifier=[ASKS]) as client:
        asked = await new_app(client).start(TASK)
    assert [(each.asker, each.question) for each in asked.questions] == [("clarifier", "Which unit?")]
    assert asked.status is RunStatus.AWAITING_CLARIFICATION
    assert f'"{UNIT}"' not in requests_of(client, "classifier")[0].system
    assert UNIT in requests_of(client, "clarifier")[0].messages[-1]["content"]


async def test_clarified_shallow_task_needs_no_plan() -> None:
    """The coder sees question and answer; each step is another driver's."""
    with scripted(clarifier=[ASKS, CLEAR], coder=DONE) as client:
        asked = await new_app(client).start(TASK)
        done = await new_app(client).answer(asked.id, "Fahrenheit")
    assert done.execution_path == ("classifier", "clarifier", "coder")
    assert done.clarifier_log == "Question: Which unit?\nAnswer: Fahrenheit"
    seen = "\n".join(str(each["content"]) for each in requests_of(client, "coder")[0].messages)
    assert "Question: Which unit?\nAnswer: Fahrenheit" in seen


async def test_shallow_task_without_question_reaches_its_agent() -> None:
    with scripted(clarifier=[list_needs(unit="low")], coder=DONE) as client:
        done = await new_app(client).start(TASK)
    assert (done.execution_path, done.questions) == (("classifier", "clarifier", "coder"), ())


async def test_skipped_question_leads_to_the_agent() -> None:
    with scripted(clarifier=[ASKS], coder=DONE) as client:
        asked = await new_app(client).start(TASK)
        done = await new_app(client).answer(asked.id, "skip")
    assert done.execution_path == ("classifier", "clarifier", "coder")


async def test_clear_shallow_task_costs_no_call() -> None:
    with scripted(missing=None, coder=DONE) as client:
        done = await new_app(client).start(TASK)
    assert done.execution_path == ("classifier", "coder")
    assert len(client.requests) == 3


async def test_without_a_clarifier_nothing_is_asked() -> None:
    with scripted(coder=DONE) as client:
        done = await new_app(client, team={"enable_clarifier": False}).start(TASK)
    assert done.execution_path == ("classifier", "coder")


async def test_no_turns_left_leads_to_the_agent() -> None:
    with scripted(coder=DONE) as client:
        done = await new_app(client, questions={"max_turns": 0}).start(TASK)
    assert done.execution_path == ("classifier", "clarifier", "coder")


async def test_assumed_answer_leads_to_the_agent() -> None:
    needed = {"question": "Which unit?", "assumed": "Fahrenheit", "known_from": "user", "weight": "high"}
    listed = json.dumps({"candidates": [needed], "needs_clarification": True})
    with scripted(clarifier=[listed, CLEAR], coder=DONE) as client:
        settings = {"on_ask": "assume", "unattended_limit": 1.0, "check_questions": False}
        done = await new_app(client, questions=settings).start(TASK)
    assert done.execution_path == ("classifier", "clarifier", "coder")
    assert [answer.text for _, answer in done.clarification_history] == ["Fahrenheit"]


async def test_clarified_task_that_escalates_is_planned_unasked() -> None:
    """Escalation: the answer is known, and the clarifier's questions do not begin anew."""
    said: dict[str, Sequence[Reply]] = {
        "clarifier": [ASKS, CLEAR],
        "coder": [SHORT],
        "planner": [CLEAR, PLAN],
        "lead": ['{"summary": "All done."}'],
    }
    with scripted(**said) as client:
        asked = await new_app(client).start(TASK)
        done = await new_app(client).answer(asked.id, "Fahrenheit")
    assert done.execution_path == ("classifier", "clarifier", "coder", "clarifier", "planner", "lead")
    assert done.clarifier_log == "Question: Which unit?\nAnswer: Fahrenheit"
    assert "Which unit? - Fahrenheit" in requests_of(client, "planner")[0].system


# -- whoever else decides ---------------------------------------------------------------------------------------------


async def test_own_policy_decides_before_the_route_and_once(tmp_path: Path) -> None:
    judge = Judge(must_ask=True, missing=NAMED)
    with scripted(missing=None, written=[write_question("Which unit?")]) as client:
        rest = await run(team_with(judge, client, tmp_path), TASK)
    assert [each.question for each in rest.questions] == ["Which unit?"]
    assert judge.tasks == [TASK]


async def test_own_policy_outweighs_the_models_word(tmp_path: Path) -> None:
    judge = Judge(must_ask=False)
    with scripted(coder=DONE) as client:
        rest = await run(team_with(judge, client, tmp_path), TASK)
    assert (rest.message.source, judge.tasks) == ("coder", [TASK])


async def test_deep_task_is_judged_by_the_clarifier_alone(tmp_path: Path) -> None:
    judge = Judge(must_ask=True, missing=NAMED)
    with scripted(classifier=[classified(UNIT, "deep")], written=[write_question("Which unit?")]) as client:
        rest = await run(team_with(judge, client, tmp_path), TASK)
    assert [each.question for each in rest.questions] == ["Which unit?"]
    assert judge.tasks == [TASK]


async def test_policy_warning_reaches_a_run_without_questions(tmp_path: Path) -> None:
    judge = Judge(problem="it guessed")
    with scripted(missing=None, coder=DONE) as client:
        rest = await run(team_with(judge, client, tmp_path), TASK)
    warned = [each for event in rest.events if isinstance(event, HandoffMessage) for each in event_warnings(event)]
    assert warned == ["it guessed"]


async def test_judge_sees_files_and_conversation() -> None:
    judge = Judge(must_ask=False)
    with ScriptedModelClient([classified()]) as client:
        clarifier = Clarifier(client, policies=[judge])
        await turn(
            Classifier(client, judge=clarifier.judge, files=["page.html"]),
            TextMessage(source="user", content="Make a page"),
            TextMessage(source="coder", content="I made page.html."),
            TextMessage(source="user", content="Make it blue"),
        )
    assert judge.tasks == ["Make it blue\nKnown: Make a page I made page.html.\nDocuments given with it: page.html"]


# -- the first look ---------------------------------------------------------------------------------------------------


async def start(
    looks: list[Reply],
    missing: object = None,
    owned_by: str = "llamacpp",
    said: str = "",
    task: str = TASK,
    **text: list[Reply],
) -> tuple[Run, LoopbackServer]:
    """Return the first pause of a run whose model is behind a server, which must have said everything by then."""
    replies = for_run(looks=looks, classifier=[said or classified(missing)], **text)
    with LoopbackServer(replies, owned_by=owned_by) as server:
        settings = Settings.read(
            None,
            models={"model": "m", "base_url": server.base_url, "max_retries": 0, "small": True},
            questions={"check_questions": False, "ask_memory": True},
            workspace={"path": "work"},
        )
        return await Upcall(settings=settings).start(task), server


async def test_look_decides_before_the_route_and_is_not_repeated() -> None:
    run, server = await start([LACKING_LOOK, NAMED, write_question("Which unit?")])
    assert [each.question for each in run.questions] == ["Which unit?"]
    assert run.total_usage.model_calls == server.calls == 4


@pytest.mark.parametrize("missing", [None, UNIT])
async def test_look_that_finds_nothing_outweighs_the_models_word(missing: str | None) -> None:
    run, _ = await start([CLEAR_LOOK], missing, coder=DONE)
    assert run.execution_path == ("classifier", "coder")


async def test_resume_repeats_no_look_before_the_route() -> None:
    """The clarifier's own call fails, and another driver resumes the run."""
    looks: list[Reply] = [LACKING_LOOK, NAMED, Fail(400, "no"), write_question("Which unit?")]
    replies = for_run(looks=looks, classifier=[classified()], clarifier=[])
    with LoopbackServer(replies, owned_by="llamacpp") as server:
        models = {"model": "m", "base_url": server.base_url, "max_retries": 0, "small": True}
        settings = Settings.read(None, models=models, questions={"check_questions": False}, store={"path": "runs.db"})
        failed = await Upcall(settings=settings).start(TASK)
        run = await Upcall(settings=settings).resume(failed.id)
    assert failed.status is RunStatus.FAILED
    assert [each.question for each in run.questions] == ["Which unit?"]


@pytest.mark.parametrize(
    ("looked", "asks"), [([LACKING_LOOK, NAMED, write_question("Which unit?")], True), ([CLEAR_LOOK], False)]
)
async def test_task_taken_for_small_talk_is_looked_at(looked: list[Reply], asks: bool) -> None:
    run, _ = await start(looked, said=SMALL_TALK)
    assert [each.question for each in run.questions] == (["Which unit?"] if asks else [])
    assert run.execution_path == (("classifier", "clarifier") if asks else ("classifier",))


@pytest.mark.parametrize("task", ["hi", "Thanks a lot!", "\u4f60\u597d\uff01"])
async def test_short_small_talk_gets_no_look(task: str) -> None:
    run, _ = await start([], said=SMALL_TALK, task=task)
    assert (run.execution_path, run.result) == (("classifier",), "I am sorry.")


async def test_own_policy_does_not_judge_small_talk() -> None:
    judge = Judge(must_ask=True, score=0.9)
    with ScriptedModelClient([SMALL_TALK], small=True) as client:
        clarifier = Clarifier(client, policies=[judge])
        rest = await send(Classifier(client, judge=clarifier.judge), TASK)
    assert (rest.text, judge.tasks) == ("I am sorry.", [])


async def test_small_talk_reply_is_kept_where_nothing_is_asked() -> None:
    stated = write_question("Which one?", options=["other unit", "none of them"])
    run, _ = await start([LACKING_LOOK, NAMED, stated, stated], said=SMALL_TALK)
    assert (run.questions, run.execution_path) == ((), ("classifier", "clarifier"))
    assert run.result == "I am sorry."
    assert run.classification is not None
    assert run.classification.intent is Intent.META


async def test_answer_makes_small_talk_a_task() -> None:
    found = {"intent": "research", "research_depth": "shallow", "meta_response": "I am sorry."}
    verdict = AskVerdict(must_ask=True, missing=NAMED).model_dump_json()
    metadata = {CLASSIFICATION: json.dumps(found), ASK_VERDICT: verdict}
    handed = HandoffMessage(source="classifier", target="clarifier", content=TASK, metadata=metadata)
    with ScriptedModelClient([write_question("Which unit?"), CLEAR]) as client:
        agent = Clarifier(client, shallow_targets={Intent.RESEARCH: "researcher"})
        asked = await send(agent, TextMessage(source="user", content=TASK), handed)
        done = await send(agent, answers(asked, "Fahrenheit"))
    assert isinstance(done.message, HandoffMessage)
    assert done.message.target == "researcher"


async def test_model_replying_to_a_task_does_not_end_it() -> None:
    said = json.dumps({"intent": "research", "research_depth": "deep", "meta_response": "I will."})
    with ScriptedModelClient([said]) as client:
        message = await turn(Classifier(client), TextMessage(source="user", content=TASK))
    assert Classification.model_validate_json(message.metadata[CLASSIFICATION]).meta_response is None


async def test_missing_by_small_model_without_odds_is_ignored() -> None:
    run, server = await start([], UNIT, owned_by="openai", coder=DONE)
    assert run.execution_path == ("classifier", "coder")
    assert run.total_usage.model_calls == server.calls


async def test_dismissed_topic_is_not_asked_before_the_route_either(tmp_path: Path) -> None:
    resources = TeamResources(
        roles_in(tmp_path),
        ask_policies=[Judge(must_ask=True, score=0.6)],
        asked_topics=[AskedTopic(detail=Detail.PLACE, asked=4, dismissed=4)],
    )
    with scripted(missing=None, clarifier=[list_needs(unit="low")], coder=DONE) as client:
        rest = await run(root_team(lambda _: client, resources, TeamOptions(check_questions=False)), TASK)
    assert (rest.questions, rest.message.source) == ([], "coder")
