"""What a kind of work adds to the root team: a role. Packages add them; `upcall.extensions` finds them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypedDict

from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool, Workbench

from upcall.agents.resumable import ResumableAgent
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.errors import ConfigurationError
from upcall.extensions import find_added, load_added
from upcall.policy.approval import ApprovalRules
from upcall.prompts import Prompts
from upcall.prompts.contexts import Document, ProjectInstruction, ToolInfo
from upcall.runs.config import RootTeamConfig
from upcall.runs.outputs import Intent
from upcall.setting_types import AnySection


class SectionReader(Protocol):
    """The settings, as far as a role reads them: a section of its own."""

    def section(self, kind: type[AnySection], /) -> AnySection:
        """Return a section by its class."""


class CommonOptions(TypedDict):
    """What all agents of the team are built with, as keyword arguments."""

    approve: ApprovalRules
    max_rounds: int
    max_reply_calls: int
    compact_at: float
    stream: bool
    user_proxy: str
    prompts: Prompts


@dataclass(frozen=True)
class RoleSetup:
    """What a role of one run is made of.

    Attributes:
        settings: the settings, with what the run pinned.
        pinned: what the run keeps from its start.
        store_file: the file of the store, if it is one.
    """

    settings: SectionReader
    pinned: RootTeamConfig
    store_file: Path | None = None


class Role(ABC):
    """A kind of work in one run: it makes the agent that does it, as a member of the team and nested in the lead.

    Only `name`, `for_run` and `build` are needed. The rest is what other agents may know of it, or use.

    Attributes:
        name: the agent's name.
        intent: small tasks of this kind go straight to the agent; None if it gets its tasks from the lead alone.
        lead_type: the class of the lead, where it treats the reports of this agent in a way of its own.
    """

    name: ClassVar[str]
    intent: ClassVar[Intent | None] = None
    lead_type: ClassVar[type[PausableAgent] | None] = None

    @classmethod
    def pin(cls, settings: SectionReader) -> dict[str, Any]:
        """Return what a run keeps of the settings from its start, as fields of `RootTeamConfig`, unless its caller
        gives them."""
        return {}

    @classmethod
    def describe(cls, settings: SectionReader) -> str | None:
        """Return one line for people on how it works; None if there is nothing to say.

        Raises:
            ConfigurationError: the settings contradict each other.
        """
        return None

    @classmethod
    @abstractmethod
    def for_run(cls, setup: RoleSetup) -> Self:
        """Return the role of a run.

        Raises:
            ConfigurationError: it cannot work as the settings say.
        """

    @abstractmethod
    def build(
        self,
        client: ChatCompletionClient,
        tools: Sequence[BaseTool[Any, Any]],
        escalates_to: str | None,
        options: CommonOptions,
    ) -> ResumableAgent[Any]:
        """Make the agent. `escalates_to` names the peer that gets a task that is too large for it, or that it could
        not do. `tools` are the team's, which whoever looks things up may use."""

    @property
    def files(self) -> Sequence[str]:
        """The names of files that the user may talk about."""
        return ()

    @property
    def instructions(self) -> Sequence[ProjectInstruction]:
        """What the project that it works on says to agents, as the lead is shown it."""
        return ()

    @property
    def tool_names(self) -> Sequence[str]:
        """The names of its tools, which may be held back for approval."""
        return ()

    @property
    def server_names(self) -> Sequence[str]:
        """The servers whose tools are known only when they are asked; each of those begins with ``NAME_``."""
        return ()

    @property
    def source_ids(self) -> Sequence[str]:
        """The ids that ``data_sources`` may name, besides the tools."""
        return ()

    @property
    def sources(self) -> Sequence[ToolInfo]:
        """What may be looked things up with, as other agents are shown it."""
        return ()

    @property
    def documents(self) -> Sequence[Document]:
        """The documents that can be read, as the clarifier is shown them."""
        return ()

    @property
    def library(self) -> Workbench | None:
        """What the clarifier looks things up with before it asks."""
        return None


@cache
def load_roles() -> Sequence[type[Role]]:
    """Load the roles that packages add, in the order of their names.

    Raises:
        ConfigurationError: one cannot be loaded, or is no role, or has another name.
    """
    return [_load(name) for name in sorted(find_added("roles"))]


def _load(name: str) -> type[Role]:
    kind = load_added("roles", name)
    if not (isinstance(kind, type) and issubclass(kind, Role) and kind.name == name):
        value = find_added("roles")[name].value
        raise ConfigurationError(
            f"The role {name} ({value}) is not a class derived from upcall.teams.Role with this name."
        )
    return kind


def find_shallow_targets(roles: Sequence[Role]) -> dict[Intent, str]:
    """Return to whom the classifier hands small tasks, by their intent.

    Raises:
        ConfigurationError: two roles want the same ones.
    """
    found: dict[Intent, str] = {}
    for role in roles:
        if role.intent is not None and (other := found.setdefault(role.intent, role.name)) != role.name:
            raise ConfigurationError(
                f"The roles {other} and {role.name} both take small tasks of {role.intent}. Uninstall one of them."
            )
    return found


def find_lead_type(roles: Sequence[Role]) -> type[PausableAgent]:
    """Return the class of the lead.

    Raises:
        ConfigurationError: two roles need different ones.
    """
    found = {role.name: role.lead_type for role in roles if role.lead_type is not None}
    if len(set(found.values())) > 1:
        raise ConfigurationError(f"The roles {', '.join(found)} need different leads. Uninstall one of them.")
    return next(iter(found.values()), PausableAgent)
