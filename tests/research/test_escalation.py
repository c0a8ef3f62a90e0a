"""Escalation: a shallow task that its agent did not manage continues to the clarifier, as if it had been deep."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from autogen_agentchat.messages import HandoffMessage, TextMessage
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import TurnResult, answers, resumed_as, send
from scenario import for_team, new_app, requests_of

from upcall import Run, RunStatus
from upcall.agents import EscalatingAgent
from upcall.agents.escalating import falls_short
from upcall.autogen.messages import OUTPUT
from upcall.errors import ModelReplyInvalid
from upcall.research.researcher import SHALLOW_ROUNDS, researcher
from upcall.runs.outputs import Depth
from upcall.testing import Call, Fail, Reply, ScriptedModelClient
from upcall.testing.model import MODEL_INFO

TASK = "What is CUDA?"
CLEAR = '{"needs_clarification": false}'
PLAN = json.dumps({"title": "CUDA", "sections": ["History"], "steps": []})
DONE = '{"summary": "CUDA is a platform."}'
SHORT = "I was unable to find it."
ASK = Call("ask_user", {"question": "Which edition?"})


def report(summary: str) -> str:
    return json.dumps({"summary": summary})


async def ended_with(*replies: Reply, task: str = TASK) -> TurnResult:
    """How the turn of a researcher that escalates to the clarifier ends; every reply must be used."""
    with ScriptedModelClient(replies) as client:
        return await send(researcher(client, escalates_to="clarifier"), task)


def scripted(intent: str = "research", **changed: Sequence[Reply]) -> ScriptedModelClient:
    """Return a model for a shallow task that is clarified, planned and carried out once it escalates."""
    replies: dict[str, Sequence[Reply]] = {
        "classifier": [json.dumps({"intent": intent, "research_depth": "shallow"})],
        "clarifier": [CLEAR],
        "planner": [CLEAR, PLAN],
        "lead": [DONE],
    }
    return ScriptedModelClient(for_team(**replies | changed))


# -- what falls short -------------------------------------------------------------------------------------------------

PHRASES = ["unable to find", "need more research", "i don't have enough information"]


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize("written", ["{}", "Sorry, {} on that.", "It is a platform.\n\nBut {}"])
async def test_report_that_says_so_escalates(phrase: str, written: str) -> None:
    """S2-42."""
    rest = await ended_with(report(written.format(phrase)))
    assert isinstance(rest.message, HandoffMessage)
    assert (rest.message.source, rest.message.target) == ("researcher", "clarifier")


@pytest.mark.parametrize("phrase", [*PHRASES, "I don’t have enough information", "unable\nto find"])
@pytest.mark.parametrize("case", [str.lower, str.upper, str.title])
def test_case_apostrophe_and_line_breaks_make_no_difference(phrase: str, case: Any) -> None:
    """S2-42."""
    assert falls_short(case(phrase))


@pytest.mark.parametrize(
    "text", ["CUDA is a platform.", "I found it.", "No more research is needed.", "You have enough information."]
)
async def test_any_other_report_is_the_result(text: str) -> None:
    rest = await ended_with(report(text))
    assert isinstance(rest.message, TextMessage)
    assert rest.message.content == text


@pytest.mark.parametrize("phrase", PHRASES)
def test_only_the_last_800_characters_count(phrase: str) -> None:
    """S2-42: a phrase at the beginning of a long report is about the task and not about the outcome."""
    assert falls_short(phrase + "." * (800 - len(phrase)))
    assert not falls_short(phrase + "." * (801 - len(phrase)))


EMPTY: list[Any] = [
    pytest.param("", id="nothing"),
    pytest.param(" \n", id="blank"),
    pytest.param('{"summary": ""}', id="no summary"),
    pytest.param('```json\n{"summary": " ", "sources": []}\n```', id="blank summary"),
    pytest.param('{"summary": null}', id="null"),
    pytest.param("{}", id="no fields"),
]


@pytest.mark.parametrize("empty", EMPTY)
async def test_escalation_follows_a_report_empty_even_after_repair(empty: str) -> None:
    """S2-42."""
    rest = await ended_with(empty, empty)
    assert isinstance(rest.message, HandoffMessage)
    assert rest.message.target == "clarifier"


@pytest.mark.parametrize("empty", EMPTY)
async def test_report_that_is_repaired_does_not_escalate(empty: str) -> None:
    assert (await ended_with(empty, DONE)).text == "CUDA is a platform."


async def test_report_in_another_form_is_not_an_empty_one() -> None:
    odd = '{"answer": "CUDA is a platform."}'
    assert (await ended_with(odd, odd)).text == odd


async def test_prose_is_a_report() -> None:
    assert (await ended_with("CUDA is a platform.")).text == "CUDA is a platform."


async def test_empty_reply_leaves_no_message_in_the_context() -> None:
    """Some servers refuse the next request then."""
    with ScriptedModelClient(["", "", DONE]) as client:
        agent = researcher(client, escalates_to="clarifier")
        await send(agent, TASK)
        await send(agent, "And OpenCL?")
    assert all(str(each["content"]).strip() for each in client.requests[-1].messages)


async def test_what_was_found_goes_along() -> None:
    """S2-42, S0-05."""
    rest = await ended_with(report("CUDA is from 2007. I need more research on the rest."))
    assert "CUDA is from 2007. I need more research on the rest." in rest.text
    assert OUTPUT not in rest.message.metadata


async def test_escalation_of_an_unanswered_question_carries_the_findings(tmp_path: Path) -> None:
    """S2-42: research that is over leaves nothing behind that stands, and a plan may help."""
    (tmp_path / "gpu.md").write_text("CUDA came out in 2007.")
    searches = [Call("search_documents", {"words": f"CUDA {number}"}) for number in range(SHALLOW_ROUNDS)]
    with ScriptedModelClient(searches) as client:
        rest = await send(researcher(client, [tmp_path], escalates_to="clarifier"), TASK)
    assert isinstance(rest.message, HandoffMessage)
    assert rest.message.target == "clarifier"
    assert "CUDA came out in 2007." in rest.text


async def test_report_of_which_no_source_holds_escalates(tmp_path: Path) -> None:
    """S2-42"""
    made_up = json.dumps(
        {"summary": "It is from 1999 [1].", "citations": [{"ref": "x.md", "quote": "it is from 1999"}]}
    )
    rest = await ended_with(made_up, made_up)
    assert isinstance(rest.message, HandoffMessage)


async def test_quotes_in_a_report_do_not_mark_it_short(tmp_path: Path) -> None:
    (tmp_path / "gpu.md").write_text("The police were unable to find the key to the safe.")
    read = Call("read_document", {"name": "gpu.md", "first_line": 1})
    cited = [{"ref": "gpu.md", "quote": "The police were unable to find the key to the safe."}]
    found = json.dumps({"summary": "The key is lost [1].", "citations": cited})
    with ScriptedModelClient([read, found]) as client:
        rest = await send(researcher(client, [tmp_path], escalates_to="clarifier"), TASK)
    assert isinstance(rest.message, TextMessage)
    assert "unable to find" in rest.text


async def test_tokens_of_the_report_are_counted() -> None:
    rest = await ended_with(report(SHORT))
    assert rest.message.models_usage is not None
    assert rest.message.models_usage.prompt_tokens > 0


async def test_question_causes_no_escalation_but_its_report_may() -> None:
    with ScriptedModelClient([ASK, report(SHORT)]) as client:
        first = researcher(client, escalates_to="clarifier")
        asked = await send(first, TASK)
        second = await resumed_as(first, researcher(client, escalates_to="clarifier"))
        rest = await send(second, answers(asked, "The second"))
    assert (asked.message.target, rest.message.target) == ("user", "clarifier")  # type: ignore[attr-defined]


async def test_report_is_the_result_where_nobody_takes_handoffs() -> None:
    with ScriptedModelClient([SHORT]) as client:
        rest = await send(EscalatingAgent("solo", client), TASK)
    assert rest.text == SHORT


async def test_empty_report_fails_where_nobody_takes_handoffs() -> None:
    with ScriptedModelClient(["", ""]) as client, pytest.raises(ModelReplyInvalid, match="gave no text"):
        await send(EscalatingAgent("solo", client), TASK)


async def test_dumped_agent_still_escalates() -> None:
    made = researcher(ReplayChatCompletionClient([report(SHORT)], MODEL_INFO), escalates_to="clarifier")
    loaded = EscalatingAgent.load_component(json.loads(made.dump_component().model_dump_json()))
    assert loaded.dump_component() == made.dump_component()
    assert isinstance((await send(loaded, TASK)).message, HandoffMessage)


# -- in the root team -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("intent", "agent"),
    [("research", "researcher"), pytest.param("coding", "coder", marks=pytest.mark.needs("workspace"))],
)
async def test_clarifier_gets_the_task_as_a_deep_one(intent: str, agent: str) -> None:
    """S0-05, S2-42."""
    with scripted(intent, **{agent: [report(SHORT)]}) as client:
        run = await new_app(client).start(TASK)
    assert (run.status, run.result) == (RunStatus.COMPLETED, "CUDA is a platform.")
    assert run.execution_path == ("classifier", agent, "clarifier", "planner", "lead")
    assert run.classification is not None
    assert run.classification.depth is Depth.SHALLOW


async def test_clarifier_planner_and_lead_know_what_was_found() -> None:
    """S0-05, S2-42."""
    with scripted(researcher=[report(f"CUDA is from 2007. {SHORT}")]) as client:
        await new_app(client).start(TASK)
    for agent in ("clarifier", "planner", "lead"):
        (*_, request) = requests_of(client, agent)
        assert "CUDA is from 2007." in str(request.messages), agent
        assert TASK in str(request.messages), agent


async def test_clarifier_may_ask_before_the_task_is_planned() -> None:
    """S0-05."""
    ask = json.dumps({"needs_clarification": True, "clarification_question": "Which version?"})
    with scripted(researcher=[report(SHORT)], clarifier=[ask, CLEAR]) as client:
        asked = await new_app(client).start(TASK)
        run = await new_app(client).answer(asked.id, "12")
    assert asked.questions[0].path == ("clarifier",)
    assert run.clarifier_log == "Question: Which version?\nAnswer: 12"
    assert run.status is RunStatus.COMPLETED


async def test_without_escalation_the_report_is_the_result() -> None:
    """S2-42: `enable_escalation: false`."""
    with scripted(researcher=[report(SHORT)], clarifier=[], planner=[], lead=[]) as client:
        run = await new_app(client, team={"enable_escalation": False}).start(TASK)
    assert (run.status, run.result) == (RunStatus.COMPLETED, SHORT)
    assert not any("transfer_to" in str(request.body["tools"]) for request in requests_of(client, "researcher"))


async def test_empty_report_without_escalation_fails_and_can_be_resumed() -> None:
    with scripted(researcher=["", "", DONE], clarifier=[], planner=[], lead=[]) as client:
        failed = await new_app(client, team={"enable_escalation": False}).start(TASK)
        done = await new_app(client).resume(failed.id)
    assert (failed.status, "gave no text" in str(failed.error)) == (RunStatus.FAILED, True)
    assert (done.status, done.result) == (RunStatus.COMPLETED, "CUDA is a platform.")


async def test_without_a_clarifier_the_planner_gets_the_task() -> None:
    """S0-06, S2-42."""
    with scripted(researcher=[report(f"CUDA is from 2007. {SHORT}")], clarifier=[]) as client:
        run = await new_app(client, team={"enable_clarifier": False}).start(TASK)
    assert run.execution_path == ("classifier", "researcher", "planner", "lead")
    assert all("CUDA is from 2007." in request.system for request in requests_of(client, "planner"))


async def test_nested_in_the_lead_nobody_escalates() -> None:
    """A report that falls short goes to the lead, which decides what becomes of it."""
    deep = '{"intent": "research", "research_depth": "deep"}'
    delegate = Call("researcher", {"task": TASK})
    with scripted(classifier=[deep], lead=[delegate, DONE], researcher=[report(SHORT)]) as client:
        run = await new_app(client).start(TASK)
    assert run.execution_path == ("classifier", "clarifier", "planner", "lead")
    assert list(requests_of(client, "lead")[1].tool_results.values()) == [SHORT]


async def test_failure_after_escalation_resumes_without_repeating_earlier_work() -> None:
    with scripted(researcher=[report(f"CUDA is from 2007. {SHORT}")], clarifier=[Fail(500), CLEAR]) as client:
        failed = await new_app(client).start(TASK)
        done: Run = await new_app(client).resume(failed.id)
    assert (failed.status, done.status) == (RunStatus.FAILED, RunStatus.COMPLETED)
    assert len(requests_of(client, "researcher")) == 1
    assert "CUDA is from 2007." in str(requests_of(client, "clarifier")[1].messages)


async def test_findings_follow_a_handoff_of_the_model_itself(tmp_path: Path) -> None:
    """S0-05, S2-42"""
    (tmp_path / "gpu.md").write_text("CUDA came out in 2007.")
    found = [Call("search_documents", {"words": "CUDA"}), Call("transfer_to_clarifier")]
    with ScriptedModelClient(found) as client:
        rest = await send(researcher(client, [tmp_path], escalates_to="clarifier"), TASK)
    assert isinstance(rest.message, HandoffMessage)
    assert rest.message.target == "clarifier"
    assert "CUDA came out in 2007." in rest.text
