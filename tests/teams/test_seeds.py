"""The examples of the documents word for word, end to end: a file on disk, a new driver or process for each step."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from autogen_agentchat.messages import HandoffMessage
from scenario import for_team, new_app, requests_of, upcall
from seed_texts import AMBIGUITY

from upcall import Run, RunStatus, RunStore
from upcall.autogen.messages import event_path
from upcall.questions.matching import AnswersInput
from upcall.runs.outputs import Depth, DepthDecision, Intent, IntentResult
from upcall.runs.plan import ClarifierResult, PlanStatus, ReviewedPlan
from upcall.testing import Call, Fail, LoopbackServer, Reply, ScriptedModelClient

STORE = "runs.db"

G7 = "Compare the economic impacts of renewable energy adoption across G7 nations"
WHICH = "Could you clarify whether you're interested in renewable energy adoption in all G7 nations or specific ones?"
FOCUS = "Focus on Germany and Japan."
IMPACTS = "Got it. Are you interested in economic impacts from a GDP perspective, job creation, or both?"
BOTH = "Both GDP impact and job creation."
TITLE = "Economic Impacts of Renewable Energy in Germany and Japan"
SECTIONS = ("GDP Impact Analysis", "Job Creation Metrics", "Comparative Analysis")
MORE = (*SECTIONS, "Policy Frameworks")
FEEDBACK = "Add a section on policy frameworks."

TOPIC = "Find information about the topic"
WHAT_TOPIC = "What specific topic are you interested in?"
WHAT_KIND = "And what kind of information are you looking for?"
SOLAR = "I'm interested in renewable energy, specifically recent advancements in solar technology"

SCOPE = "Would you like to search in all documents or only recent ones?"
FORMAT = "How would you like the results formatted?"
DEEP = '{"intent": "research", "meta_response": null, "research_depth": "deep"}'
CLEAR = '{"needs_clarification": false}'
DELEGATE = Call("researcher", {"task": "Find out"})
FOUND = '{"summary": "Perovskite cells."}'
DONE = '{"summary": "Here is the report."}'


def asks(question: str) -> str:
    """Return the clarifier's question."""
    return json.dumps({"needs_clarification": True, "clarification_question": question})


def unclear(**aspects: str) -> str:
    """Return the planner's check: a question for each aspect."""
    details = [{"aspect": name, "clarification_question": question} for name, question in aspects.items()]
    return json.dumps({"needs_clarification": True, "ambiguity_details": details})


def plan(title: str = TITLE, sections: Sequence[str] = SECTIONS) -> str:
    return json.dumps({"title": title, "sections": list(sections), "steps": []})


def replies(**changed: Sequence[Reply]) -> dict[str, list[Reply]]:
    """Return what each agent says to a deep research task that nobody asks about; `changed` replaces single agents."""
    fields: dict[str, Sequence[Reply]] = {
        "classifier": [DEEP],
        "clarifier": [CLEAR],
        "planner": [CLEAR, plan()],
        "lead": [DONE],
    }
    return for_team(**fields | changed)


def scripted(**changed: Sequence[Reply]) -> ScriptedModelClient:
    return ScriptedModelClient(replies(**changed))


async def answered(client: ScriptedModelClient, run: Run, *text: AnswersInput) -> Run:
    """Return the run after these answers, one after another; each is taken by a new driver that first reads the
    file."""
    for each in text:
        run = await new_app(client).get(run.id)
        assert run.status is RunStatus.AWAITING_CLARIFICATION
        run = await new_app(client).answer(run.id, each)
    return run


def shown(run: Run) -> list[str]:
    """Return the words of the open questions."""
    return [question.question for question in run.questions]


def by_words(run: Run, wording: Mapping[str, str]) -> dict[str, str]:
    """Answers by the words of their questions, as `Upcall.answer` takes them."""
    return {question.id: wording[question.question] for question in run.questions}


# -- the clarifier: example dialogs -----------------------------------------------------------------------------------


