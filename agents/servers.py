"""The servers that the workbenches of a team start when their tools are first needed: who starts one stops it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import Workbench

from upcall.agents.message_filter import FilteringAgent
from upcall.agents.nested_team import NestedTeam
from upcall.agents.stand_in import StandIn
from upcall.agents.tool_loop.pausable import PausableAgent
from upcall.autogen.internals import assistant_parts, is_running, parts_of
from upcall.autogen.recording import TeamProxy

_log = logging.getLogger("upcall")


def find_stopped(team: object) -> Sequence[Workbench]:
    """Find the workbenches of a new team, at any depth, whose servers do not run: nobody else has started them."""
    found = {id(each): each for each in _find_workbenches(team)}
    return [each for each in found.values() if not is_running(each)]


async def stop_started(workbenches: Sequence[Workbench]) -> None:
    """Stop the servers that were started since; the run is stored, so one that cannot be stopped is only reported."""
    for workbench in workbenches:
        if is_running(workbench):
            try:
                await workbench.stop()
            except Exception:  # noqa: BLE001  (a workbench is the user's own code)
                _log.warning("A workbench (%s) could not be stopped.", type(workbench).__name__, exc_info=True)


def _find_workbenches(part: object) -> Iterator[Workbench]:
    for below in _parts_below(part):
        yield from _find_workbenches(below)
    if isinstance(part, PausableAgent):
        yield from part.toolset.workbenches
    elif isinstance(part, AssistantAgent):
        yield from assistant_parts(part).workbenches


def _parts_below(part: object) -> Sequence[object]:
    if isinstance(part, FilteringAgent):
        return [part.inner]
    if isinstance(part, StandIn):
        return [part.stock]
    if isinstance(part, PausableAgent):
        return list(part.toolset.nested.values())
    if isinstance(part, NestedTeam):
        return [part.team]
    return [part.inner] if isinstance(part, TeamProxy) else parts_of(part)
