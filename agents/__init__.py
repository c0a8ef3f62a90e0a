"""The agents, one a file. `pausable` is the tool loop that lead, coder and researcher share."""

from upcall.agents.clarifier import Clarifier
from upcall.agents.classifier import Classifier
from upcall.agents.coder import coder
from upcall.agents.human import HumanProxyAgent
from upcall.agents.lead import lead
from upcall.agents.message_filter import FilteringAgent
from upcall.agents.nested_team import NestedTeam
from upcall.agents.planner import Planner
from upcall.agents.researcher import ShallowResearcher, researcher
from upcall.agents.resumable import ResumableAgent
from upcall.agents.stock import StockAgent
from upcall.agents.tool_loop.citing import CitingAgent
from upcall.agents.tool_loop.escalating import EscalatingAgent
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.agents.wrapping import with_questions
from upcall.autogen.group_chats import make_resumable
from upcall.research.documents_workbench import DocumentsWorkbench
from upcall.research.mcp_tools import McpTools
from upcall.research.sources_workbench import SourcesWorkbench
from upcall.workspace.commands import ExecutionWorkbench
from upcall.workspace.workbench import WorkspaceWorkbench

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
    "coder",
    "lead",
    "make_resumable",
    "researcher",
    "with_questions",
]
