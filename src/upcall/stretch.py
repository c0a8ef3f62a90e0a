"""A stretch: what happens between two rests of a run - the events, what they say of the run, and how it is stored."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Annotated, Any, TypeAlias, TypeGuard, TypeVar

from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.messages import (
    BaseAgentEvent,
    BaseChatMessage,
    HandoffMessage,
    TextMessage,
    ThoughtEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_core import CancellationToken
from pydantic import Field, TypeAdapter

from upcall.agents.asking import ASK_USER
from upcall.checkpoints import Checkpoint
from upcall.errors import StoredStateError, StoreUnavailable, UpcallError, first_line
from upcall.group_chats import Waiting, speakers
from upcall.handoffs import (
    ANSWERS,
    CLARIFIER_LOG,
    CLASSIFICATION,
    ERROR,
    PATH,
    PLAN,
    QUESTIONS,
    answered_event,
    answering,
    asked_by,
    path_of,
    questions_in,
    questions_of,
)
from upcall.ladder import Ladder, fanned_out, is_risk, present
from upcall.mailbox import Mailbox, mailbox
from upcall.plans import ReviewedPlan
from upcall.questions import Answer, Question
from upcall.replies import Classification
from upcall.runs import Run, RunStatus, counted
from upcall.store import MailCame, RunStore, StoredRun
from upcall.tasks import interruptions
from upcall.teams import USER

Event: TypeAlias = BaseAgentEvent | BaseChatMessage
T = TypeVar("T")

_message: TypeAdapter[TextMessage | HandoffMessage] = TypeAdapter(
    Annotated[TextMessage | HandoffMessage, Field(discriminator="type")]
)

_log = logging.getLogger("upcall")

SECONDS_BETWEEN_MAILS = 0.2
"""How often is looked for answers that come while a team works."""

SECONDS_TO_STOP = 5.0
"""How long a team that is cut off may take to stop. One that takes longer is left behind, its state unread."""


class Stretch:
    """One team at work on one run, from a checkpoint to the next rest.

    Args:
        stored: the run as it was claimed; every write follows the one before.
        phase: the status of the run while the named agent has the turn.
        ladder: who answers before the human is asked; what it answered is stored with the state that holds it.
        resumable: whether all agents of the team keep a state that can be gone on from after an error. Where it is
            false, that is known only if one of ours was cut off.
    """

    def __init__(
        self,
        stored: StoredRun,
        store: RunStore,
        phase: Callable[[str], RunStatus],
        *,
        ladder: Ladder,
        resumable: bool,
    ) -> None:
        self._stored = stored
        self._ladder = ladder
        self._store = store
        self._phase = phase
        self._resumable = resumable
        self._run = stored.run
        self._token = CancellationToken()
        self._interruptions: list[BaseException] = []
        self._last: BaseChatMessage | None = None
        self._waiting = Waiting({question.id: question for question in stored.run.open_questions})
        self._given = {message.id for message in stored.checkpoint.inbox}
        self._noted = {message["id"] for message in stored.checkpoint.thread()} | self._given
        self._running: asyncio.Task[None] | None = None
        self.started = False
        """Whether the team took its inbox in."""
        self.held: list[Event] = []
        """Events that tell of a question; nobody hears of one before it is stored."""
        self._settled: set[tuple[tuple[str, ...], str]] = set()
        self._mailbox = Mailbox()
        self._speakers: frozenset[str] | None = None
        self._saving = asyncio.Lock()

    @property
    def stored(self) -> StoredRun:
        """The run as it was stored last."""
        return self._stored

    async def events(self, team: Team) -> AsyncGenerator[Event, None]:
        """The team's events, but for those held back.

        The team runs in a task of its own: cancelling a task that waits for a group chat does not stop the group chat
        while a member works (autogen-agentchat 0.7.5); its cancellation token does.
        """
        queue: asyncio.Queue[Event | None] = asyncio.Queue()
        self._running = running = asyncio.create_task(self._run_team(team, queue))
        running.add_done_callback(lambda _: queue.put_nowait(None))
        fetching = asyncio.create_task(self._fetch_mail())
        try:
            while not running.done() or not queue.empty():
                events = [event for event in await _all_there(queue) if event is not None]
                if self._run.status is not self._stored.run.status:
                    await whole(self._save_now())
                await self._put_early(events)
                for told in chain.from_iterable(map(self._to_tell, events)):
                    yield told
                if fetching.done():
                    fetching.result()
            running.result()
        finally:
            fetching.cancel()
            await asyncio.wait([fetching])
            if not running.done():
                self._token.cancel()
                await asyncio.wait([running], timeout=SECONDS_TO_STOP)

    def _to_tell(self, event: Event) -> list[Event]:
        """What can be told with this event. That a question is put, or was answered at once, brings the call that
        asked; an answer takes the place of the request."""
        answered = _tells_of_an_answer(event)
        if not answered and not self._is_put(event):
            if _tells_of_a_question(event):
                self.held.append(event)
                return []
            return [event]
        asked = questions_of(event)
        self._settled |= {(each.path, each.calls[-1]) for each in asked if each.calls}
        ids = {each.id for each in asked}
        told = [each for each in self.held if self._is_settled(each)]
        self.held = [each for each in self.held if each not in told and not _requests(each, ids)]
        return [*told, event]

    def _is_put(self, event: Event) -> bool:
        if not isinstance(event, UserInputRequestedEvent):
            return False
        return any(event.request_id == question.id for question in self._run.questions)

    def _is_settled(self, event: Event) -> bool:
        asks = [call.id for call in event.content if call.name == ASK_USER] if _calls(event) else []
        return bool(asks) and all((path_of(event), call_id) in self._settled for call_id in asks)

    # -- questions while others work ----------------------------------------------------------------------------------

    async def _put_early(self, events: Sequence[Event]) -> None:
        """Store the questions of a team that is still at work, so that they can be answered before the others are
        done."""
        known = {question.id for question in (*self._run.open_questions, *self._run.closed)}
        requests = [event for event in events if isinstance(event, UserInputRequestedEvent)]
        new = [question for event in requests for question in questions_of(event) if question.id not in known]
        if not new:
            return
        open_now = (*self._run.open_questions, *new)
        not_put = {answer.question_id for answer in self._ladder.without_human(open_now)}
        put = [question for question in open_now if question.id not in not_put]
        shown, repeated = self._ladder.shown(put)
        early = [question for question in new if question.id not in not_put]
        self._ladder.opened(early)
        ids = (*self._run.early, *(question.id for question in early))
        self._run = self._run.moved_to(self._run.status, questions=shown, repeated=repeated, early=ids)
        await whole(self._save_now())

    async def _fetch_mail(self) -> None:
        """Take in the answers that come while the team works, and give them to those who wait for them."""
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_MAILS)
            if self._run.open_questions:
                with suppress(StoreUnavailable):  # Busy, or gone for a moment: the mail is looked at again.
                    await whole(self._take_mail())

    async def _take_mail(self) -> None:
        came = await self._store.mail(self._run.id)
        asked = {question.id: question for question in self._run.open_questions}
        answers = [answer for answer in came if answer.question_id in asked]
        if not answers:
            return
        if self._run.repeated:
            answers = fanned_out(answers, self._run.open_questions)
        for answer in answers:
            self._ladder.hear(asked[answer.question_id], answer)
        self._run = self._run.answered(self._run.status, answers)
        await self._save_now()
        self._mailbox.put(answers)

    async def _save_now(self) -> None:
        await self._save(self._run)

    # -- the rest -----------------------------------------------------------------------------------------------------

    async def rested(self, team: Team) -> Run:
        """Store the run at its rest: completed, or waiting for answers."""
        return await self._rest(await _checkpoint(team))

    async def _rest(self, checkpoint: Checkpoint) -> Run:
        return await self._with_mail(lambda: self._rest_once(checkpoint))

    async def _with_mail(self, store: Callable[[], Coroutine[Any, Any, Run]]) -> Run:
        while True:
            try:
                return await store()
            except MailCame:
                await self._take_mail()

    async def _rest_once(self, checkpoint: Checkpoint) -> Run:
        run = self._with_what_was_answered().model_copy(update={"early": ()})
        if questions := tuple(self._waiting.questions.values()):
            run, checkpoint = self._put(run, questions, checkpoint)
        elif self._last is not None and (error := self._last.metadata.get(ERROR)):
            run = run.moved_to(RunStatus.FAILED, error=first_line(error))
        elif isinstance(self._last, HandoffMessage) and questions_in(self._last):
            problem = f"A question was handed to {self._last.target!r}; under Upcall the user proxy is called {USER!r}."
            return await self._save(run.moved_to(RunStatus.FAILED, error=problem))
        elif self._last is None or not self._last.to_model_text().strip():
            run = run.moved_to(
                RunStatus.FAILED, error="The team stopped without a result. Resume the run to try again."
            )
            return await self._save(run)
        else:
            run = run.moved_to(
                RunStatus.COMPLETED, result=self._last.to_model_text(), questions=(), repeated=(), error=None
            )
        return await self._save(run, checkpoint)

    def _put(self, run: Run, questions: tuple[Question, ...], checkpoint: Checkpoint) -> tuple[Run, Checkpoint]:
        """The run waiting for its questions, one of each meaning. Where some of them do not go to the human, or were
        answered too late for the team to hear it, it is to go on at once with that."""
        by_id = {question.id: question for question in questions}
        late, left = self._late(questions)
        shown, repeated = self._ladder.shown(left)
        run = run.moved_to(RunStatus.AWAITING_CLARIFICATION, questions=shown, repeated=repeated)
        answers = self._ladder.without_human(left)
        self.held = [each for each in self.held if not _requests(each, {question.id for question in repeated})]
        if not (late or answers):
            return run, checkpoint
        for answer in answers:
            question = by_id[answer.question_id]
            self.held = [each for each in self.held if not _requests(each, {question.id})]
            self.held.append(_told_by(answered_event(question, answer, source=question.asker), question))
        checkpoint, target = delivered(checkpoint, [*late, *answers], questions)
        return run.answered(self._phase(target), answers), checkpoint

    def _late(self, waiting: Iterable[Question]) -> tuple[list[Answer], list[Question]]:
        """The answers that came while a team worked, in this stretch or in one that was cut off, and that their askers
        have not got; and the questions without one. A risk that was confirmed for a stretch before is asked again."""
        asked = {question.id: question for question in waiting}
        came = {
            *self._mailbox.answers,
            *(key for key in self._run.early if key in asked and not is_risk(asked[key])),
        }
        late = {each.question_id: each for each in self._run.answers if each.question_id in asked.keys() & came}
        return list(late.values()), [each for each in asked.values() if each.id not in late]

    def _with_what_was_answered(self) -> Run:
        """The run with what was answered in this stretch before the human was asked."""
        given, usage = self._ladder.given, self._run.usage
        for spent in self._ladder.spent:
            usage = counted(usage, "ledger", spent)
        return self._run.moved_to(
            self._run.status,
            answers=(*self._run.answers, *(answer for _, answer in given)),
            closed=(*self._run.closed, *(question for question, _ in given)),
            usage=usage,
        )

    def _as_it_stands(self, checkpoint: Checkpoint) -> tuple[Run, Checkpoint]:
        """The run in the middle of a stretch: open is what members asked before others were cut off. What was answered
        since is given to them when the run goes on."""
        run, waiting = self._with_what_was_answered().without_early(), list(self._waiting.questions.values())
        late, left = self._late(waiting)
        shown, repeated = self._ladder.shown(left)
        run = run.moved_to(run.status, questions=shown, repeated=repeated)
        return run, delivered(checkpoint, late, waiting)[0] if late else checkpoint

    async def failed(self, team: Team, error: Exception) -> Run:
        """Store the run as failed, with what its agents finished before that."""
        cause = next((each for each in self._interruptions if isinstance(each, UpcallError)), error)
        message = str(cause) if isinstance(cause, UpcallError) else first_line(cause)
        checkpoint = await self._what_was_done(team)

        async def store() -> Run:
            run, state = (self._run.without_early(), None) if checkpoint is None else self._as_it_stands(checkpoint)
            return await self._save(run.moved_to(RunStatus.FAILED, error=message), state)

        return await self._with_mail(store)

    async def interrupted(self, team: Team) -> None:
        """Store what the agents finished before the stretch was cut off. Where that cannot be stored, what was stored
        before stands."""
        checkpoint = await self._what_was_done(team)
        if checkpoint is None:
            return
        self._catch_up(checkpoint)
        # The team may have come to its rest in the moment it was cut off; to run it on would wake the user proxy, or
        # make an agent speak that has done its work.
        at_rest = bool(asked_by(self._last, USER)) or (self._resumable and isinstance(self._last, TextMessage))
        with suppress(StoredStateError):
            if at_rest:
                await self._rest(checkpoint)
            else:
                await self._with_mail(lambda: self._save(*self._as_it_stands(checkpoint)))

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
        present.set(self._ladder)
        mailbox.set(self._mailbox)
        self._speakers = speakers(team)
        inbox = list(self._stored.checkpoint.inbox)
        async for item in team.run_stream(task=inbox or None, cancellation_token=self._token):
            self.started = True
            if not isinstance(item, TaskResult):
                if item.id not in self._given:
                    self._note(item)
                queue.put_nowait(item)

    async def _save(self, run: Run, checkpoint: Checkpoint | None = None) -> Run:
        async with self._saving:
            self._stored = await self._store.save(self._stored, run, checkpoint)
        return run

    def _note(self, event: Event) -> None:
        """Read from an event what it says of the run: tokens, classification, plan, and who has the turn."""
        changes: dict[str, Any] = {}
        self._noted.add(event.id)
        if event.models_usage is not None:
            changes["usage"] = counted(self._run.usage, "/".join(path_of(event)), event.models_usage)
        said = isinstance(event, BaseChatMessage) and PATH not in event.metadata
        if said and (self._speakers is None or event.source in self._speakers | {USER}):
            self._waiting.take(event, (), USER)
        if isinstance(event, BaseChatMessage) and said and event.source != USER:
            self._last = event
            if text := event.metadata.get(CLASSIFICATION):
                changes["classification"] = Classification.model_validate_json(text)
            if text := event.metadata.get(CLARIFIER_LOG):
                changes["clarifier_log"] = text
            if text := event.metadata.get(PLAN):
                changes["plan"] = ReviewedPlan.model_validate_json(text).after(self._run.plan)
            turns = [event.source]
            if isinstance(event, HandoffMessage) and not asked_by(event, USER):
                changes["status"] = self._phase(event.target)
                turns.append(event.target)
            changes["execution_path"] = _with_turns(self._run.execution_path, turns)
        status = changes.pop("status", self._run.status)
        if changes or status is not self._run.status:
            self._run = self._run.moved_to(status, **changes)


def delivered(
    checkpoint: Checkpoint, answers: Sequence[Answer], questions: Iterable[Question]
) -> tuple[Checkpoint, str]:
    """The checkpoint with answers to some of `questions` in its inbox, and the outermost agent that they go to."""
    asked, answered = list(questions), {answer.question_id for answer in answers}
    target = next(question.path[0] for question in asked if question.id in answered)
    message = answering(answers, target=target, questions=asked, source=USER)
    return checkpoint.model_copy(update={"inbox": (*checkpoint.inbox, message)}), target


async def whole(work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, which is done to its end also if the caller is cancelled meanwhile."""
    task = asyncio.ensure_future(work)
    try:
        return await asyncio.shield(task)
    except asyncio.CancelledError:
        with suppress(Exception):
            await task
        raise


