"""Runs the trials of an experiment: each is a run, so that a kill at any time loses nothing that was done.

A trial's id is that of its run. Whether a trial is done is read from its run; it is stored nowhere else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from datetime import datetime, timedelta

from upcall import identity
from upcall.app import Upcall
from upcall.errors import ConfigurationError, StoreUnavailable, TeamNotBuilt, UnknownRun
from upcall.execution.start_options import StartOptions
from upcall.experiments.apps import Apps
from upcall.experiments.archive import Archive, NotRecorded
from upcall.experiments.budget import Budget, Cost, cost_of
from upcall.experiments.checks import check_result
from upcall.experiments.experiment import Experiment
from upcall.experiments.folder import choose_store
from upcall.experiments.live import ResultsListener, show_results
from upcall.experiments.progress import StepListener
from upcall.experiments.recording import OTHERS, Recording
from upcall.experiments.records import TrialRecord, count_trial
from upcall.experiments.results import Results
from upcall.experiments.samples import Sample, load_sample
from upcall.experiments.tally import Tally
from upcall.experiments.trial import Trial
from upcall.experiments.user import SimulatedUser
from upcall.experiments.what_if import Branch, fork_questions
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.runs.run import Run, Usage
from upcall.runs.run_filter import RunFilter
from upcall.runs.states import UNDER_WAY, RunStatus
from upcall.storage.store import RunStore
from upcall.tracebacks import names_place

RUN_POLL_INTERVAL_S = 0.2
"""How long to wait before a run at workers is read again."""

WORKER_WARNING_DELAY_S = 5.0
"""How long runs wait before a warning says that there is no worker."""

SAME_FAILURES = 3
"""After so many trials of a team in a row that fail at the same line of its code, the others are not tried."""

_log = logging.getLogger(__name__)


class Runner:
    """Runs trials, as many at once as the experiment and its models allow.

    Args:
        experiment: the experiment.
        limit: how many trials to run; with 0, only read those that are done.
        budget: the cost at which nothing more is started. A replay has none.
        replay: whether to repeat all trials with recorded replies.
        listener: receives the progress.
        watcher: receives the results so far.
    """

    def __init__(
        self,
        experiment: Experiment,
        *,
        limit: int | None = None,
        budget: Budget | None = None,
        replay: bool = False,
        listener: StepListener | None = None,
        watcher: ResultsListener | None = None,
    ) -> None:
        self._experiment, self._listener, self._watcher = experiment, listener, watcher
        self._budget = None if replay else budget
        self.archive = Archive(experiment.home / "replies.db")
        self._location, work = choose_store(experiment.store, experiment.home, replay=replay)
        self.recording = Recording(self.archive, experiment.clock, replay=replay)
        self.store = RunStore(self._location)
        self.apps = Apps(experiment, self.store, work)
        self._chosen = experiment.trials[:limit]
        self.tally = Tally(self._chosen or experiment.trials, self._budget)
        self._limits = {name: asyncio.Semaphore(each.limit) for name, each in experiment.models.items()}
        self._all = asyncio.Semaphore(experiment.parallel)
        self._begun: dict[str, Run] = {}
        self._samples: dict[str, Sample] = {}
        self._branches: dict[str, Sequence[Branch]] = {}
        self._broken: dict[str, str] = {}
        """Why the trials of a team are left out."""
        self._failures: dict[str, list[str]] = {}
        """How the last trials of a team in a row failed in the user's own code."""

    async def run(self, *, what_if: bool = False, samples: bool = True) -> Results:
        """Run the trials; start no more when the budget is spent. Load the `samples` at the end."""
        try:
            if self._chosen:
                self._refuse_unpriced()
            await self._read(self._chosen or self._experiment.trials)
            left = [trial for trial in self._chosen if trial.id not in self.tally.records or self._failed_before(trial)]
            async with self._watch_workers(), show_results(self._load_so_far, self._watcher):
                async with asyncio.TaskGroup() as group:
                    for trial in left:
                        group.create_task(self._do_in_turn(trial))
                if what_if:
                    async with asyncio.TaskGroup() as group:
                        for trial in self._chosen:
                            group.create_task(self._branch_in_turn(trial))
                loaded = await self.load_samples() if samples else []
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from errors
        finally:
            await self.close()
        return self._results(loaded)

    async def close(self) -> None:
        """Close what is open."""
        await self.apps.close()
        await self.store.close()
        self.archive.close()

    @asynccontextmanager
    async def _watch_workers(self) -> AsyncIterator[None]:
        """Report, once each time, when runs wait and there is no worker to take them."""
        if not self.store.jobs.is_shared:
            yield
            return
        watching = asyncio.create_task(self._warn_of_no_worker())
        try:
            yield
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)

    async def _warn_of_no_worker(self) -> None:
        was_warned = False
        while True:
            await asyncio.sleep(WORKER_WARNING_DELAY_S)
            with suppress(StoreUnavailable):  # The trials report it.
                waiting = await self._list_waiting()
                if waiting and not was_warned:
                    _log.warning(
                        "No worker takes the runs of %s (%s waiting). Start one with: upcall worker --store %s",
                        self.store.name,
                        len(waiting),
                        self.store.name,
                    )
                was_warned = bool(waiting)

    async def _list_waiting(self) -> Sequence[Run]:
        """List the runs that wait for a worker for too long; none if any run of the store is being worked on."""
        under_way = await self.store.list(only=RunFilter(frozenset(UNDER_WAY)))
        since = identity.now() - timedelta(seconds=WORKER_WARNING_DELAY_S)
        if any(run.working or run.updated_at > since for run in under_way):
            return ()
        return under_way

    # -- one trial ----------------------------------------------------------------------------------------------------

    async def _do_in_turn(self, trial: Trial) -> None:
        async with self._limits[trial.model], self._all:
            if trial.team not in self._broken and self.tally.may_begin():
                try:
                    await self._do(trial)
                except TeamNotBuilt as error:  # A bug in it: the others go on, and its trials would all end so.
                    self._broken[trial.team] = str(error)
                    if len(self._broken) == len({each.team for each in self._chosen}):
                        raise

    async def _do(self, trial: Trial) -> None:
        app, options = self.apps.for_trial(trial)
        run = self._begun.pop(trial.id, None)
        self.tally.take_up(trial)
        if run is None:
            with self.recording.enter(trial):
                run = await self._start(app, trial, options)
        elif run.status is RunStatus.FAILED:  # It is retried, but not with the replies that made it fail.
            self.archive.begin_attempt(trial.slot)
        run, is_done = await self.finish(app, trial, run)
        if is_done:
            self.tally.note_done(trial, await self.count(trial, run))
        self._show_progress()
        if is_done:
            self._note_failure(trial.team, run)

    def _note_failure(self, team: str, run: Run) -> None:
        """Note how a trial of a team failed.

        Raises:
            TeamNotBuilt: its trials fail again and again at the same line of its own code.
        """
        failures = self._failures.setdefault(team, [])
        if run.status is not RunStatus.FAILED or not names_place(run.error or ""):
            failures.clear()
            return
        failures.append(str(run.error))
        if failures[-SAME_FAILURES:] == [run.error] * SAME_FAILURES:
            raise TeamNotBuilt(str(run.error))

    def _failed_before(self, trial: Trial) -> bool:
        return trial.id in self._begun and self._begun[trial.id].status is RunStatus.FAILED

    async def _branch_in_turn(self, trial: Trial) -> None:
        record = self.tally.records.get(trial.id)
        async with self._limits[trial.model], self._all:
            if record is not None:
                app, _ = self.apps.for_trial(trial)
                run = await self.store.load_run(trial.id)
                self._branches[trial.id] = await fork_questions(self, app, trial, run, record.success)

    async def _start(self, app: Upcall, trial: Trial, options: StartOptions) -> Run:
        if self.store.jobs.is_shared:
            return await app.submit(trial.task.task, **options)
        return await app.start(trial.task.task, **options)

    async def finish(self, app: Upcall, trial: Trial, run: Run) -> tuple[Run, bool]:
        """Take a run to its end, with the user's answers; it is done when nothing more will come of it."""
        shared, has_failed = self.store.jobs.is_shared, False
        while True:
            if shared:
                run = await self._wait(app, run)
            self._note_cost(trial, run)
            # A failure is retried once: an experiment does not wait for a server that stays away.
            if run.is_final or (run.status is RunStatus.FAILED and has_failed):
                return run, True
            if not self.tally.may_begin():
                return run, False
            if run.waiting:
                with self.recording.enter(trial, after_failure=has_failed):
                    after = await self._reply(app, trial, run)
                if after is None:
                    return run, True
                run = after
            else:
                has_failed = has_failed or run.status is RunStatus.FAILED
                with self.recording.enter(trial, after_failure=has_failed):
                    run = await app.resume(run.id, wait=not shared)

    async def _wait(self, app: Upcall, run: Run) -> Run:
        """Wait until workers have brought a run to a pause."""
        while run.under_way:
            await asyncio.sleep(RUN_POLL_INTERVAL_S)
            run = await app.get(run.id)
        return run

    async def _reply(self, app: Upcall, trial: Trial, run: Run) -> Run | None:
        """Let the user answer, or let the questions expire; None if neither helps."""
        spec, wait = self._experiment.user, not self.store.jobs.is_shared
        client = self.apps.client(spec.model, trial.seed) if spec.kind == "model" and spec.model else None
        user = SimulatedUser(spec, trial.task, trial.seed, client)
        answers: dict[str, Answer] = {}
        with self.recording.enter(trial, "user"):
            for question in self._list_answered(trial, run):
                answer = await user.answer(question)
                if answer is not None:
                    answers[question.id] = answer
        if answers:
            return await app.answer(run.id, answers, wait=wait)
        if (end := _expiry(run)) is None:
            return None
        async for _ in app.expire_stream(end, run_id=run.id, wait=wait):
            pass
        return await app.get(run.id)

    def _list_answered(self, trial: Trial, run: Run) -> list[Question]:
        """Return the questions of a run that are answered in time."""
        after, spec = run.config.expires_after, self._experiment.user
        user = SimulatedUser(spec, trial.task, trial.seed)
        in_time = after is None or spec.takes <= after
        return [question for question in run.questions if in_time and not user.ignores(question)]

    def _is_done(self, trial: Trial, run: Run) -> bool:
        """Whether nothing more will come of a run, judging by what is stored."""
        is_stuck = run.waiting and not self._list_answered(trial, run) and _expiry(run) is None
        return run.is_final or run.status is RunStatus.FAILED or is_stuck

    # -- figures ------------------------------------------------------------------------------------------------------

    async def _read(self, trials: Sequence[Trial]) -> None:
        """Read what is already done, and what the others have cost so far. No model is called: a trial that still has
        to be judged is not done."""
        if not await self.store.exists():
            return
        for trial in trials:
            try:
                run = await self.store.load_run(trial.id)
            except UnknownRun:
                continue
            self._note_cost(trial, run)
            self._begun[trial.id] = run
            if self._is_done(trial, run):
                with suppress(NotRecorded):
                    self.tally.note_done(trial, await self.count(trial, run, may_request=False))
        self._show_progress()

    async def count(self, trial: Trial, run: Run, *, may_request: bool = True) -> TrialRecord:
        """Return the figures of a trial that is done.

        Raises:
            ConfigurationError: the user's own check failed.
            ModelError: the judge cannot be called; `NotRecorded` if it must not be.
        """
        experiment = self._experiment
        expectation, check = experiment.expectation(trial.task), None
        if expectation is not None:
            judge = self.apps.client(experiment.judge) if expectation.judge and experiment.judge else None
            with self.recording.enter(trial, "judge", may_request=may_request):
                check = await check_result(expectation, trial.task, run, judge)
        return count_trial(
            trial,
            run,
            check,
            others=Usage.total(self.recording.usage(trial, who) for who in OTHERS),
            cost=self._note_cost(trial, run),
            seconds=self.recording.seconds(trial),
            takes=experiment.user.takes,
        )

    def _note_cost(self, trial: Trial, run: Run) -> Cost:
        """Note what a trial has cost so far, with the models that play its user and its judge, each at its price."""
        own = run.total_usage
        if trial.branch and not self.store.jobs.is_shared:  # What came before the fork was paid once.
            own = self.recording.usage(trial)
        costs = [cost_of(own, self.apps.price(trial.model))]
        for who, model in (("user", self._experiment.user.model), ("judge", self._experiment.judge)):
            if model is not None:
                costs.append(cost_of(self.recording.usage(trial, who), self.apps.price(model)))
        return self.tally.note_cost(trial, Cost.total(costs))

    def _refuse_unpriced(self) -> None:
        """Refuse a budget that would never be spent.

        Raises:
            ConfigurationError: it is in money, and a model has no price.
        """
        if self._budget is not None and self._budget.money is not None:
            for name in self._experiment.models:
                if self.apps.price(name) is None:
                    raise ConfigurationError(
                        f"budget = {self._budget.money:g} is money, and the model {name} has no price: say "
                        f"models.{name}.price, or a budget in tokens."
                    )

    def _show_progress(self) -> None:
        if self._listener is not None:
            self._listener(self.tally.progress())

    async def load_samples(self) -> list[Sample]:
        """Load the trials that are done with their conversations; none twice."""
        samples, records = [], dict(self.tally.records)
        for trial in self._experiment.trials:
            if (record := records.get(trial.id)) is None:
                continue
            loaded = self._samples.get(trial.id)
            if loaded is None or loaded.record is not record:
                loaded = await load_sample(self.store, trial, record, self._experiment.expectation(trial.task))
                self._samples[trial.id] = loaded
            samples.append(loaded)
        return samples

    async def _load_so_far(self) -> Results:
        """Return the results of what is done by now."""
        samples = await self.load_samples()
        progress, records = self.tally.progress(), [each.record for each in samples]
        return replace(self._results(samples), records=records, progress=progress, broken={**self._broken})

    def _results(self, samples: Sequence[Sample]) -> Results:
        trials, done = self._experiment.trials, self.tally.records
        records = [done[trial.id] for trial in trials if trial.id in done]
        stops = self.tally.is_spent and (self.tally.held_back or len(records) < len(trials))
        return Results(
            self._experiment.name,
            len(trials),
            records,
            cost=self.tally.cost,
            to_come=self.tally.estimate_cost(Counter(trial.cell for trial in trials if trial.id not in done)),
            requested=self.archive.requested,
            found=self.archive.found,
            stopped="The budget is spent; start it again with more to continue." if stops else None,
            pages=self._experiment.pages,
            branches=[each for trial in trials for each in self._branches.get(trial.id, ())],
            samples=samples,
            store=self.store.name if self.store.jobs.is_shared else self._location,
            broken=self._broken,
        )


def _expiry(run: Run) -> datetime | None:
    """Return when all open questions will have expired; None if that does not help."""
    ends = [question.expires_at for question in run.open_questions if question.expires_at is not None]
    return max(ends) if ends and run.config.on_expiry != "wait" else None
