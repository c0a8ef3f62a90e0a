"""The agents, one per file. `tool_loop` is shared by the lead and by the agents of the roles.

Each name below loads its module on first use, and so do those that other packages add (`upcall.extensions`); the
stand-ins for AutoGen's own agents register at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from upcall.agents.human import HumanProxyAgent
from upcall.agents.message_filter import FilteringAgent
from upcall.agents.stock import StockAgent
from upcall.extensions import find_added, load_added
from upcall.lazy_names import load_name

if TYPE_CHECKING:
    from upcall.agents.clarifier import Clarifier
    from upcall.agents.classifier import Classifier
    from upcall.agents.escalating import EscalatingAgent
    from upcall.agents.nested_team import NestedTeam
    from upcall.agents.planner import Planner
    from upcall.agents.resumable import ResumableAgent
    from upcall.agents.tool_loop.pausable import PausableAgent
    from upcall.agents.wrapping import with_questions
    from upcall.autogen.group_chats import make_resumable

_HOMES = {
    "Clarifier": "agents.clarifier",
    "Classifier": "agents.classifier",
    "EscalatingAgent": "agents.escalating",
    "NestedTeam": "agents.nested_team",
    "PausableAgent": "agents.tool_loop.pausable",
    "Planner": "agents.planner",
    "ResumableAgent": "agents.resumable",
    "make_resumable": "autogen.group_chats",
    "with_questions": "agents.wrapping",
}

__all__ = [
    "Clarifier",
    "Classifier",
    "EscalatingAgent",
    "FilteringAgent",
    "HumanProxyAgent",
    "NestedTeam",
    "PausableAgent",
    "Planner",
    "ResumableAgent",
    "StockAgent",
    "make_resumable",
    "with_questions",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES and not name.startswith("_") and name in find_added("agents"):
        return load_added("agents", name)
    return load_name("upcall", _HOMES, name)
