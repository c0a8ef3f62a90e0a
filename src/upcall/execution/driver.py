"""The driver: claim a run, let its team work, store the outcome, until nothing is left to do."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Iterable, Mapping, Sequence
from contextlib import aclosing, nullcontext, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from autogen_agentchat.messages import UserInputRequestedEvent

from upcall import identity
from upcall.autogen.journal import find_in_doubt
from upcall.autogen.messages import RUN, Event, asked_event
from upcall.errors import (
    ConfigurationError,
    RunConflict,
    RunHeld,
    RunNotWaiting,
    SchemaMismatch,
    StoredStateError,
    TooLarge,
    UnknownRun,
    WorkspaceMissing,
)
from upcall.execution.access import RunAccess
from upcall.execution.compatibility import adapt_checkpoint
from upcall.execution.deadlines import DeadlineWatcher
from upcall.execution.earlier_work import NO_BRANCH, BranchedWork, load_branched_work
from upcall.execution.in_process import InProcessWorker
from upcall.execution.outcomes import SegmentOutcome, Stopped, Waiting
from upcall.execution.prices import Prices
from upcall.execution.reducer import take_answers
from upcall.execution.run_result import RunResult
from upcall.execution.segment import RunSegment, SegmentOptions
from upcall.execution.team_factory import BuiltTeam, TeamFactory
from upcall.execution.workspaces import note_missing, restore_workspace
from upcall.policy.acceptance import accept
from upcall.policy.deadlines import add_expired, is_due
from upcall.policy.resolver import AnswerResolver
from upcall.questions.answer import Answer
from upcall.questions.matching import AnswersInput
from upcall.runs.call_timings import Timings
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.events import RunResumed, StopRequested
from upcall.runs.external import close_questions
from upcall.runs.queued import may_have_queued, show_queued
from upcall.runs.run import Run
from upcall.runs.run_changes import record_act
from upcall.runs.states import RunEvent, RunStatus
from upcall.runs.unknown_outcomes import ask_about_unknown_outcomes
from upcall.storage.connection import Work, join_work
from upcall.storage.leases import hold_lease
from upcall.storage.model_slots import ModelSlots
from upcall.storage.queued_answers import AnswersQueued
from upcall.storage.server_rules import ServerRules
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredHead, StoredRun
from upcall.telemetry import metrics
from upcall.telemetry.spans import captures_content, is_on
from upcall.text import first_line

if TYPE_CHECKING:
    from upcall.settings import Settings

HOLD_RECHECK_INTERVAL_S = 30.0
"""After how long a held run is looked at again; a release with workers lets it continue at once."""

MAX_KEPT_BRANCHES = 8
"""Of how many forks the work of their runs is kept between segments."""

Stream: TypeAlias = AsyncGenerator[Event | Run, None]
"""Events, followed by the `Run`."""


class Driver:
    """Takes runs from one pause to the next. It returns streams, which need not be read to the end.

    Args:
        store: the store of the runs.
        teams: builds a team for each segment.
        settings: the program's settings.
    """

    def __init__(self, store: RunStore, teams: TeamFactory, settings: Settings) -> None:
        self.store, self._teams, self._settings = store, teams, settings
        self.deadlines = DeadlineWatcher(store, lambda *given: stream(self.take(*given)))
        self.queued_deadlines = DeadlineWatcher(store, lambda *given: stream(self._queue_answers(*given)))
        """The same, if the work is left to a worker."""
        self.here = InProcessWorker(self.advance_queued, settings.queue.concurrency)
        self._model_slots = ModelSlots(store.database, settings.models.model_limits, store.leases.seconds)
        self._server_rules = ServerRules(store.database)
        self._branches: dict[str, BranchedWork] = {}
        self.active: dict[str, Timings] = {}
        """The times of the calls in progress, by run."""

    # -- next: what a run needs, claimed ------------------------------------------------------------------------------

    async def answer(self, run_id: str, given: AnswersInput, access: RunAccess, *, wait: bool = True) -> Stream:
        """Store answers, and resume the run if nobody else does; or leave that to a worker."""
        stored = await access.load(run_id, "answer")
        queued = await self.store.queue.read(stored.run.id) if may_have_queued(stored.run) else ()
        run = show_queued(stored.run, queued)
        answers = await self._accept(stored, run, given, access)
        if not answers and not (queued and run.under_way):  # Otherwise its worker may be gone before it took them in.
            return access.filter_items(run, only(run))
        confirms = bool(answers) and all(run.records[each.question_id].is_provisional for each in answers)
        confirm = self._confirm if confirms and not run.under_way else None  # Nobody waits for it.
        if confirm or run.waiting:
            continue_with = confirm or (self.take if wait else self._queue_answers)
            try:
                return access.filter_items(run, await continue_with(stored, answers))
            except RunConflict:  # Somebody else was faster: maybe with the answer to another question.
                if (await self.store.load(run.id)).version == stored.version:
                    raise
                return await self.answer(run.id, given, access, wait=wait)
        job = None if wait or confirms else await self._prepare_job(run, stored.version)
        if not await access.enqueue(run, answers, also=job):
            return await self.answer(run.id, given, access, wait=wait)  # Its team has paused in the meantime.
        if not (wait or confirms):
            self.work_here(run.id, stored.version)
        is_left = confirms or not wait or run.status is RunStatus.QUEUED
        if is_left or await self.store.leases.find_worker(stored) is not None:
            return access.filter_items(run, only(run.record_answers(answers)))
        return access.filter_items(run, await self.resume(await self.store.load(run.id), access.user))

    async def _accept(self, stored: StoredRun, run: Run, given: AnswersInput, access: RunAccess) -> Sequence[Answer]:
        accepted = accept(run, given, identity.now(), access=access.rights)
        if accepted.is_intrusion:
            await access.record_refusal(stored.run.id, "answer")
        if accepted.ended is not None:
            await self.store.save(stored, accepted.ended)
        if accepted.refusal is not None:
            raise accepted.refusal
        return accepted.answers

    async def take(self, stored: StoredRun, answers: Sequence[Answer], events: Sequence[Event] = ()) -> Stream:
        """Pass answers to a waiting run, and continue it; where it is held, store them for when it is released."""
        if stored.run.config.is_external:
            return await self._close_questions(stored, answers, events)
        if await self.store.holds.find(stored.run) is not None:
            return await self._queue_answers(stored, answers, events)
        await restore_workspace(self.store, stored)
        stored, built = await self.load_team(stored)
        async with built.close_on_error():
            run, checkpoint, records = take_answers(
                stored, answers, self._teams.phase_reached(stored.run), self._teams.phase
            )
            self._require_prices(run)
            claim = await self.store.claim(stored, run, checkpoint, records)
        return self.advance(claim, built, claim.records, events)

    # -- left to a worker ---------------------------------------------------------------------------------------------

    async def submit(self, run: Run, checkpoint: Checkpoint) -> Run:
        """Store a new run and the job that brings it to a worker, both or neither."""
        run = run.apply(RunEvent.SUBMITTED)
        stored = await self.store.create(run, checkpoint, also=await self._prepare_job(run, 1))
        self.work_here(run.id, stored.version)
        return stored.run

    async def queue(self, stored: StoredRun, answers: Sequence[Answer] = ()) -> Run:
        """Store that a run is to continue, with answers to its questions, and the job that brings it to a worker. While
        calls are in doubt the run keeps waiting."""
        run, checkpoint, records = take_answers(
            stored, answers, self._teams.phase_reached(stored.run), self._teams.phase
        )
        version, job = stored.version + 1, None
        is_to_work = not (run.waiting or run.is_final)
        if is_to_work:
            run = run.apply(RunEvent.SUBMITTED, error=None)
            job = await self._prepare_job(run, version)
        await self.store.claim(stored, run, checkpoint if answers else None, records, also=job)
        if is_to_work:
            self.work_here(run.id, version)
        return run

    async def submit_again(self, stored: StoredRun) -> Run:
        """Submit the job of a queued run again, in case it was lost; of two jobs the second does nothing."""
        await self.store.database.write(await self._prepare_job(stored.run, stored.version))
        self.work_here(stored.run.id, stored.version)
        return stored.run

    async def _queue_answers(
        self, stored: StoredRun, answers: Sequence[Answer], events: Sequence[Event] = ()
    ) -> Stream:
        if stored.run.config.is_external:
            return await self._close_questions(stored, answers, events)
        return _chain(events, only(await self.queue(stored, answers)))

    async def _close_questions(self, stored: StoredRun, answers: Sequence[Answer], events: Sequence[Event]) -> Stream:
        """Store answers for askers outside, who come for them; there is no team to resume."""
        return _chain(events, only((await self.store.save(stored, close_questions(stored.run, answers))).run))

    async def _confirm(self, stored: StoredRun, answers: Sequence[Answer]) -> Stream:
        """Store the human's word for what was assumed; nobody waits for it."""
        head = StoredHead(stored.run, stored.version)
        return only((await self.store.save_head(head, stored.run.record_answers(answers))).run)

    async def _prepare_job(self, run: Run, version: int) -> Work[None]:
        await self.store.jobs.open()
        return self.store.jobs.defer(run, version)

    def work_here(self, run_id: str, version: int) -> None:
        """Take a submitted run to its next pause in the background of this process, if no workers do."""
        if not self.store.jobs.is_shared:
            self.store.database.outage.reports = True
            self.here.start(run_id, version)

    async def advance_queued(self, run_id: str, version: int) -> Run | None:
        """Load a run, and advance it like `advance_loaded`.

        Raises:
            StoredStateError: it cannot be read, or cannot continue now.
            UnknownRun: it was removed.
        """
        return await self.advance_loaded(await self.store.load(run_id), version)

    async def advance_loaded(self, stored: StoredRun, version: int, *, taken: Work[object] | None = None) -> Run | None:
        """Take a submitted run to its next pause; return None if there is nothing to do, because the same job was
        done before. A run that cannot continue here is stored as failed; one whose user has reached
        `user_limit` is left as it is. `taken` runs in the transaction that takes a queued run.

        Raises:
            RunBusy: another worker has it. If that worker is dead, the run can be taken up later.
            UserAtLimit, RunHeld: try again later.
            RunConflict: another worker was faster.
            SchemaMismatch: this version of upcall cannot read it; another worker's may.
            WorkspaceMissing: its folder is not on this machine; another worker may have it.
            StoreUnavailable: the database cannot be reached.
            UnknownRun: it was removed.
        """
        run_id = stored.run.id
        is_next = stored.run.status is RunStatus.QUEUED and stored.version == version
        if not (is_next or stored.run.working) or stored.run.replacing:
            return None
        if (hold := await self.store.holds.find(stored.run)) is not None:
            raise RunHeld(run_id, hold.as_line(), HOLD_RECHECK_INTERVAL_S)
        refuse = partial(self.store.leases.refuse_over_limit, stored.run, self._settings.queue.user_limit)
        await self.store.database.read(refuse(strict=False))  # Cheaper than to build a team first.
        try:
            also = join_work([refuse(), taken if is_next else None])
            return await last(await self.resume(stored, None, also=also))
        except WorkspaceMissing as error:
            if not self.store.jobs.is_shared:
                return await self.fail(run_id, str(error), type(error).__name__)
            await note_missing(self.store, error)
            raise
        except (ConfigurationError, SchemaMismatch, TooLarge) as error:
            return await self.fail(run_id, " ".join(str(error).split()), type(error).__name__)
        except (StoredStateError, UnknownRun):
            raise
        except Exception as error:
            await self.fail(run_id, f"{type(error).__name__}: {first_line(error)}", type(error).__name__)
            raise

    async def fail(self, run_id: str, error: str, kind: str) -> Run:
        """Store a run as failed that should continue but that nobody works on; a resume tries again.

        `kind` is the kind of failure in the metrics.

        Raises:
            RunBusy: somebody is working on it.
        """
        stored = await self.store.load(run_id)
        if not stored.run.under_way or stored.run.replacing:
            return stored.run
        failed = await self.store.claim(stored, stored.run.apply(RunEvent.FAILED, error=error))
        if is_on(self._settings.telemetry.tracing):
            metrics.count_failure(kind)
        return failed.run

    # -- taken up here ------------------------------------------------------------------------------------------------

    async def resume(
        self, stored: StoredRun, user: str | None, *, wait: bool = True, also: Work[object] | None = None
    ) -> Stream:
        """Resume a run that failed, was interrupted or killed, or has overdue questions; or leave that to a
        worker. `also` runs in the transaction of the claim."""
        run = stored.run
        if run.waiting and is_due(run):
            expired = (self.deadlines if wait else self.queued_deadlines).act(stored)
            with record_act(RunResumed(user=user)):  # Its one write is made before the first item.
                return _chain([await anext(expired)], expired)
        if run.waiting:
            ids = ", ".join(question.id for question in run.questions)
            raise RunNotWaiting(f"Run {run.id} waits for an answer to {ids}. Answer it with: upcall answer {run.id}")
        if run.is_final:
            raise RunNotWaiting(f"Run {run.id} is {run.status}; there is nothing to resume.")
        if not wait or (also is None and await self.store.holds.find(run) is not None):
            if run.status is RunStatus.QUEUED:
                return only(await self.submit_again(stored))
            with record_act(RunResumed(user=user)):
                return only(await self.queue(stored))
        await restore_workspace(self.store, stored)
        stored, built = await self.load_team(stored)
        claim: StoredRun | None = None
        async with built.close_on_error():
            in_doubt, was_queued = find_in_doubt(stored.records), run.status is RunStatus.QUEUED
            while claim is None:
                acting = nullcontext() if was_queued else record_act(RunResumed(user=user))
                with suppress(AnswersQueued), acting:
                    queued = await self.store.queue.read(run.id)
                    answers = run.records.select_new(queued)
                    reached = self._teams.phase_reached(run)
                    again = replace(stored, run=run.apply(reached, error=None))
                    going_on, checkpoint, _ = take_answers(again, add_expired(run, answers), reached, self._teams.phase)
                    going_on = ask_about_unknown_outcomes(going_on, in_doubt)
                    self._require_prices(going_on)
                    changed = checkpoint if checkpoint is not stored.checkpoint else None
                    claim = await self.store.claim(stored, going_on, changed, also=also)
        asked = claim.run.questions if claim.run.waiting else ()
        events = [asked_event(question, source=question.asker) for question in asked]
        return self.advance(claim, built, claim.records, events)

    def _require_prices(self, run: Run) -> None:
        """Refuse to continue a run whose cost is limited where the prices of its models are unknown.

        Raises:
            ConfigurationError: it names these models.
        """
        if run.working:
            Prices.require(self._settings, run)

    async def load_team(self, stored: StoredRun) -> tuple[StoredRun, BuiltTeam]:
        """Return the run adapted to its team, and the team that has loaded it.

        Raises:
            TeamMismatch: it cannot continue with this team.
        """
        built = await self._teams.build(stored.run)
        async with built.close_on_error():
            built.begin_work()
            checkpoint = await adapt_checkpoint(built.team, stored.run.id, stored.checkpoint, stored.records)
        return replace(stored, checkpoint=checkpoint), replace(built, loaded=True)

    # -- do and store -------------------------------------------------------------------------------------------------

    async def advance(
        self, stored: StoredRun, built: BuiltTeam, records: Mapping[str, str], earlier_events: Iterable[Event] = ()
    ) -> Stream:
        """Take a claimed run to its next pause: a team works, the outcome is stored, and if the human is not
        needed next, a new team continues."""
        run_id, is_stopped = stored.run.id, False
        try:
            for event in earlier_events:
                yield _name_run(event, run_id)
            with hold_lease(stored.worker):
                is_to_work = stored.run.working
                # The claim is in the log: what comes behind it is meant for this work, all its segments.
                claimed = await self.store.events.find_last_but(run_id, StopRequested) if is_to_work else 0
                while is_to_work:
                    built.begin_work()
                    rules = await self._server_rules.read()
                    branch = await self._load_branch(stored.run)
                    segment = self._begin_segment(stored, built, records, rules, claimed, branch)
                    async with aclosing(segment.work(built.team, loaded=built.loaded)) as items:
                        async for item in items:
                            if isinstance(item, SegmentOutcome):
                                outcome = item
                            else:
                                yield _name_run(item, run_id)
                    await self._server_rules.keep(segment.model_notes.rules)
                    await built.close()
                    stored, records = outcome.stored, {}
                    is_stopped = isinstance(outcome, Stopped)
                    is_to_work = isinstance(outcome, Waiting) and outcome.is_answered
                    if is_to_work:
                        built = await self._teams.build(stored.run)
        finally:
            self.active.pop(run_id, None)
            await built.close()
        yield RunResult.of(stored.run.model_copy(update={"interrupted": is_stopped}))

    async def _load_branch(self, run: Run) -> BranchedWork:
        """Load what a fork has from the runs above it, once for its next segments here."""
        if run.forked_from is None:
            return NO_BRANCH
        if run.config.trial:  # With every segment it has made more of its run's calls.
            return await load_branched_work(self.store, run)
        if run.id not in self._branches:
            if len(self._branches) >= MAX_KEPT_BRANCHES:
                del self._branches[next(iter(self._branches))]
            self._branches[run.id] = await load_branched_work(self.store, run)
        return self._branches[run.id]

    def _begin_segment(
        self,
        stored: StoredRun,
        built: BuiltTeam,
        records: Mapping[str, str],
        server_rules: Mapping[str, Sequence[str]],
        stops_since: int,
        branch: BranchedWork,
    ) -> RunSegment:
        run, settings = stored.run, self._settings
        options = SegmentOptions(
            traced=is_on(settings.telemetry.tracing),
            trace_content=captures_content(settings.telemetry.trace_content),
            timed=settings.store.timings,
            keep_transcript=settings.store.transcripts,
            keep_journals=settings.store.journals,
            server_wait=settings.models.server_wait,
            keeps_stock_clients=not settings.models.take_over_clients,
            model_calls=self._model_slots,
            server_rules=server_rules,
            prices=Prices.of(settings, run) if run.budget is not None else Prices(),
        )
        segment = RunSegment(
            stored,
            self.store,
            self._teams.phase,
            resolver=AnswerResolver(run.config, run.records, run.config.facts, built.matcher, branch.repeated),
            records=records,
            options=options,
            stops_since=stops_since,
            branch=branch,
        )
        self.active[run.id] = segment.timings
        return segment


async def stream(begin: Awaitable[Stream]) -> Stream:
    """Return a stream whose work starts when somebody listens."""
    async with aclosing(await begin) as items:
        async for item in items:
            yield item


async def last(items: Stream) -> Run:
    """Read a stream to its end and return its run."""
    async with aclosing(items):  # Left to the collector, it would be closed in a task of its own.
        async for item in items:
            if isinstance(item, Run):
                return item
    raise AssertionError("a stream ends with its run")


async def only(run: Run) -> Stream:
    """Yield a run as it is: there is nothing to do."""
    yield RunResult.of(run)


async def _chain(first: Iterable[Event | Run], then: Stream) -> Stream:
    async with aclosing(then) as items:
        for item in first:
            yield item
        async for item in items:
            yield item


def _name_run(event: Event, run_id: str) -> Event:
    """Return the event; if it contains a question, with the id of the run to answer."""
    if not isinstance(event, UserInputRequestedEvent):
        return event
    return event.model_copy(update={"metadata": {**event.metadata, RUN: run_id}})
