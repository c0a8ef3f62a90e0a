"""The applications and model clients of an experiment: one for each team, model, seed and set of policy settings,
and for each task where its team is made for one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from upcall.app import Upcall
from upcall.autogen.api import ChatCompletionClient
from upcall.errors import ConfigurationError
from upcall.execution.model_clients import ModelClients
from upcall.execution.start_options import StartOptions
from upcall.experiments.experiment import Experiment
from upcall.experiments.functions import call_with, find_function, has_parameter
from upcall.experiments.specs import ModelSpec
from upcall.experiments.trial import Trial
from upcall.settings import Price, Settings
from upcall.settings_sources import merge
from upcall.storage.store import RunStore
from upcall.testing import ScriptedModelClient


class Apps:
    """Makes applications over one store, and closes the clients that it made.

    Args:
        experiment: the experiment.
        store: the store of their runs.
        work: the folder of the workspaces.
    """

    def __init__(self, experiment: Experiment, store: RunStore, work: Path) -> None:
        self._experiment, self._store, self._work = experiment, store, work
        self._made: dict[object, Upcall] = {}
        self._clients: dict[tuple[str, int], ChatCompletionClient] = {}
        self._prices: dict[str, Price | None] = {}
        self._of_settings: list[ModelClients] = []

    def for_trial(self, trial: Trial) -> tuple[Upcall, StartOptions]:
        """Return the application that runs a trial, and the options of its run.

        Raises:
            ConfigurationError: settings, team or model are wrong.
        """
        policy = next(each for each in self._experiment.policies if each.name == trial.policy).for_task(trial.task)
        # By the settings, not by the policy's name: a user's function may set others for each task.
        task = trial.task.id if self._takes_task(trial.team) else ""
        key = (trial.team, trial.model, trial.seed, repr(sorted(policy.settings.items())), task)
        if key not in self._made:
            self._made[key] = self._make(trial, policy.settings)
        options: StartOptions = {"run_id": trial.id}
        if not self._made[key].team.is_own:
            options["workspace"] = self._work / trial.id
        if policy.gives_facts:
            options["facts"] = {name: fact.answer for name, fact in trial.task.facts.items() if fact.known}
        return self._made[key], options

    def client(self, name: str, seed: int = 0) -> ChatCompletionClient:
        """Return the client of a model by its name in the experiment.

        Raises:
            ConfigurationError: there is no such model.
        """
        key = (name, seed)
        if key not in self._clients:
            spec = self._experiment.models[name]
            made = _own_client(spec, name, seed)
            if made is None:
                clients = ModelClients(Settings.read(**spec.settings))
                self._of_settings.append(clients)
                made = clients("lead")
            self._clients[key] = made
        return self._clients[key]

    def price(self, name: str) -> Price | None:
        """Return the price of a model's tokens, from the experiment or else from the settings."""
        if name not in self._prices:
            spec = self._experiment.models[name]
            settings = Settings.read(**spec.settings)
            self._prices[name] = spec.price or settings.models.prices.get(settings.models.model or "")
        return self._prices[name]

    async def close(self) -> None:
        """Close the clients that were made here."""
        for clients in self._of_settings:
            await clients.close()

    def _takes_task(self, name: str) -> bool:
        """Return whether the function of a team has a parameter for the task: then it makes a team for each."""
        made = self._experiment.teams[name].team
        if made is None or self._store.jobs.is_shared:
            return False
        return has_parameter(find_function(made, f"The team {name}:"), "task")

    def _make(self, trial: Trial, chosen: Mapping[str, Any]) -> Upcall:
        team, spec = self._experiment.teams[trial.team], self._experiment.models[trial.model]
        # The answers in one trial must not change what another asks.
        given: dict[str, Any] = {"questions": {"ask_memory": False}}
        for each in (team.settings, spec.settings, chosen):
            given = merge(given, each)
        settings = Settings.read(team.config, **given)
        if team.team is None:
            own = self.client(trial.model, trial.seed) if spec.has_own_client else None
            return Upcall(own, store=self._store, settings=settings)
        if self._store.jobs.is_shared:
            return Upcall(store=self._store, settings=settings, team=_name_for_workers(team.team, trial.team))
        make = find_function(team.team, f"The team {trial.team}:")
        offered: dict[str, object] = {"settings": settings, "seed": trial.seed, "task": trial.task}
        if has_parameter(make, "model"):
            offered["model"] = self.client(trial.model, trial.seed)
        return Upcall(store=self._store, settings=settings, team=partial(call_with, make, offered))


def _own_client(spec: ModelSpec, name: str, seed: int) -> ChatCompletionClient | None:
    """Return the client that the experiment provides; None if settings choose the model."""
    if isinstance(spec.client, ChatCompletionClient):
        return spec.client
    if spec.client is not None:
        made = call_with(find_function(spec.client, f"The model {name}:"), {"seed": seed})
        if not isinstance(made, ChatCompletionClient):
            raise ConfigurationError(f"The model {name}: its function returned {type(made).__name__}, no model client.")
        return made
    if spec.replies is not None:
        return ScriptedModelClient(find_function(spec.replies, f"The model {name}:"))
    return None


def _name_for_workers(team: object, name: str) -> str:
    if not isinstance(team, str):
        raise ConfigurationError(
            f"The team {name} is a function of this program, and workers do the runs of this store: name it, "
            "MODULE:FUNCTION, so that they can import it."
        )
    if has_parameter(find_function(team, f"The team {name}:"), "task"):
        raise ConfigurationError(
            f"The team {name} is made for each task, and workers do the runs of this store: they know no task of an "
            "experiment. Use an SQLite store."
        )
    return team
