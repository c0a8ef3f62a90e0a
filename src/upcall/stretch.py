"""A stretch: what happens between two rests of a run - the events, what they say of the run, and how it is stored."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Annotated, Any, TypeAlias, TypeVar

from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    TextMessage,
    ToolCallRequestEvent,
)
from autogen_core import CancellationToken
from pydantic import Field, TypeAdapter

from upcall.agents.asking import ASK_USER
from upcall.agents.resumable import interruptions
from upcall.checkpoints import Checkpoint
from upcall.errors import StoredStateError, UpcallError
from upcall.handoffs import CLARIFIER_LOG, CLASSIFICATION, ERROR, PATH, PLAN, QUESTIONS, path_of, questions_in
from upcall.plans import ReviewedPlan
from upcall.questions import MAX_QUESTION_CHARS, Question
from upcall.replies import Classification
from upcall.runs import Run, RunStatus, counted
from upcall.store import RunStore, StoredRun
from upcall.teams import USER

Event: TypeAlias = BaseAgentEvent | BaseChatMessage
T = TypeVar("T")

_message: TypeAdapter[TextMessage | HandoffMessage] = TypeAdapter(
    Annotated[TextMessage | HandoffMessage, Field(discriminator="type")]
)

_KEY = re.compile(r"\bsk-[\w-]+")
"""What keys of the well-known servers look like: an SDK's exception may repeat one."""

_log = logging.getLogger("upcall")

SECONDS_TO_STOP = 5.0
"""How long a team that is cut off may take to stop. One that takes longer is left behind, its state unread."""


