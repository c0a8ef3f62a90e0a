"""`RunConfig`: what a run keeps from its start, so that it resumes the same in another folder or process."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

from pydantic import BaseModel, BeforeValidator, Field

from upcall import identity
from upcall.options import PinnedTeamOptions, ResolutionOptions, WorkKind
from upcall.runs.asked_topics import AskedTopic
from upcall.runs.plan import ApprovedPlan

RUN_ID = r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$"
"""A run's id names its default workspace, so it can name no other folder."""

RunId = Annotated[str, Field(pattern=RUN_ID)]


DEFAULT_WORKSPACES = "upcall-work"
"""The folder of the workspaces that nobody named, each by the id of its run."""


def make_absolute(path: str | Path) -> Path:
    """Return a path as it is from any folder. A link in it stays one."""
    return Path(os.path.abspath(Path(path).expanduser()))


RunKind: TypeAlias = Literal["team", "external"]

TrialKind: TypeAlias = Literal["other", "same"]


class Fact(BaseModel, frozen=True, defer_build=True):
    """What is asked, its answer, and where that stands (``upcall.yaml, line 3``)."""

    asked: str
    answer: str
    where: str


class ModelAddress(BaseModel, frozen=True, protected_namespaces=(), defer_build=True):
    """A model by name, and the server that has it; never a key."""

    model: str | None
    base_url: str | None = None


def _drop_gone(models: Any) -> Any:
    """Return the models that a stored run keeps, without the one for embeddings, which earlier runs may have."""
    return {kind: each for kind, each in models.items() if kind != "embeddings"} if isinstance(models, dict) else models


class RootTeamConfig(PinnedTeamOptions):
    """What a run of the root team keeps.

    Attributes:
        workspace: the folder of the coder's files.
        documents: files and folders that the researcher reads.
        model: the common model; None where the program or a component brings it.
        models: those for kinds of work.
        account: who started the run. For that account alone, commands may run without a sandbox (``unsafe_local``),
            and the server of ``model`` gets the key.
        known_plan: the plan for a like task that is offered.
        asked_topics: what the user made of questions in this project before, by topic.
    """

    workspace: Path
    documents: list[str] = []
    model: ModelAddress | None = None
    models: Annotated[dict[WorkKind, ModelAddress], BeforeValidator(_drop_gone)] = {}
    account: str | None = None
    known_plan: ApprovedPlan | None = None
    asked_topics: tuple[AskedTopic, ...] = ()

    def has_own_workspace(self, run_id: str) -> bool:
        """Return whether the workspace was made for this run; else somebody named the folder."""
        return self.workspace.name == run_id

    def project(self, run_id: str) -> str:
        """Name the project that the run belongs to: the folder that somebody named for it, else none."""
        is_unnamed = self.has_own_workspace(run_id) or self.workspace.parent.name == DEFAULT_WORKSPACES
        return "" if is_unnamed else str(self.workspace)


_Own = TypeVar("_Own")


class NamedTeam(BaseModel, frozen=True, defer_build=True):
    """A team of one's own by the name ``MODULE:FUNCTION``, and the account that named it: code is imported for nobody
    else by what a store holds."""

    name: str
    account: str


class RunConfig(ResolutionOptions):
    """What a run keeps from its start; never a key.

    Attributes:
        priority: a run with a higher one goes to a worker first.
        facts: standing answers by level, its own before those of the settings.
        team: the choices for the root team; None where the program brings a team of its own.
        named_team: that team, where it was named on the command line.
        traceparent: the trace of the run, as a W3C header's value.
        open: whether everybody may read it.
        kind: who asks in it: a team that this library runs, or programs outside (`upcall.runs.external`).
        trial: whether an answer is merely tried in it: an ``other`` one, or the ``same`` with new replies. It makes no
            call that may have an effect, and nothing is learned from it.
    """

    priority: int = 0
    facts: list[list[Fact]] = []
    team: RootTeamConfig | None = None
    named_team: NamedTeam | None = None
    traceparent: str | None = None
    open: bool = False
    kind: RunKind = "team"
    trial: TrialKind | None = None

    def as_trial(self, kind: TrialKind) -> RunConfig:
        """Return the config of a run in which an answer is merely tried."""
        forgets = {"ask_memory": False, "plan_memory": False}
        team = self.team and self.team.model_copy(update=forgets)
        return self.model_copy(update={"trial": kind, "team": team})

    @property
    def is_external(self) -> bool:
        """Whether its askers are programs outside, so that no team of it can be built or resumed."""
        return self.kind == "external"

    @property
    def own_team(self) -> bool:
        """Whether the program that started the run brings its team."""
        return self.team is None and not self.is_external

    def select_team(self, own: _Own) -> str | _Own | None:
        """Return what continues with the run: None for the root team, the name of a team that this account named, or
        else `own`, what the program brings."""
        if self.team is not None:
            return None
        if self.named_team is not None and self.named_team.account == identity.account():
            return self.named_team.name
        return own

    def reset_for_import(self, workspace: str | Path) -> RunConfig:
        """Return the config of a run that comes from elsewhere: of the machine it names folders, servers, code and
        consent that nobody chose here, so none of them stays."""
        config = self.model_copy(update={"named_team": None, "open": False})
        if self.team is None:
            return config
        anew = {
            "workspace": make_absolute(workspace),
            "documents": [],
            "model": None,
            "models": {},
            "account": None,
            "known_plan": None,
            "asked_topics": (),
            "prompts": None,
        }
        return config.model_copy(update={"team": self.team.model_copy(update=anew)})
