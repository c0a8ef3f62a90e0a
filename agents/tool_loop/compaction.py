"""Compaction: an agent whose conversation comes near the length that its model takes replaces the older part by notes.

The rules:

- Its messages stay as they are, in its state. Notes are a view of them for its model, like that of a model context.
- A call and its result are replaced together. Open calls are no part of the messages, so they are never replaced.
- Kept word for word: the system message, the task, what the user wrote, the questions of the agent and their answers.
  Answers to questions of its tools and of the agents below it, and what was answered where a call was not simply
  approved, are repeated after the notes.
- The notes are written by the agent's own model, in calls that the journal records like any other: a replay takes them
  from there. What these calls read fits the model too, however long a result is: it is read in pieces.
- What happened since is added to the notes so far, each line once. Only where both would be too long are they
  rewritten as one: a small model loses something each time. There are none where they would gain little.
- Who writes notes reads the task: without it a model copies what happened until there is no more room.
- A small model writes none: it copies, leaves out what the task needs, and makes things up, which it then acts on. Its
  notes are excerpts (`upcall.agents.tool_loop.excerpts`) of all that they replace, chosen anew each time.
- A server may take less than is known of its model, or nothing is known: its refusal says how much it takes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from autogen_agentchat.messages import ThoughtEvent
from autogen_core import CancellationToken
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    RequestUsage,
    SystemMessage,
    UserMessage,
)
from autogen_core.tools import ToolSchema

from upcall import identity
from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.agents.tool_loop.parts import PausableParts
from upcall.agents.tool_loop.turn import Compaction, Turn
from upcall.autogen.context_window import ContextUse, measure_context
from upcall.autogen.messages import NOTES, REMINDER, USER
from upcall.autogen.model_calls import call_model, result_of
from upcall.autogen.model_size import is_small
from upcall.autogen.scope import current_scope
from upcall.autogen.truncated_replies import end_text_circle
from upcall.autogen.usage import BYTES_PER_TOKEN, add_usage
from upcall.errors import ConversationTooLong
from upcall.questions.answer import Answer
from upcall.questions.approval import Allowed, read_decision
from upcall.questions.question import Question
from upcall.text import shorten, shorten_middle

RECENT_SHARE = 0.25
"""How much of the window the latest messages may take, which stay as they are."""

NOTES_SHARE = 0.2
PIECE_SHARE = 0.5
"""How much of the window is read at once for the notes."""

RESULT_SHARE = 0.1
"""How much of a result the notes are made of, at most, as a share of the window."""

ADDED_SHARE = 0.2
"""How long the notes on a piece may be, as a share of it."""

FULL_SHARE = 0.6
"""Which share of their room the notes take that are rewritten instead of added to."""

LONG_LINE_CHARS = 10
"""From how many characters on a line of notes is not written twice."""

LEAST_GAIN = 0.1
"""Notes are made where they replace this share of the window or more."""

LEAST_WINDOW = 512
SHRINK = 0.9
"""A window that a refusal shows: this share of what was refused."""

_WORDS_PER_TOKEN = 0.6
_ANSWER_CHARS = 2_000


_ITSELF = "It"


class HistoryPart(NamedTuple):
    """A text, a thought, a call or a result in a conversation.

    Attributes:
        name: who wrote or thought it, or the tool.
        text: the text, the arguments of a call, or what it returned.
        call_id: which call it is, or the result of which.
    """

    kind: Literal["wrote", "thought", "called", "returned"]
    name: str
    text: str
    call_id: str = ""
    is_error: bool = False

    @property
    def is_own(self) -> bool:
        """Whether the agent wrote or thought it."""
        return self.name == _ITSELF and self.kind in ("wrote", "thought")


class _OlderPart(NamedTuple):
    """The part of a conversation that notes are to replace: from `begin`, where those so far end, up to `end`, but for
    the messages `kept`."""

    window: int
    begin: int
    end: int
    kept: list[int]
    tasks: list[str]


class Compactor:
    """Makes the notes of an agent."""

    def __init__(self, parts: PausableParts) -> None:
        self._parts = parts
        self._share = parts.settings.compact_at

    def find_window(self, turn: Turn, messages: Sequence[LLMMessage], tools: Sequence[ToolSchema]) -> int:
        """Return how many tokens the model takes, where the request is too near to that; else 0."""
        use, window = self._measure(turn, messages, tools)
        return window if window and use.used > self._share * window else 0

    async def compact(self, turn: Turn, window: int, token: CancellationToken) -> Sequence[ThoughtEvent]:
        """Replace the older part of the conversation by notes, if there is enough of it; return the event of that.

        Raises:
            ModelError: the call of the model failed. Nothing has changed.
        """
        part = self._find_part(turn, window)
        while part is not None:
            try:
                notes, usage = await self._make_notes(turn, part, token)
                break
            except ConversationTooLong:
                if part.window // 2 < LEAST_WINDOW:
                    raise
                turn.window = part.window // 2
                part = self._find_part(turn, turn.window)
        if part is None:
            return ()
        replaced = part.end - len(part.kept)
        turn.compaction = Compaction(
            notes=notes, end=part.end, kept=part.kept, answers=self._list_answers(turn, part.end)
        )
        if usage is not None:
            turn.count_tokens(self._parts.name, usage)
        content = (
            f"(its conversation nears the {part.window:,} tokens that its model takes: notes on {replaced} earlier "
        )
        return [
            ThoughtEvent(
                id=identity.new_message_id(),
                source=self._parts.name,
                content=f"{content}messages instead of them)\n{notes}",
                models_usage=usage,
                metadata={NOTES: str(part.end)},
            )
        ]

    def learn(self, turn: Turn, messages: Sequence[LLMMessage], tools: Sequence[ToolSchema]) -> bool:
        """Note that the server refused a request as too long; return whether notes, or shorter results, can make it
        shorter."""
        use, _ = self._measure(turn, messages, tools)
        window = int(use.used * SHRINK)
        if not self._share or window < LEAST_WINDOW:
            return False
        if self._find_part(turn, window) is None and _shorten_all(messages, window) == [*messages]:
            return False
        turn.window = window
        return True

    def fit(self, turn: Turn, messages: list[LLMMessage], tools: Sequence[ToolSchema]) -> list[LLMMessage]:
        """Return the messages with the longest results shortened, where they would not fit the model as they are."""
        use, window = self._measure(turn, messages, tools)
        if not window or use.used <= window * SHRINK:
            return messages
        return _shorten_all(messages, window)

    def _measure(
        self, turn: Turn, messages: Sequence[LLMMessage], tools: Sequence[ToolSchema]
    ) -> tuple[ContextUse, int]:
        """Return how much a request takes, and how much the model takes; 0 if it is unknown, or nothing is to be done
        about it."""
        use = measure_context(self._parts.model_client, messages, tools) if self._share else None
        if use is None:
            return ContextUse(0, 0), 0
        return use, min((each for each in (use.window, turn.window) if each), default=0)

    # -- what is replaced ---------------------------------------------------------------------------------------------

    def _find_part(self, turn: Turn, window: int) -> _OlderPart | None:
        """Find what notes are to replace, if there is enough."""
        begin, messages = turn.compaction.end if turn.compaction else 0, turn.messages
        end = self._find_end(messages, begin, int(window * RECENT_SHARE))
        kept = self._list_kept(turn, end)
        replaced = [messages[number] for number in range(begin, end) if number not in kept]
        use = measure_context(self._parts.model_client, replaced)
        if use is None or use.used < window * LEAST_GAIN or not any(list_parts(messages[:end], kept, begin)):
            return None
        return _OlderPart(window, begin, end, kept, [_read_text(messages[each]) for each in _list_tasks(turn, end)])

    def _find_end(self, messages: Sequence[LLMMessage], begin: int, room: int) -> int:
        """Return where the latest messages begin that have `room` tokens, at least the last call with its result."""
        end, taken = len(messages), 0
        for number in range(len(messages) - 1, begin, -1):
            use = measure_context(self._parts.model_client, [messages[number]])
            taken += use.used if use else 0
            if taken > room and end < len(messages):
                break
            if not isinstance(messages[number], FunctionExecutionResultMessage):
                end = number
        return end if end < len(messages) else begin

    def _list_kept(self, turn: Turn, end: int) -> list[int]:
        """List the messages before `end` that stay word for word."""
        messages, users = turn.messages, {USER, self._parts.settings.user_proxy}
        kept = {*(turn.compaction.kept if turn.compaction else ()), *_list_tasks(turn, end)}
        for number, message in enumerate(messages[:end]):
            if isinstance(message, SystemMessage):
                kept.add(number)
            elif isinstance(message, UserMessage) and message.source in users:
                kept.add(number)
                before = messages[number - 1] if number else message
                kept |= (
                    {number - 1} if isinstance(before, AssistantMessage) and isinstance(before.content, str) else set()
                )
            elif isinstance(message, AssistantMessage) and _asks(message):
                kept |= {number, number + 1}
        return sorted(each for each in kept if each < end)

    def _list_answers(self, turn: Turn, end: int) -> list[str]:
        """List what the user answered, with the questions, while calls were made that the notes replace: to their tools
        and the agents below, and where a call was not approved as it was; never a secret. No answer that came later:
        in a replay, that too is known."""
        resolver, name = current_scope().resolver, self._parts.name
        made = {
            result.call_id
            for message in turn.messages[:end]
            if isinstance(message, FunctionExecutionResultMessage)
            for result in message.content
        }
        return [
            f"{question.question}\n{shorten(answer.as_text(), _ANSWER_CHARS)}"
            for question, answer in (resolver.answered if resolver else ())
            if any(agent == name and call in made for agent, call in zip(question.path, question.calls, strict=False))
            and not question.secret
            and (question.tool or question.path[-1] != name or _restricts(question, answer))
        ]

    # -- the notes ----------------------------------------------------------------------------------------------------

    async def _make_notes(
        self, turn: Turn, part: _OlderPart, token: CancellationToken
    ) -> tuple[str, RequestUsage | None]:
        if not is_small(self._parts.model_client):
            return await self._write_notes(turn, part, token)
        from upcall.agents.tool_loop.excerpts import pair_calls, write_excerpts

        happened = pair_calls(list_parts(turn.messages[: part.end], part.kept))
        room = int(part.window * NOTES_SHARE * BYTES_PER_TOKEN)
        return await asyncio.to_thread(write_excerpts, happened, "\n".join(part.tasks), room), None

    async def _write_notes(self, turn: Turn, part: _OlderPart, token: CancellationToken) -> tuple[str, RequestUsage]:
        from upcall.prompts.contexts import CompactionContext

        parts, window = self._parts, part.window
        notes, usage = (
            turn.compaction.notes if turn.compaction else "",
            RequestUsage(prompt_tokens=0, completion_tokens=0),
        )
        limit = int(window * NOTES_SHARE * BYTES_PER_TOKEN)
        piece = window * PIECE_SHARE
        result_room = int(window * RESULT_SHARE * BYTES_PER_TOKEN)
        task = "\n\n".join(shorten_middle(each, result_room // 4) for each in part.tasks) or "(it is not known)"
        happened = list_parts(turn.messages[: part.end], part.kept, part.begin)
        described = (_describe(each, result_room) for each in happened)
        for steps in _group(described, int(piece * BYTES_PER_TOKEN)):
            rewrite = len(notes.encode()) > limit * FULL_SHARE
            room = int(window * NOTES_SHARE if rewrite else piece * ADDED_SHARE)
            words = int(room * _WORDS_PER_TOKEN)
            prompt = parts.prompts.render(CompactionContext(parts.name, task, steps, words, notes, rewrite))
            call = call_model(
                parts.model_client,
                [UserMessage(content=prompt, source=REMINDER)],
                agent=parts.name,
                cancellation_token=token,
            )
            reply, _ = end_text_circle(await result_of(call))
            usage = add_usage(usage, reply.usage)
            written = reply.content.strip() if isinstance(reply.content, str) else ""
            # A model may write nothing; what happened is better than that.
            known = "" if rewrite and written else notes
            notes = shorten_middle(_join_once(known, written or steps), limit)
        return notes, usage


def _is_given(message: LLMMessage) -> bool:
    return isinstance(message, UserMessage) and message.source != REMINDER


def _read_text(message: LLMMessage) -> str:
    """Return what a message says in words: in place of an image, that there is one."""
    parts = [message.content] if isinstance(message.content, str) else message.content
    return "\n".join(each if isinstance(each, str) else "(an image)" for each in parts)


def _list_tasks(turn: Turn, end: int) -> list[int]:
    """List the messages before `end` that gave the agent its tasks: at first, and in this turn."""
    given = [number for number, each in enumerate(turn.messages[:end]) if _is_given(each)]
    return sorted({*given[:1], *[number for number in given if number >= turn.began][:1]})


def _restricts(question: Question, answer: Answer) -> bool:
    """Return whether the user did not simply allow a call."""
    return question.approval is not None and read_decision(question.approval, answer) != Allowed()


def _asks(message: AssistantMessage) -> bool:
    return not isinstance(message.content, str) and any(call.name == ASK_USER for call in message.content)


def list_parts(messages: Sequence[LLMMessage], kept: Collection[int], begin: int = 0) -> Iterator[HistoryPart]:
    """List what stands in the messages from `begin` on, in their order, but for what is kept of them: the texts of
    `kept`, what asked the user, and reminders."""
    for number in range(begin, len(messages)):
        match messages[number]:
            case AssistantMessage(content=str() as text):
                if number not in kept:
                    yield HistoryPart("wrote", _ITSELF, text)
            case AssistantMessage(content=list() as calls, thought=thought):
                if thought:
                    yield HistoryPart("thought", _ITSELF, thought)
                for call in calls:
                    if call.name != ASK_USER:
                        yield HistoryPart("called", call.name, call.arguments, call.id)
            case FunctionExecutionResultMessage(content=results):
                for result in results:
                    if result.name != ASK_USER:
                        yield HistoryPart(
                            "returned", result.name, result.content, result.call_id, bool(result.is_error)
                        )
            case UserMessage(source=source) as message:
                if number not in kept and source != REMINDER:
                    yield HistoryPart("wrote", source, _read_text(message))
            case _:
                pass


def _describe(part: HistoryPart, room: int) -> str:
    """Describe a part for who writes notes; all but what was written is cut to `room` characters."""
    match part.kind:
        case "wrote":
            return f"{part.name} wrote: {part.text}"
        case "thought":
            return f"{part.name} thought: {shorten_middle(part.text, room)}"
        case "called":
            return f"It called {part.name}: {shorten_middle(part.text, room)}"
        case "returned":
            failed = ", an error" if part.is_error else ""
            return f"The result of {part.name}{failed}: {shorten_middle(part.text, room)}"


def _join_once(notes: str, more: str) -> str:
    """Return notes with more of them, without the lines that stand there already; a short line may stand twice."""
    lines = notes.splitlines()
    seen = {*lines}
    for line in more.splitlines():
        if len(line) < LONG_LINE_CHARS or line not in seen:
            lines.append(line)
        seen.add(line)
    return "\n".join(lines)


def _group(steps: Iterable[str], room: int) -> Iterator[str]:
    """Group steps into texts of at most `room` bytes, in their order."""
    group: list[str] = []
    size = 0
    for step in steps:
        step = shorten_middle(step, room // 2) if len(step.encode()) > room // 2 else step
        if group and size + len(step.encode()) > room:
            yield "\n".join(group)
            group, size = [], 0
        group.append(step)
        size += len(step.encode()) + 1
    if group:
        yield "\n".join(group)


def _shorten_all(messages: Iterable[LLMMessage], window: int) -> list[LLMMessage]:
    limit = int(window * RECENT_SHARE * BYTES_PER_TOKEN)
    return [_shorten_results(each, limit) for each in messages]


def _shorten_results(message: LLMMessage, limit: int) -> LLMMessage:
    if not isinstance(message, FunctionExecutionResultMessage):
        return message
    each = limit // len(message.content)
    shortened = [
        result.model_copy(update={"content": shorten_middle(result.content, each)}) for result in message.content
    ]
    return message.model_copy(update={"content": shortened})
