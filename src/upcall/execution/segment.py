"""A stretch: what happens between two rests of a run - the events, what they say of the run, and how it is stored."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import nullcontext, suppress
from itertools import chain
from typing import Any, TypeGuard, TypeVar

from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.messages import (
    BaseChatMessage,
    HandoffMessage,
    ThoughtEvent,
    ToolCallExecutionEvent,
    ToolCallRequestEvent,
    UserInputRequestedEvent,
)
from autogen_core import CancellationToken

from upcall import progress
from upcall.agents.tool_loop.ask_user import ASK_USER
from upcall.autogen import tracing
from upcall.autogen.answer_queue import AnswerQueue
from upcall.autogen.concurrency import run_to_completion
from upcall.autogen.group_chats import PendingQuestions
from upcall.autogen.internals import without_tracebacks_of
from upcall.autogen.journal import Journal
from upcall.autogen.messages import (
    ANSWERS,
    CLARIFIER_LOG,
    CLASSIFICATION,
    ERROR,
    OUTCOME,
    PATH,
    PLAN,
    QUESTIONS,
    USER,
    Event,
    answer_message,
    answered_event,
    event_path,
    event_questions,
    event_warnings,
    extract_questions,
    message_answers,
    message_questions,
)
from upcall.autogen.published import PublishedQuestions
from upcall.autogen.scope import ProgressListener, RunScope, enter_scope
from upcall.errors import ModelError, StoredStateError, StoreUnavailable, UpcallError
from upcall.execution.transcripts import TranscriptRecorder
from upcall.policy.deadlines import attach_deadline
from upcall.policy.duplicates import answer_duplicates
from upcall.policy.resolver import AnswerResolver
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import Question
from upcall.questions.states import QuestionState
from upcall.runs.call_timings import TIMED, Timings
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.outputs import Classification
from upcall.runs.plan import ReviewedPlan
from upcall.runs.run import MAX_ROUNDS, Run, RunStatus, add_usage, record_act
from upcall.storage.change_log import StoredChanges
from upcall.storage.connection import Work
from upcall.storage.store import AnswersQueued, RunStore, StoredRun
from upcall.storage.transcripts import write_transcript
from upcall.text import first_line

T = TypeVar("T")

SECONDS_BETWEEN_MAILS = 0.2
"""How often is looked for answers that come while a team works."""

BEATS_A_LEASE = 4
"""How often a worker says that it lives in the time that its lease lasts."""

SECONDS_TO_STOP = 5.0
"""How long a team that is cut off may take to stop. One that takes longer is left behind, its state unread."""


class RunSegment:
    """One team at work on one run, from a checkpoint to the next rest.

    Args:
        stored: the run as it was claimed; every write follows the one before.
        phase: the status of the run while the named agent has the turn.
        resolver: the run's questions, and who answers them before the human is asked.
        records: the journal of what was done since the checkpoint.
        traced: whether OpenTelemetry's spans are made of it.
        timed: whether the times of its calls are stored.
        keep_transcript: whether what is said and done is stored.
        server_wait: how many seconds a call waits for a model server that is loading or busy.
    """

    def __init__(
        self,
        stored: StoredRun,
        store: RunStore,
        phase: Callable[[str], RunStatus],
        *,
        resolver: AnswerResolver,
        records: Mapping[str, str],
        traced: bool = False,
        timed: bool = True,
        keep_transcript: bool = True,
        server_wait: float = 0.0,
    ) -> None:
        without_tracebacks_of(ModelError)
        self._stored = stored
        self._traced = traced
        self.timings, self._timed = Timings(), timed
        self._resolver = resolver
        self._store = store
        self._phase = phase
        so_far = stored.checkpoint.progress
        self._run = stored.run.restored_from(so_far) if so_far else stored.run
        self._token = CancellationToken()
        self._pauses = so_far.pauses if so_far else 0
        self._server_wait = server_wait
        self._transcript = TranscriptRecorder(stored.run.task, keep=keep_transcript)
        lineage = so_far.lineage if so_far and so_far.lineage else stored.run.id
        epoch = f"{lineage}/{self._pauses}"
        self._journal = Journal(
            stored.run.id,
            epoch,
            records,
            lambda new: store.record(self._stored, new),
            check=lambda new: store.refuse_large(stored.run.id, new),
            exact=lineage != stored.run.id,
        )
        brought = [answer for message in stored.checkpoint.inbox for answer in message_answers(message)]
        self._answered = (so_far.answered if so_far else 0) + len(brought)
        self._interruptions: list[BaseException] = []
        self._published = PublishedQuestions()
        self._last: BaseChatMessage | None = None
        self._stop_reason: str | None = None
        known = [each for each in stored.run.records.open if not each.asked_since_checkpoint]
        self._waiting = PendingQuestions({each.id: each.question for each in known})
        self._given = {message.id for message in stored.checkpoint.inbox}
        self._finished = False
        self.started = False
        """Whether the team took its inbox in."""
        self.held: list[Event] = []
        """Events that tell of a question; nobody hears of one before it is stored."""
        self._settled: set[tuple[tuple[str, ...], str]] = set()
        self._mailbox = AnswerQueue(stored.run.answers)
        self._untold: list[Answer] = []
        """Answers that the run has, and that who asked is to hear of once they are stored."""
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
        running = asyncio.create_task(self._run_team(team, queue))
        watching = asyncio.create_task(self._watch())
        for task in (running, watching):
            task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while not running.done() or not queue.empty():
                events = [event for event in await _all_there(queue) if event is not None]
                if self._run.status is not self._stored.run.status:
                    await run_to_completion(self._save_now())
                await self._publish(events)
                for told in chain.from_iterable(map(self._to_tell, events)):
                    yield told
                if watching.done():
                    watching.result()
            running.result()
        finally:
            watching.cancel()
            await asyncio.wait([watching])
            if not running.done():
                self._token.cancel()
                await asyncio.wait([running], timeout=SECONDS_TO_STOP)

    def _to_tell(self, event: Event) -> list[Event]:
        """What can be told with this event. That a question is published, or was answered at once, brings the call that
        asked; an answer takes the place of the request."""
        if isinstance(event, UserInputRequestedEvent):
            told = self._tell_request(event)
            if told is None:
                return []
            event = told
        elif not _tells_of_an_answer(event):
            if _tells_of_a_question(event):
                self.held.append(event)
                return []
            return [event]
        asked = event_questions(event)
        self._settled |= {(each.path, each.calls[-1]) for each in asked if each.calls}
        before = [each for each in self.held if self._is_settled(each)]
        self.held = [each for each in self.held if each not in before]
        return [*before, event]

    def _tell_request(self, event: UserInputRequestedEvent) -> Event | None:
        """The request as it was published, or what the question came to where nobody is asked; None for a duplicate."""
        record = self._resolver.records.get(event.request_id)
        if record is None or record.state is QuestionState.DUPLICATE:
            return None
        if record.answer is not None and record.answer.by is AnsweredBy.POLICY:
            return _tell_answer(record.question, record.answer)
        return attach_deadline(event, record.question)

    def _is_settled(self, event: Event) -> bool:
        asks = [call.id for call in event.content if call.name == ASK_USER] if _calls(event) else []
        return bool(asks) and all((event_path(event), call_id) in self._settled for call_id in asks)

    # -- questions while others work ----------------------------------------------------------------------------------

    async def _publish(self, events: Sequence[Event]) -> None:
        """Store the questions of a team that is still at work, so that they can be answered before the others are
        done. What nobody is asked has its answer at once."""
        requests = [event for event in events if isinstance(event, UserInputRequestedEvent)]
        new = self._resolver.publish(question for event in requests for question in event_questions(event))
        self._untold += [record.answer for record in new if record.answer is not None]
        if new:
            await run_to_completion(self._save_and_tell())

    async def _watch(self) -> None:
        """Keep the lease, take in the answers that come while the team works, and give them to those who wait for them.

        Raises:
            RunConflict: another process has the run now.
        """
        loop = asyncio.get_running_loop()
        beat = loop.time()
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_MAILS)
            with suppress(StoreUnavailable):  # Busy, or gone for a moment: it is looked at again.
                if loop.time() - beat > self._store.lease_seconds / BEATS_A_LEASE:
                    await run_to_completion(self._store.renew_lease(self._stored))
                    beat = loop.time()
                if self._untold:
                    await run_to_completion(self._save_and_tell())
                if self._resolver.records.open:
                    await run_to_completion(self._take_mail())

    async def _take_mail(self) -> None:
        came = await self._store.queued_answers(self._run.id)
        records = self._resolver.records
        answers = [each for each in came if (record := records.get(each.question_id)) and not record.is_closed]
        if not answers:
            return
        answers = answer_duplicates(answers, records)
        self._resolver.close(answers)
        self._untold += answers
        await self._save_and_tell()

    async def _save_and_tell(self) -> None:
        await self._save_now()
        self._tell()

    def _tell(self) -> None:
        self._mailbox.put(self._untold)
        self._untold = []

    async def _save_now(self) -> None:
        await self._save(self._current())

    def _current(self) -> Run:
        """The run as it is now, with its questions and the tokens that the matcher spent."""
        usage = self._run.usage
        for spent in self._resolver.spent:
            usage = add_usage(usage, "ledger", spent)
        self._resolver.spent.clear()
        self._run = self._run.move_to(self._run.status, usage=usage, records=self._resolver.records)
        return self._run

    # -- the rest -----------------------------------------------------------------------------------------------------

    async def pause(self, team: Team) -> Run:
        """Store the run at its rest: completed, or waiting for answers."""
        state = dict(await team.save_state())
        return await self._with_mail(lambda: self._rest_once(state))

    async def _with_mail(self, store: Callable[[], Coroutine[Any, Any, Run]]) -> Run:
        while True:
            try:
                return await store()
            except AnswersQueued:
                await self._take_mail()

    async def _rest_once(self, state: dict[str, Any]) -> Run:
        self._tell()  # Nobody is left who would hear of it before it is stored.
        closed = {each.id for each in self._resolver.records.closed}
        if lost := self._published.find_lost(closed | self._mailbox.answers.keys() | self._waiting.questions.keys()):
            problem, last = lost[0].explain_loss(), self._last
            if isinstance(last, HandoffMessage) and last.target != USER and message_questions(last):
                problem = f"A question was handed to {last.target!r}; under Upcall the user proxy is called {USER!r}."
            # No checkpoint: with the remedy the run goes on from the one before.
            return await self._save(self._current().move_to(RunStatus.FAILED, error=problem))
        questions = self._settle_waiting()
        run = self._current()
        run = run.model_copy(update={"records": run.records.enter_checkpoint(list(self._waiting.questions))})
        on_the_way = self._journal.records if len(run.answers) > self._answered else {}
        checkpoint = Checkpoint(team_state=state, journal=on_the_way)
        if questions:
            run, checkpoint = self._wait_for(run, questions, checkpoint)
        elif self._last is not None and (error := self._last.metadata.get(ERROR)):
            run = run.move_to(RunStatus.FAILED, error=first_line(error))
        elif self._last is None or not self._last.to_model_text().strip():
            again = await self._journal.discard_last_reply()
            run = run.move_to(RunStatus.FAILED, error="The team stopped without a result. Resume the run to try again.")
            if again or not self._journal.records:
                return await self._save(run)
            # The journal would bring the team to the same end again: it goes on behind it.
        else:
            reason = MAX_ROUNDS if self._last.metadata.get(OUTCOME) == MAX_ROUNDS else self._stop_reason
            result = self._last.to_model_text()
            run = run.move_to(RunStatus.COMPLETED, result=result, stop_reason=reason, error=None)
        progress = run.progress(self._pauses + 1)
        return await self._save(run, checkpoint.model_copy(update={"progress": progress}))

    def _settle_waiting(self) -> list[Question]:
        """Publish what agents that are not ours ask, cancel what nobody waits for any more, and give the questions that
        the team waits for."""
        for record in self._resolver.publish(self._waiting.questions.values()):
            if record.answer is not None:
                self.held.append(_tell_answer(record.question, record.answer))
        records = self._resolver.records
        gone = [each for each in records.open if each.id not in self._waiting.questions]
        self._resolver.close(
            [
                Answer(
                    question_id=each.id,
                    outcome=Outcome.CANCELLED,
                    by=AnsweredBy.POLICY,
                    reason=f"{each.question.asker} ended its turn without the answer.",
                )
                for each in gone
            ]
        )
        return [self._resolver.records[question_id].question for question_id in self._waiting.questions]

    def _wait_for(self, run: Run, questions: Sequence[Question], checkpoint: Checkpoint) -> tuple[Run, Checkpoint]:
        """The run waiting for its questions. Where some of them have an answer that the team did not hear any more, it
        is to go on at once with that."""
        run = run.move_to(RunStatus.AWAITING_CLARIFICATION)
        answers = [answer for each in questions if (answer := run.records[each.id].answer) is not None]
        if not answers:
            return run, checkpoint
        checkpoint, target = deliver_answers(checkpoint, answers, questions)
        return run.move_to(self._phase(target)), checkpoint

    async def failed(self, error: Exception) -> Run:
        """Store the run as failed. It goes on from its last rest, with the journal of what was done since."""
        cause = next((each for each in self._interruptions if isinstance(each, UpcallError)), error)
        message = str(cause) if isinstance(cause, UpcallError) else first_line(cause)
        return await self._with_mail(lambda: self._save(self._current().move_to(RunStatus.FAILED, error=message)))

    async def interrupted(self, team: Team) -> None:
        """Give the run back where the stretch is cut off: its journal says what was done. Where the team has come to
        its rest in that moment, that is stored."""
        with suppress(StoredStateError):
            if self._finished:
                await self.pause(team)
            else:
                await self._journal.flush()
                await self._store.release(self._stored, also=self._write_transcript())

    async def _run_team(self, team: Team, queue: asyncio.Queue[Event | None]) -> None:
        scope = RunScope(
            journal=self._journal,
            resolver=self._resolver,
            answers=self._mailbox,
            changes=StoredChanges(self._store, self._stored.run.id),
            token=self._token,
            progress=_told_to(queue),
            timings=self.timings,
            server_wait=self._server_wait,
            interruptions=self._interruptions,
            published=self._published,
        )
        with enter_scope(scope):
            await self._run_in_scope(team, queue)

    async def _run_in_scope(self, team: Team, queue: asyncio.Queue[Event | None]) -> None:
        if not self._traced:
            await self._take_turns(team, queue)
            return
        name = getattr(team, "name", type(team).__name__)
        with tracing.workflow(self._run.id, name, self._run.config.traceparent) as traceparent:
            pinned = self._run.config.model_copy(update={"traceparent": traceparent})
            self._run = self._run.model_copy(update={"config": pinned})
            await self._take_turns(team, queue)

    async def _take_turns(self, team: Team, queue: asyncio.Queue[Event | None]) -> None:
        inbox = list(self._stored.checkpoint.inbox)
        async for item in team.run_stream(task=inbox or None, cancellation_token=self._token):
            self.started = True
            if isinstance(item, TaskResult):
                self._stop_reason = item.stop_reason
            else:
                self._transcript.add(item)
                if item.id not in self._given:
                    self._note(item)
                queue.put_nowait(item)
        self._finished = not self._token.is_cancelled()

    async def _save(self, run: Run, checkpoint: Checkpoint | None = None) -> Run:
        async with self._saving:
            if checkpoint is None:
                await self._journal.flush()
            else:
                await self._journal.stop_writing()
            ends = checkpoint is not None or not run.working
            stores_times = ends and self._timed
            with record_act(TIMED, None, **self.timings.entry()) if stores_times else nullcontext():
                said = self._write_transcript() if ends else None
                self._stored = await self._store.save(self._stored, run, checkpoint, also=said)
        return run

    def _write_transcript(self) -> Work[object] | None:
        entries = self._transcript.entries
        return write_transcript(self._stored.run.id, self._pauses, entries) if entries else None

    def _note(self, event: Event) -> None:
        """Read from an event what it says of the run: tokens, classification, plan, and who has the turn."""
        changes: dict[str, Any] = {}
        if event.models_usage is not None:
            changes["usage"] = add_usage(self._run.usage, "/".join(event_path(event)), event.models_usage)
        if isinstance(event, ToolCallExecutionEvent):
            results = [each for each in event.content if each.name != ASK_USER]
            named = ["/".join((*event_path(event), each.name)) for each in results]
            failed = [name for name, each in zip(named, results, strict=True) if each.is_error]
            changes["tools"] = dict(Counter(self._run.tools) + Counter(named))
            changes["failed_tools"] = dict(Counter(self._run.failed_tools) + Counter(failed))
        if warned := [f"{'/'.join(event_path(event))}: {each}" for each in event_warnings(event)]:
            changes["warnings"] = tuple(dict.fromkeys((*self._run.warnings, *warned)))
        said = isinstance(event, BaseChatMessage) and PATH not in event.metadata
        if said:
            self._waiting.take(event, (), USER)
        if isinstance(event, BaseChatMessage) and said and ANSWERS not in event.metadata:
            self._last = event  # A user proxy of the user's name may have the last word.
        if isinstance(event, BaseChatMessage) and said and event.source != USER:
            if text := event.metadata.get(CLASSIFICATION):
                changes["classification"] = Classification.model_validate_json(text)
            if text := event.metadata.get(CLARIFIER_LOG):
                changes["clarifier_log"] = text
            if text := event.metadata.get(PLAN):
                changes["plan"] = ReviewedPlan.model_validate_json(text).after(self._run.plan)
            turns = [event.source]
            if isinstance(event, HandoffMessage) and not extract_questions(event, USER):
                changes["status"] = self._phase(event.target)
                turns.append(event.target)
            changes["execution_path"] = _with_turns(self._run.execution_path, turns)
        status = changes.pop("status", self._run.status)
        if changes or status is not self._run.status:
            self._run = self._run.move_to(status, **changes)


def deliver_answers(
    checkpoint: Checkpoint, answers: Sequence[Answer], questions: Iterable[Question]
) -> tuple[Checkpoint, str]:
    """The checkpoint with answers to some of `questions` in its inbox, and the outermost agent that they go to."""
    asked, answered = list(questions), {answer.question_id for answer in answers}
    target = next(question.path[0] for question in asked if question.id in answered)
    message = answer_message(answers, target=target, questions=asked, source=USER)
    return checkpoint.model_copy(update={"inbox": (*checkpoint.inbox, message)}), target


async def _all_there(queue: asyncio.Queue[T]) -> list[T]:
    """What is in the queue, at least one."""
    items = [await queue.get()]
    while not queue.empty():
        items.append(queue.get_nowait())
    return items


def _told_to(queue: asyncio.Queue[Event | None]) -> ProgressListener:
    """What puts progress among the events, also from a thread: in this loop, as long as there is one."""
    loop = asyncio.get_running_loop()

    def tell(reached: progress.Progress) -> None:
        event = ThoughtEvent(source="upcall", content=reached.to_text(), metadata={progress.PROGRESS: reached.what})
        with suppress(RuntimeError):  # The loop was closed meanwhile.
            loop.call_soon_threadsafe(queue.put_nowait, event)

    return tell


def _tells_of_an_answer(event: Event) -> bool:
    return isinstance(event, ThoughtEvent) and ANSWERS in event.metadata


def _calls(event: Event) -> TypeGuard[ToolCallRequestEvent]:
    return isinstance(event, ToolCallRequestEvent)


def _tell_answer(question: Question, answer: Answer) -> Event:
    event = answered_event(question, answer, source=question.asker)
    return event.model_copy(update={"metadata": {**event.metadata, PATH: "/".join(question.path)}})


def _tells_of_a_question(event: Event) -> bool:
    asks = isinstance(event, ToolCallRequestEvent) and any(call.name == ASK_USER for call in event.content)
    return asks or QUESTIONS in event.metadata


def _with_turns(path: tuple[str, ...], agents: Sequence[str]) -> tuple[str, ...]:
    for agent in agents:
        if agent not in path[-1:]:
            path = (*path, agent)
    return path
