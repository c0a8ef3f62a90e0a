"""What a start may choose of what whoever runs the service lists: a model, a team, a folder to work in.

A caller gives and sees names only. Models are those of the common server: a run keeps name and address, and continues
with the key of that server.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from upcall.config_source import list_known
from upcall.errors import CallerError, ConfigurationError
from upcall.execution.model_clients import DEMO, uses_demo
from upcall.execution.team_factory import MakeTeam, TeamFactory
from upcall.execution.workspaces import refuse_unusable
from upcall.runs.config import make_absolute
from upcall.runs.run import Run
from upcall.server.bodies import Start
from upcall.server.settings import ServerSettings
from upcall.settings import Settings


@dataclass(frozen=True)
class StartChoice:
    """What a start has chosen; None is what the service has.

    Attributes:
        model: a model of the common server.
        team: a team, ``MODULE:FUNCTION``.
        workspace: a folder.
    """

    model: str | None = None
    team: str | None = None
    workspace: Path | None = None


@dataclass(frozen=True)
class StartChoices:
    """What a start may choose.

    Attributes:
        common_model: the model of the built-in team if none is chosen.
        models: other models for it.
        teams: other teams, ``MODULE:FUNCTION``, by the names that people see.
        workspaces: absolute folders for the built-in team, by the names that people see.
    """

    common_model: str | None
    models: Sequence[str]
    teams: Mapping[str, str]
    workspaces: Mapping[str, Path]

    @classmethod
    def of(cls, settings: Settings, team: MakeTeam | str | None) -> StartChoices:
        """Return what the settings list for a service with this team. One of its own has its models and folders.

        Raises:
            ConfigurationError: something of it cannot be used.
        """
        listed, common = settings.section(ServerSettings), settings.models.model
        _check_models(settings, listed.models)
        for each in listed.teams.values():
            TeamFactory(settings, None, make_team=each)
        if team is not None:
            return cls(None, (), listed.teams, {})
        folders = {name: make_absolute(folder) for name, folder in listed.workspaces.items()}
        for folder in folders.values():
            refuse_unusable(folder)
        return cls(common, [each for each in dict.fromkeys(listed.models) if each != common], listed.teams, folders)

    def select(self, wanted: Start) -> StartChoice:
        """Return what a start chooses.

        Raises:
            CallerError: something of it is not listed, or does not fit the team.
        """
        if wanted.team is not None:
            _require("team", wanted.team, self.teams)
        if wanted.model is not None and wanted.model != self.common_model:
            _require("model", wanted.model, self.models)
        if wanted.workspace is not None:
            _require("workspace", wanted.workspace, self.workspaces)
        chosen = StartChoice(
            wanted.model, self.teams.get(wanted.team or ""), self.workspaces.get(wanted.workspace or "")
        )
        self.refuse_misfit(chosen)
        return chosen

    def refuse_misfit(self, chosen: StartChoice) -> None:
        """Refuse a model or a folder for a team with its own.

        Raises:
            CallerError: names the team.
        """
        if chosen.team is not None and (chosen.model is not None or chosen.workspace is not None):
            name = _name_of(chosen.team, self.teams)
            raise CallerError(f"The team {name!r} has models and folders of its own. Leave out model and workspace.")

    def find_chosen(self, run: Run) -> StartChoice:
        """Return the model and the team that a run was started with, as far as they may be chosen: for one that follows
        it, which has its folder anyway."""
        named, pinned = run.config.named_team, run.config.team
        model = pinned.model.model if pinned is not None and pinned.model is not None else None
        return StartChoice(
            model if model in self.models else None,
            named.name if named is not None and named.name in self.teams.values() else None,
        )

    def name_chosen(self, run: Run) -> Sequence[str]:
        """Name what a run has of what may be chosen: ``model large``, ``workspace site``."""
        chosen = self.find_chosen(run)
        found = {
            "model": chosen.model,
            "team": _name_of(chosen.team, self.teams),
            "workspace": _name_of(run.workspace, self.workspaces),
        }
        return [f"{kind} {name}" for kind, name in found.items() if name is not None]


def _name_of(value: object, names: Mapping[str, object]) -> str | None:
    return next((name for name, each in names.items() if each == value), None)


def _check_models(settings: Settings, listed: Sequence[str]) -> None:
    if listed and (settings.models.model is None or uses_demo(settings) or settings.models.model_client is not None):
        raise ConfigurationError(
            "server.models lists models of the common server, and there is none: set models.model, or leave it out."
        )
    if wrong := [each for each in listed if each == DEMO or each in settings.llms]:
        raise ConfigurationError(f"server.models names {wrong[0]!r}, which is not a model of the common server.")


def _require(kind: str, chosen: str, listed: Iterable[str]) -> None:
    if not (names := list(listed)):
        raise CallerError(f"This service has no {kind} to choose. Leave {kind} out.")
    if chosen not in names:
        raise CallerError(f"There is no {kind} {chosen!r} to choose{list_known(chosen, names)}")
