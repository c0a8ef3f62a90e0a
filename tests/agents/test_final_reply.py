"""How a turn ends: by the tool `report`, JSON or prose; what is not borne out; and what goes round in circles."""

from __future__ import annotations

import json
from typing import Any

import pytest
from autogen_agentchat.messages import ToolCallExecutionEvent, ToolCallRequestEvent
from autogen_core.models import ChatCompletionClient, CreateResult, RequestUsage
from autogen_ext.models.replay import ReplayChatCompletionClient
from conversation import resumed_as, send
from pydantic import BaseModel

from upcall.agents import PausableAgent
from upcall.autogen.messages import OUTPUT, event_warnings
from upcall.errors import ConfigurationError, ModelReplyInvalid
from upcall.runs.reports import Report
from upcall.testing import Call, Calls, Reply, ScriptedModelClient
from upcall.testing.model import MODEL_INFO


class Plain(BaseModel):
    """A result without a way back from text."""

    summary: str


REPORT = '{"summary": "Built."}'


def note(text: str = "") -> str:
    """Take a note."""
    return f"noted {text}"


def fail() -> str:
    """Fail."""
    raise ValueError("no luck")


def worker(client: ChatCompletionClient, **options: Any) -> PausableAgent:
    return PausableAgent("worker", client, **{"output_type": Report, "tools": [note, fail], **options})


def contents(client: ScriptedModelClient) -> list[str]:
    """Return what the model was sent last, message by message."""
    return [str(each.get("content")) for each in client.requests[-1].messages]


# -- a text -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "output", [REPORT, f"```json\n{REPORT}\n```", f"<think>Hm.</think>{REPORT}", "Built.", "<think>Hm.</think>\nBuilt."]
)
async def test_json_and_prose_are_a_report(output: str) -> None:
    with ScriptedModelClient([Call("note"), output]) as client:
        rest = await send(worker(client), "Build it")
    assert rest.text == "Built."
    assert Report.model_validate_json(rest.message.metadata[OUTPUT]) == Report(summary="Built.")
    assert "JSON" not in client.requests[0].system


async def test_without_an_output_type_any_text_is_the_result() -> None:
    with ScriptedModelClient(['{"a": 1}']) as client:
        rest = await send(worker(client, output_type=None), "Build it")
    assert (rest.text, rest.message.metadata) == ('{"a": 1}', {})


@pytest.mark.parametrize(
    ("reason", "text"), [("length", "at the limit of tokens"), ("content_filter", "by the server's content filter")]
)
async def test_result_that_was_cut_off_is_warned_of(reason: Any, text: str) -> None:
    cut = CreateResult(finish_reason=reason, content="So then", usage=RequestUsage(1, 1), cached=False)
    rest = await send(worker(ReplayChatCompletionClient([cut], model_info=MODEL_INFO), output_type=None), "Go")
    assert f"cut off {text}" in event_warnings(rest.message)[0]


async def test_json_reply_is_no_prose_and_warned_of() -> None:
    raw = '{"path": "a.py", "done": true}'
    with ScriptedModelClient([Call("note"), raw, raw]) as client:
        rest = await send(worker(client), "Build it")
    assert "it is JSON. Make calls with your tools" in contents(client)[-1]
    assert (rest.text, event_warnings(rest.message)) == (raw, ["its result is raw JSON"])


@pytest.mark.parametrize(
    "text",
    ['{}\n{"name": "note", "arguments": {"text": "a"}}', '```json\n{"name": "note", "parameters": {"text": "a"}}\n```'],
)
async def test_call_written_as_json_text_is_made(text: str) -> None:
    with ScriptedModelClient([text, "Built."]) as client:
        rest = await send(worker(client), "Build it")
    assert list(client.requests[-1].tool_results.values()) == ["noted a"]
    assert rest.text == "Built."


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "gave no text"),
        (" ", "gave no text"),
        ('{"summary": ""}', "it was empty"),
        ("<think>Hm.</think>", "gave thoughts and no text"),
    ],
)
async def test_empty_reply_fails_after_one_reminder_without_work(text: str, why: str) -> None:
    with ScriptedModelClient([text, text]) as client, pytest.raises(ModelReplyInvalid, match=why):
        await send(worker(client), "Build it")
    assert "it was empty" in contents(client)[-1]


@pytest.mark.parametrize("stream", [False, True])
async def test_reply_of_invalid_text_is_made_valid(stream: bool) -> None:
    with ScriptedModelClient(["Done \ud83d."]) as client:
        rest = await send(worker(client, output_type=None, stream=stream), "Build it")
    assert rest.text == "Done ?."
    assert "".join(event.to_text() for event in rest.events) == ("Done ?." if stream else "")


# -- an output type that no text can be -------------------------------------------------------------------------------


@pytest.mark.parametrize("output", [Call("report", {"summary": "Built."}), REPORT])
async def test_output_arrives_by_the_tool_or_as_json(output: Reply) -> None:
    with ScriptedModelClient([output]) as client:
        rest = await send(worker(client, output_type=Plain), "Build it")
    assert json.loads(rest.text) == {"summary": "Built."}


@pytest.mark.parametrize(
    ("output", "problem"),
    [
        ("Built it.", "no JSON object. Give your result by calling report"),
        ('{"text": "Built."}', "summary: Field required"),
        ('{"summary": "Built \\ud83d"}', "surrogates not allowed"),
    ],
)
async def test_output_that_does_not_parse_is_repaired_once(output: str, problem: str) -> None:
    with ScriptedModelClient([output, REPORT]) as client:
        await send(worker(client, output_type=Plain), "Build it")
    assert contents(client)[-2] == output
    assert problem in contents(client)[-1]


