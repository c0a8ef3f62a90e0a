"""The root team: classifier, clarifier, planner, lead with an agent for each role nested in it, and the human."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import TerminationCondition
from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination
from autogen_agentchat.teams import Swarm
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool

from upcall.agents import HumanProxyAgent
from upcall.agents.approve import read_approve
from upcall.agents.asking.ask_policy import AskPolicy
from upcall.agents.clarifier import Clarifier, ClarifierSettings
from upcall.agents.classifier import Classifier, ClassifierSettings
from upcall.agents.lead import lead
from upcall.agents.planner import Planner, PlannerSettings
from upcall.agents.resumable import ResumableAgent
from upcall.agents.structured.options import StructuredSettings
from upcall.agents.toolset import Tool, as_tool
from upcall.autogen.messages import USER
from upcall.config_source import list_known
from upcall.errors import ConfigurationError
from upcall.options import TeamOptions
from upcall.policy.approval import ApprovalRules
from upcall.prompts import PROMPTS, Prompts
from upcall.prompts.contexts import ToolInfo
from upcall.runs.asked_topics import AskedTopic
from upcall.runs.plan import ApprovedPlan
from upcall.runs.states import RunEvent
from upcall.teams.roles import CommonOptions, Role, find_lead_type, find_shallow_targets

PHASES: dict[str, RunEvent] = {
    "classifier": RunEvent.CLASSIFYING,
    "clarifier": RunEvent.PLANNING,
    "planner": RunEvent.PLANNING,
}
"""What happens to a run when the named agent gets the turn; any other agent executes."""

Clients = Callable[[str], ChatCompletionClient]
"""The model client for the agent of a name."""


@dataclass(frozen=True)
class TeamResources:
    """The prepared resources of the root team.

    Attributes:
        roles: who does the work, and what with.
        tools: for the agents that look things up, the clarifier among them.
        shown_tools: the names of the tools that an agent (classifier, clarifier) gets or is shown, if not all.
        known_plan: the plan for a similar task that the planner offers.
        asked_topics: how the user reacted to the clarifier's earlier questions.
        small_model: makes checks and repairs instead of the agents' own models.
        ask_policies: policies of your own that decide whether the clarifier asks, and what.
    """

    roles: Sequence[Role]
    tools: Sequence[Tool] = ()
    shown_tools: Mapping[str, Sequence[str]] = field(default_factory=dict)
    small_model: ChatCompletionClient | None = None
    ask_policies: Sequence[AskPolicy] = ()
    known_plan: ApprovedPlan | None = None
    asked_topics: Sequence[AskedTopic] = ()
    prompts: Prompts = PROMPTS


_DEFAULTS = TeamOptions()


class _RunTools:
    """The tools that the team may use, if the data sources allow, and what its roles bring besides."""

    def __init__(self, resources: TeamResources, data_sources: Sequence[str] | None) -> None:
        self._roles, self._shown = resources.roles, resources.shown_tools
        tools = [as_tool(tool) for tool in resources.tools]
        known = [*(each for role in self._roles for each in role.source_ids), *(tool.name for tool in tools)]
        allowed = known if data_sources is None else data_sources
        for source in allowed:
            if source not in known:
                raise ConfigurationError(f"There is no data source {source!r}. Known: {', '.join(known)}.")
        self.tools = [tool for tool in tools if tool.name in allowed]

    @property
    def names(self) -> list[str]:
        """The names of all tools, those of the roles too, except those of servers."""
        return [*(tool.name for tool in self.tools), *(each for role in self._roles for each in role.tool_names)]

    def tools_of(self, agent: str) -> list[BaseTool[Any, Any]]:
        """Return the tools that one agent gets."""
        shown = self._shown.get(agent)
        return [tool for tool in self.tools if shown is None or tool.name in shown]

    def infos(self, agent: str) -> list[ToolInfo]:
        """Return the tools that an agent is shown, and what the roles look things up with."""
        own = [ToolInfo(tool.name, tool.description) for tool in self.tools_of(agent)]
        return [*own, *(each for role in self._roles for each in role.sources)]


def root_team(
    clients: Clients,
    resources: TeamResources,
    options: TeamOptions = _DEFAULTS,
    *,
    human: UserProxyAgent | None = None,
) -> Swarm:
    """Build a stock `Swarm` in which every member ends its turn with a hand-off or with the result.

    Without `human` the team stops when a question is handed to the user, to be answered later. With a `human` of
    any name, it asks that agent in the middle of the run and does not stop (live mode).

    Raises:
        ConfigurationError: a document, a tool or a data source does not exist.
    """
    user = human or HumanProxyAgent(USER)
    deep = "clarifier" if options.enable_clarifier else "planner"
    tools, roles = _RunTools(resources, options.data_sources), resources.roles
    common = CommonOptions(
        approve=_approval_rules(options.approve, roles, tools),
        max_rounds=options.max_rounds,
        max_reply_calls=options.max_reply_calls,
        compact_at=options.compact_at,
        stream=options.stream,
        user_proxy=user.name,
        prompts=resources.prompts,
    )

    def workers(escalates_to: str | None) -> list[ResumableAgent[Any]]:
        return [role.build(clients(role.name), tools.tools, escalates_to, common) for role in roles]

    clarifier = _clarifier(clients, resources, options, tools, user.name) if options.enable_clarifier else None
    peers = workers(deep if options.enable_escalation else None)
    handlers = [ToolInfo(agent.name, agent.description) for agent in peers]
    speakers: list[ResumableAgent[Any]] = [
        Classifier(
            clients("classifier"),
            small_client=resources.small_model,
            tools=[*handlers, *tools.infos("classifier")],
            files=[name for role in roles for name in role.files],
            deep_target=deep,
            shallow_targets=find_shallow_targets(roles),
            prompts=resources.prompts,
            judge=clarifier.judge if clarifier else None,
            **_choose(ClassifierSettings, options, "classifier", user.name),
        ),
        Planner(
            clients("planner"),
            small_client=resources.small_model,
            handlers=handlers,
            known_plan=resources.known_plan,
            tools=tools.infos("planner"),
            prompts=resources.prompts,
            **_choose(PlannerSettings, options, "planner", user.name),
        ),
        lead(
            clients("lead"),
            workers(None),
            kind=find_lead_type(roles),
            instructions=[each for role in roles for each in role.instructions],
            answers_nested=options.parent_answers,
            small_client=resources.small_model,
            **common,
        ),
        *peers,
    ]
    if clarifier:
        speakers.insert(1, clarifier)
    for agent in speakers:
        agent.sees_answers = True
    stops: list[TerminationCondition] = [TextMessageTermination(agent.name) for agent in speakers]
    if human is None:
        stops.append(HandoffTermination(USER))
    return Swarm([*speakers, user], termination_condition=reduce(or_, stops))


def _clarifier(
    clients: Clients, resources: TeamResources, options: TeamOptions, tools: _RunTools, user_proxy: str
) -> Clarifier:
    roles = resources.roles
    return Clarifier(
        clients("clarifier"),
        small_client=resources.small_model,
        documents=[each for role in roles for each in role.documents],
        tools=tools.tools_of("clarifier"),
        workbench=[role.library for role in roles if role.library is not None],
        shallow_targets=find_shallow_targets(roles),
        asked_topics=resources.asked_topics,
        prompts=resources.prompts,
        policies=resources.ask_policies,
        **_choose(ClarifierSettings, options, "clarifier", user_proxy),
    )


def _approval_rules(approve: Sequence[str], roles: Sequence[Role], tools: _RunTools) -> ApprovalRules:
    """Return the rules for all agents of the team.

    Raises:
        ConfigurationError: a name in them matches no tool, so it would approve nothing.
    """
    rules = read_approve("lead", approve, ())
    known = {*tools.names, *(role.name for role in roles)}
    servers = [f"{name}_" for role in roles for name in role.server_names]  # What they offer is known when asked.
    for name in sorted(rules.find_unknown(known, complete=not servers)):
        if not name.startswith(tuple(servers)):
            listed = sorted([*known, *(f"{each}*" for each in servers)])
            raise ConfigurationError(f"approve names {name!r}, which is not a tool{list_known(name, known, listed)}")
    return rules.loosen()


def _choose(kind: type[StructuredSettings], options: TeamOptions, agent: str, user_proxy: str) -> dict[str, Any]:
    """Return the options that the team shares with an agent, as keyword arguments."""
    names = kind.model_fields.keys() & TeamOptions.model_fields.keys()
    verbose = options.verbose if isinstance(options.verbose, bool) else agent in options.verbose
    return {name: getattr(options, name) for name in names} | {"verbose": verbose, "user_proxy": user_proxy}
