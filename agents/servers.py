"""The servers, containers and kernels that a team starts when its tools or its code executors are first needed.

Several teams of a process may share a workbench: its server runs as long as one of them is at work. A server started
by somebody else is theirs to stop.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from concurrent.futures import Future
from threading import Lock
from typing import Self, TypeAlias
from weakref import WeakSet

from autogen_agentchat.agents import AssistantAgent
from autogen_core.code_executor import CodeExecutor
from autogen_core.tools import Workbench

from upcall.agents.parts import list_parts, toolset_of
from upcall.autogen.internals import abandon_mcp_server, assistant_parts, executor_of, is_running, mcp_params_of
from upcall.autogen.recording import JournaledExecutor

Server: TypeAlias = Workbench | CodeExecutor

_log = logging.getLogger("upcall")

_at_work: WeakSet[TeamServers] = WeakSet()

_stopping: dict[int, Future[None]] = {}
"""The servers that a team is stopping: a new one waits until they are stopped."""

STOP_TIMEOUT_S = 5.0
"""How long an MCP server may take to end its session; then it is killed."""

_lock = Lock()  # Teams work in several threads, each with an event loop of its own.


class TeamServers:
    """The workbenches and code executors of a new team, at any depth, except those started by somebody else."""

    def __init__(self) -> None:
        self._held: dict[int, Server] = {}
        self._is_leaving = False

    @classmethod
    async def take(cls, team: object) -> Self:
        """Claim a team's servers; wait for one that another team is just stopping."""
        found = {id(each): each for each in _list_servers(team)}  # One may be no key of a dictionary.
        servers = cls()
        while stopping := servers._hold(found):
            await asyncio.gather(*map(asyncio.wrap_future, stopping))
        return servers

    def _hold(self, found: dict[int, Server]) -> list[Future[None]]:
        """Claim servers; if some are being stopped, claim none and return those."""
        with _lock:
            if stopping := [_stopping[key] for key in found if key in _stopping]:
                return stopping
            ours = {key for each in _at_work for key in each._held}
            self._held = {key: each for key, each in found.items() if key in ours or not is_running(each)}
            _at_work.add(self)
            return []

    async def release(self) -> None:
        """Stop the servers that no team needs any more; the run is stored, so a failure to stop one is only
        reported."""
        with _lock:
            self._is_leaving = True
            needed = {key for each in _at_work if not each._is_leaving for key in each._held}
            ours = [key for key in self._held if key not in needed and key not in _stopping]
            _stopping.update((key, Future()) for key in ours)
            for key in ours:
                _stopping[key].set_running_or_notify_cancel()  # Who gives up waiting cancels its own wait alone.
        try:
            for key in ours:
                await _stop(self._held[key])
        finally:
            with _lock:
                _at_work.discard(self)
                for key in ours:
                    _stopping.pop(key).set_result(None)


async def _stop(server: Server) -> None:
    if is_running(server):
        try:
            limit = STOP_TIMEOUT_S if isinstance(server, Workbench) and mcp_params_of(server) is not None else None
            async with asyncio.timeout(limit):
                await server.stop()
        except TimeoutError:
            await abandon_mcp_server(server)
        except Exception:  # noqa: BLE001  (it may be the user's own code)
            _log.warning("A server (%s) could not be stopped.", type(server).__name__, exc_info=True)


def _list_servers(team: object) -> Iterator[Server]:
    for part in list_parts(team):
        if (toolset := toolset_of(part)) is not None:
            yield from toolset.workbenches
        elif isinstance(part, AssistantAgent):
            yield from assistant_parts(part).workbenches
        elif (executor := executor_of(part)) is not None:
            yield executor.inner if isinstance(executor, JournaledExecutor) else executor