async def test_dialog_of_two_questions_and_then_the_plan() -> None:
    """S0-01, S0-02, S0-03, S0-10, S0-56."""
    with scripted(clarifier=[asks(WHICH), asks(IMPACTS), CLEAR]) as client:
        first = await new_app(client, planning={"enable_plan_approval": True}).start(G7)
        second = await answered(client, first, FOCUS)
        third = await answered(client, second, BOTH)
        done = await answered(client, third, "Approve")
    assert [shown(run) for run in (first, second)] == [[WHICH], [IMPACTS]]
    assert third.questions[0].question.startswith(f"Here is the proposed plan:\nTitle: {TITLE}\nSections:\n")
    assert [run.questions[0].asker for run in (first, second, third)] == ["clarifier", "clarifier", "planner"]
    assert done.clarifier_log == f"Question: {WHICH}\nAnswer: {FOCUS}\nQuestion: {IMPACTS}\nAnswer: {BOTH}"
    dialog = [each["content"] for each in requests_of(client, "clarifier")[2].messages if each["role"] == "user"]
    assert dialog[-3:] == [G7, FOCUS, BOTH]
    planned_with = requests_of(client, "planner")[1].system
    assert all(words in planned_with for words in (G7, f"{WHICH} - {FOCUS}", f"{IMPACTS} - {BOTH}"))


async def test_dialog_adds_a_section_to_the_plan_before_approval() -> None:
    """S0-04, S0-14, S0-15, S0-17, S0-29, S0-36, S0-37, S0-57."""
    planner = [CLEAR, plan(), plan(sections=MORE)]
    with scripted(clarifier=[asks(WHICH), asks(IMPACTS), CLEAR], planner=planner) as client:
        started = await new_app(client, planning={"enable_plan_approval": True}).start(G7)
        proposed = await answered(client, started, FOCUS, BOTH)
        again = await answered(client, proposed, FEEDBACK)
        done = await answered(client, again, "Approve")
    assert proposed.questions[0].question.splitlines()[:7] == [
        "Here is the proposed plan:",
        f"Title: {TITLE}",
        "Sections:",
        "- GDP Impact Analysis",
        "- Job Creation Metrics",
        "- Comparative Analysis",
        "Do you approve this plan?",
    ]
    assert "- Comparative Analysis\n- Policy Frameworks\nDo you approve this plan?" in again.questions[0].question
    result = done.clarifier_result
    assert (result.plan_title, result.plan_sections) == (TITLE, MORE)
    assert (result.plan_approved, result.plan_rejected) == (True, False)
    assert isinstance(done.plan, ReviewedPlan)
    assert [(version.plan.sections, version.feedback) for version in done.plan.history] == [(SECTIONS, FEEDBACK)]
    assert (done.status, done.result) == (RunStatus.COMPLETED, "Here is the report.")
    assert str(result.get_approved_plan_context()) in str(requests_of(client, "lead")[0].messages[-1]["content"])
    assert FEEDBACK in requests_of(client, "planner")[2].messages[-1]["content"]


@pytest.mark.parametrize("word", ["Reject", "no", "stop"])
async def test_rejected_plan_ends_the_run_without_work(word: str) -> None:
    """S0-04, S0-16."""
    with scripted(lead=[]) as client:
        proposed = await new_app(client, planning={"enable_plan_approval": True}).start(G7)
        done = await answered(client, proposed, word)
    result = done.clarifier_result
    assert (done.status, done.result) == (
        RunStatus.COMPLETED,
        f"The plan '{TITLE}' was rejected; nothing was done.",
    )
    assert (result.plan_title, result.plan_rejected, result.plan_approved) == (TITLE, True, False)
    assert result.get_approved_plan_context() is None
    assert done.plan is not None
    assert done.plan.status is PlanStatus.REJECTED


async def test_feedback_at_the_limit_approves_and_is_recorded() -> None:
    """S0-18, X4, X7."""
    with scripted(planner=[CLEAR, plan(), plan(sections=MORE)]) as client:
        proposed = await new_app(client, planning={"enable_plan_approval": True, "max_plan_iterations": 1}).start(G7)
        done = await answered(client, proposed, FEEDBACK, "And shorter, please.")
    assert done.plan is not None
    assert (done.plan.status, done.plan.remark) == (PlanStatus.AUTO_APPROVED, "And shorter, please.")
    assert done.clarifier_result.plan_approved is True
    assert "And shorter, please." in str(requests_of(client, "lead")[0].messages)