class Stretch:
    """One team at work on one run, from a checkpoint to the next rest.

    Args:
        stored: the run as it was claimed; every write follows the one before.
        phase: the status of the run while the named agent has the turn.
        resumable: whether all agents of the team keep a state that can be gone on from after an error. Where it is
            false, that is known only if one of ours was cut off.
    """

    def __init__(
        self, stored: StoredRun, store: RunStore, phase: Callable[[str], RunStatus], *, resumable: bool
    ) -> None:
        self._stored = stored
        self._store = store
        self._phase = phase
        self._resumable = resumable
        self._run = stored.run
        self._token = CancellationToken()
        self._interruptions: list[BaseException] = []
        self._last: BaseChatMessage | None = None
        self._given = {message.id for message in stored.checkpoint.inbox}
        self._noted = {message["id"] for message in stored.checkpoint.thread()} | self._given
        self._running: asyncio.Task[None] | None = None
        self.started = False
        """Whether the team took its inbox in."""
        self.held: list[Event] = []
        """Events that tell of a question; nobody hears of one before it is stored."""

    async def events(self, team: Team) -> AsyncGenerator[Event, None]:
        """The team's events, but for those held back.

        The team runs in a task of its own: cancelling a task that waits for a group chat does not stop the group chat
        while a member works (autogen-agentchat 0.7.5); its cancellation token does.
        """
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._running = running = asyncio.create_task(self._run_team(team, queue))
        running.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while (event := await queue.get()) is not None:
                if self._run.status is not self._stored.run.status:
                    await whole(self._save(self._run))
                if _tells_of_a_question(event):
                    self.held.append(event)
                else:
                    yield event
            running.result()
        finally:
            if not running.done():
                self._token.cancel()
                await asyncio.wait([running], timeout=SECONDS_TO_STOP)

    async def rested(self, team: Team) -> Run:
        """Store the run at its rest: completed, or waiting for answers."""
        return await self._rest(await _checkpoint(team))

    async def _rest(self, checkpoint: Checkpoint) -> Run:
        questions = _asked(self._last)
        if questions:
            run = self._run.moved_to(RunStatus.AWAITING_CLARIFICATION, questions=tuple(questions))
        elif self._last is not None and (error := self._last.metadata.get(ERROR)):
            run = self._run.moved_to(RunStatus.FAILED, error=first_line(error))
        elif isinstance(self._last, HandoffMessage) and questions_in(self._last):
            problem = f"A question was handed to {self._last.target!r}; under Upcall the user proxy is called {USER!r}."
            return await self._save(self._run.moved_to(RunStatus.FAILED, error=problem))
        elif self._last is None or not self._last.to_model_text().strip():
            run = self._run.moved_to(
                RunStatus.FAILED, error="The team stopped without a result. Resume the run to try again."
            )
            return await self._save(run)
        else:
            run = self._run.moved_to(RunStatus.COMPLETED, result=self._last.to_model_text(), questions=(), error=None)
        return await self._save(run, checkpoint)

    async def failed(self, team: Team, error: Exception) -> Run:
        """Store the run as failed, with what its agents finished before that."""
        cause = next((each for each in self._interruptions if isinstance(each, UpcallError)), error)
        message = str(cause) if isinstance(cause, UpcallError) else first_line(cause)
        run = self._run.moved_to(RunStatus.FAILED, error=message)
        return await self._save(run, await self._what_was_done(team))

    async def interrupted(self, team: Team) -> None:
        """Store what the agents finished before the stretch was cut off. Where that cannot be stored, what was stored
        before stands."""
        checkpoint = await self._what_was_done(team)
        if checkpoint is None:
            return
        self._catch_up(checkpoint)
        # The team may have come to its rest in the moment it was cut off; to run it on would wake the user proxy, or
        # make an agent speak that has done its work.
        at_rest = bool(_asked(self._last)) or (self._resumable and isinstance(self._last, TextMessage))
        with suppress(StoredStateError):
            await (self._rest(checkpoint) if at_rest else self._save(self._run, checkpoint))

    def _catch_up(self, checkpoint: Checkpoint) -> None:
        """Note what was said but not heard: a group chat that is cut off drops its events (0.7.5)."""
        for message in checkpoint.thread():
            if message["id"] not in self._noted and message["type"] in ("TextMessage", "HandoffMessage"):
                self._note(_message.validate_python(message))

    async def _what_was_done(self, team: Team) -> Checkpoint | None:
        """The team's present state, if it can be gone on from; else the last checkpoint stands."""
        if not self._can_go_on():
            return None
        try:
            return await _checkpoint(team)
        except Exception:  # noqa: BLE001  (a state that cannot be written must not keep the failure from being stored)
            _log.warning(
                "The state of run %s cannot be saved; it goes on from its last rest.", self._run.id, exc_info=True
            )
            return None

    def _can_go_on(self) -> bool:
        """Whether the team's present state can be gone on from: it took its inbox in, it stands still, and whoever was
        cut off keeps a state for that. A stock agent's may hold half a batch; then the last checkpoint stands and its
        stretch is done again."""
        stopped = self._running is not None and self._running.done()
        return self.started and stopped and (self._resumable or bool(self._interruptions))

    async def _run_team(self, team: Team, queue: asyncio.Queue[Event | None]) -> None:
        interruptions.set(self._interruptions)
        inbox = list(self._stored.checkpoint.inbox)
        async for item in team.run_stream(task=inbox or None, cancellation_token=self._token):
            self.started = True
            if not isinstance(item, TaskResult):
                if item.id not in self._given:
                    self._note(item)
                queue.put_nowait(item)

    async def _save(self, run: Run, checkpoint: Checkpoint | None = None) -> Run:
        self._stored = await self._store.save(self._stored, run, checkpoint)
        return run

    def _note(self, event: Event) -> None:
        """Read from an event what it says of the run: tokens, classification, plan, and who has the turn."""
        changes: dict[str, Any] = {}
        self._noted.add(event.id)
        if event.models_usage is not None:
            changes["usage"] = counted(self._run.usage, "/".join(path_of(event)), event.models_usage)
        if isinstance(event, BaseChatMessage) and PATH not in event.metadata and event.source != USER:
            self._last = event
            if text := event.metadata.get(CLASSIFICATION):
                changes["classification"] = Classification.model_validate_json(text)
            if text := event.metadata.get(CLARIFIER_LOG):
                changes["clarifier_log"] = text
            if text := event.metadata.get(PLAN):
                changes["plan"] = ReviewedPlan.model_validate_json(text).after(self._run.plan)
            turns = [event.source]
            if isinstance(event, HandoffMessage) and not _asked(event):
                changes["status"] = self._phase(event.target)
                turns.append(event.target)
            changes["execution_path"] = _with_turns(self._run.execution_path, turns)
        status = changes.pop("status", self._run.status)
        if changes or status is not self._run.status:
            self._run = self._run.moved_to(status, **changes)


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is done to its end also if the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(Exception):
            await task
        raise


def first_line(error: BaseException | str) -> str:
    """The error in one line: a group chat's `RuntimeError` holds the name, the text and the whole traceback."""
    lines = str(error).strip().splitlines()
    return _KEY.sub("[key]", lines[0]) if lines else type(error).__name__


async def _checkpoint(team: Team) -> Checkpoint:
    return Checkpoint(team_state=dict(await team.save_state()))


def _tells_of_a_question(event: Event) -> bool:
    asks = isinstance(event, ToolCallRequestEvent) and any(call.name == ASK_USER for call in event.content)
    return asks or QUESTIONS in event.metadata


def _asked(message: BaseChatMessage | None) -> list[Question]:
    """The questions a message leaves open. A stock agent's hand-off to the user is one too, in its own words."""
    if not isinstance(message, HandoffMessage) or message.target != USER or message.source == USER:
        return []
    own_words = message.content[:MAX_QUESTION_CHARS] or "What now?"
    asked = questions_in(message) or [Question(question=own_words)]
    return [each if each.path else each.model_copy(update={"path": (message.source,)}) for each in asked]


def _with_turns(path: tuple[str, ...], agents: Sequence[str]) -> tuple[str, ...]:
    for agent in agents:
        if agent not in path[-1:]:
            path = (*path, agent)
    return path
