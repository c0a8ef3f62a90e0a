"""The root team: classifier, clarifier, planner, lead with nested coder and researcher, and the human."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any, TypedDict

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import ChatAgent, TerminationCondition
from autogen_agentchat.conditions import HandoffTermination, TextMessageTermination
from autogen_agentchat.teams import Swarm
from autogen_core.models import ChatCompletionClient
from autogen_core.tools import BaseTool

from upcall.agents import Clarifier, Classifier, DocumentsWorkbench, HumanProxyAgent, Planner, coder, lead, researcher
from upcall.agents.coder import Execution
from upcall.agents.planner import AtLimit
from upcall.agents.structured.options import StructuredOptions
from upcall.agents.toolset import Tool, as_tool
from upcall.autogen.messages import USER
from upcall.errors import ConfigurationError
from upcall.prompts import PROMPTS, Prompts, ToolInfo
from upcall.research.mcp_server import McpServer
from upcall.research.mcp_tools import McpTools
from upcall.research.sources.base import Source
from upcall.research.sources.documents import DOCUMENTS
from upcall.runs.run import RunStatus

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
    prompts: Prompts


@dataclass(frozen=True)
class TeamOptions:
    """What can be chosen about the root team.

    ``execution`` is how the coders run commands; None where they run none. ``timeout`` is in seconds, for the
    classifier's call. ``tools`` are for the researcher, and for the clarifier to
    look things up with; ``shown_tools`` names those that an agent (classifier, clarifier) gets or is shown, if not all.
    ``sources`` are others than the documents, whose index is in the folder ``document_index``; ``mcp_servers`` give the
    researcher their tools. ``data_sources`` are the ids of what may be used at all: ``documents`` for the user's
    documents, the ids of other sources, the names of tools and of MCP servers; None is all.
    ``parent_answers``: whether the lead answers what its agents ask, as far as it knows. ``verbose`` is true for
    all agents, or names some. The rest is said where the agents are.
    """

    workspace: Path
    execution: Execution | None = None
    documents: Sequence[str] = ()
    tools: Sequence[Tool] = ()
    shown_tools: Mapping[str, Sequence[str]] = field(default_factory=dict)
    document_index: Path | None = None
    sources: Sequence[Source] = ()
    mcp_servers: Mapping[str, McpServer] = field(default_factory=dict)
    data_sources: Sequence[str] | None = None
    user_info: Mapping[str, str] = field(default_factory=dict)
    enable_clarifier: bool = True
    enable_escalation: bool = True
    skip_ambiguity_check: bool = False
    check_questions: bool = True
    parent_answers: bool = False
    enable_plan_approval: bool = False
    max_plan_iterations: int = 10
    at_plan_limit: AtLimit = "approve"
    max_turns: int = 3
    max_clarifications: int = 3
    max_rounds: int = 30
    max_history: int = 20
    max_context_chars: int = 24_000
    timeout: float = 90
    stream: bool = False
    verbose: bool | Sequence[str] = False
    log_response_max_chars: int = 2_000
    prompts: Prompts = PROMPTS


class _Sources:
    """What the team may look things up with: documents, other sources, tools and MCP servers, as far as the data
    sources allow."""

    def __init__(self, options: TeamOptions) -> None:
        self._shown = options.shown_tools
        tools = [as_tool(tool) for tool in options.tools]
        others = [source.id for source in options.sources]
        known = [DOCUMENTS, *others, *(tool.name for tool in tools), *options.mcp_servers]
        allowed = known if options.data_sources is None else options.data_sources
        for source in allowed:
            if source not in known:
                raise ConfigurationError(f"There is no data source {source!r}. Known: {', '.join(known)}.")
        self.tools = [tool for tool in tools if tool.name in allowed]
        self.servers = [McpTools(name, server) for name, server in options.mcp_servers.items() if name in allowed]
        self.library = DocumentsWorkbench(
            options.documents if DOCUMENTS in allowed else (),
            index=options.document_index,
            others=[source for source in options.sources if source.id in allowed],
        )

    def tools_of(self, agent: str) -> list[BaseTool[Any, Any]]:
        """The tools that one agent gets."""
        shown = self._shown.get(agent)
        return [tool for tool in self.tools if shown is None or tool.name in shown]

    def infos(self, agent: str) -> list[ToolInfo]:
        """The tools that one agent is told of, those of the sources included; an MCP server is told of as one."""
        infos = [ToolInfo(each["name"], each.get("description", "")) for each in self.library.schemas()]
        infos += [ToolInfo(server.name, server.description) for server in self.servers]
        return [ToolInfo(tool.name, tool.description) for tool in self.tools_of(agent)] + infos


def root_team(clients: Clients, options: TeamOptions, *, human: UserProxyAgent | None = None) -> Swarm:
    """A stock `Swarm` in which every member ends its turn with a hand-off or with the result.

    Without `human` the team stops when a question is handed to the user, to be answered later. With a `human`, of
    whatever name, it asks that agent in the middle of the run and does not stop (live mode).

    Raises:
        ConfigurationError: a document, a tool or a data source is not there.
    """
    user = human or HumanProxyAgent(USER)
    deep = "clarifier" if options.enable_clarifier else "planner"
    common = _Common(
        max_rounds=options.max_rounds, stream=options.stream, user_proxy=user.name, prompts=options.prompts
    )
    sources = _Sources(options)

    def workers(escalates_to: str | None) -> list[ChatAgent]:
        return [
            coder(
                clients("coder"), options.workspace, execution=options.execution, escalates_to=escalates_to, **common
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
    speakers: list[ChatAgent] = [
        Classifier(
            clients("classifier"),
            tools=[*handlers, *sources.infos("classifier")],
            user_info=options.user_info,
            llm_timeout=options.timeout,
            max_history=options.max_history,
            deep_target=deep,
            prompts=options.prompts,
            **_structured(options, "classifier", user.name),
        ),
        Planner(
            clients("planner"),
            max_clarifications=options.max_clarifications,
            skip_ambiguity_check=options.skip_ambiguity_check,
            enable_plan_approval=options.enable_plan_approval,
            max_plan_iterations=options.max_plan_iterations,
            at_plan_limit=options.at_plan_limit,
            handlers=handlers,
            tools=sources.infos("planner"),
            prompts=options.prompts,
            **_structured(options, "planner", user.name),
        ),
        lead(clients("lead"), workers(None), answers_nested=options.parent_answers, **common),
        *peers,
    ]
    if options.enable_clarifier:
        clarifier = Clarifier(
            clients("clarifier"),
            max_turns=options.max_turns,
            documents=sources.library.available,
            data_sources=options.data_sources,
            tools=sources.tools_of("clarifier"),
            workbench=sources.library if sources.library.schemas() else (),
            prompts=options.prompts,
            **_structured(options, "clarifier", user.name),
        )
        speakers.insert(1, clarifier)
    stops: list[TerminationCondition] = [TextMessageTermination(agent.name) for agent in speakers]
    if human is None:
        stops.append(HandoffTermination(USER))
    return Swarm([*speakers, user], termination_condition=reduce(or_, stops))


def _structured(options: TeamOptions, agent: str, user_proxy: str) -> StructuredOptions:
    verbose = options.verbose if isinstance(options.verbose, bool) else agent in options.verbose
    return StructuredOptions(
        user_proxy=user_proxy,
        verbose=verbose,
        log_response_max_chars=options.log_response_max_chars,
        max_context_chars=options.max_context_chars,
        check_questions=options.check_questions,
    )
