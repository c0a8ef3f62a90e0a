"""The form that starts a task: its fields, and what whoever runs the service has fixed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import get_args

from pydantic import ValidationError
from starlette.datastructures import FormData

from upcall.errors import CallerError
from upcall.execution.demo import TASKS
from upcall.model_settings import ModelSettings
from upcall.options import AgentName, OnExpiry
from upcall.server.bodies import Start, explain_validation
from upcall.server.service import Service
from upcall.settings import Settings
from upcall.teams import load_roles

ON_EXPIRY: dict[OnExpiry, str] = {
    "wait": "it can still be answered",
    "assume": "its own default is assumed",
    "cancel": "the run is cancelled",
    "fail": "the run ends as expired",
}
"""What happens to a question that waited long enough, in the words of the page."""


_TEXTS = ("expires_after", "on_expiry", "budget", "model", "team", "workspace")


@dataclass(frozen=True)
class ServiceChoice:
    """What whoever runs the service has chosen for all runs: of what, and what."""

    name: str
    chosen: str


@dataclass(frozen=True)
class ChoiceSelect:
    """A field of the form with what may be chosen: what it is if nothing is chosen, the names, and the one chosen."""

    label: str
    default: str
    options: Sequence[str]
    chosen: str | None

    @property
    def name(self) -> str:
        """The name of the field, as of that of a start."""
        return self.label.lower()


def name_models(settings: Settings) -> str:
    """Name the models of the built-in team: that of most agents, then others with their agents."""
    models = {agent: _name_model(settings.for_agent(agent)) for agent in get_args(AgentName)}
    (most, _), *_ = Counter(models.values()).most_common(1)
    others = ", ".join(f"{model} ({agent})" for agent, model in models.items() if model != most)
    return f"{most}{f'; {others}' if others else ''}"


def list_fixed(service: Service) -> Sequence[ServiceChoice]:
    """List what a person cannot choose at the start. No address and no folder is named."""
    fixed = [each for each in _list_defaults(service) if not _offer(service)[each.name]]
    is_shown = not service.has_own_team and reviews_plans(service.settings)
    return [*fixed, *([ServiceChoice("Plan", "you are shown it before work begins")] if is_shown else [])]


def list_selects(service: Service, wanted: Start) -> Sequence[ChoiceSelect]:
    """List what a person can choose: that of which there is more than one."""
    offered = _offer(service)
    return [
        ChoiceSelect(each.name, each.chosen, offered[each.name], getattr(wanted, each.name.lower()))
        for each in _list_defaults(service)
        if offered[each.name]
    ]


def _offer(service: Service) -> Mapping[str, Sequence[str]]:
    choices = service.choices
    return {"Model": choices.models, "Team": [*choices.teams], "Workspace": [*choices.workspaces]}


def _list_defaults(service: Service) -> Sequence[ServiceChoice]:
    if service.has_own_team:
        return [ServiceChoice("Team", "one of this service's own, with its models")]
    settings = service.settings
    named = any(kind.pin(settings).get("workspace") for kind in load_roles())
    return [
        ServiceChoice("Model", "none: the replies are scripted" if service.is_demo else name_models(settings)),
        ServiceChoice("Team", "the built-in one"),
        ServiceChoice("Workspace", "the folder of this service" if named else "a new folder for this run"),
    ]


def reviews_plans(settings: Settings) -> bool:
    """Return whether every plan is reviewed, whatever a start asks for."""
    return settings.planning.enable_plan_approval


def list_demo_tasks(service: Service) -> Sequence[str]:
    """List the tasks for which the demo has a script, if it plays the models."""
    return TASKS if service.is_demo else ()


def read_start(form: FormData) -> Start:
    """Read the fields; those left empty are as the service is set.

    Raises:
        CallerError: one of them has no such choice.
    """
    ticked = {name: True for name in ("unattended", "open", "review_plan") if form.get(name)}
    given = {name: str(form[name]) for name in _TEXTS if form.get(name)}
    try:
        return Start.model_validate({"task": str(form.get("task", "")), **ticked, **given})
    except ValidationError as error:
        raise CallerError(explain_validation(error.errors())) from error


def _name_model(model: ModelSettings) -> str:
    return model.name or str((model.model_client or {}).get("provider", "unnamed"))