async def test_without_plan_approval_the_result_is_the_log_alone() -> None:
    """S0-13."""
    with scripted(clarifier=[asks(WHICH), CLEAR]) as client:
        done = await answered(client, await new_app(client).start(G7), FOCUS)
    assert done.clarifier_result == ClarifierResult(clarifier_log=f"Question: {WHICH}\nAnswer: {FOCUS}")
    assert done.plan is not None
    assert (done.plan.title, done.plan.status) == (TITLE, PlanStatus.MADE)


async def test_clarifier_that_is_turned_off_says_nothing() -> None:
    """S0-06."""
    with scripted(clarifier=[]) as client:
        done = await new_app(client, team={"enable_clarifier": False}).start(G7)
    assert done.execution_path == ("classifier", "planner", "lead")
    assert (done.status, done.clarifier_log) == (RunStatus.COMPLETED, "")


async def test_start_options_hold_in_every_later_driver() -> None:
    """S3-35: whatever its own settings say."""
    other: dict[str, Any] = {
        "planning": {"enable_plan_approval": False, "max_plan_iterations": 0},
        "questions": {"max_turns": 0},
    }
    with scripted(clarifier=[asks(WHICH), asks(IMPACTS)], planner=[CLEAR, plan(), plan(sections=MORE)]) as client:
        run = await new_app(
            client, planning={"enable_plan_approval": True, "max_plan_iterations": 5}, questions={"max_turns": 2}
        ).start(G7)
        for text in (FOCUS, BOTH, FEEDBACK, "Approve"):
            assert run.status is RunStatus.AWAITING_CLARIFICATION
            run = await new_app(client, **other).answer(run.id, text)
    assert run.plan is not None
    assert (run.plan.status, run.plan.sections) == (PlanStatus.APPROVED, MORE)


async def test_failure_after_approval_resumes_with_the_approved_plan() -> None:
    with scripted(lead=[Fail(500), DONE]) as client:
        proposed = await new_app(client, planning={"enable_plan_approval": True}).start(G7)
        failed = await answered(client, proposed, "Approve")
        done = await new_app(client).resume(failed.id)
    assert (failed.status, done.status) == (RunStatus.FAILED, RunStatus.COMPLETED)
    assert failed.clarifier_result == done.clarifier_result
    assert done.clarifier_result.plan_approved is True


# -- the classifier: examples -----------------------------------------------------------------------------------------


async def test_greeting_is_answered_and_ends_the_run() -> None:
    """S2-11, S2-17, S2-18, S2-20, S2-34."""
    reply = "Hi! I'm a research assistant..."
    meta = json.dumps({"intent": "meta", "meta_response": reply, "research_depth": None})
    silent: dict[str, Sequence[Reply]] = {"clarifier": [], "planner": [], "lead": []}
    with scripted(classifier=[meta], **silent) as client:
        run = await new_app(client).start("Hello! What can you do?")
    assert (run.status, run.result) == (RunStatus.COMPLETED, reply)
    assert run.execution_path == ("classifier",)
    assert run.classification is not None
    assert run.classification.user_intent == IntentResult(intent=Intent.META)
    assert run.classification.depth_decision is None


@pytest.mark.needs("research")
async def test_what_is_cuda_goes_to_the_researcher() -> None:
    """S2-12, S2-17, S2-19, S2-20, S2-35."""
    shallow = '{"intent": "research", "meta_response": null, "research_depth": "shallow"}'
    silent: dict[str, Sequence[Reply]] = {"clarifier": [], "planner": [], "lead": []}
    with scripted(classifier=[shallow], researcher=['{"summary": "A platform."}'], **silent) as client:
        run = await new_app(client).start("What is CUDA?")
    assert (run.result, run.execution_path) == ("A platform.", ("classifier", "researcher"))
    assert run.classification is not None
    assert run.classification.user_intent == IntentResult(intent=Intent.RESEARCH)
    assert run.classification.depth_decision == DepthDecision(decision=Depth.SHALLOW)
    assert requests_of(client, "classifier")[0].messages[-1]["content"] == "What is CUDA?"


