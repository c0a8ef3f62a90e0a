"""`Experiment`: what to try, from a YAML file or a program, and the resulting trials."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import nullcontext
from datetime import UTC, datetime
from functools import cached_property
from hashlib import blake2b
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, BeforeValidator, Field, ValidationError

from upcall.config_source import ConfigSource, describe_wrong, dot_path, list_known, suggest
from upcall.errors import ConfigurationError
from upcall.experiments.budget import Budget
from upcall.experiments.functions import find_function
from upcall.experiments.policies import PolicySpec
from upcall.experiments.specs import ModelSpec, Spec, TeamSpec, as_model, as_team, dump_choice
from upcall.experiments.tasks import Expectation, Task, TaskFile, as_expectation, check_tasks, parse_task
from upcall.experiments.trial import Trial
from upcall.experiments.user import UserSpec
from upcall.setting_types import AtLeastOne

if TYPE_CHECKING:
    from upcall.experiments.live import ResultsListener
    from upcall.experiments.progress import StepListener
    from upcall.experiments.results import Results

_SOME = Field(min_length=1)

FOLDER = Path("upcall-experiments")
"""Where experiments are kept, each in a folder of its name."""


def _as_policy(value: object) -> object:
    return {"name": value} if isinstance(value, str) else value


def _as_seeds(value: object) -> object:
    return tuple(range(value)) if isinstance(value, int) and not isinstance(value, bool) else value


def _as_utc(value: datetime) -> datetime:
    """Return a time that does not depend on where it is read."""
    return value if value.tzinfo is not None else value.replace(tzinfo=UTC)


def _refuse_repeated(value: tuple[int, ...]) -> tuple[int, ...]:
    if len({*value}) < len(value):
        raise ValueError("a seed is given twice")
    return value


def _as_tasks(value: object) -> object:
    return {"file": value} if isinstance(value, str | Path) else value


class Experiment(Spec):
    """Tasks x teams x policies x models x seeds, each a trial, and each trial a run.

    ```python
    experiment = Experiment(name="two", tasks="tasks.jsonl", policies=["never", "always"], models={"small": client})
    results = await experiment.run()
    ```

    Attributes:
        name: the name under which it is stored.
        tasks: a file of tasks, or tasks.
        teams: by name, or functions that build one; the built-in team if none is given.
        policies: by name (`upcall.experiments.policies.POLICIES`), or your own.
        models: by name: clients, functions that script the replies, or settings of a model.
        seeds: how often each is tried: a number, or the seeds.
        user: the simulated user.
        expect: the expected result of tasks that name none.
        judge: the model that checks results, among `models`.
        folder: the folder of replies and reports; ``upcall-experiments/NAME`` if not given.
        store: the store of the runs; a file in that folder if not given, or a PostgreSQL URL.
        parallel: how many trials run at once.
        budget: the cost at which it stops: ``2.50`` in the currency of the prices, or ``200000 tokens``.
        pages: the address of ``upcall serve``, for links to the pages of runs.
        clock: the time that the agents are given, so that a replay asks the same.
    """

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")]
    tasks: Annotated[TaskFile | tuple[Task, ...], BeforeValidator(_as_tasks)]
    teams: Annotated[dict[str, Annotated[TeamSpec, BeforeValidator(as_team)]], _SOME] = {"root": TeamSpec()}
    policies: Annotated[tuple[Annotated[PolicySpec, BeforeValidator(_as_policy)], ...], _SOME] = (
        PolicySpec(name="default"),
    )
    models: Annotated[dict[str, Annotated[ModelSpec, BeforeValidator(as_model)]], _SOME] = {"settings": ModelSpec()}
    seeds: Annotated[tuple[int, ...], BeforeValidator(_as_seeds), AfterValidator(_refuse_repeated), _SOME] = (0,)
    user: UserSpec = UserSpec()
    expect: Annotated[Expectation, BeforeValidator(as_expectation)] | None = None
    judge: str | None = None
    folder: Path | None = None
    store: str | None = None
    parallel: AtLeastOne = 8
    budget: Annotated[Budget, BeforeValidator(Budget.parse)] | None = None
    pages: str | None = None
    clock: Annotated[datetime, AfterValidator(_as_utc)] = datetime(2026, 1, 1, 12, tzinfo=UTC)

    def __init__(self, source: ConfigSource | None = None, /, *, imports: bool = True, **fields: Any) -> None:
        try:
            super().__init__(**fields)
        except ValidationError as error:
            raise ConfigurationError(_explain(error, source or ConfigSource("Experiment", fields))) from error
        self._check()
        if imports:
            self._import_functions()

    @classmethod
    def read(cls, path: Path | str, *, imports: bool = True) -> Experiment:
        """Return the experiment of a YAML file; relative paths of tasks start at the file's folder.

        Args:
            path: the file.
            imports: whether functions that it names are imported, to see that they exist; no stored result needs them.

        Raises:
            ConfigurationError: the file cannot be read, or something in it is wrong; with its line.
        """
        source = ConfigSource.read(Path(path))
        data: dict[str, Any] = {"name": Path(path).stem, **source.data}
        tasks = _as_tasks(data.get("tasks", ()))
        if isinstance(tasks, list):
            data["tasks"] = [
                parse_task(each, source.at("tasks", at)) if isinstance(each, dict) else each
                for at, each in enumerate(tasks)
            ]
        elif isinstance(tasks, dict) and isinstance(tasks.get("file"), str):
            data["tasks"] = {**tasks, "file": Path(path).parent / tasks["file"]}
        return cls(source, imports=imports, **data)

    def _import_functions(self) -> None:
        """Refuse what cannot be imported before anything runs."""
        for policy in self.policies:
            if policy.function is not None:
                find_function(policy.function, f"The policy {policy.name}:")
        for name, team in self.teams.items():
            if team.team is not None:
                find_function(team.team, f"The team {name}:")
        for name, model in self.models.items():
            for named in (model.client, model.replies):
                if isinstance(named, str):
                    find_function(named, f"The model {name}:")
        for task in self.all_tasks:
            if task.expect is not None and task.expect.function is not None:
                find_function(task.expect.function, f"The check of task {task.id}:")

    def _check(self) -> None:
        """Refuse what is wrong before anything runs."""
        for policy in self.policies:
            policy.check()
        for what, named in (("judge", self.judge), ("user.model", self.user.model)):
            if named is not None and named not in self.models:
                raise ConfigurationError(f"{what} = {named!r} is not among models{suggest(named, self.models)}")
        if self.user.kind == "model" and self.user.model is None:
            raise ConfigurationError("user.kind = 'model' needs user.model: the name of one of models.")
        names = [each.name for each in self.policies]
        if twice := next((each for each in names if names.count(each) > 1), None):
            raise ConfigurationError(f"Two policies are called {twice!r}; give each a name of its own.")
        check_tasks(self.all_tasks)
        judged = [each for each in (self.expect, *(task.expect for task in self.all_tasks)) if each and each.judge]
        if judged and self.judge is None:
            raise ConfigurationError("A result is to be judged by a model: say judge, the name of one of models.")

    @cached_property
    def all_tasks(self) -> Sequence[Task]:
        """The tasks, read from their file."""
        return self.tasks.read(Path()) if isinstance(self.tasks, TaskFile) else self.tasks

    @property
    def home(self) -> Path:
        """The folder of the experiment."""
        return self.folder or FOLDER / self.name

    @cached_property
    def trials(self) -> Sequence[Trial]:
        """All trials, grouped by task, so that policies are compared on the same tasks even if the experiment stops
        early."""
        policies = {each.name: each for each in self.policies}
        every = product(self.all_tasks, self.seeds, self.teams, policies, self.models)
        return [
            Trial(id=self._trial_id(task, team, policies[policy], model, seed), task=task, team=team, policy=policy,
                  model=model, seed=seed)
            for task, seed, team, policy, model in every
        ]  # fmt: skip

    def _trial_id(self, task: Task, team: str, policy: PolicySpec, model: str, seed: int) -> str:
        """Return an id that differs for trials that would run differently. The expected result makes no difference."""
        parts = [
            *(self.name, team, model, seed, self.clock.isoformat()),
            task.model_dump(mode="json", exclude=_NOT_IN_TRIAL_ID),
            *(dump_choice(each) for each in (self.teams[team], policy, self.models[model], self.user)),
        ]
        return blake2b(json.dumps(parts, sort_keys=True).encode(), digest_size=6).hexdigest()

    def expectation(self, task: Task) -> Expectation | None:
        """Return the expected result of a task."""
        return task.expect or self.expect

    async def run(
        self,
        *,
        budget: Budget | str | None = None,
        replay: bool = False,
        what_if: bool = False,
        limit: int | None = None,
        samples: bool = True,
        listener: StepListener | None = None,
        watcher: ResultsListener | None = None,
    ) -> Results:
        """Run the trials that are not done yet, and return the results of all that are.

        It can be killed at any time: the next call continues where it stopped.

        Args:
            budget: the cost at which it stops, instead of the experiment's own.
            replay: repeat all trials with the recorded replies; a model is called only for what is new.
            what_if: also fork each run at its questions with other answers.
            limit: only this many trials.
            samples: whether the results hold the conversations of all trials, which the page and logs are made of.
            listener: receives the progress.
            watcher: receives the results so far, every few seconds and in a thread of its own.

        Raises:
            ConfigurationError: a team, a model or the store cannot be used.
            ExperimentBusy: it is already running, here or in another process.
        """
        from upcall.experiments.folder import hold_folder
        from upcall.experiments.runner import Runner

        chosen = Budget.parse(budget) if budget is not None else self.budget
        with hold_folder(self.home) if limit != 0 or replay else nullcontext():
            runner = Runner(self, limit=limit, budget=chosen, replay=replay, listener=listener, watcher=watcher)
            return await runner.run(what_if=what_if, samples=samples)

    async def load(self, *, samples: bool = True) -> Results:
        """Return the results of the trials that are done, even while others run; start nothing."""
        return await self.run(limit=0, samples=samples)


_NOT_IN_TRIAL_ID = {"expect", "split"}


def _explain(error: ValidationError, source: ConfigSource) -> str:
    """Explain the first error in one line."""
    first = max(error.errors(include_url=False), key=lambda each: len(each["loc"]))
    place = tuple(part for part in first["loc"] if not _is_of_union(part))
    at = f"{source.at(*place)}: "
    if first["type"] == "extra_forbidden":
        known = _fields_at(place[:-1])
        return f"{at}{dot_path(place)} is unknown{list_known(str(place[-1]), known) if known else '.'}"
    if first["type"] == "missing":
        return f"{at}{dot_path(place)} is missing."
    return f"{at}{describe_wrong(place, first['input'], first['msg'].removeprefix('Value error, '))}"


def _is_of_union(part: int | str) -> bool:
    return isinstance(part, str) and (
        part.startswith(("tuple[", "function-", "callable", "is-instance")) or part in _KINDS
    )


_KINDS = {"TaskFile", "str", "constrained-str", "Expectation"}


def _fields_at(place: Sequence[int | str]) -> Sequence[str]:
    kinds: dict[str, type[BaseModel]] = {"teams": TeamSpec, "models": ModelSpec, "policies": PolicySpec}
    kinds |= {"user": UserSpec, "expect": Expectation, "tasks": TaskFile}
    kind = kinds.get(str(place[0])) if place else Experiment
    return () if kind is None else tuple(kind.model_fields)
