"""Find the agents and teams inside an agent or a team, at any depth: ours, AutoGen's own, and their stand-ins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from autogen_agentchat.agents import AssistantAgent

from upcall.agents.message_filter import FilteringAgent
from upcall.agents.nested_team import NestedTeam
from upcall.agents.stand_in import StandIn
from upcall.agents.tool_loop.loop import ToolLoopAgent
from upcall.agents.toolset import Toolset
from upcall.autogen.internals import assistant_parts, list_helpers, parts_of, static_tools
from upcall.autogen.recording import TeamWrapper


def look_behind(part: object) -> object:
    """Return the agent or team that `part` stands for, or itself if it is not a stand-in."""
    if isinstance(part, FilteringAgent | TeamWrapper):
        return look_behind(part.inner)
    return part.stock if isinstance(part, StandIn) else part


def toolset_of(part: object) -> Toolset | None:
    """Return the toolset of one of our agents; None for any other."""
    toolset = getattr(part, "toolset", None)
    return toolset if isinstance(toolset, Toolset) else None


def list_tools(part: object) -> dict[str, object]:
    """Return the tools of an agent by name, also those in workbenches that are known without asking them."""
    own, toolset = dict[str, object](), toolset_of(part)
    workbenches = assistant_parts(part).workbenches if isinstance(part, AssistantAgent) else ()
    if toolset is not None:
        own, workbenches = {**toolset.tools}, toolset.workbenches
    return {**own, **{name: tool for each in workbenches for name, tool in static_tools(each).items()}}


def list_own_helpers(part: object) -> Sequence[object]:
    """Return what an agent or a team works with besides its models and its tools, with functions of its maker."""
    return part.helpers if isinstance(part, ToolLoopAgent) else list_helpers(part)


def list_parts(part: object) -> Iterator[object]:
    """List the agents and teams in a part of a team, itself first, with stand-ins resolved."""
    part = look_behind(part)
    yield part
    for below in _parts_below(part):
        yield from list_parts(below)


def _parts_below(part: object) -> Sequence[object]:
    if (toolset := toolset_of(part)) is not None:
        return [*toolset.nested.values()]
    return [part.team] if isinstance(part, NestedTeam) else parts_of(part)