async def test_comparison_across_the_g7_goes_to_the_clarifier() -> None:
    """S2-12, S2-17, S2-19, S2-20, S2-36."""
    with scripted() as client:
        handed = [
            (item.source, item.target)
            async for item in new_app(client).start_stream(G7)
            if isinstance(item, HandoffMessage) and event_path(item) == (item.source,)
        ]
        (run,) = await new_app(client).list()
    assert handed[0] == ("classifier", "clarifier")
    assert run.classification is not None
    assert run.classification.user_intent == IntentResult(intent=Intent.RESEARCH)
    assert run.classification.depth_decision == DepthDecision(decision=Depth.DEEP)


# -- the planner: clarification loop ----------------------------------------------------------------------------------


@pytest.mark.needs("research")
async def test_find_information_about_the_topic() -> None:
    """S3-01, S3-17, S3-28, S3-29, S3-33, S3-36, S3-38: asked about both at once, planned anew with the answer, done."""
    check = unclear(topic=WHAT_TOPIC, information=WHAT_KIND)
    planner = [check, CLEAR, plan("Solar technology", ["Recent advancements"])]
    with scripted(planner=planner, lead=[DELEGATE, DONE], researcher=[FOUND]) as client:
        asked = await new_app(client).start(TOPIC)
        assert len(requests_of(client, "planner")) == 1
        done = await answered(client, asked, by_words(asked, {WHAT_TOPIC: SOLAR, WHAT_KIND: SOLAR}))
    assert shown(asked) == [WHAT_TOPIC, WHAT_KIND]
    _, again, planned = requests_of(client, "planner")
    for request in (again, planned):
        assert all(words in request.system for words in (TOPIC, f"{WHAT_TOPIC} - {SOLAR}", f"{WHAT_KIND} - {SOLAR}"))
    assert again.system.startswith("You are the planner of a team of agents. Before you plan, check")
    assert done.plan is not None
    assert done.plan.title == "Solar technology"
    assert done.execution_path == ("classifier", "clarifier", "planner", "lead")
    assert (done.status, done.result) == (RunStatus.COMPLETED, "Here is the report.")


@pytest.mark.parametrize(
    ("scope", "form", "read"),
    [
        ("recent_documents", "bullet_points", ("recent_documents", "bullet_points")),
        ("1", "2", ("all_documents", "detailed_report")),
        ("Only those of 2024", "A table", ("Only those of 2024", "A table")),
    ],
)
async def test_protocol_example_asks_two_questions_at_once(scope: str, form: str, read: tuple[str, str]) -> None:
    """S3-06 to S3-14, S3-16, S3-19, S3-20, S3-25 to S3-27, X1, X5."""
    with scripted(planner=[AMBIGUITY, CLEAR, plan()]) as client:
        asked = await new_app(client).start(TOPIC)
        await answered(client, asked, by_words(asked, {SCOPE: scope, FORMAT: form}))
    assert asked.status is RunStatus.AWAITING_CLARIFICATION
    assert [
        (question.header, question.context, question.question, [option.label for option in question.options])
        for question in asked.questions
    ] == [tuple(detail.values()) for detail in json.loads(AMBIGUITY)["ambiguity_details"]]
    for request in requests_of(client, "planner")[1:]:
        assert f"{SCOPE} - {read[0]}" in request.system
        assert f"{FORMAT} - {read[1]}" in request.system


async def test_while_it_waits_everything_is_in_the_file() -> None:
    """S3-14 to S3-17, S3-21 to S3-24, S3-35: status, path and history, and what the team needs to continue."""
    with scripted(clarifier=[asks(WHICH), CLEAR], planner=[AMBIGUITY, CLEAR, plan()]) as client:
        asked = await answered(client, await new_app(client).start(G7), FOCUS)
        stored = await RunStore(STORE).load(asked.id)
        kept = stored.run
        done = await answered(client, asked, by_words(asked, {SCOPE: "1", FORMAT: "1"}))
    assert kept == asked
    assert kept.status is RunStatus.AWAITING_CLARIFICATION
    assert kept.execution_path == ("classifier", "clarifier", "planner")
    assert [(question.question, answer.text) for question, answer in kept.clarification_history] == [(WHICH, FOCUS)]
    assert FORMAT in stored.checkpoint.dump()
    assert done.clarification_count == 3
    assert done.execution_path == (*kept.execution_path, "lead")


