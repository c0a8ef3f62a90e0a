"""Make a fork, beside its run or in its place, and begin its work."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from upcall.agents.parts import list_own_helpers, list_parts
from upcall.autogen.api import Team
from upcall.autogen.journal import find_in_doubt
from upcall.budget import UsageLimits
from upcall.errors import (
    AnswerRefused,
    CallerError,
    EffectsRemain,
    RunBeingReplaced,
    RunBusy,
    RunConflict,
    RunHeld,
    RunNotWaiting,
)
from upcall.execution.access import RunAccess
from upcall.execution.driver import Driver, Stream
from upcall.execution.forks import (
    ForkPlaces,
    ForkPoint,
    copy_workspace,
    forget_replies,
    fork_run,
    plan_fork,
    sign_effects,
)
from upcall.execution.prices import Prices
from upcall.execution.replacing import Reversal, plan_reversal, reverse_effects
from upcall.execution.sending import request_stop
from upcall.execution.team_factory import TeamFactory
from upcall.execution.workspaces import refuse_unusable, require_path, restore_workspace
from upcall.policy.duplicates import repeat_answer
from upcall.questions.answer import Answer
from upcall.questions.matching import AnswersInput, AnswerValue, match_answers, resolve_id
from upcall.runs.budget import RunBudget
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.config import TrialKind
from upcall.runs.events import RunBranched, RunForked
from upcall.runs.queued import show_queued
from upcall.runs.run import Run
from upcall.runs.run_changes import cancel_run, record_act
from upcall.runs.states import RunStatus
from upcall.runs.unknown_outcomes import ask_about_unknown_outcomes
from upcall.storage.change_log import copy_changes
from upcall.storage.connection import Work, join_work
from upcall.storage.event_log import append_event, copy_entries
from upcall.storage.queued_answers import AnswersQueued
from upcall.storage.stored_run import StoredRun

if TYPE_CHECKING:
    from upcall.settings import Settings

STOP_TIME_S = 60.0
"""How long a run at work may take to stop before a branch that is to take its place is refused."""

STOP_POLL_INTERVAL_S = 0.1

TRIED_PACKAGES = ("upcall", "autogen_agentchat", "autogen_core")
"""The packages whose agents act through tools alone, whose calls the journal knows."""

MIN_TRIAL_CALLS, MAX_TRIAL_SHARE = 10, 3
"""How many model calls a trial may make: so many, or so many times those that its run made from there on."""

MAX_CONFLICTS = 5
"""How often others may write a run, for example a reminder, while a branch is about to take its place."""


@dataclass(frozen=True)
class ForkRequest:
    """What is to be forked.

    Attributes:
        run_id: the run.
        question_id: the question where it is forked.
        answer: the new answer.
        others: other answers to further questions, by their ids, where it takes the place of its run.
        trial: whether the answer is merely tried (`RunConfig.trial`).
        new_id: the id of the fork.
        workspace: the folder of its files, if not a copy of the run's.
        replace: whether it takes the place of its run.
        keep_effects: whether it does so though some effects remain; with the digest of a bill (`ForkPlan.bill`) only if
            they are those of this bill, and all others can be taken back.
    """

    run_id: str
    question_id: str
    answer: AnswersInput
    new_id: str
    workspace: str | Path | None = None
    replace: bool = False
    keep_effects: bool | str = False
    others: Mapping[str, AnswerValue] = field(default_factory=dict)
    trial: TrialKind | None = None


class _Branch(NamedTuple):
    """A fork that can be made, of a run as it is stored."""

    of: StoredRun
    point: ForkPoint
    named: Sequence[str]
    """The questions that are answered differently, without those that share an assumption with one of them."""
    given: Mapping[str, Answer]
    forked: Run
    checkpoint: Checkpoint
    reversal: Reversal


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
        if wanted.replace and wanted.workspace is not None:
            raise CallerError("A branch that takes the place of its run works in the same folder: name no other.")
        for _ in range(MAX_CONFLICTS):
            branch = await self._plan(wanted, access)
            if wanted.replace and await self._stop(branch.of.run.id, access):
                branch = await self._plan(wanted, access, stopped=branch.of.run.id)  # It has done more meanwhile.
            try:
                return await self._begin(wanted, branch, access)
            except RunBusy:
                raise
            except CallerError:
                await self._submit_again(branch.of)
                raise
            except AnswersQueued:
                continue
            except RunConflict:  # A note in the run, maybe; what was taken back is not taken back again.
                now = (await self.driver.store.load_head(branch.of.run.id)).run
                if [*now.replacing] != branch.named:
                    raise
        raise RunConflict(wanted.run_id)

    async def _plan(self, wanted: ForkRequest, access: RunAccess, *, stopped: str | None = None) -> _Branch:
        """Find out whether the fork can be made, without a change to anything."""
        if wanted.others and not wanted.replace:
            raise CallerError("Several other answers at once are for a branch in the place of its run (replace=True).")
        of, point = await ForkPlaces(access, replaces=wanted.replace).locate(
            wanted.run_id, wanted.question_id, wanted.others
        )
        run = of.run
        named = sorted(resolve_id(each, [*run.asked]) for each in (wanted.question_id, *wanted.others))
        if twice := [each for each, count in Counter(named).items() if count > 1]:
            raise AnswerRefused(f"Question {twice[0]} was given two answers at once; give one.")
        for question in (point.question, *(each.question for each in point.others)):
            await access.require_answerable(run, question)
        if wanted.replace and run.replaced_by is not None:
            raise CallerError(f"Run {run.id} was continued as {run.replaced_by}; overrule the answer there.")
        if run.replacing:
            await self.driver.store.leases.wait_until_free(of)
            if not (wanted.replace and [*run.replacing] == named):
                raise RunBeingReplaced(run.id, run.replacing)
        given = _match(wanted, run, point, access.user)
        begins = self.teams.phase(point.question.path[0] if point.question.path else "")
        forked, checkpoint = fork_run(run, point, given, wanted.new_id, begins)
        if wanted.trial is not None:
            bound = _bound_trial(run, point, forked.budget)
            forked = forked.model_copy(update={"config": forked.config.as_trial(wanted.trial), "budget": bound})
            point = forget_replies(point) if wanted.trial == "same" else point
        Prices.require(self.settings, forked)
        reversal = await plan_reversal(self.driver.store, of, point) if wanted.replace else Reversal()
        if reversal.remaining and wanted.keep_effects not in (True, sign_effects(run, point, reversal.remaining)):
            raise EffectsRemain(reversal.remaining, stopped)
        return _Branch(of, point, named, given, forked, checkpoint, reversal)

    async def _begin(self, wanted: ForkRequest, branch: _Branch, access: RunAccess) -> Stream:
        """Make the workspace of a fork, take back what is not to be in it, store it, and begin its work."""
        store, point, run = self.driver.store, branch.point, branch.of.run
        await restore_workspace(store, branch.of)
        stored, built = await self.driver.load_team(StoredRun(branch.forked, branch.checkpoint, 0))
        async with built.close_on_error():
            if wanted.trial is not None:
                _refuse_own_code(built.team)
            named = require_path("workspace", wanted.workspace) if wanted.workspace else None
            if named is not None:
                refuse_unusable(named)
            if (hold := await store.holds.find(stored.run)) is not None:
                raise RunHeld(wanted.new_id, hold.as_line(), 0.0)
            reversing = reverse_effects(
                store,
                branch.of,
                branch.named,
                branch.reversal,
                built.team,
                access.user,
                keeps_effects=wanted.keep_effects is True,
            )
            async with reversing as of:
                # In a thread: a large folder takes seconds, in which the leases of other runs would not be renewed.
                config = await asyncio.to_thread(copy_workspace, stored.run.config, run.id, wanted.new_id, named)
                forked = self.begin_trace(stored.run.model_copy(update={"config": config}), link=config.traceparent)
                forked = ask_about_unknown_outcomes(forked, find_in_doubt(point.records))
                ended = None
                if wanted.replace:
                    ended = _end(show_queued(of.run, await store.queue.read(run.id)), branch, forked.id)
                also = self._prepare_write(of, point, forked, ended, access)
                with record_act(RunForked(user=access.user, run=run.id, question=point.question.id)):
                    stored = await store.create(forked, stored.checkpoint, point.records, also=also)
        await built.close()
        if ended is not None:
            for observe in store.observers.values():
                observe(of.run, ended)
        return self.driver.advance(stored, await self.teams.build(forked), point.records)

    async def _submit_again(self, of: StoredRun) -> None:
        """Submit a queued run again that is not replaced after all: its job was for the version before."""
        now = await self.driver.store.load(of.run.id)
        if now.run.status is RunStatus.QUEUED and not now.run.replacing and now.version != of.version:
            await self.driver.submit_again(now)

    async def _stop(self, run_id: str, access: RunAccess) -> bool:
        """Stop a run that is worked on after the step that its agents are at; return whether it was.

        Raises:
            RunBusy: that takes too long.
        """
        leases, end, is_requested = self.driver.store.leases, time.monotonic() + STOP_TIME_S, False
        while True:
            stored = await access.load_owned(run_id, "fork")
            worker = await leases.find_worker(stored) if stored.run.working else None
            if worker is None:
                return is_requested
            if time.monotonic() > end:
                raise RunBusy(run_id, worker, leases.seconds)
            if not is_requested:
                with suppress(RunNotWaiting):  # It paused in this moment.
                    await request_stop(access, run_id)
                is_requested = True
            await asyncio.sleep(STOP_POLL_INTERVAL_S)

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
            also.append(self.driver.store.prepare_next(of, ended))
            also.append(partial(copy_changes, run_id=run.id, new_id=forked.id, folders=folders))
        return join_work(also)


def _bound_trial(run: Run, point: ForkPoint, budget: RunBudget | None) -> RunBudget:
    """Return the budget of a trial: that of its run, with a limit to its model calls, whatever another answer leads
    to."""
    calls = max(MIN_TRIAL_CALLS, MAX_TRIAL_SHARE * sum(plan_fork(run, point).model_calls_again.values()))
    limits = budget.limits if budget is not None else UsageLimits()
    limits = limits.override(UsageLimits(calls=min(calls, limits.calls or calls)))
    return RunBudget.of(limits, budget.currency if budget is not None else "")


def _refuse_own_code(team: Team) -> None:
    """Refuse to try an answer with agents whose own code may have effects that no journal knows.

    Raises:
        CallerError: a team or an agent in it, at any depth, or what one of these works with besides its model and its
            tools, is neither of this library nor of AutoGen's packages, or is a function.
    """
    for part in list_parts(team):
        for each in (part, *list_own_helpers(part)):
            if type(each).__module__.partition(".")[0] not in TRIED_PACKAGES:
                name = getattr(each, "__name__", type(each).__name__)
                raise CallerError(f"what the code of {name} does outside of tools cannot be held back")


def _match(wanted: ForkRequest, run: Run, point: ForkPoint, user: str | None) -> Mapping[str, Answer]:
    """Return the other answers by question: what is given, and the same for those that shared an assumption with one
    of these."""
    questions = (point.question, *(each.question for each in point.others))
    one = wanted.answer
    if not isinstance(one, Mapping) or (wanted.others and resolve_id(wanted.question_id, [*one]) not in one):
        one = {wanted.question_id: one}
    given = {each.question_id: each for each in match_answers({**one, **wanted.others}, questions, (), user, ())}
    for question in questions:
        original = run.records[question.id].duplicate_of
        if question.id not in given and original in given:
            again = repeat_answer(run.asked[original], given[original], question)
            given |= {} if again is None else {question.id: again}
    if lacking := [each.id for each in questions if each.id not in given]:
        raise AnswerRefused(f"No answer was given to question {lacking[0]}; a branch begins with one.")
    return given


def _end(run: Run, branch: _Branch, branch_id: str) -> Run:
    """Return a run in whose place a branch is: it is over, whatever it waited for."""
    if run.is_final:
        return run.update(replaced_by=branch_id, replacing=())
    given = [each for each in branch.given.values() if each.question_id != branch.point.question.id]
    run = run.record_answers([each for each in given if not run.records[each.question_id].is_closed])
    return cancel_run(run, f"It is asked in {branch_id}.", replaced_by=branch_id)
