"""Talk to an agent in a test: drive it to its rest, carry its state as JSON into a new object, answer its questions."""

from __future__ import annotations

import asyncio
import gc
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import pytest
from autogen_agentchat.base import ChatAgent, Response, TaskResult, Team
from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, HandoffMessage, TextMessage
from autogen_core import CancellationToken

from upcall.agents import ResumableAgent
from upcall.agents.resumable import is_own_event
from upcall.autogen.messages import answer_message, event_path, message_questions
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.runs.run import Run

HANG_GUARD = 60.0
"""Seconds after which a test that should have ended long ago is given up."""

Event = BaseAgentEvent | BaseChatMessage
T = TypeVar("T")
AgentT = TypeVar("AgentT", bound=ResumableAgent[Any])


@dataclass(frozen=True)
class TurnResult:
    """How a turn or a team came to rest: its last message, and the events before it."""

    message: BaseChatMessage
    events: Sequence[Event]

    @property
    def questions(self) -> list[Question]:
        """The open questions it ended with."""
        return message_questions(self.message)

    @property
    def text(self) -> str:
        """What it ended with, as a model reads it."""
        return self.message.to_model_text()

    def events_of(self, kind: type[Event]) -> list[Event]:
        """Return the events of one type."""
        return [event for event in self.events if type(event) is kind]

    def paths(self, kind: type[Event]) -> list[str]:
        """Who sent the events of one type."""
        return ["/".join(event_path(event)) for event in self.events_of(kind)]


class Counted:
    """A tool that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    async def note(self) -> str:
        """Take a note."""
        self.calls += 1
        return f"note {self.calls}"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Work that ignores its cancellation is left to itself at once, so that no test waits for it."""
    monkeypatch.setattr("upcall.autogen.concurrency.CANCEL_TIMEOUT_S", 0.05)


async def soon(work: Awaitable[T]) -> T:
    """Return what `work` gives; the guard only keeps a broken test from hanging."""
    return await asyncio.wait_for(work, HANG_GUARD)


async def send(
    agent: ChatAgent, *messages: str | BaseChatMessage, token: CancellationToken | None = None
) -> TurnResult:
    """Give the agent messages (a text comes from the user) and drive its turn to its end. No message: it continues."""
    given = [TextMessage(source="user", content=each) if isinstance(each, str) else each for each in messages]
    return await soon(_driven(agent, given, token or CancellationToken()))


async def turn(agent: ChatAgent, *messages: BaseChatMessage) -> HandoffMessage:
    """Return the hand-off that ends the agent's turn."""
    message = (await send(agent, *messages)).message
    assert isinstance(message, HandoffMessage)
    return message


async def _driven(agent: ChatAgent, messages: Sequence[BaseChatMessage], token: CancellationToken) -> TurnResult:
    events: list[Event] = []
    ended: Response | None = None
    async for item in agent.on_messages_stream(messages, token):
        assert ended is None, "the Response is the last item"
        if isinstance(item, Response):
            ended = item
        else:
            events.append(item)
    assert ended is not None
    assert ended.inner_messages == [each for each in events if is_own_event(each)]
    return TurnResult(ended.chat_message, events)


async def read_to_end(stream: AsyncIterator[Any]) -> Run:
    """Return the run, which is the last item of a stream."""
    items = [item async for item in stream]
    assert isinstance(items[-1], Run)
    return items[-1]


async def run(team: Team, task: str | BaseChatMessage | None) -> TurnResult:
    """Run a team to its next stop."""
    events: list[Event] = []

    async def consume() -> None:
        async for item in team.run_stream(task=task):
            if not isinstance(item, TaskResult):
                events.append(item)

    await soon(consume())
    return TurnResult(next(each for each in reversed(events) if isinstance(each, BaseChatMessage)), events)


async def resumed_as(source: ResumableAgent[Any], target: AgentT) -> AgentT:
    """`target`, a new object, with the state of `source` after a trip through plain JSON."""
    assert target is not source
    await target.load_state(json.loads(json.dumps(await source.save_state(), allow_nan=False)))
    return target


def answers(rest: TurnResult, *given: str | Answer | None) -> HandoffMessage:
    """Return the message that answers the open questions in their order; None leaves one open."""
    texts = [
        value if isinstance(value, Answer) else Answer(question_id=question.id, text=value)
        for question, value in zip(rest.questions, given, strict=False)
        if value is not None
    ]
    return answer_message(texts, target=rest.questions[0].path[0], questions=rest.questions)


async def cancelled_while(
    agent: ChatAgent, busy: Callable[[], bool], how: str, *messages: str | BaseChatMessage
) -> None:
    """Start a turn, wait until `busy`, and cancel it: by its ``token`` or as a ``task``. It must end with that."""
    token = CancellationToken()
    turn = asyncio.create_task(send(agent, *messages, token=token))
    while not busy() and not turn.done():
        await asyncio.sleep(0)
    for _ in range(50):  # Let what is done be noted.
        await asyncio.sleep(0)
    assert not turn.done(), turn
    if how == "token":
        token.cancel()
    else:
        turn.cancel()
    done, _ = await asyncio.wait([turn], timeout=HANG_GUARD / 2)
    assert done
    assert turn.cancelled()


@asynccontextmanager
async def nothing_left_behind() -> AsyncIterator[None]:
    """Afterwards no task runs that did not run before, and no task has died with an exception that nobody saw."""
    loop = asyncio.get_running_loop()
    gc.collect()  # What others left behind is not this test's.
    gc.freeze()  # Nor is the rest of theirs looked through again.
    before, problems = asyncio.all_tasks(), list[str]()
    loop.set_exception_handler(lambda _, context: problems.append(f"{context['message']}: {context.get('exception')}"))
    yield
    for _ in range(100):  # What ends now may take a few turns of the loop.
        await asyncio.sleep(0)
    gc.collect()
    await asyncio.sleep(0)
    assert asyncio.all_tasks() - before == set()
    assert not problems, problems
