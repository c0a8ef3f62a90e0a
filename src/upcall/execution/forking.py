"""Make a fork, beside its run or in its place, and begin its work."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from upcall.autogen.journal import find_in_doubt
from upcall.errors import AnswerRefused, CallerError, EffectsRemain, RunBusy, RunHeld, RunNotWaiting
from upcall.execution.access import RunAccess
from upcall.execution.driver import Driver, Stream
from upcall.execution.forks import ForkPoint, copy_workspace, fork_run, locate_fork
from upcall.execution.prices import Prices
from upcall.execution.replacing import Reversal, plan_reversal, reverse_effects
from upcall.execution.sending import request_stop
from upcall.execution.team_factory import BuiltTeam, TeamFactory
from upcall.execution.workspaces import refuse_unusable, require_path, restore_workspace
from upcall.questions.matching import AnswersInput, match_answers
from upcall.runs.events import RunBranched, RunForked
from upcall.runs.queued import show_queued
from upcall.runs.run import Run
from upcall.runs.run_changes import cancel_run, record_act
from upcall.runs.unknown_outcomes import ask_about_unknown_outcomes
from upcall.storage.change_log import copy_changes
from upcall.storage.connection import Work, join_work
from upcall.storage.event_log import append_event, copy_entries
from upcall.storage.stored_run import StoredRun

if TYPE_CHECKING:
    from upcall.settings import Settings

STOP_TIME_S = 60.0
"""How long a run at work may take to stop before a branch that is to take its place is refused."""

STOP_POLL_INTERVAL_S = 0.1


@dataclass(frozen=True)
class ForkRequest:
    """What is to be forked.

    Attributes:
        run_id: the run.
        question_id: the question where it is forked.
        answer: the new answer.
        new_id: the id of the fork.
        workspace: the folder of its files, if not a copy of the run's.
        replace: whether it takes the place of its run.
        keep_effects: whether it does so though some effects remain.
    """

    run_id: str
    question_id: str
    answer: AnswersInput
    new_id: str
    workspace: str | Path | None = None
    replace: bool = False
    keep_effects: bool = False


@dataclass(frozen=True)
class Forker:
    """Makes forks of runs.

    Args:
        driver: works on them.
        teams: builds their teams.
        settings: the program's settings.
        begin_trace: returns a new run with the start of its trace.
    """

    driver: Driver
    teams: TeamFactory
    settings: Settings
    begin_trace: Callable[..., Run]

    async def fork(self, wanted: ForkRequest, access: RunAccess) -> Stream:
        """Make a fork, and begin its work; see `Upcall.fork`."""
        if wanted.replace:
            if wanted.workspace is not None:
                raise CallerError("A branch that takes the place of its run works in the same folder: name no other.")
            await self._stop(wanted.run_id, access)
        of, point = await locate_fork(access, wanted.run_id, wanted.question_id, replaces=wanted.replace)
        run, store = of.run, self.driver.store
        await access.require_answerable(run, point.question)
        if run.replaced_by is not None and wanted.replace:
            raise CallerError(f"Run {run.id} was continued as {run.replaced_by}; overrule the answer there.")
        if isinstance(wanted.answer, Mapping) and not wanted.answer:
            raise AnswerRefused(f"No answer was given to question {point.question.id}; a branch begins with one.")
        given = wanted.answer if isinstance(wanted.answer, Mapping) else {wanted.question_id: wanted.answer}
        (chosen,) = match_answers(given, (point.question,), (), access.user, ())
        begins = self.teams.phase(point.question.path[0] if point.question.path else "")
        forked, checkpoint = fork_run(run, point, chosen, wanted.new_id, begins)
        Prices.require(self.settings, forked)
        reversal = await plan_reversal(store, run, point) if wanted.replace else Reversal()
        if reversal.remaining and not wanted.keep_effects:
            raise EffectsRemain(reversal.remaining)
        await restore_workspace(store, of)
        stored, built = await self.driver.load_team(StoredRun(forked, checkpoint, 0))
        async with built.close_on_error():
            forked = await self._prepare(wanted, run, point, forked, built, reversal, access)
        await built.close()
        ended = _end(show_queued(run, await store.queue.read(run.id)), forked.id) if wanted.replace else None
        also = self._prepare_write(of, point, forked, ended, access)
        with record_act(RunForked(user=access.user, run=run.id, question=point.question.id)):
            stored = await store.create(forked, stored.checkpoint, point.records, also=also)
        if ended is not None:
            for observe in store.observers.values():
                observe(run, ended)
        return self.driver.advance(stored, await self.teams.build(forked), point.records)

    async def _stop(self, run_id: str, access: RunAccess) -> None:
        """Stop a run that is worked on after the step that its agents are at.

        Raises:
            RunBusy: that takes too long.
        """
        leases, end, is_requested = self.driver.store.leases, time.monotonic() + STOP_TIME_S, False
        while True:
            stored = await access.load_owned(run_id, "fork")
            worker = await leases.find_worker(stored) if stored.run.working else None
            if worker is None:
                return
            if time.monotonic() > end:
                raise RunBusy(run_id, worker, leases.seconds)
            if not is_requested:
                with suppress(RunNotWaiting):  # It paused in this moment.
                    await request_stop(access, run_id)
                is_requested = True
            await asyncio.sleep(STOP_POLL_INTERVAL_S)

    async def _prepare(
        self,
        wanted: ForkRequest,
        run: Run,
        point: ForkPoint,
        forked: Run,
        built: BuiltTeam,
        reversal: Reversal,
        access: RunAccess,
    ) -> Run:
        """Make the workspace of a fork, and take back what is not to be in it; return the fork as it is stored."""
        store = self.driver.store
        named = require_path("workspace", wanted.workspace) if wanted.workspace else None
        if named is not None:
            refuse_unusable(named)
        if (hold := await store.holds.find(forked)) is not None:
            raise RunHeld(wanted.new_id, hold.as_line(), 0.0)
        await reverse_effects(store, run, reversal, built.team, access.user)
        # In a thread: a large folder takes seconds, in which the leases of other runs would not be renewed.
        config = await asyncio.to_thread(copy_workspace, forked.config, run.id, wanted.new_id, named)
        forked = self.begin_trace(forked.model_copy(update={"config": config}), link=config.traceparent)
        return ask_about_unknown_outcomes(forked, find_in_doubt(point.records))

    def _prepare_write(
        self, of: StoredRun, point: ForkPoint, forked: Run, ended: Run | None, access: RunAccess
    ) -> Work[object]:
        """Return what is stored together with a fork: the transcript that it shares, and a note in its run; where it
        takes the run's place, also how that has `ended`, and its changes to files."""
        run, shared = of.run, point.checkpoint.reached.pauses
        branched = RunBranched(user=access.user, run=forked.id, question=point.question.id, replaces=ended is not None)
        also: list[Work[object]] = [
            partial(copy_entries, run_id=run.id, new_id=forked.id, before=shared),
            partial(append_event, run_id=run.id, event=branched),
        ]
        if ended is not None:
            folders = {str(run.workspace): str(forked.workspace)}
            also.append(self.driver.store.prepare_end(of, ended))
            also.append(partial(copy_changes, run_id=run.id, new_id=forked.id, folders=folders))
        return join_work(also)


def _end(run: Run, branch: str) -> Run:
    """Return a run in whose place a branch is: it is over, whatever it waited for."""
    if run.is_final:
        return run.update(replaced_by=branch)
    return cancel_run(run, f"It is asked in {branch}.", replaced_by=branch)
