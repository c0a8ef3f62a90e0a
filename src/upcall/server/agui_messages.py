"""What the agents of a run say and do, as events and messages of AG-UI. Ids are derived from the position in the run,
so that they are the same in each process and for each reader."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from ag_ui.core import (
    AssistantMessage,
    BaseEvent,
    FunctionCall,
    Message,
    MessagesSnapshotEvent,
    ReasoningEndEvent,
    ReasoningMessage,
    ReasoningMessageContentEvent,
    ReasoningMessageEndEvent,
    ReasoningMessageStartEvent,
    ReasoningStartEvent,
    SubagentFinishedEvent,
    SubagentFinishedSuspendedOutcome,
    SubagentStartedEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCall,
    ToolCallArgsEvent,
    ToolCallEndEvent,
    ToolCallResultEvent,
    ToolCallStartEvent,
    ToolMessage,
    UserMessage,
)

from upcall.execution.start_options import EARLIER
from upcall.questions.question import Question
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.server.background import StreamedToken

ASK = "ask_user"
"""The name of the tool call by which an agent asks, where it asks by no tool of its own."""


class _Written(NamedTuple):
    """A message that is being streamed: who writes it, whether it is a thought, and what was sent of it."""

    path: Sequence[str]
    is_thought: bool
    pieces: list[str]


class Conversation:
    """A front end's messages, which grow with a run.

    Args:
        run_id: the run.
        known: the messages that the front end has.
    """

    def __init__(self, run_id: str, known: Sequence[Message]) -> None:
        self._run_id = run_id
        self._has_task = any(each.role == "user" for each in known)
        self._sent = {each.content for each in known if each.role == "user" and isinstance(each.content, str)}
        own = f"{run_id}:"  # What the front end has of this run is sent again: it may have seen some half written.
        # A client may send a result of its own for a call of the run; what the run says of it stands alone.
        self._messages: dict[str, Message] = {
            each.id: each
            for each in known
            if not (each.tool_call_id if isinstance(each, ToolMessage) else each.id).startswith(own)
            and not each.id.startswith(own)
        }
        self._written: dict[str, _Written] = {}
        self._calls: dict[str, tuple[str, str, str]] = {}
        self._call_of: dict[str, str] = {}
        self._subagents: list[str] = []

    def add(
        self, entry: TranscriptEntry, position: int, text_id: str, question: Question | None = None
    ) -> Iterator[BaseEvent]:
        """Add an entry of the transcript, with the question that it names; yield its events."""
        # With an agent's name it was written while that agent worked, maybe at another door.
        is_task = entry.kind is EntryKind.TASK and (not entry.name or entry.text in self._sent)
        if self._has_task and (is_task or entry.path == (EARLIER,)):
            return  # The front end has it.
        match entry.kind:
            case EntryKind.TASK:
                yield from self._write_as_user(entry, position)
            case EntryKind.CALL:
                yield from self._call(self._id_at(position), entry.path, entry.name, entry.text)
            case EntryKind.RESULT:
                yield from self._return(self._find_call(entry.path, entry.name), entry)
            case EntryKind.QUESTION if question is not None:
                yield from self._ask(question)
            case EntryKind.ANSWER if question is not None and self._call_of.get(question.id) == self.name(question):
                yield from self._return(self.name(question), entry)
            case EntryKind.ANSWER:
                yield from self._write_as_user(entry, position)
            case _:
                yield from self._write_text(entry, text_id, is_thought=entry.kind is EntryKind.THOUGHT)

    def remember(self, entry: TranscriptEntry, position: int, text_id: str, question: Question | None = None) -> None:
        """Add an entry that was sent before."""
        for _ in self.add(entry, position, text_id, question):
            pass
        self._subagents = []

    def snapshot(self) -> MessagesSnapshotEvent:
        """Return all messages as one event."""
        return MessagesSnapshotEvent(messages=[*self._messages.values()])

    def name(self, question: Question) -> str:
        """Name a question so that an answer to it identifies the run."""
        return f"{self._run_id}:{question.id}"

    def call_of(self, question: Question) -> str | None:
        """Return the id of the tool call that a question stops, if that call was sent."""
        return self._call_of.get(question.id)

    def write(self, token: StreamedToken) -> Iterator[BaseEvent]:
        """Send a piece of text as it is written."""
        message = self._id_of(token.path, token.text_id, is_thought=token.is_thought)
        if message not in self._written:
            yield from self._begin(message, token.path, is_thought=token.is_thought)
        yield self._continue(message, token.text)

    def close(self, waiting: Sequence[Question] = ()) -> Iterator[BaseEvent]:
        """End what is open, and send all messages: streamed texts are then as they were stored."""
        for message in [*self._written]:
            yield from self._end(message)
        if not waiting:
            yield from self._return_rest()
        for path in reversed(self._subagents):
            below = [self.name(each) for each in waiting if f"{'/'.join(each.path)}/".startswith(f"{path}/")]
            own = [self.name(each) for each in waiting if "/".join(each.path) == path]
            outcome = SubagentFinishedSuspendedOutcome(interrupt_ids=own) if below else None
            yield SubagentFinishedEvent(subagent_run_id=f"{self._run_id}:{path}", outcome=outcome)
        self._subagents = []
        yield self.snapshot()

    def _return_rest(self) -> Iterator[BaseEvent]:
        """Return an empty result for calls that ended in nothing: a front end would answer an open call itself."""
        for call in [*self._calls]:
            yield from self._put_result(call, "", None)

    def _write_text(self, entry: TranscriptEntry, text_id: str, *, is_thought: bool) -> Iterator[BaseEvent]:
        """Send a whole text. One that was streamed as a text and became a thought is taken back."""
        name, owner = "/".join(entry.path), self._owner(entry.path)
        message = self._id_of(entry.path, text_id, is_thought=is_thought)
        other = self._id_of(entry.path, text_id, is_thought=not is_thought)
        is_taken_back = other in self._written
        if is_taken_back:
            yield from self._end(other)
        if is_thought:
            self._messages[message] = ReasoningMessage(id=message, content=entry.text, subagent_run_id=owner)
        else:
            self._messages[message] = AssistantMessage(id=message, name=name, content=entry.text, subagent_run_id=owner)
        if message not in self._written:
            yield from self._begin(message, entry.path, is_thought=is_thought)
        written = "".join(self._written[message].pieces)
        rest = entry.text.removeprefix(written)
        if rest and entry.text.startswith(written):
            yield self._continue(message, rest)
        yield from self._end(message)
        if is_taken_back and not self._written:  # A snapshot would cut off messages that are being sent.
            yield self.snapshot()

    def _begin(self, message: str, path: Sequence[str], *, is_thought: bool) -> Iterator[BaseEvent]:
        yield from self._announce(path)
        name, owner = "/".join(path), self._owner(path)
        self._written[message] = _Written(path, is_thought, [])
        if is_thought:
            yield ReasoningStartEvent(message_id=message, subagent_run_id=owner)
            yield ReasoningMessageStartEvent(message_id=message, subagent_run_id=owner)
        else:
            yield TextMessageStartEvent(message_id=message, role="assistant", name=name, subagent_run_id=owner)

    def _continue(self, message: str, text: str) -> BaseEvent:
        path, is_thought, pieces = self._written[message]
        pieces.append(text)
        kind = ReasoningMessageContentEvent if is_thought else TextMessageContentEvent
        return kind(message_id=message, delta=text, subagent_run_id=self._owner(path))

    def _end(self, message: str) -> Iterator[BaseEvent]:
        path, is_thought, _ = self._written.pop(message)
        owner = self._owner(path)
        if is_thought:
            yield ReasoningMessageEndEvent(message_id=message, subagent_run_id=owner)
            yield ReasoningEndEvent(message_id=message, subagent_run_id=owner)
        else:
            yield TextMessageEndEvent(message_id=message, subagent_run_id=owner)

    def _write_as_user(self, entry: TranscriptEntry, position: int) -> Iterator[BaseEvent]:
        message = self._id_at(position)
        self._messages[message] = UserMessage(id=message, content=entry.text)
        yield TextMessageStartEvent(message_id=message, role="user")
        if entry.text:
            yield TextMessageContentEvent(message_id=message, delta=entry.text)
        yield TextMessageEndEvent(message_id=message)

    def _ask(self, question: Question) -> Iterator[BaseEvent]:
        """Send a question: through the call that it stops, if that was sent already, or as a call of its own."""
        tool = question.approval.tool if question.approval is not None else question.tool
        wanted = None if question.approval is None else question.approval.arguments
        call = tool and self._find_call(question.path, tool, wanted)
        if not call:
            call = self.name(question)
            yield from self._call(call, question.path, tool or ASK, json.dumps(question.as_arguments()))
        self._call_of[question.id] = call

    def _call(self, call: str, path: Sequence[str], tool: str, arguments: str) -> Iterator[BaseEvent]:
        owner, message = self._owner(path), f"{call}:call"
        self._calls[call] = ("/".join(path), tool, arguments)
        made = ToolCall(id=call, function=FunctionCall(name=tool, arguments=arguments))
        name = "/".join(path)
        self._messages[message] = AssistantMessage(id=message, name=name, tool_calls=[made], subagent_run_id=owner)
        yield from self._announce(path)
        yield ToolCallStartEvent(
            tool_call_id=call, tool_call_name=tool, parent_message_id=message, subagent_run_id=owner
        )
        yield ToolCallArgsEvent(tool_call_id=call, delta=arguments or "{}", subagent_run_id=owner)
        yield ToolCallEndEvent(tool_call_id=call, subagent_run_id=owner)

    def _return(self, call: str | None, entry: TranscriptEntry) -> Iterator[BaseEvent]:
        if call is not None and call in self._calls:
            yield from self._put_result(call, entry.text, entry.text if entry.failed else None)

    def _put_result(self, call: str, text: str, error: str | None) -> Iterator[BaseEvent]:
        path = self._calls.pop(call)[0].split("/")
        message, owner = f"{call}:result", self._owner(path)
        result = ToolMessage(id=message, content=text, tool_call_id=call, error=error, subagent_run_id=owner)
        self._messages[message] = result
        yield from self._announce(path)
        yield ToolCallResultEvent(
            message_id=message, tool_call_id=call, content=text, role="tool", subagent_run_id=owner
        )

    def _find_call(self, path: Sequence[str], tool: str, arguments: object = None) -> str | None:
        """Find an agent's first open call of a tool; of several, the one with these arguments."""
        found = [each for each, (by, name, _) in self._calls.items() if (by, name) == ("/".join(path), tool)]
        same = [each for each in found if arguments is not None and _read(self._calls[each][2]) == arguments]
        free = [each for each in same or found if arguments is None or each not in self._call_of.values()]
        return next(iter(free), None)

    def _announce(self, path: Sequence[str]) -> Iterator[BaseEvent]:
        """Announce that the nested agents on a path are at work, outermost first."""
        for length in range(2, len(path) + 1):
            name = "/".join(path[:length])
            if name not in self._subagents:
                self._subagents.append(name)
                yield SubagentStartedEvent(
                    subagent_run_id=f"{self._run_id}:{name}",
                    name=path[length - 1],
                    parent_subagent_run_id=self._owner(path[: length - 1]),
                )

    def _owner(self, path: Sequence[str]) -> str | None:
        return f"{self._run_id}:{'/'.join(path)}" if len(path) > 1 else None

    def _id_of(self, path: Sequence[str], text_id: str, *, is_thought: bool) -> str:
        return f"{self._run_id}:{'/'.join(path)}:{text_id}{':thought' if is_thought else ''}"

    def _id_at(self, position: int) -> str:
        return f"{self._run_id}:event-{position}"


def _read(arguments: str) -> object:
    try:
        return json.loads(arguments)
    except ValueError:
        return None
