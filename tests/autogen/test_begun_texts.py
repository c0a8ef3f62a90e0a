"""Which event completes which of the texts that are being written."""

from __future__ import annotations

import pytest
from autogen_agentchat.messages import (
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_core import FunctionCall
from autogen_core.models import FunctionExecutionResult

from upcall.autogen.begun_texts import BegunTexts
from upcall.autogen.messages import Event, ThoughtChunkEvent


def begun(*texts: tuple[str, str], thought: str = "") -> BegunTexts:
    """Return texts of an agent, by id and content, and a thought."""
    all_texts = BegunTexts()
    if thought:
        all_texts.add(ThoughtChunkEvent(source="a", thought=thought, full_message_id="t"))
    for name, content in texts:
        all_texts.add(ModelClientStreamingChunkEvent(source="a", content=content, full_message_id=name))
    return all_texts


def executed(*, failed: bool) -> Event:
    result = FunctionExecutionResult(content="x", name="report", call_id="c", is_error=failed)
    return ToolCallExecutionEvent(source="a", content=[result])


def called(arguments: str) -> Event:
    return ToolCallRequestEvent(source="a", content=[FunctionCall(id="c", name="report", arguments=arguments)])


@pytest.mark.parametrize(
    ("event", "completed", "left"),
    [
        (TextMessage(id="2", source="a", content="Two"), "2", ["1"]),
        (TextMessage(id="9", source="a", content="Two"), "2", []),
        (TextMessage(id="9", source="b", content="Two"), None, ["t", "1", "2"]),
        (ThoughtEvent(id="1", source="a", content="x"), "1", ["t", "2"]),
        (ThoughtEvent(id="9", source="a", content=" Hm.\n\nAh."), "t", ["1", "2"]),
        (ThoughtEvent(id="9", source="a", content="One"), "1", ["t", "2"]),
        (ThoughtEvent(id="9", source="a", content="a small task"), None, ["t", "1", "2"]),
        (called('{"what": "x"}'), None, []),
        (called('{"summary": "Two"}'), None, ["2"]),
        (called('{"parts": [{"text": "One"}]}'), None, ["1"]),
        (called("broken"), None, []),
        (executed(failed=False), None, ["1", "2"]),
        (executed(failed=True), None, []),
        (UserInputRequestedEvent(request_id="q", source="a"), None, []),
    ],
)
def test_event_completes_its_text(event: Event, completed: str | None, left: list[str]) -> None:
    texts = begun(("1", "One"), ("2", "Two"), thought="Hm.")
    found = texts.end(event)
    assert (found and found.id, [each.id for each in texts]) == (completed, left)


def test_end_of_a_text_is_its_last_characters() -> None:
    (text,) = begun(*[("1", each) for each in ("Once ", "upon ", "a time")])
    assert (text.tail(8), text.tail(100), text.content) == ("n a time", "Once upon a time", "Once upon a time")