async def test_unusable_reply_is_an_error_and_can_be_retried() -> None:
    with ScriptedModelClient(["Built it.", "Really.", "I did.", REPORT]) as client:
        first = worker(client, output_type=Plain)
        with pytest.raises(ModelReplyInvalid, match="Agent 'worker': the model's final reply could not be used"):
            await send(first, "Build it")
        second = await resumed_as(first, worker(client, output_type=Plain))
        assert json.loads((await send(second)).text) == {"summary": "Built."}
    assert second.usage["worker"].model_calls == 4


async def test_dump_keeps_the_fields_of_the_output_type() -> None:
    made = PausableAgent("worker", ReplayChatCompletionClient([REPORT]), output_type=Plain)
    loaded = PausableAgent.load_component(made.dump_component())
    assert json.loads((await send(loaded, "Build it")).text) == {"summary": "Built."}


# -- the tool ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("small", "options", "offered"),
    [
        (False, {}, True),
        (True, {}, False),
        (True, {"output_type": Plain}, True),
        (True, {"report_tool": True}, True),
        (False, {"report_tool": False}, False),
        (False, {"output_type": None}, False),
    ],
)
async def test_report_tool_is_offered_small_where_models_need_it(
    small: bool, options: dict[str, Any], offered: bool
) -> None:
    client = ScriptedModelClient([Call("note"), REPORT], small=small)
    await send(worker(client, **options), "Build it")
    assert ("report" in [each["name"] for each in client.requests[0].body["tools"]]) is offered


async def test_report_ends_the_turn_after_the_calls_beside_it() -> None:
    both = Calls([Call("report", {"summary": "Built.", "left_open": ["Tests"]}), Call("note", {"text": "a"})])
    with ScriptedModelClient([both]) as client:
        rest = await send(worker(client, report_tool=True), "Build it")
    assert rest.text == "Built.\n\nLeft open:\n- Tests"
    (executed,) = rest.events_of(ToolCallExecutionEvent)
    assert [each.content for each in executed.content] == ["Your report was taken.", "noted a"]  # type: ignore[union-attr]


@pytest.mark.parametrize("wrong", [{}, {"summary": 5.5, "left_open": 7}, {"summary": ""}])
async def test_report_that_does_not_fit_gets_an_error_result(wrong: dict[str, Any]) -> None:
    with ScriptedModelClient([Call("note"), Call("report", wrong), Call("report", {"summary": "Built."})]) as client:
        rest = await send(worker(client, report_tool=True), "Build it")
    assert "Call report again" in list(client.requests[-1].tool_results.values())[-1]
    assert rest.text == "Built."


async def test_report_beside_a_failing_call_is_sent_back_once() -> None:
    both = Calls([Call("fail"), Call("report", {"summary": "Built."})])
    with ScriptedModelClient([both, both]) as client:
        rest = await send(worker(client, report_tool=True), "Build it")
    assert "another call of the same reply failed" in list(client.requests[-1].tool_results.values())[-1]
    assert rest.text == "Built."


async def test_tool_of_that_name_is_refused() -> None:
    def report() -> str:
        """Something else."""
        return ""

    with pytest.raises(ConfigurationError, match="a tool is called 'report'"):
        await send(worker(ScriptedModelClient([]), tools=[report], report_tool=True), "Build it")


# -- limits -----------------------------------------------------------------------------------------------------------


CIRCLES = "stopped because it went round in circles: the same calls, with the same results"


async def test_loop_of_equal_calls_ends_in_words_without_tools() -> None:
    with ScriptedModelClient([*[Call("note")] * 4, "It is built."]) as client:
        rest = await send(worker(client), "Build it")
    assert "each of your last calls was made before" in contents(client)[-2]
    assert "Make no further call" in contents(client)[-1]
    assert [bool(each.body.get("tools")) for each in client.requests[-2:]] == [True, False]
    assert (rest.text, event_warnings(rest.message)) == ("It is built.", [CIRCLES])


@pytest.mark.parametrize("last", [Call("note", {"text": "a"}), ""])
async def test_loop_ends_for_models_that_call_or_stay_silent(last: Reply) -> None:
    circle = [Call("note", {"text": "a"}), Call("note", {"text": "b"})]
    with ScriptedModelClient([*circle, *circle, circle[0], last]) as client:
        rest = await send(worker(client), "Build it")
    assert event_warnings(rest.message)[0] == CIRCLES


async def test_call_whose_result_changes_is_no_repetition() -> None:
    counted = iter(range(10))

    def look() -> str:
        """Look whether it is done."""
        return f"{next(counted)} percent"

    with ScriptedModelClient([*[Call("look")] * 6, "Built."]) as client:
        assert (await send(worker(client, tools=[look]), "Build it")).text == "Built."


async def test_next_turn_may_make_the_calls_again() -> None:
    with ScriptedModelClient([*[Call("note")] * 3, "Built.", *[Call("note")] * 3, "Built."]) as client:
        made = worker(client)
        await send(made, "Build it")
        rest = await send(made, "Again")
    assert (rest.text, event_warnings(rest.message)) == ("Built.", [])
    assert len((await made.save_state())["reminded"]) == 0


async def test_call_is_shown_where_the_text_stands_for_it() -> None:
    with ScriptedModelClient(['{"name": "note", "arguments": {}}', "Built."]) as client:
        rest = await send(worker(client), "Build it")
    (request,) = rest.events_of(ToolCallRequestEvent)
    assert request.content[0].name == "note"  # type: ignore[union-attr]
