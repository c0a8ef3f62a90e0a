"""One line of text for each event of a run."""

from __future__ import annotations

from collections.abc import Sequence

from upcall.autogen.api import (
    FunctionCall,
    HandoffMessage,
    ModelClientStreamingChunkEvent,
    TextMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
)
from upcall.autogen.messages import ANSWERS, ERROR, PLAN, QUESTIONS, STEERING, Event, message_answers
from upcall.execution.start_options import EARLIER
from upcall.progress import PROGRESS
from upcall.questions.answer import AnsweredBy
from upcall.questions.tool_call import NAME_CHARS, format_call
from upcall.text import one_line
from upcall.ui.columns import LINE_CHARS

REPORTS = "reports: "
"""The beginning of an agent's last line."""


def describe_event(event: Event) -> str:
    """Describe an event in one line; return nothing for events without interest to a reader."""
    match event:
        case ThoughtEvent() if ANSWERS in event.metadata:
            return f"has its answer: {_shorten(event.content)}"
        case ThoughtEvent() if STEERING in event.metadata:
            return f"reads what you wrote: {_shorten(event.content)}"
        case ThoughtEvent() if PROGRESS in event.metadata:
            return _shorten(event.content)
        case _ if QUESTIONS in event.metadata or isinstance(event, ModelClientStreamingChunkEvent):
            return ""
        case ToolCallRequestEvent():
            return _describe_calls(event.content)
        case ToolCallExecutionEvent():
            return "; ".join(f"{one_line(each.name, NAME_CHARS)}: {_shorten(each.content)}" for each in event.content)
        case HandoffMessage() if event.source == "user":
            return _describe_answers(event)
        case HandoffMessage():
            return f"hands off to {event.target}{' with the plan' if PLAN in event.metadata else ''}"
        case TextMessage() if ERROR in event.metadata or event.source in ("user", EARLIER):
            return ""  # An error is printed as the run's; what was written before a run was printed then.
        case TextMessage():
            return f"{REPORTS}{_shorten(event.content)}"
        case _:
            return ""


def _describe_calls(calls: Sequence[FunctionCall]) -> str:
    shown = [format_call(call.name, call.arguments) for call in calls if call.name != "ask_user"]
    return f"calls {', '.join(shown)}" if shown else ""


def _describe_answers(message: HandoffMessage) -> str:
    answers = message_answers(message)
    if {answer.by for answer in answers} == {AnsweredBy.POLICY}:
        return ""  # The asker's own line says it.
    is_long = len(message.content) > LINE_CHARS  # A plan that was reviewed would hide what was written of it.
    text = "; ".join(answer.as_text() for answer in answers) if is_long else message.content
    return f"answers: {_shorten(text)}"


def _shorten(text: str) -> str:
    return one_line(text, LINE_CHARS)
