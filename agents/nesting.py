"""Serve a call of a nested agent: one step, until its result or until it needs the human again."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, get_args

from autogen_agentchat.base import ChatAgent, Response
from autogen_agentchat.messages import (
    AgentEvent,
    BaseChatMessage,
    ChatMessage,
    TextMessage,
    ThoughtEvent,
)
from autogen_core import CancellationToken

from upcall import identity
from upcall.agents.resumable import ResumableAgent
from upcall.agents.tool_loop.turn import Frame
from upcall.autogen import tracing
from upcall.autogen.call_path import current_path, nested_call
from upcall.autogen.concurrency import Emit, Locks, SegmentToken, cancellable
from upcall.autogen.messages import (
    CHECKED,
    FRUITLESS,
    OUTPUT,
    Event,
    add_warnings,
    answer_message,
    asked_event,
    event_warnings,
    extract_questions,
    message_questions,
)
from upcall.autogen.model_errors import explain
from upcall.autogen.scope import close_published, current_scope, discard_last_reply, enter_scope, publish
from upcall.errors import UpcallError

_REGISTERED = get_args(get_args(ChatMessage)[0]) + get_args(get_args(AgentEvent)[0])
"""The message types that every group chat accepts; it fails at any other, even one from a nested agent."""

STOCK_LOCKS = Locks[ChatAgent]()
"""One lock for each agent of another library: its state is in the object, which several agents may nest."""


@dataclass(frozen=True)
class CallingAgent:
    """Who calls the nested agent, the name of the outermost group chat's user proxy, and how many seconds the
    nested agent has."""

    name: str
    user_proxy: str
    timeout: float | None = None


async def serve_nested(
    frame: Frame,
    agent: ChatAgent,
    caller: CallingAgent,
    token: CancellationToken,
    emit: Emit[Event],
    *,
    task: Sequence[BaseChatMessage] | None = None,
    is_fresh: bool = False,
) -> None:
    """Work on the frame's call of `agent`; its events are emitted as they occur.

    Afterwards the frame has a result, or questions and the state of the agent that asks them. `task` is the agent's
    task if the call's arguments do not contain it; with `is_fresh` the agent itself takes the call, else a twin.

    Raises:
        UpcallError: the agent failed. Our agents keep finished work in the frame; a stock agent starts again.
    """
    if task is None:
        text = frame.arguments().get("task")
        if not isinstance(text, str) or not text.strip():
            frame.finish(f"Error: call {frame.call.name} with its task, a non-empty text.", is_error=True)
            return
        sees_caller = isinstance(agent, ResumableAgent) and agent.sees_caller
        task = [TextMessage(id=identity.new_message_id(), source=caller.name if sees_caller else "user", content=text)]
    scope, own = current_scope(), list[BaseException]()  # This call's own: one that is given up interrupts nothing.
    limit = asyncio.timeout(caller.timeout)
    try:
        async with limit:
            with (
                enter_scope(replace(scope, interruptions=own, turn=None)),
                nested_call(caller.name, frame.call.id),
                tracing.agent(agent.name),
            ):
                if isinstance(agent, ResumableAgent):
                    worker = agent if is_fresh else agent.fresh()
                    await _serve_resumable(frame, worker, task, caller, token, emit)
                else:
                    await cancellable(_serve_other(frame, agent, task, caller, token, emit), token)
    except TimeoutError:
        if not limit.expired():
            raise
        own.clear()
        if scope.journal is not None:
            await scope.journal.abandon_calls(caller.name, frame.call.id)
        if scope.published is not None:
            above = (*current_path(), (caller.name, frame.call.id))
            scope.published.withdraw([name for name, _ in above], [call_id for _, call_id in above])
        frame.finish(
            f"Error: {agent.name} did not finish within {caller.timeout:g} seconds and was stopped; its work is "
            "dropped, what it changed by then stands. Call it with a smaller task, or do without it.",
            is_error=True,
        )
    finally:
        if scope.interruptions is not None:
            scope.interruptions.extend(own)


async def _serve_resumable(
    frame: Frame,
    worker: ResumableAgent[Any],
    task: Sequence[BaseChatMessage],
    caller: CallingAgent,
    token: CancellationToken,
    emit: Emit[Event],
) -> None:
    messages: Sequence[BaseChatMessage] = ()
    if frame.nested is None:
        messages = task
    else:
        await worker.load_state(frame.nested)
        if frame.answers:
            messages = [
                answer_message(frame.answers, target=worker.name, questions=frame.questions, source=caller.user_proxy)
            ]
    # Until it ends or pauses. Failed or cancelled, what it has finished is in its state and is not done again.
    frame.interrupted = True
    try:
        async for item in worker.on_messages_stream(messages, token):
            if not isinstance(item, Response):
                emit(to_registered(item))
            elif questions := message_questions(item.chat_message):
                frame.questions = [each.raise_through(caller.name, frame.call.id) for each in questions]
            else:
                reply = item.chat_message
                frame.finish(add_warnings(reply.to_model_text(), event_warnings(reply)))
                frame.report = reply.metadata.get(OUTPUT) if CHECKED in reply.metadata else None
                frame.fruitless = FRUITLESS in reply.metadata
                emit(to_registered(reply))
        frame.interrupted = False
    finally:
        if frame.result is None:
            frame.nested, frame.answers = dict(await worker.save_state()), []
            frame.questions = [each for each in frame.questions if each.id in worker.waiting_for()]


async def _serve_other(
    frame: Frame,
    agent: ChatAgent,
    task: Sequence[BaseChatMessage],
    caller: CallingAgent,
    token: CancellationToken,
    emit: Emit[Event],
) -> None:
    """Serve a call with an agent of another library, which asks by handing off to the user at the end of its turn.

    Its context may contain half a batch after an error, so a failed turn starts again from its beginning. One
    call at a time, since its state is in the object.
    """
    own = SegmentToken()  # It may start tasks that only its token ends.
    token.add_callback(own.cancel)
    async with STOCK_LOCKS.of(agent):
        try:
            if frame.nested is None:
                await agent.on_reset(own)
            else:
                await agent.load_state(frame.nested)
                given, asked = frame.answers, frame.questions
                close_published([each.question_id for each in given])
                task = [answer_message(given, target=agent.name, questions=asked, source=caller.user_proxy)]
            async for item in agent.on_messages_stream(task, own):
                if not isinstance(item, Response):
                    emit(to_registered(item))
                elif questions := extract_questions(item.chat_message, caller.user_proxy):
                    frame.nested, frame.answers = dict(await agent.save_state()), []
                    frame.questions = [each.raise_through(caller.name, frame.call.id) for each in questions]
                    publish(questions)
                    emit(asked_event(questions[0], source=agent.name))
                else:
                    frame.finish(item.chat_message.to_model_text())
                    emit(to_registered(item.chat_message))
        except (UpcallError, AssertionError):
            raise  # As in `call_model`.
        except Exception as error:
            await discard_last_reply(agent.name)
            raise explain(error, agent.name) from error
        finally:
            own.cancel()


def to_registered(message: Event) -> Event:
    """Return the same message as a type that every group chat accepts."""
    if type(message) in _REGISTERED:
        return message
    kind = TextMessage if isinstance(message, BaseChatMessage) else ThoughtEvent
    return kind(
        id=message.id,
        source=message.source,
        content=message.to_text(),
        models_usage=message.models_usage,
        metadata=message.metadata,
    )
