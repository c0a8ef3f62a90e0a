"""Read a model's reply: the calls that it makes, or its text."""

from __future__ import annotations

from collections.abc import Sequence

from autogen_agentchat.messages import ThoughtEvent
from autogen_core import FunctionCall
from autogen_core.models import CreateResult, LLMMessage
from autogen_core.tools import ToolSchema

from upcall import identity
from upcall.agents.tool_loop.ask_shapes import mend_asks
from upcall.agents.tool_loop.final_reply import REPORT
from upcall.agents.tool_loop.limits import BROKEN
from upcall.agents.tool_loop.output import NotYet, OutputValidator, object_once
from upcall.agents.tool_loop.parse_output import UnreadableReply
from upcall.agents.tool_loop.parts import PausableParts
from upcall.agents.tool_loop.prose_questions import ProseQuestions
from upcall.agents.tool_loop.turn import Turn
from upcall.autogen.mending import mend_calls
from upcall.autogen.openai_client.reply_parts import ReasonedReply
from upcall.autogen.reply_streams import ReplyShape
from upcall.autogen.structured_text import Around
from upcall.autogen.text_calls.reader import TextCalls, may_write_calls, read_calls
from upcall.autogen.thoughts import drop_marks
from upcall.runs.shown_text import find_text
from upcall.text import is_blank

_EMPTY_REPLY = "it was empty"
_ONLY_THOUGHTS = "it was empty: it held thoughts, and no text"


def text_of(reply: CreateResult) -> str:
    """Return the text of a reply; empty if it makes calls."""
    return reply.content if isinstance(reply.content, str) else ""


class ReplyInterpreter:
    """Reads the replies to an agent: which calls they make, and which texts may end the turn."""

    def __init__(self, parts: PausableParts, output: OutputValidator) -> None:
        self._parts, self._output, self._prose = parts, output, ProseQuestions(parts)

    def shape(self, *, offers_tools: bool) -> ReplyShape | None:
        """Return how the text for a person is read out of a reply; None where all of a reply is text."""
        kind, may_call = self._output.output_type, offers_tools and may_write_calls(self._parts.model_client)
        if kind is None:
            return ReplyShape({}, Around.REPLY, may_call=True) if may_call else None
        around = Around.REPLY if hasattr(kind, "from_text") else Around.NOTHING
        return ReplyShape(find_text(kind), around, may_call, REPORT if self._output.report_tool else "")

    def read(
        self, turn: Turn, reply: CreateResult, known: Sequence[ToolSchema], seen: Sequence[LLMMessage]
    ) -> tuple[list[FunctionCall], TextCalls]:
        """Return the calls that a reply makes of the `known` tools, mended, and what its text is; a call that stands in
        what the model has `seen` is not made."""
        found = self._find_calls(turn, reply, [schema["name"] for schema in known], seen)
        calls = mend_calls(found.calls, known, self._parts.name)
        return (mend_asks(calls) if self._parts.toolset.ask_user else calls), found

    def read_result(self, turn: Turn, reply: CreateResult, found: TextCalls) -> str:
        """Return the text of a reply that makes no calls, if it may be the result.

        Raises:
            UnreadableReply: it is empty.
            NotYet: it was `found` to be a call that is not made, or it asks the user something.
        """
        text = text_of(reply)
        if found.problem and not found.is_result:
            raise NotYet(BROKEN, found.problem)
        if found.problem:
            object_once(turn, "written", found.problem)
        if is_blank(text):
            raise UnreadableReply(_ONLY_THOUGHTS if reply.thought else _EMPTY_REPLY)
        self._prose.object_first(turn, reply)
        return text

    def list_thoughts(self, turn: Turn, reply: CreateResult, message_id: str) -> list[ThoughtEvent]:
        """Return the events of what a model thought before its calls; the text beside them streamed as `message_id`."""
        agent, events = self._parts.name, list[ThoughtEvent]()
        if isinstance(reply, ReasonedReply):
            events.append(ThoughtEvent(id=identity.new_message_id(), source=agent, content=reply.reasoning))
        if reply.thought:
            if any(map(self._output.is_report, turn.frames)):
                message_id = identity.new_message_id()  # The text that streamed is the report's.
            events.append(ThoughtEvent(id=message_id, source=agent, content=drop_marks(reply.thought)))
        return events

    def _find_calls(
        self, turn: Turn, reply: CreateResult, known: Sequence[str], seen: Sequence[LLMMessage]
    ) -> TextCalls:
        text = reply.content
        if not isinstance(text, str):
            turn.calls_natively = turn.calls_natively or bool(text)
            return TextCalls(text)
        if (question := self._prose.find_question(turn, reply)) is not None:
            return TextCalls([question])
        return read_calls(self._parts.model_client, text, known, seen, calls_itself=turn.calls_natively)
