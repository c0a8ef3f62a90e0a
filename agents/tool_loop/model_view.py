"""What a model sees: the system text, what memories add, and how a `ChatCompletionContext` views the messages."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy

from autogen_agentchat.messages import MemoryQueryEvent
from autogen_core import CancellationToken
from autogen_core.memory import Memory
from autogen_core.model_context import ChatCompletionContext, UnboundedChatCompletionContext
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
)
from pydantic import ConfigDict, TypeAdapter

from upcall.agents.tool_loop.parts import PausableParts
from upcall.agents.tool_loop.turn import Turn
from upcall.autogen.concurrency import Locks, cancellable
from upcall.autogen.messages import Event
from upcall.errors import AgentFailed, ConfigurationError, UpcallError

_MESSAGES = TypeAdapter(list[LLMMessage], config=ConfigDict(defer_build=True))

_LOCKS = Locks[ChatCompletionContext]()
"""Twins of one agent, and several agents, may share the object."""


class ModelView:
    """What the model of an agent sees of its turn."""

    def __init__(self, parts: PausableParts) -> None:
        self._parts = parts

    @property
    def system_text(self) -> str:
        """The system message with the rule for `ask_user`, and a line for each tool server that is lost."""
        from upcall.prompts.contexts import AskRuleContext

        parts, settings = self._parts, self._parts.settings
        mode = settings.ask_mode if parts.toolset.ask_user and parts.calls_tools else "none"
        rule = parts.prompts.render(AskRuleContext(mode=mode)) if mode != "none" else ""
        return "\n\n".join(each for each in (settings.system_message, rule, *parts.toolset.describe_lost()) if each)

    async def show(self, turn: Turn, system_text: str, token: CancellationToken) -> list[LLMMessage]:
        """Return the messages as the model sees them, system text first.

        Raises:
            AgentFailed: the model context failed.
        """
        messages = turn.view()
        if (context := self._parts.model_context) is not None:
            messages = await cancellable(view_messages(context, messages, agent=self._parts.name), token)
        several = bool(self._parts.model_client.model_info.get("multiple_system_messages"))
        return with_system_message(system_text, messages, several=several)

    async def remember(self, turn: Turn, token: CancellationToken) -> Sequence[Event]:
        """Query the memories once, at the start of a turn: a resumed turn has their additions in its context.

        Raises:
            AgentFailed: a memory failed.
        """
        if not self._parts.memory or turn.remembered or turn.rounds or not turn.seen:
            return ()
        found = add_memories(self._parts.memory, turn.messages, agent=self._parts.name)
        turn.messages, events = await cancellable(found, token)
        turn.remembered = True
        return events

    def remind(self, turn: Turn, problem: str, text: str = "") -> None:
        """Tell the model what was wrong with its last reply, `text` if it was one."""
        from upcall.prompts.contexts import ReminderContext

        if text.strip():
            turn.messages.append(AssistantMessage(content=text, source=self._parts.name))
        turn.remind(self._parts.prompts.render(ReminderContext(problem=problem)))


async def add_memories(
    memories: Sequence[Memory], messages: Sequence[LLMMessage], *, agent: str
) -> tuple[list[LLMMessage], list[MemoryQueryEvent]]:
    """Return the messages with the additions of `memories`, and an event for each that found something. The original
    messages stay unchanged, whatever a memory does to its copies.

    Raises:
        AgentFailed: a memory failed.
    """
    context = UnboundedChatCompletionContext(_copies(messages))
    changed, events = list(messages), list[MemoryQueryEvent]()
    for memory in memories:
        try:
            found = await memory.update_context(context)
            changed = drop_unpaired(_MESSAGES.validate_python(await context.get_messages()))
            if found and found.memories.results:
                events.append(MemoryQueryEvent(content=list(found.memories.results), source=agent))
        except (UpcallError, AssertionError):
            raise
        except Exception as error:
            raise AgentFailed(
                f"Agent {agent!r}: its memory {type(memory).__name__} failed ({type(error).__name__}). Check that it "
                "can be reached and read. The run is stored and can be resumed."
            ) from error
    return changed, events


async def view_messages(
    context: ChatCompletionContext, messages: Sequence[LLMMessage], *, agent: str
) -> list[LLMMessage]:
    """Return the view that `context`, with its own messages, has of `messages`. A copy of it takes them in, since other
    runs may use it at the same time, and is restored afterwards, for a context whose copies share what they keep.

    Raises:
        AgentFailed: it failed.
        ConfigurationError: it shows none of them.
    """
    kind = type(context).__name__
    async with _LOCKS.of(context):
        try:
            filled = await context.save_state()
            view = copy(context)
            try:
                await view.load_state(filled)
                for message in _copies(messages):
                    await view.add_message(message)
                # Copied: it may be the context's own list. Validated: a loaded `BufferedChatCompletionContext` holds
                # its first messages as dicts (autogen-core 0.7.5).
                shown = drop_unpaired(_MESSAGES.validate_python(list(await view.get_messages())))
            finally:
                await view.load_state(filled)
        except (UpcallError, AssertionError):
            raise
        except Exception as error:
            raise AgentFailed(
                f"Agent {agent!r}: its model context {kind} failed ({type(error).__name__}). Give another "
                "model_context. The run is stored and can be resumed."
            ) from error
    if messages and all(isinstance(each, SystemMessage) for each in shown):
        raise ConfigurationError(
            f"Agent {agent!r}: its model context {kind} shows the model nothing of the conversation. Raise its limit; "
            "the calls of one reply and their results count as two messages, and one is not shown without the other."
        )
    return shown


def drop_unpaired(messages: Sequence[LLMMessage]) -> list[LLMMessage]:
    """Return the messages without tool calls whose results are missing, and results whose calls are missing: servers
    refuse both.

    A view by number or by tokens cuts anywhere (autogen-core 0.7.5: `BufferedChatCompletionContext` and
    `HeadAndTailChatCompletionContext` mend their own cuts alone, `TokenLimitedChatCompletionContext` takes out of the
    middle).
    """
    kept: list[LLMMessage] = []
    for number, message in enumerate(messages):
        if isinstance(message, FunctionExecutionResultMessage):
            calls = messages[number - 1] if number else message
            if _call_ids(calls) and _call_ids(calls) == {each.call_id for each in message.content}:
                kept += [calls, message]
        elif not _call_ids(message):
            kept.append(message)
    return kept


def with_system_message(system_text: str, messages: Sequence[LLMMessage], *, several: bool) -> list[LLMMessage]:
    """Return the messages with the system's text first. A model that accepts one system message (not `several`, its
    ``multiple_system_messages``) gets additions of memories and others in that one."""
    if several:
        return [*([SystemMessage(content=system_text)] if system_text else []), *messages]
    parts = [each.content for each in messages if isinstance(each, SystemMessage)]
    whole = "\n\n".join(part for part in (system_text, *parts) if part)
    rest = [each for each in messages if not isinstance(each, SystemMessage)]
    return [*([SystemMessage(content=whole)] if whole else []), *rest]


def _copies(messages: Sequence[LLMMessage]) -> list[LLMMessage]:
    """Memories and contexts may change the messages they hold, to shorten results or drop thoughts."""
    return [message.model_copy(deep=True) for message in messages]


def _call_ids(message: LLMMessage) -> set[str]:
    if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
        return {call.id for call in message.content}
    return set()
