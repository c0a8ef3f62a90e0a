"""The agents, one per file. `pausable` is the tool loop shared by lead, coder and researcher.

Each name below loads its module on first use; the stand-ins for AutoGen's own agents register at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from upcall.agents.human import HumanProxyAgent
from upcall.agents.message_filter import FilteringAgent
from upcall.agents.stock import StockAgent
from upcall.lazy_names import load_name

if TYPE_CHECKING:
    from upcall.agents.citing import CitingAgent
    from upcall.agents.clarifier import Clarifier
    from upcall.agents.classifier import Classifier
    from upcall.agents.escalating import EscalatingAgent
    from upcall.agents.nested_team import NestedTeam
    from upcall.agents.planner import Planner
    from upcall.agents.researcher import ShallowResearcher
    from upcall.agents.resumable import ResumableAgent
    from upcall.agents.tool_loop.pausable import PausableAgent
    from upcall.agents.wrapping import with_questions
    from upcall.autogen.group_chats import make_resumable
    from upcall.research.documents_workbench import DocumentsWorkbench
    from upcall.research.mcp_tools import McpTools
    from upcall.research.sources_workbench import SourcesWorkbench
    from upcall.workspace.commands import ExecutionWorkbench
    from upcall.workspace.workbench import WorkspaceWorkbench

_HOMES = {
    "CitingAgent": "agents.citing",
    "Clarifier": "agents.clarifier",
    "Classifier": "agents.classifier",
    "DocumentsWorkbench": "research.documents_workbench",
    "EscalatingAgent": "agents.escalating",
    "ExecutionWorkbench": "workspace.commands",
    "McpTools": "research.mcp_tools",
    "NestedTeam": "agents.nested_team",
    "PausableAgent": "agents.tool_loop.pausable",
    "Planner": "agents.planner",
    "ResumableAgent": "agents.resumable",
    "ShallowResearcher": "agents.researcher",
    "SourcesWorkbench": "research.sources_workbench",
    "WorkspaceWorkbench": "workspace.workbench",
    "make_resumable": "autogen.group_chats",
    "with_questions": "agents.wrapping",
}

__all__ = [
    "CitingAgent",
    "Clarifier",
    "Classifier",
    "DocumentsWorkbench",
    "EscalatingAgent",
    "ExecutionWorkbench",
    "FilteringAgent",
    "HumanProxyAgent",
    "McpTools",
    "NestedTeam",
    "PausableAgent",
    "Planner",
    "ResumableAgent",
    "ShallowResearcher",
    "SourcesWorkbench",
    "StockAgent",
    "WorkspaceWorkbench",
    "make_resumable",
    "with_questions",
]


def __getattr__(name: str) -> object:
    return load_name("upcall", _HOMES, name)
