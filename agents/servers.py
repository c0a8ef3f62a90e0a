"""The servers that the workbenches of a team start when their tools are first needed.

Several teams of a process may share a workbench: its server runs as long as one of them is at work. One that somebody
else has started is theirs to stop.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from threading import Lock
from weakref import WeakSet

from autogen_agentchat.agents import AssistantAgent
from autogen_core.tools import Workbench

from upcall.agents.parts import list_parts, toolset_of
from upcall.autogen.internals import assistant_parts, is_running

_log = logging.getLogger("upcall")

_at_work: WeakSet[TeamServers] = WeakSet()

_lock = Lock()  # Teams work in several threads, each with an event loop of its own.


class TeamServers:
    """The workbenches of a new team, at any depth, but those whose servers somebody else has started."""

    def __init__(self, team: object) -> None:
        self._held: dict[int, Workbench] = {}
        self._is_leaving = False
        found = {id(each): each for each in _list_workbenches(team)}  # One may be no key of a dictionary.
        with _lock:
            ours = {key for each in _at_work for key in each._held}
            self._held = {key: each for key, each in found.items() if key in ours or not is_running(each)}
            _at_work.add(self)

    async def release(self) -> None:
        """Stop the servers that no team needs any more; the run is stored, so one that cannot be stopped is only
        reported."""
        with _lock:
            self._is_leaving = True
            needed = {key for each in _at_work if not each._is_leaving for key in each._held}
        for key, workbench in self._held.items():
            if key not in needed and is_running(workbench):
                try:
                    await workbench.stop()
                except Exception:  # noqa: BLE001  (a workbench is the user's own code)
                    _log.warning("A workbench (%s) could not be stopped.", type(workbench).__name__, exc_info=True)
        with _lock:
            _at_work.discard(self)


def _list_workbenches(team: object) -> Iterator[Workbench]:
    for part in list_parts(team):
        if (toolset := toolset_of(part)) is not None:
            yield from toolset.workbenches
        elif isinstance(part, AssistantAgent):
            yield from assistant_parts(part).workbenches
