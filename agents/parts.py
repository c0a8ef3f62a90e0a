"""Find the agents and teams inside an agent or a team, at any depth: ours, AutoGen's own, and their stand-ins."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from upcall.agents.message_filter import FilteringAgent
from upcall.agents.nested_team import NestedTeam
from upcall.agents.stand_in import StandIn
from upcall.agents.toolset import Toolset
from upcall.autogen.internals import parts_of
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
