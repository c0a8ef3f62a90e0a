"""The root team: classifier, clarifier, planner, lead with nested coder and researcher, and the human."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from heapq import nsmallest
from operator import or_
from pathlib import Path
from typing import Any, TypedDict

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
from upcall.agents.coder import CommandExecution, coder
from upcall.agents.lead import lead
from upcall.agents.planner import Planner, PlannerSettings
from upcall.agents.researcher import researcher
from upcall.agents.resumable import ResumableAgent
from upcall.agents.structured.options import StructuredSettings
from upcall.agents.toolset import Tool, as_tool
from upcall.autogen.messages import USER
from upcall.config_source import suggest
from upcall.errors import ConfigurationError
from upcall.options import TeamOptions
from upcall.policy.approval import ApprovalRules
from upcall.policy.scorer import Embed
from upcall.prompts import PROMPTS, Prompts
from upcall.prompts.contexts import ToolInfo
from upcall.research.documents_workbench import DocumentsWorkbench
from upcall.research.mcp_server import McpServer
from upcall.research.mcp_tools import McpTools
from upcall.research.sources.base import Source
from upcall.research.sources.documents import DOCUMENTS
from upcall.runs.asked_topics import AskedTopic
from upcall.runs.plan import ApprovedPlan
from upcall.runs.states import RunEvent
from upcall.workspace.commands import RUN_COMMAND, RUN_PYTHON
from upcall.workspace.file_tools import TOOLS

PHASES: dict[str, RunEvent] = {
    "classifier": RunEvent.CLASSIFYING,
    "clarifier": RunEvent.PLANNING,
    "planner": RunEvent.PLANNING,
}
"""What happens to a run when the named agent gets the turn; any other agent executes."""

MAX_FILES = 20
"""How many file names the classifier is shown."""

Clients = Callable[[str], ChatCompletionClient]
"""The model client for the agent of a name."""


class _Common(TypedDict):
    approve: ApprovalRules
    max_rounds: int
    stream: bool
    user_proxy: str
    prompts: Prompts


@dataclass(frozen=True)
class TeamResources:
    """The prepared resources of the root team.

    Attributes:
        workspace: the folder of the coder's files.
        execution: how the coder runs commands; None if it runs none.
        documents: files and folders that the researcher reads; their index is in the folder ``document_index``.
        tools: for the researcher, and for the clarifier to look things up with.
        shown_tools: the names of the tools that an agent (classifier, clarifier) gets or is shown, if not all.
        sources: sources besides the documents.
        mcp_servers: servers whose tools the researcher gets.
        known_plan: the plan for a similar task that the planner offers.
        asked_topics: how the user reacted to the clarifier's earlier questions.
        small_model: makes checks and repairs instead of the agents' own models.
        embed: computes embeddings for the clarifier's scorer.
        ask_policies: policies of your own that decide whether the clarifier asks, and what.
    """

    workspace: Path
    execution: CommandExecution | None = None
    documents: Sequence[str] = ()
    document_index: Path | None = None
    tools: Sequence[Tool] = ()
    shown_tools: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sources: Sequence[Source] = ()
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict)
    small_model: ChatCompletionClient | None = None
    embed: Embed | None = None
    ask_policies: Sequence[AskPolicy] = ()
    known_plan: ApprovedPlan | None = None
    asked_topics: Sequence[AskedTopic] = ()
    prompts: Prompts = PROMPTS


_DEFAULTS = TeamOptions()


class _RunSources:
    """Return what the team may look things up with: documents, other sources, tools and MCP servers, if the data
    sources allow."""

    def __init__(self, resources: TeamResources, data_sources: Sequence[str] | None) -> None:
        self._shown = resources.shown_tools
        tools = [as_tool(tool) for tool in resources.tools]
        others = [source.id for source in resources.sources]
        known = [DOCUMENTS, *others, *(tool.name for tool in tools), *resources.mcp_servers]
        allowed = known if data_sources is None else data_sources
        for source in allowed:
            if source not in known:
                raise ConfigurationError(f"There is no data source {source!r}. Known: {', '.join(known)}.")
        self.tools = [tool for tool in tools if tool.name in allowed]
        self.servers = [McpTools(name, server) for name, server in resources.mcp_servers.items() if name in allowed]
        self.library = DocumentsWorkbench(
            resources.documents if DOCUMENTS in allowed else (),
            index=resources.document_index,
            others=[source for source in resources.sources if source.id in allowed],
        )

    @property
    def tool_names(self) -> list[str]:
        """Return the names of the tools, except those of servers."""
        return [*(tool.name for tool in self.tools), *self.library.source_tools]

    def tools_of(self, agent: str) -> list[BaseTool[Any, Any]]:
        """Return the tools that one agent gets."""
        shown = self._shown.get(agent)
        return [tool for tool in self.tools if shown is None or tool.name in shown]

    def infos(self, agent: str) -> list[ToolInfo]:
        """Return the tools that an agent is shown, including those of the sources; an MCP server counts as
        one."""
        infos = [ToolInfo(each["name"], each.get("description", "")) for each in self.library.schemas()]
        infos += [ToolInfo(server.name, server.description) for server in self.servers]
        return [ToolInfo(tool.name, tool.description) for tool in self.tools_of(agent)] + infos


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
    sources = _RunSources(resources, options.data_sources)
    common = _Common(
        approve=_approval_rules(options.approve, sources),
        max_rounds=options.max_rounds,
        stream=options.stream,
        user_proxy=user.name,
        prompts=resources.prompts,
    )

    def workers(escalates_to: str | None) -> list[ResumableAgent[Any]]:
        return [
            coder(
                clients("coder"),
                resources.workspace,
                execution=resources.execution,
                escalates_to=escalates_to,
                **common,
            ),
            researcher(
                clients("researcher"),
                sources.library,
                tools=sources.tools,
                workbench=sources.servers,
                escalates_to=escalates_to,
                **common,
            ),
        ]

    peers = workers(deep if options.enable_escalation else None)
    handlers = [ToolInfo(agent.name, agent.description) for agent in peers]
    speakers: list[ResumableAgent[Any]] = [
        Classifier(
            clients("classifier"),
            small_client=resources.small_model,
            tools=[*handlers, *sources.infos("classifier")],
            files=_name_files(resources.workspace),
            deep_target=deep,
            prompts=resources.prompts,
            **_choose(ClassifierSettings, options, "classifier", user.name),
        ),
        Planner(
            clients("planner"),
            small_client=resources.small_model,
            handlers=handlers,
            known_plan=resources.known_plan,
            tools=sources.infos("planner"),
            prompts=resources.prompts,
            **_choose(PlannerSettings, options, "planner", user.name),
        ),
        lead(
            clients("lead"),
            workers(None),
            answers_nested=options.parent_answers,
            small_client=resources.small_model,
            **common,
        ),
        *peers,
    ]
    if options.enable_clarifier:
        clarifier = Clarifier(
            clients("clarifier"),
            small_client=resources.small_model,
            documents=sources.library.available,
            tools=sources.tools_of("clarifier"),
            workbench=sources.library if sources.library.schemas() else (),
            asked_topics=resources.asked_topics,
            prompts=resources.prompts,
            embed=resources.embed,
            policies=resources.ask_policies,
            **_choose(ClarifierSettings, options, "clarifier", user.name),
        )
        speakers.insert(1, clarifier)
    for agent in speakers:
        agent.sees_answers = True
    stops: list[TerminationCondition] = [TextMessageTermination(agent.name) for agent in speakers]
    if human is None:
        stops.append(HandoffTermination(USER))
    return Swarm([*speakers, user], termination_condition=reduce(or_, stops))


def _name_files(workspace: Path) -> list[str]:
    """Return the names at the top of the workspace, without hidden ones: at most `MAX_FILES`, none if it is
    unreadable."""
    try:
        names = os.listdir(workspace)  # Not `iterdir`, which makes a path of each of what may be 100,000.
    except OSError:
        return []
    return nsmallest(MAX_FILES, (name for name in names if not name.startswith(".")))


def _approval_rules(approve: Sequence[str], sources: _RunSources) -> ApprovalRules:
    """Return the rules for all agents of the team.

    Raises:
        ConfigurationError: a name in them matches no tool, so it would approve nothing.
    """
    rules = read_approve("lead", approve, ())
    known = {*TOOLS, RUN_COMMAND, RUN_PYTHON, *sources.tool_names, "coder", "researcher"}
    servers = [f"{server.name}_" for server in sources.servers]  # What these offer is known when they are asked.
    for name in sorted(rules.find_unknown(known, complete=not servers)):
        if not name.startswith(tuple(servers)):
            listed = ", ".join(sorted([*known, *(f"{each}*" for each in servers)]))
            raise ConfigurationError(
                f"approve names {name!r}, which is not a tool{suggest(name, known)} Known: {listed}."
            )
    return rules.loosen()


def _choose(kind: type[StructuredSettings], options: TeamOptions, agent: str, user_proxy: str) -> dict[str, Any]:
    """Return the options that the team shares with an agent, as keyword arguments."""
    names = kind.model_fields.keys() & TeamOptions.model_fields.keys()
    verbose = options.verbose if isinstance(options.verbose, bool) else agent in options.verbose
    return {name: getattr(options, name) for name in names} | {"verbose": verbose, "user_proxy": user_proxy}
