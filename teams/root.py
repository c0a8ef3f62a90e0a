"""The root team: classifier, clarifier, planner, lead with nested coder and researcher, and the human."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_
from pathlib import Path
from typing import TypedDict

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import ChatAgent, TerminationCondition
from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination
from autogen_agentchat.teams import Swarm
from autogen_core.models import ChatCompletionClient

from upcall.agents import (
    Clarifier,
    Classifier,
    DocumentsWorkbench,
    HumanProxyAgent,
    Planner,
    coder,
    lead,
    researcher,
)
from upcall.prompts import ToolInfo
from upcall.runs import RunStatus

USER = "user"

PHASES: dict[str, RunStatus] = {
    "classifier": RunStatus.INITIALIZING,
    "clarifier": RunStatus.PLANNING,
    "planner": RunStatus.PLANNING,
}
"""The status of a run while the named agent has the turn; any other agent executes."""

Clients = Callable[[str], ChatCompletionClient]
"""The model client for the agent of a name."""


class _Common(TypedDict):
    max_rounds: int
    stream: bool
    user_proxy: str


@dataclass(frozen=True)
class TeamOptions:
    """What can be chosen about the root team. `timeout` is in seconds, for the classifier's call."""

    workspace: Path
    documents: Sequence[str] = ()
    enable_clarifier: bool = True
    max_turns: int = 3
    max_rounds: int = 30
    timeout: float = 90
    stream: bool = False


def root_team(clients: Clients, options: TeamOptions, *, human: UserProxyAgent | None = None) -> Swarm:
    """A stock `Swarm` in which every member ends its turn with a hand-off or with the result.

    Without `human` the team stops when a question is handed to the user, to be answered later. With a `human`, of
    whatever name, it asks that agent in the middle of the run and does not stop (live mode).
    """
    user = human or HumanProxyAgent(USER)
    deep = "clarifier" if options.enable_clarifier else "planner"
    common = _Common(max_rounds=options.max_rounds, stream=options.stream, user_proxy=user.name)

    library = DocumentsWorkbench(options.documents)

    def workers(escalates_to: str | None) -> list[ChatAgent]:
        return [
            coder(clients("coder"), options.workspace, escalates_to=escalates_to, **common),
            researcher(clients("researcher"), library, escalates_to=escalates_to, **common),
        ]

    peers = workers(deep)
    handlers = [ToolInfo(agent.name, agent.description) for agent in peers]
    speakers: list[ChatAgent] = [
        Classifier(
            clients("classifier"),
            tools=handlers,
            llm_timeout=options.timeout,
            deep_target=deep,
            user_proxy=user.name,
        ),
        Planner(clients("planner"), handlers=handlers, user_proxy=user.name),
        lead(clients("lead"), workers(None), **common),
        *peers,
    ]
    if options.enable_clarifier:
        known = library.available
        clarifier = Clarifier(clients("clarifier"), max_turns=options.max_turns, documents=known, user_proxy=user.name)
        speakers.insert(1, clarifier)
    stops: list[TerminationCondition] = [TextMessageTermination(agent.name) for agent in speakers]
    if human is None:
        stops.append(HandoffTermination(USER))
    return Swarm([*speakers, user], termination_condition=reduce(or_, stops))