async def _all_there(queue: asyncio.Queue[T]) -> list[T]:
    """What is in the queue, at least one."""
    items = [await queue.get()]
    while not queue.empty():
        items.append(queue.get_nowait())
    return items


async def _checkpoint(team: Team) -> Checkpoint:
    return Checkpoint(team_state=dict(await team.save_state()))


def _tells_of_an_answer(event: Event) -> bool:
    return isinstance(event, ThoughtEvent) and ANSWERS in event.metadata


def _calls(event: Event) -> TypeGuard[ToolCallRequestEvent]:
    return isinstance(event, ToolCallRequestEvent)


def _requests(event: Event, ids: set[str]) -> bool:
    """Whether the event asks for an answer to one of these questions, and to no other."""
    return isinstance(event, UserInputRequestedEvent) and event.request_id in ids


def _told_by(event: ThoughtEvent, question: Question) -> ThoughtEvent:
    return event.model_copy(update={"metadata": {**event.metadata, PATH: "/".join(question.path)}})


def _tells_of_a_question(event: Event) -> bool:
    asks = isinstance(event, ToolCallRequestEvent) and any(call.name == ASK_USER for call in event.content)
    return asks or QUESTIONS in event.metadata


def _with_turns(path: tuple[str, ...], agents: Sequence[str]) -> tuple[str, ...]:
    for agent in agents:
        if agent not in path[-1:]:
            path = (*path, agent)
    return path