async def test_states_of_a_run_follow_the_work() -> None:
    """S3-21, S3-22, S3-32."""
    seen: list[str] = []
    with scripted(planner=[AMBIGUITY, CLEAR, plan()]) as client:
        driver = new_app(client)
        async for _ in driver.start_stream(TOPIC):
            (run,) = await driver.list()
            seen.append(run.status.value)
        driver = new_app(client)
        async for _ in driver.answer_stream(run.id, by_words(run, {SCOPE: "1", FORMAT: "1"})):
            (run,) = await driver.list()
            seen.append(run.status.value)
    changes = [status for number, status in enumerate(seen) if seen[number - 1 : number] != [status]]
    assert changes == [
        "initializing",
        "planning",
        "awaiting_clarification",
        "planning",
        "executing",
        "completed",
    ]


async def test_after_three_rounds_it_plans_with_what_it_knows() -> None:
    """S3-30, S3-34, X4: the fourth check is not made, each round in a new driver."""
    rounds = [unclear(topic=f"Round {number}?") for number in (1, 2, 3)]
    with scripted(planner=[*rounds, plan()]) as client:
        run = await new_app(client).start(TOPIC)
        done = await answered(client, run, "first", "second", "third")
    assert (done.status, done.clarification_count) == (RunStatus.COMPLETED, 3)
    system = requests_of(client, "planner")[-1].system
    assert all(f"Round {number}? - {text}" in system for number, text in enumerate(["first", "second", "third"], 1))


# -- processes --------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_process_may_end_while_it_waits() -> None:
    """S3-15 to S3-17, S3-25, S3-26, S3-35, S3-38, S3-43: each step of the example in a process of its own."""
    check = unclear(topic=WHAT_TOPIC, information=WHAT_KIND)
    text = replies(planner=[check, CLEAR, plan("Solar technology")], lead=[DELEGATE, DONE], researcher=[FOUND])
    with LoopbackServer(text) as server:
        asked = upcall("run", TOPIC, "--detach", "--json", "--model", "m", "--base-url", server.base_url).json
        calls = len(server.requests)
        emitted = upcall("show", asked["run_id"])
        first, second = (question["id"] for question in asked["questions"])
        waiting = upcall("answer", asked["run_id"], f"{first}={SOLAR}", "--json").json
        between = len(server.requests)
        done = upcall("answer", asked["run_id"], f"{second}={SOLAR}", "--json").json
        planned = requests_of(server, "planner")[-1].system
    assert asked["status"] == "awaiting_clarification"
    assert all(words in " ".join(emitted.out.split()) for words in (WHAT_TOPIC, WHAT_KIND, "upcall answer"))
    assert (waiting["status"], [each["id"] for each in waiting["questions"]]) == ("awaiting_clarification", [second])
    assert calls == between, "an answer to one of two questions calls no model"
    assert (done["status"], done["result"]) == ("completed", "Here is the report.")
    assert f"{WHAT_TOPIC} - {SOLAR}" in planned
    assert f"{WHAT_KIND} - {SOLAR}" in planned


@pytest.mark.slow
def test_plan_under_review_survives_the_process() -> None:
    """S0-57, S3-35, S3-43: nothing says to the later processes that plans are to be reviewed."""
    with LoopbackServer(replies(planner=[CLEAR, plan(), plan(sections=MORE)])) as server:
        address = ("--model", "m", "--base-url", server.base_url)
        proposed = upcall("run", G7, "--review-plan", "--detach", "--json", *address).json
        again = upcall("answer", proposed["run_id"], FEEDBACK, "--json").json
        done = upcall("answer", proposed["run_id"], "Approve", "--json").json
    assert f"Title: {TITLE}" in proposed["questions"][0]["question"]
    assert "- Policy Frameworks" in again["questions"][0]["question"]
    assert (done["status"], done["result"]) == ("completed", "Here is the report.")
    (stored,) = asyncio.run(RunStore("upcall.db").list())
    result = stored.clarifier_result
    assert (result.plan_approved, result.plan_sections) == (True, MORE)
