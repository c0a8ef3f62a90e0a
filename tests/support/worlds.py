"""The small teams of the tests: one agent, or a lead with nested agents, on the store `runs.db`.

The system message of an agent is its name in angle brackets, by which `model_of` tells the agents of a script apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from autogen_agentchat.base import ChatAgent, Team
from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination
from autogen_agentchat.teams import Swarm
from guests import is_here

from upcall import PausableAgent, Settings, Upcall
from upcall.runs.config import RootTeamConfig
from upcall.teams import Role, RoleSetup, load_roles
from upcall.testing import Call, Calls, Reply, ScriptedModelClient

STORE = "runs.db"

NO_COMMANDS: dict[str, Any] = {"workspace": {"executor": "none"}} if is_here("workspace") else {}
"""The settings by which no command is run, whether there is a coder or not."""

MakeTeam = Callable[[], Team]


def pausing(*members: ChatAgent) -> Team:
    """Return a team that stops at a question to the user, and with the text of its first member."""
    stops = HandoffTermination("user") | TextMessageTermination(members[0].name)
    return Swarm([*members], termination_condition=stops)


def solo(model: ScriptedModelClient, **options: Any) -> MakeTeam:
    """Return a function that makes a team of one agent."""
    return lambda: pausing(PausableAgent("solo", model, **options))


def team_of(model: ScriptedModelClient, *names: str, **options: Any) -> MakeTeam:
    """Return a function that makes a lead with nested agents of these names, which have the options."""

    def make() -> Team:
        nested = [PausableAgent(name, model, system_message=f"<{name}>", **options) for name in names]
        return pausing(PausableAgent("lead", model, system_message="<lead>", agents=nested))

    return make


def model_of(**replies: Sequence[Reply]) -> ScriptedModelClient:
    """Return a model with a list of replies for each agent."""
    return ScriptedModelClient({f"<{name}>": list(text) for name, text in replies.items()})


def at_once(*names: str) -> Calls:
    """Return the lead's reply that calls several agents."""
    return Calls([Call(name, {"task": f"The part of {name}"}) for name in names])


def app_of(team: MakeTeam, **settings: Any) -> Upcall:
    """Return a new driver on the same store, as another process would make it."""
    return Upcall(store=STORE, team=team, settings=Settings.read(None, **settings))


def results_in(model: ScriptedModelClient, agent: str = "") -> list[str]:
    """Return the results of tool calls that the model of an agent was sent in its last request."""
    requests = [each for each in model.requests if agent in each.system]
    return list(requests[-1].tool_results.values())


def roles_in(folder: Path, **pinned: Any) -> list[Role]:
    """Return the roles that are installed, for a run in a folder; no commands are run in it."""
    settings = Settings(**NO_COMMANDS)
    return [kind.for_run(RoleSetup(settings, RootTeamConfig(workspace=folder, **pinned))) for kind in load_roles()]
