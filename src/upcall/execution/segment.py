"""A segment: the time between two pauses of a run. `reducer` interprets its events; this module stores them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import replace
from itertools import dropwhile, takewhile
from typing import Any

from autogen_agentchat.base import TaskResult, Team
from autogen_agentchat.messages import ModelClientStreamingChunkEvent, ThoughtEvent, UserInputRequestedEvent

from upcall import identity, progress
from upcall.autogen import tracing
from upcall.autogen.answer_queue import AnswerQueue
from upcall.autogen.attributes import refuse_loss
from upcall.autogen.concurrency import SegmentToken, SingleReaderQueue, run_to_completion
from upcall.autogen.group_chats import PendingQuestions
from upcall.autogen.internals import without_tracebacks_of, without_tracebacks_of_mcp
from upcall.autogen.journal import Journal
from upcall.autogen.messages import Event, event_questions, message_answers, name_text
from upcall.autogen.model_notes import ModelNotes
from upcall.autogen.ownership import RunOwner
from upcall.autogen.published import PublishedQuestions
from upcall.autogen.scope import ProgressListener, RunScope, SharedModelCalls, current_scope, enter_scope
from upcall.autogen.tool_servers import LostServers
from upcall.errors import AgentFailed, ModelError, SharedAgent, StoredStateError, StoreUnavailable, UpcallError
from upcall.execution.compatibility import adapt_checkpoint
from upcall.execution.event_gate import EventGate, tell_answer
from upcall.execution.reducer import Phase, SegmentState, end_segment, explain_loss, lacks_result, reduce_event
from upcall.execution.transcripts import TranscriptRecorder
from upcall.policy.duplicates import answer_duplicates
from upcall.policy.resolver import AnswerResolver, Moment
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.runs.call_timings import Timings
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.plan import ApprovedPlan, PlanStatus
from upcall.runs.run import Run, add_usage
from upcall.runs.run_changes import record_act
from upcall.runs.states import RunEvent, RunStatus
from upcall.storage.change_log import StoredChanges
from upcall.storage.connection import Work, join_work
from upcall.storage.plans import write_plan
from upcall.storage.store import AnswersQueued, RunStore, StoredRun
from upcall.storage.transcripts import load_segments, write_transcript
from upcall.telemetry import metrics
from upcall.text import first_line

SECONDS_BETWEEN_MAILS = 0.2
"""How often to look for answers that arrive while a team works, in seconds."""

SECONDS_A_QUESTION = 0.001
"""How long a question waits for others, for each that is open: a write of the run has them all, so that a thousand
questions with a write each would cost half a million."""

SECONDS_TO_PAUSE = 0.01
"""How long a question waits at least: a team with nothing else to do pauses meanwhile, and the pause stores both."""

BEATS_A_LEASE = 4
"""How often a worker renews its lease during the time it lasts."""

ENTRIES_A_SECOND = 500
"""How many entries of a transcript are written again within a second, at most: the first are there after one, those of
a long segment less often."""

SECONDS_TO_STOP = 5.0
"""How many seconds an interrupted team may take to stop. After that it is abandoned, its state unread."""


_log = logging.getLogger("upcall")


class RunSegment:
    """A team at work on a run, from a checkpoint to the next pause.

    Args:
        stored: the run as it was claimed; every write follows the one before.
        phase: the status of the run while the named agent has the turn.
        resolver: the run's questions, and the steps that answer them before the human is asked.
        records: the journal since the checkpoint.
        traced: whether it creates OpenTelemetry spans.
        trace_content: whether these contain what was said.
        timed: whether the times of its calls are stored.
        keep_transcript: whether its transcript is stored.
        server_wait: how many seconds a call waits for a model server that is loading or busy.
        model_calls: the state shared with all callers of the same models.
        keeps_stock_clients: whether AutoGen's own clients for OpenAI's protocol make their calls themselves.
        server_rules: what model servers are known not to take, by server and model.
    """

    def __init__(
        self,
        stored: StoredRun,
        store: RunStore,
        phase: Phase,
        *,
        resolver: AnswerResolver,
        records: Mapping[str, str],
        traced: bool = False,
        trace_content: bool = False,
        timed: bool = True,
        keep_transcript: bool = True,
        server_wait: float = 0.0,
        model_calls: SharedModelCalls | None = None,
        keeps_stock_clients: bool = False,
        server_rules: Mapping[str, Sequence[str]] = {},
    ) -> None:
        without_tracebacks_of(ModelError)
        without_tracebacks_of(SharedAgent)
        without_tracebacks_of_mcp(_is_in_segment)
        self._stored = stored
        self._traced, self._trace_content = traced, trace_content
        self.timings, self._timed = Timings(), timed
        self._resolver = resolver
        self._store = store
        self._phase = phase
        progress = stored.checkpoint.progress
        self._token = SegmentToken()
        self._pauses = progress.pauses if progress else 0
        self._server_wait, self._model_calls = server_wait, model_calls
        self.model_notes = ModelNotes(stored.checkpoint.model_notes, server_rules)
        self._keeps_stock_clients = keeps_stock_clients
        self._keeps_transcript = keep_transcript
        lineage = progress.lineage if progress and progress.lineage else stored.run.id
        epoch = f"{lineage}/{self._pauses}"
        self._journal = Journal(
            stored.run.id,
            epoch,
            records,
            lambda new: store.record(self._stored, new),
            check=lambda new: store.refuse_large(stored.run.id, new),
            exact=lineage != stored.run.id,
            on_delivery=lambda question_ids: self._transcript.add_answers(question_ids),
        )
        brought = [answer for message in stored.checkpoint.inbox for answer in message_answers(message)]
        self._answered = (progress.answered if progress else 0) + len(brought)
        self._interruptions: list[BaseException] = []
        self._published = PublishedQuestions()
        self._lost_servers = LostServers()
        known = [each for each in stored.run.records.open if not each.asked_since_checkpoint]
        asked = [each.id for each in known]
        self._transcript = TranscriptRecorder(stored.run.task, asked, keep=keep_transcript)
        waiting = PendingQuestions({each.id: each.question for each in known})
        self._state = SegmentState(stored.run.restored_from(progress) if progress else stored.run, waiting)
        self._given = {message.id for message in stored.checkpoint.inbox}
        self._finished = False
        self._started = False
        self._discarded = False
        self._gate = EventGate()
        self._mailbox = AnswerQueue(stored.run.answers)
        self._untold: list[Answer] = []
        """Answers of the run that the askers will receive once they are stored."""
        self._saving = asyncio.Lock()

    @property
    def stored(self) -> StoredRun:
        """The run as it was stored last."""
        return self._stored

    async def work(self, team: Team, *, loaded: bool) -> AsyncGenerator[Event, None]:
        """Let the team work from its checkpoint to its next pause, store that, then report it.

        If this is interrupted (Ctrl-C, the caller leaves), the run is stored in its current state and can be resumed.
        """
        try:
            if not loaded:
                await adapt_checkpoint(team, self._stored.run.id, self._stored.checkpoint)
            if self._keeps_transcript and self._stored.version > 1:
                # Only one that was interrupted has something there.
                said = await load_segments(self._store, self._stored.run.id, self._pauses, small=True)
                self._transcript.go_on_behind(said.get(self._pauses, ()))
            async with aclosing(self._events(team)) as events:
                async for event in events:
                    yield event
            await run_to_completion(self._pause(team))
        except (asyncio.CancelledError, GeneratorExit):
            await run_to_completion(self._interrupt(team))
            raise
        except StoredStateError as error:
            if self._started or isinstance(error, StoreUnavailable):  # That is no failure of the run.
                await run_to_completion(self._release())
                raise
            await run_to_completion(self._fail(error))
        except Exception as error:
            cause = self._find_cause(error)
            if isinstance(cause, StoreUnavailable):
                await run_to_completion(self._release())
                raise cause from error
            await run_to_completion(self._fail(cause))
        for event in self._gate.open(self._resolver.records):
            yield event

    async def _events(self, team: Team) -> AsyncGenerator[Event, None]:
        """Yield the team's events, except those held back.

        The team runs in a task of its own: cancelling a task that waits for a group chat does not stop the group chat
        while a member works (autogen-agentchat 0.7.5); its cancellation token does.
        """
        queue = SingleReaderQueue[Event | None]()
        running = asyncio.create_task(self._run_team(team, queue))
        watching = asyncio.create_task(self._watch())
        for task in (running, watching):
            task.add_done_callback(lambda _: queue.put_nowait(None))
        try:
            while not running.done() or not queue.empty():
                events = await self._next_events(queue)
                if self._state.run.status is not self._stored.run.status:
                    await run_to_completion(self._save_now())
                for event in takewhile(_is_no_question, events):
                    for told in self._gate.let_through(event, self._resolver.records):
                        yield told
                if asked := [*dropwhile(_is_no_question, events)]:
                    if not running.done():
                        asked += await self._wait_for_pause(queue)
                    if not await self._publish(asked):
                        self._gate.close()
                    for event in asked:
                        for told in self._gate.let_through(event, self._resolver.records):
                            yield told
                if watching.done():
                    watching.result()
            running.result()
        finally:
            watching.cancel()
            if not running.done():
                self._token.cancel()  # Before anything is waited for: who is cancelled twice does not wait.
            await asyncio.wait([watching])
            await asyncio.wait([running], timeout=SECONDS_TO_STOP)

    async def _next_events(self, queue: SingleReaderQueue[Event | None]) -> list[Event]:
        """Take the items in the queue, at least one."""
        items = [await queue.get()]
        while not queue.empty():
            items.append(queue.get_nowait())
        return [item for item in items if item is not None]

    async def _wait_for_pause(self, queue: SingleReaderQueue[Event | None]) -> list[Event]:
        """Return what arrives a little later than a question: others that are asked, and all until a team pauses that
        has nothing else to do."""
        events: list[Event] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(max(SECONDS_TO_PAUSE, len(self._resolver.records.open) * SECONDS_A_QUESTION)):
                while (event := await queue.get()) is not None:
                    events.append(event)
        return events

    # -- questions while others work ----------------------------------------------------------------------------------

    async def _publish(self, events: Sequence[Event]) -> bool:
        """Store the questions of a team that is still at work, so that they can be answered before the others are
        done. Questions that do not go to the human are answered at once. If the team has finished, its pause stores
        them: return whether they are stored now."""
        requests = [event for event in events if isinstance(event, UserInputRequestedEvent)]
        asked = [question for event in requests for question in event_questions(event)]
        new = await self._resolver.decide(asked, Moment.AT_DRIVER)
        self._untold += [record.answer for record in new if record.answer is not None]
        if new and self._finished:
            return False
        if new:
            await run_to_completion(self._save_and_tell())
        return True

    async def _watch(self) -> None:
        """Renew the lease, write the transcript so far, take in answers that arrive while the team works, and pass
        them to the agents that wait for them.

        Raises:
            RunConflict: another process has the run now.
        """
        loop = asyncio.get_running_loop()
        beat = wrote = loop.time()
        entries = len(self._transcript.entries)
        while True:
            await asyncio.sleep(SECONDS_BETWEEN_MAILS)
            with suppress(StoreUnavailable):  # Busy, or gone for a moment: it is looked at again.
                count = len(self._transcript.entries)
                if count > entries and loop.time() - wrote > max(1, count / ENTRIES_A_SECOND):
                    await run_to_completion(self._store.renew_lease(self._stored, also=self._write_transcript()))
                    beat = wrote = loop.time()
                    entries = count
                if loop.time() - beat > self._store.lease_seconds / BEATS_A_LEASE:
                    await run_to_completion(self._store.renew_lease(self._stored))
                    beat = loop.time()
                if self._untold:
                    await run_to_completion(self._save_and_tell())
                if self._resolver.records.open:
                    await run_to_completion(self._take_queued())

    async def _take_queued(self) -> None:
        came = await self._store.queued_answers(self._stored.run.id)
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
        """Return the current run, with its questions, the tokens that the matcher used, and warnings of its servers."""
        run = self._state.run
        usage = run.usage
        for spent in self._resolver.spent:
            usage = add_usage(usage, "ledger", spent)
        self._resolver.spent.clear()
        warnings = tuple(dict.fromkeys((*run.warnings, *self._lost_servers.warnings)))
        run = run.update(usage=usage, records=self._resolver.records, warnings=warnings)
        self._state = replace(self._state, run=run)
        return run

    # -- the pause ----------------------------------------------------------------------------------------------------

    async def _pause(self, team: Team) -> Run:
        """Store the run at its pause: completed, or waiting for answers."""
        team_state = dict(await team.save_state())
        if self._state.waiting.questions:
            refuse_loss(team_state)
        return await self._with_queued(lambda: self._store_pause(team_state))

    async def _with_queued(self, store: Callable[[], Coroutine[Any, Any, Run]]) -> Run:
        while True:
            try:
                return await store()
            except AnswersQueued:
                await self._take_queued()

    async def _store_pause(self, team_state: dict[str, Any]) -> Run:
        self._tell()  # Nobody is left who would hear of it before it is stored.
        closed, waiting = {each.id for each in self._resolver.records.closed}, self._state.waiting.questions
        if lost := self._published.find_lost(closed | self._mailbox.answers.keys() | waiting.keys()):
            problem = explain_loss(self._state.last, lost[0].explain_loss())
            # No checkpoint: with the remedy the run goes on from the one before.
            return await self._save(self._current().apply(RunEvent.FAILED, error=problem), failure="AnswerLost")
        await self._publish_waiting()
        known = self._resolver.records
        try:
            return await self._store_end(team_state)
        except BaseException:
            self._resolver.records = known  # What was cancelled may have got its answer meanwhile.
            raise

    async def _store_end(self, team_state: dict[str, Any]) -> Run:
        self._cancel_unwaited()
        on_the_way = self._journal.records if len(self._current().answers) > self._answered else {}
        run, checkpoint = end_segment(self._state, team_state, on_the_way, self._phase)
        if lacks_result(run) and (await self._discard_last_reply() or not self._journal.records):
            return await self._save(run, failure="NoResult")
        # Otherwise the journal would bring the team to the same end again: it goes on behind it.
        kept = {"progress": run.progress(self._pauses + 1), "model_notes": self.model_notes.to_json()}
        checkpoint = checkpoint.model_copy(update=kept)
        return await self._save(run, checkpoint, failure="NoResult" if lacks_result(run) else "AgentError")

    async def _discard_last_reply(self) -> bool:
        """Discard the reply with which the team ended; once, however often its end is stored."""
        if not self._discarded:
            self._discarded = await self._journal.discard_last_reply()
        return self._discarded

    async def _publish_waiting(self) -> None:
        """Publish the questions of agents that are not ours."""
        for record in await self._resolver.decide(self._state.waiting.questions.values(), Moment.AT_DRIVER):
            if record.answer is not None:
                self._gate.hold(tell_answer(record.question, record.answer))

    def _cancel_unwaited(self) -> None:
        """Cancel the questions that nobody waits for any more."""
        gone = [each for each in self._resolver.records.open if each.id not in self._state.waiting.questions]
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

    def _find_cause(self, error: Exception) -> Exception:
        return next((each for each in self._interruptions if isinstance(each, UpcallError)), error)

    async def _fail(self, error: Exception) -> Run:
        """Store the run as failed. It continues from its last pause, with the journal since then."""
        message = str(error) if isinstance(error, UpcallError) else first_line(error)
        _log.debug("The run %s failed.", self._stored.run.id, exc_info=error)
        return await self._with_queued(
            lambda: self._save(self._current().apply(RunEvent.FAILED, error=message), failure=type(error).__name__)
        )

    async def _interrupt(self, team: Team) -> None:
        """Release the run when the segment is interrupted. If the team reached its pause at that moment, the pause is
        stored."""
        if not self._finished:
            await self._release()
            return
        try:
            await self._pause(team)
        except (StoredStateError, AgentFailed):
            await self._release()

    async def _release(self) -> None:
        """Give the lease back, if the store can be reached: the journal says what was done."""
        with suppress(StoredStateError):
            await self._journal.flush()
            await self._store.release(self._stored, also=self._write_transcript())

    async def _run_team(self, team: Team, queue: SingleReaderQueue[Event | None]) -> None:
        run, pinned = self._stored.run, self._stored.run.config.team
        keeps_new = pinned is not None and pinned.has_own_workspace(run.id)
        scope = RunScope(
            store=self._store.name,
            owner=RunOwner(self._store.name, run.id),
            journal=self._journal,
            resolver=self._resolver,
            answers=self._mailbox,
            changes=StoredChanges(self._store, run.id, keeps_new=keeps_new),
            token=self._token,
            progress=_tell_through(queue),
            thoughts=lambda piece: queue.put_nowait(self._name_text(piece)),
            timings=self.timings,
            server_wait=self._server_wait,
            model_calls=self._model_calls,
            model_notes=self.model_notes,
            keeps_stock_clients=self._keeps_stock_clients,
            replies=current_scope().replies,
            clock=current_scope().clock,
            interruptions=self._interruptions,
            published=self._published,
            lost_servers=self._lost_servers,
        )
        with enter_scope(scope):
            await self._run_in_scope(team, queue)

    async def _run_in_scope(self, team: Team, queue: SingleReaderQueue[Event | None]) -> None:
        if not self._traced:
            await self._take_turns(team, queue)
            return
        name = getattr(team, "name", type(team).__name__)
        run = self._state.run
        with tracing.segment(run, name, content=self._trace_content) as traceparent:
            pinned = run.config.model_copy(update={"traceparent": traceparent})
            self._state = replace(self._state, run=run.model_copy(update={"config": pinned}))
            await self._take_turns(team, queue)

    async def _take_turns(self, team: Team, queue: SingleReaderQueue[Event | None]) -> None:
        inbox = list(self._stored.checkpoint.inbox)
        history = {each.id for each in inbox[:-1] if not message_answers(each)}  # The caller has it; the state too.
        async for item in team.run_stream(task=inbox or None, cancellation_token=self._token):
            self._started = True
            if isinstance(item, TaskResult):
                self._state = replace(self._state, stop_reason=item.stop_reason)
            else:
                if isinstance(item, ModelClientStreamingChunkEvent):
                    item = self._name_text(item)
                elif item.id not in history:
                    self._transcript.add(item)
                if item.id not in self._given:
                    self._state = reduce_event(self._state, item, self._phase)
                queue.put_nowait(item)
        self._finished = not self._token.is_cancelled()

    def _name_text(self, piece: ModelClientStreamingChunkEvent) -> Event:
        return name_text(piece, self._pauses, self._transcript.number_text(piece))

    async def _save(self, run: Run, checkpoint: Checkpoint | None = None, *, failure: str = "") -> Run:
        """Store the run; `failure` is the kind of what failed, where it failed."""
        async with self._saving:
            if checkpoint is None:
                await self._journal.flush()
            else:
                await self._journal.stop_writing()
            ends = checkpoint is not None or not run.working
            stores_times = ends and self._timed
            with record_act(self.timings.to_event()) if stores_times else nullcontext():
                also = [self._write_transcript() if ends else None, self._write_plan(run)]
                self._stored = await self._store.save(self._stored, run, checkpoint, also=join_work(also))
        if self._traced and run.status is RunStatus.FAILED:
            metrics.count_failure(failure)
        return run

    def _write_plan(self, run: Run) -> Work[object] | None:
        """Return a function that saves the plan for similar tasks, if the user has just approved it."""
        before, team = self._stored.run.plan, run.config.team
        if team is None or not team.plan_memory or (before is not None and before.status is PlanStatus.APPROVED):
            return None
        kept = ApprovedPlan.of(run.id, run.task, run.plan, identity.now())
        return None if kept is None else write_plan(kept, run.user)

    def _write_transcript(self) -> Work[object] | None:
        entries = self._transcript.entries
        return write_transcript(self._stored.run.id, self._pauses, entries) if entries else None


def _is_no_question(event: Event) -> bool:
    return not isinstance(event, UserInputRequestedEvent)


def _tell_through(queue: SingleReaderQueue[Event | None]) -> ProgressListener:
    """Return a function that adds progress to the events, also from a thread, as long as this loop runs."""
    loop = asyncio.get_running_loop()

    def tell(reached: progress.Progress) -> None:
        event = ThoughtEvent(
            id=identity.new_message_id(),
            source="upcall",
            content=reached.to_text(),
            metadata={progress.PROGRESS: reached.what},
        )
        with suppress(RuntimeError):  # The loop was closed meanwhile.
            loop.call_soon_threadsafe(queue.put_nowait, event)

    return tell


def _is_in_segment() -> bool:
    return current_scope().lost_servers is not None
