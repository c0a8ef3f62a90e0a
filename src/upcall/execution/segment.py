"""A segment: a team at work on a run, from a checkpoint to the next pause.

The rules, each with the place that holds it:

- Store before you emit. Events that mention a question wait in the publisher until the question is stored.
- One writer (`SegmentWriter`) writes one version after another; the pause is the only write with a checkpoint.
- `reducer` says what events mean for the run, as pure functions; this module only calls them and stores the result.
- Whatever interrupts it (Ctrl-C, a reader who leaves, a store that is gone) gives the lease back and keeps the journal,
  so that a resume continues; only an error of the team or of a model fails the run.
- A write that another process's answer overtakes is made again with that answer.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from itertools import dropwhile, takewhile
from typing import Any

from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.messages import (
    BaseChatMessage,
    ModelClientStreamingChunkEvent,
    ThoughtEvent,
    UserInputRequestedEvent,
)

from upcall import identity, progress
from upcall.autogen import tracing
from upcall.autogen.attributes import refuse_loss
from upcall.autogen.concurrency import SegmentToken, SingleReaderQueue, run_to_completion
from upcall.autogen.internals import without_tracebacks_of, without_tracebacks_of_mcp
from upcall.autogen.journal import find_in_doubt
from upcall.autogen.messages import PATH, Event, asked_event, message_answers, name_text
from upcall.autogen.model_errors import describe_team_error
from upcall.autogen.model_notes import ModelNotes
from upcall.autogen.ownership import RunOwner
from upcall.autogen.scope import ProgressListener, RunScope, SharedModelCalls, current_scope, enter_scope
from upcall.autogen.tool_servers import LostServers
from upcall.errors import AgentFailed, ModelError, SharedAgent, StoredStateError, StoreUnavailable, UpcallError
from upcall.execution.budget import BudgetMeter
from upcall.execution.compatibility import adapt_checkpoint
from upcall.execution.earlier_work import NO_BRANCH, BranchedWork
from upcall.execution.outcomes import Completed, Failed, SegmentOutcome, Stopped, Waiting
from upcall.execution.prices import Prices
from upcall.execution.publisher import QuestionPublisher
from upcall.execution.reducer import (
    Phase,
    SegmentState,
    end_segment,
    explain_loss,
    find_text_of,
    lacks_result,
    reduce_event,
)
from upcall.execution.segment_writer import SegmentWriter
from upcall.execution.steering import RunSteering
from upcall.policy.resolver import AnswerResolver
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.runs.budget import ask_about_budget, find_open
from upcall.runs.plan_steps import note_steps
from upcall.runs.run import Run, RunProgress, Usage, add_usage
from upcall.runs.states import RunEvent, RunStatus
from upcall.runs.unknown_outcomes import ask_about_unknown_outcomes
from upcall.storage.queued_answers import AnswersQueued
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredRun
from upcall.telemetry import metrics

ANSWER_POLL_INTERVAL_S = 0.2
"""How often to look for answers that arrive while a team works, in seconds."""

QUESTION_BATCH_DELAY_S = 0.001
"""How long a question waits for others, for each that is open: a write of the run has them all, so that a thousand
questions with a write each would cost half a million."""

PAUSE_DELAY_S = 0.01
"""How long a question waits at least: a team with nothing else to do pauses meanwhile, and the pause stores both."""

STOP_TIMEOUT_S = 5.0
"""How many seconds an interrupted team may take to stop. After that it is abandoned, its state unread."""

_log = logging.getLogger("upcall")


@dataclass(frozen=True)
class SegmentOptions:
    """What a program sets for all its segments.

    Attributes:
        traced: whether they create OpenTelemetry spans.
        trace_content: whether these contain what was written.
        timed: whether the times of their calls are stored.
        keep_transcript: whether their transcripts are stored.
        keep_journals: whether their checkpoints keep what was done on the way to them.
        server_wait: how many seconds a call waits for a model server that is loading or busy.
        model_calls: the state shared with all callers of the same models.
        keeps_stock_clients: whether AutoGen's own clients for OpenAI's protocol make their calls themselves.
        server_rules: what model servers are known not to take, by server and model.
        prices: what tokens cost, for the budget of the run.
    """

    traced: bool = False
    trace_content: bool = False
    timed: bool = True
    keep_transcript: bool = True
    keep_journals: bool = True
    server_wait: float = 0.0
    model_calls: SharedModelCalls | None = None
    keeps_stock_clients: bool = False
    server_rules: Mapping[str, Sequence[str]] = field(default_factory=dict)
    prices: Prices = field(default_factory=Prices)


class RunSegment:
    """A team at work on a run, from a checkpoint to the next pause.

    Args:
        stored: the run as it was claimed.
        store: where it is.
        phase: what happens to the run when the named agent gets the turn.
        resolver: the run's questions, and the steps that answer them before the human is asked.
        records: the journal since the checkpoint.
        options: what the program sets for all its segments.
        stops_since: the id in the log behind which a request to stop is meant for this work.
        branch: what the run that this one was forked from has done, and knows.
    """

    def __init__(
        self,
        stored: StoredRun,
        store: RunStore,
        phase: Phase,
        *,
        resolver: AnswerResolver,
        records: Mapping[str, str],
        options: SegmentOptions,
        stops_since: int = 0,
        branch: BranchedWork = NO_BRANCH,
    ) -> None:
        without_tracebacks_of(ModelError)
        without_tracebacks_of(SharedAgent)
        without_tracebacks_of_mcp(_is_in_segment)
        self._phase, self._options = phase, options
        self._writer = SegmentWriter(
            stored,
            store,
            records,
            timed=options.timed,
            keep_transcript=options.keep_transcript,
            keep_journals=options.keep_journals,
            branch=branch,
        )
        self._known_answers = branch.answers
        resolver.find_kept = self._find_kept
        self._questions = QuestionPublisher(stored.run, resolver)
        begin = stored.checkpoint.progress
        self._state = SegmentState(begin.restore(stored.run) if begin else stored.run)
        self.timings = self._writer.timings
        self.model_notes = ModelNotes(stored.checkpoint.model_notes, options.server_rules)
        self._token = SegmentToken()
        self._steering = RunSteering(store, stored.run.id, self._writer.journal, self._token, since=stops_since)
        self._meter = (
            None
            if stored.run.budget is None
            else BudgetMeter(stored.run, self._writer.journal, options.prices, self._token)
        )
        self._last_text = ""
        """The last text of an agent."""
        self._interruptions: list[BaseException] = []
        self._lost_servers = LostServers()
        self._started = self._finished = self._discarded = False

    async def work(self, team: Team, *, loaded: bool) -> AsyncGenerator[Event | SegmentOutcome, None]:
        """Let the team work from its checkpoint to its next pause, store that, then report it: the last item is how
        the segment ended.

        If this is interrupted (Ctrl-C, the caller leaves), the run is stored in its current state and can be resumed.

        Raises:
            StoredStateError: the store cannot be reached, or somebody else has the run now. Nothing is lost.
        """
        stored = self._writer.stored
        try:
            if not loaded:
                await adapt_checkpoint(team, stored.run.id, stored.checkpoint)
            await self._writer.read_transcript()
            async with aclosing(self._events(team)) as events:
                async for event in events:
                    yield event
            outcome = await run_to_completion(self._pause(team))
        except (asyncio.CancelledError, GeneratorExit) as interruption:
            if self._is_at_limit(interruption):
                outcome = await run_to_completion(self._with_queued(self._store_at_limit))
            else:
                await run_to_completion(self._interrupt(team))
                if not self._is_stopped_by(interruption):
                    raise
                yield Stopped(self._writer.stored)
                return
        except StoredStateError as error:
            if self._started or isinstance(error, StoreUnavailable):  # That is no failure of the run.
                await run_to_completion(self._writer.release())
                raise
            outcome = await run_to_completion(self._fail(error))
        except Exception as error:
            cause = self._find_cause(error)
            if isinstance(cause, StoreUnavailable):
                await run_to_completion(self._writer.release())
                raise cause from error
            outcome = await run_to_completion(self._fail(cause))
        for event in self._questions.open():
            yield event
        if (about_budget := find_open(outcome.stored.run.records)) is not None:
            yield asked_event(about_budget, source=about_budget.asker)
        yield outcome

    # -- the events of a team at work ---------------------------------------------------------------------------------

    async def _events(self, team: Team) -> AsyncGenerator[Event, None]:
        """Yield the team's events, except those held back.

        The team runs in a task of its own: cancelling a task that waits for a group chat does not stop the group chat
        while a member works (autogen-agentchat 0.7.5); its cancellation token does.
        """
        queue = SingleReaderQueue[Event | None]()
        running = asyncio.create_task(self._run_team(team, queue))
        watching = asyncio.create_task(self._watch())
        for task in (running, watching):  # The end of either must wake the loop below, which waits for an event.
            task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while not running.done() or not queue.empty():
                events = await _next_events(queue)
                # A status is stored before its event is emitted, like a question: who sees it may load the run.
                if self._state.run.status is not self._writer.stored.run.status:
                    await run_to_completion(self._save())
                for event in takewhile(_is_no_question, events):
                    for emitted in self._questions.let_through(event):
                        yield emitted
                if asked := [*dropwhile(_is_no_question, events)]:
                    if not running.done():
                        asked += await self._wait_for_pause(queue)
                    await self._publish(asked)
                    for event in asked:
                        for emitted in self._questions.let_through(event):
                            yield emitted
                if watching.done():
                    watching.result()  # It ends by an error alone: as a rule, another process has the run now.
            running.result()
        finally:
            watching.cancel()
            if not running.done():
                self._token.cancel()  # Before anything is waited for: who is cancelled twice does not wait.
            await asyncio.wait([watching])
            await asyncio.wait([running], timeout=STOP_TIMEOUT_S)

    async def _wait_for_pause(self, queue: SingleReaderQueue[Event | None]) -> list[Event]:
        """Return what arrives a little later than a question: others that are asked, and all until a team pauses that
        has nothing else to do."""
        events: list[Event] = []
        with suppress(TimeoutError):
            delay = len(self._questions.records.open) * QUESTION_BATCH_DELAY_S
            async with asyncio.timeout(max(PAUSE_DELAY_S, delay)):
                while (event := await queue.get()) is not None:
                    events.append(event)
        return events

    async def _publish(self, events: Sequence[Event]) -> None:
        """Store the questions of a team that is still at work, so that they can be answered before the others are
        done. Questions that do not go to the human are answered at once. If the team has finished, its pause stores
        them, and nobody learns of them before."""
        new = await self._questions.decide(events)
        if new and self._finished:
            self._questions.hold_back()
        elif new:
            await run_to_completion(self._save_and_deliver())

    async def _watch(self) -> None:
        """Renew the lease, write the transcript so far, take in answers that arrive while the team works, and pass
        them to the agents that wait for them.

        Raises:
            RunConflict: another process has the run now.
        """
        while True:
            await asyncio.sleep(ANSWER_POLL_INTERVAL_S)
            with suppress(StoreUnavailable):  # Busy, or gone for a moment: it is looked at again.
                await run_to_completion(self._writer.beat())
                if self._questions.has_undelivered or self._writer.is_held_up:
                    await run_to_completion(self._save_and_deliver())
                if self._questions.records.open:
                    await run_to_completion(self._take_queued())

    async def _take_queued(self) -> None:
        if self._questions.take(await self._writer.queued_answers()):
            await self._save_and_deliver()

    async def _save_and_deliver(self) -> None:
        await self._save()
        self._questions.deliver()

    async def _save(self) -> StoredRun:
        return await self._writer.save(self._current())

    def _current(self) -> Run:
        """Return the current run, with its questions, the tokens of the matcher and of broken-off replies, and
        warnings of its servers."""
        run, resolver = self._state.run, self._questions.resolver
        usage = run.usage
        for spent in resolver.spent:
            usage = add_usage(usage, "ledger", spent)
        resolver.spent.clear()
        for broken in self._writer.journal.broken_off.take():
            path = "/".join(broken.path)
            usage = {**usage, path: usage.get(path, Usage()).plus(0, broken.pieces)}
        warnings = tuple(dict.fromkeys((*run.warnings, *self._lost_servers.warnings)))
        run = note_steps(run.update(usage=usage, records=resolver.records, warnings=warnings))
        resolver.records = run.records
        if self._meter is not None:
            run = run.update(budget=self._meter.budget)
        self._state = replace(self._state, run=run)
        return run

    # -- the pause ----------------------------------------------------------------------------------------------------

    async def _pause(self, team: Team) -> SegmentOutcome:
        """Store the run at its pause: completed, failed or waiting for answers."""
        team_state = dict(await team.save_state())
        if self._questions.waiting:  # Its work is half done, and the rest of it needs what would be lost.
            refuse_loss(team_state)
        return await self._with_queued(lambda: self._store_pause(team_state))

    async def _with_queued(self, store: Callable[[], Coroutine[Any, Any, SegmentOutcome]]) -> SegmentOutcome:
        while True:
            try:
                return await store()
            except AnswersQueued:
                await self._take_queued()

    async def _store_pause(self, team_state: dict[str, Any]) -> SegmentOutcome:
        self._questions.deliver()  # Nobody is left who would hear of it before it is stored.
        if lost := self._questions.find_lost():
            # No checkpoint: with the remedy the run continues from the one before.
            return await self._store_failure(explain_loss(self._state.last, lost[0].explain_loss()), "AnswerLost")
        await self._questions.decide_waiting()
        self._questions.take(self._find_known_answers())
        with self._questions.undo_on_error():
            return await self._store_end(team_state)

    def _find_known_answers(self) -> Sequence[Answer]:
        """Return the answers that open questions have in the run that this one was forked from. They have one where the
        same call asks them, so that they do not depend on what is different here."""
        found = (
            self._find_kept(record.question, is_new=record.asked_since_checkpoint)
            for record in self._questions.records.open
        )
        return [each for each in found if each is not None]

    def _find_kept(self, question: Question, *, is_new: bool = True) -> Answer | None:
        if not self._known_answers:
            return None
        same = self._writer.journal.earlier.question_ids(question.id) if is_new else [question.id]
        known = next((self._known_answers[each] for each in same if each in self._known_answers), None)
        return None if known is None else known.model_copy(update={"question_id": question.id})

    async def _store_end(self, team_state: dict[str, Any]) -> SegmentOutcome:
        self._questions.cancel_unwaited()
        on_the_way = self._writer.journal_beyond(self._current())
        run, checkpoint = end_segment(self._state, self._questions.waiting, team_state, on_the_way, self._phase)
        also = None
        if run.status is RunStatus.COMPLETED:
            run = run.update(warnings=tuple(dict.fromkeys((*run.warnings, *await self._steering.list_late()))))
            also = self._steering.refuse_late
        if lacks_result(run) and (await self._discard_last_reply() or not self._writer.journal.records):
            return self._end(await self._writer.save(run), "NoResult")
        # Otherwise the journal would bring the team to the same end again: it continues behind it.
        progress = RunProgress.of(run, self._writer.pauses + 1, self._writer.journal.departed)
        kept = {"progress": progress, "model_notes": self.model_notes.to_json()}
        stored = await self._writer.save(run, checkpoint.model_copy(update=kept), also=also)
        return self._end(stored, "NoResult" if lacks_result(run) else "AgentError")

    async def _discard_last_reply(self) -> bool:
        """Discard the reply with which the team ended; once, however often its end is stored."""
        if not self._discarded:
            self._discarded = await self._writer.journal.discard_last_reply()
        return self._discarded

    def _end(self, stored: StoredRun, failure: str) -> SegmentOutcome:
        """Return how the segment ended; `failure` is the kind of what failed, where it failed."""
        match stored.run.status:
            case RunStatus.COMPLETED:
                return Completed(stored)
            case RunStatus.FAILED:
                if self._options.traced:
                    metrics.count_failure(failure)
                return Failed(stored, failure)
            case _:
                return Waiting(stored)

    def _find_cause(self, error: Exception) -> Exception:
        return next((each for each in self._interruptions if isinstance(each, UpcallError)), error)

    async def _fail(self, error: Exception) -> SegmentOutcome:
        """Store the run as failed. It continues from its last pause, with the journal since then."""
        message = str(error) if isinstance(error, UpcallError) else describe_team_error(error)
        _log.debug("The run %s failed.", self._writer.stored.run.id, exc_info=error)
        return await self._with_queued(lambda: self._store_failure(message, type(error).__name__))

    async def _store_failure(self, error: str, kind: str) -> SegmentOutcome:
        failed = self._current().apply(RunEvent.FAILED, error=error)
        return self._end(await self._writer.save(failed), kind)

    def _is_stopped_by(self, interruption: BaseException) -> bool:
        """Return whether the human stopped the run after a step."""
        return _is_own(interruption) and self._steering.is_stopped

    def _is_at_limit(self, interruption: BaseException) -> bool:
        """Return whether the run has reached a limit of its budget."""
        return _is_own(interruption) and self._meter is not None and self._meter.is_reached and not self._finished

    async def _store_at_limit(self) -> SegmentOutcome:
        """Store that the run waits at a limit of its budget. There is no checkpoint: it continues with the journal.
        What was waited for in vain, and cut off, is in doubt."""
        run = ask_about_unknown_outcomes(self._current(), find_in_doubt(self._writer.journal.records))
        run = ask_about_budget(run, self._last_text or (run.budget.found if run.budget else ""))
        if (question := find_open(run.records)) is not None:
            self._writer.transcript.add(asked_event(question, source=question.asker))
        return self._end(await self._writer.save(run), "")

    async def _interrupt(self, team: Team) -> None:
        """Release the run when the segment is interrupted. If the team reached its pause at that moment, the pause is
        stored."""
        if not self._finished:
            if self._writer.journal.broken_off:
                with suppress(StoredStateError):  # What they took is in the journal too.
                    await self._save()
            await self._writer.release()
            return
        try:
            await self._pause(team)
        except (StoredStateError, AgentFailed):
            await self._writer.release()

    # -- the team -----------------------------------------------------------------------------------------------------

    async def _run_team(self, team: Team, queue: SingleReaderQueue[Event | None]) -> None:
        writer, options, around = self._writer, self._options, current_scope()
        scope = RunScope(
            store=writer.store_name,
            owner=RunOwner(writer.store_name, writer.stored.run.id),
            journal=writer.journal,
            resolver=self._questions.resolver,
            answers=self._questions.queue,
            steering=self._steering,
            budget=self._meter,
            changes=writer.changes,
            token=self._token,
            progress=_emit_progress(queue),
            thoughts=lambda piece: queue.put_nowait(self._name_text(piece)),
            timings=writer.timings,
            server_wait=options.server_wait,
            model_calls=options.model_calls,
            model_notes=self.model_notes,
            keeps_stock_clients=options.keeps_stock_clients,
            replies=around.replies,
            clock=around.clock,
            interruptions=self._interruptions,
            published=self._questions.sightings,
            lost_servers=self._lost_servers,
        )
        with enter_scope(scope):
            await self._run_in_scope(team, queue)

    async def _run_in_scope(self, team: Team, queue: SingleReaderQueue[Event | None]) -> None:
        if not self._options.traced:
            await self._take_turns(team, queue)
            return
        name = getattr(team, "name", type(team).__name__)
        run = self._state.run
        with tracing.segment(run, name, content=self._options.trace_content) as traceparent:
            pinned = run.config.model_copy(update={"traceparent": traceparent})
            self._state = replace(self._state, run=run.model_copy(update={"config": pinned}))
            await self._take_turns(team, queue)

    async def _take_turns(self, team: Team, queue: SingleReaderQueue[Event | None]) -> None:
        inbox = list(self._writer.stored.checkpoint.inbox)
        given = {each.id for each in inbox}
        history = {each.id for each in inbox[:-1] if not message_answers(each)}  # The caller has it; the state too.
        async for item in team.run_stream(task=inbox or None, cancellation_token=self._token):
            self._started = True
            if isinstance(item, TaskResult):
                self._state = replace(self._state, stop_reason=item.stop_reason)
            else:
                if isinstance(item, ModelClientStreamingChunkEvent):
                    item = self._name_text(item)
                elif item.id not in history:
                    self._writer.transcript.add(item)
                if item.id not in given:
                    self._read(item)
                queue.put_nowait(item)
        self._finished = not self._token.is_cancelled()

    def _read(self, event: Event) -> None:
        if isinstance(event, BaseChatMessage) and PATH not in event.metadata:
            self._questions.read(event)
        self._state = reduce_event(self._state, event, self._phase)
        self._last_text = find_text_of(event) or self._last_text

    def _name_text(self, piece: ModelClientStreamingChunkEvent) -> Event:
        return name_text(piece, self._writer.pauses, self._writer.transcript.number_text(piece))


async def _next_events(queue: SingleReaderQueue[Event | None]) -> list[Event]:
    """Take the items in the queue, at least one."""
    items = [await queue.get()]
    while not queue.empty():
        items.append(queue.get_nowait())
    return [item for item in items if item is not None]


def _is_no_question(event: Event) -> bool:
    return not isinstance(event, UserInputRequestedEvent)


def _emit_progress(queue: SingleReaderQueue[Event | None]) -> ProgressListener:
    """Return a function that adds progress to the events, also from a thread, as long as this loop runs."""
    loop = asyncio.get_running_loop()

    def emit(reached: progress.Progress) -> None:
        event = ThoughtEvent(
            id=identity.new_message_id(),
            source="upcall",
            content=reached.to_text(),
            metadata={progress.PROGRESS: reached.what},
        )
        with suppress(RuntimeError):  # The loop was closed meanwhile.
            loop.call_soon_threadsafe(queue.put_nowait, event)

    return emit


def _is_own(interruption: BaseException) -> bool:
    """Return whether the segment itself ended the work; a caller may leave or cancel in the same moment."""
    task = asyncio.current_task()
    return isinstance(interruption, asyncio.CancelledError) and not (task and task.cancelling())


def _is_in_segment() -> bool:
    return current_scope().lost_servers is not None
