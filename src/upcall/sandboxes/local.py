"""Commands as plain processes of this machine, without any sandbox: for users who explicitly want that."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import signal
from collections.abc import Collection, Iterable
from contextlib import suppress
from pathlib import Path

from upcall.sandboxes.base import MEGABYTE, CommandLine, Execution
from upcall.sandboxes.egress_proxy import NetworkAccess
from upcall.sandboxes.limits import Limits
from upcall.sandboxes.processes import ProcessStart, run_process, to_argv
from upcall.sandboxes.views import View, ViewName

_KEPT = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "TMPDIR", "VIRTUAL_ENV", "SYSTEMROOT")
"""Variables that a command gets: the others may contain keys."""

_MARK = "UPCALL_EXECUTION"
_TIMES_UNSEEN = 3


class Local:
    """Runs commands with the rights of the user: they reach everything the user can reach."""

    name = "local"
    description = "run on this machine without a sandbox (unsafe_local): commands can do all that you can"
    isolated = False
    gives_network = True
    overlay: ViewName | None = None

    async def run(
        self,
        command: CommandLine,
        *,
        folder: Path,
        limits: Limits,
        seconds: float | None = None,
        stdin: str = "",
        network: NetworkAccess | None = None,
        view: View | None = None,
    ) -> Execution:
        """Run a command as the protocol says; there is always a network, and never a view."""
        mark = f"{_MARK}={secrets.token_hex(16)}"
        kept = {name: os.environ[name] for name in os.environ if name in _KEPT or name.startswith("LC_")}
        environment = {**kept, "TERM": "dumb", **dict([mark.split("=")])}
        start = ProcessStart([*_limit(limits, seconds), *to_argv(command)], folder, environment, stdin)
        return await run_process(start, _Marked(mark), limits, seconds or limits.seconds)

    async def close(self) -> None:
        """Do nothing: nothing is kept between commands."""


class _Marked:
    """A process group, and all processes with a mark in their environment: a process may leave its group and its
    parent, but keeps the environment it was started with."""

    def __init__(self, mark: str) -> None:
        self._mark = mark.encode()
        self._group: int | None = None

    async def take_hold(self, process: asyncio.subprocess.Process) -> None:
        """Record the process, the first in its own group."""
        self._group = process.pid

    def members(self, most: int) -> list[int]:
        """List the processes with the mark, up to a maximum."""
        return self._find_marked(most)

    def kill(self) -> None:
        """Kill the group; `wait_gone` handles those that left it."""
        if self._group is not None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self._group, signal.SIGKILL)

    async def wait_gone(self) -> None:
        """Kill the processes with the mark until several searches find none.

        A process that is just becoming another program briefly has none.
        """
        unseen = 0
        while unseen < _TIMES_UNSEEN:
            unseen = 0 if await asyncio.to_thread(self._kill_marked) else unseen + 1
            await asyncio.sleep(0.01)

    def _kill_marked(self) -> bool:
        """Kill the processes with the mark, and return whether there were any: stopped first, they cannot start
        others."""
        held: set[int] = set()
        while new := self._find_marked(but=held):
            _signal(new, signal.SIGSTOP)
            held.update(new)
        _signal(held, signal.SIGKILL)
        return bool(held)

    def _find_marked(self, most: int | None = None, but: Collection[int] = ()) -> list[int]:
        found: list[int] = []
        for pid in _pids():
            if pid in but:
                continue
            with suppress(OSError):
                if self._mark in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
                    found.append(pid)
            if most is not None and len(found) > most:
                break
        return found


def _signal(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def _limit(limits: Limits, seconds: float | None) -> list[str]:
    """Set the limits of each process, on Linux.

    The number of processes includes all of the user's, and is not limited for root.
    """
    if shutil.which("prlimit") is None:
        return []
    # RLIMIT_NPROC is compared with all threads of the user, including those of other programs.
    others = sum(map(_threads, _pids()))
    return [
        *("prlimit", f"--nproc={others + limits.processes}"),
        *(f"--data={limits.memory_mb * MEGABYTE}", f"--fsize={limits.file_mb * MEGABYTE}"),
        *(f"--nofile={limits.open_files}", f"--cpu={int(seconds or limits.seconds) + 1}", "--core=0", "--"),
    ]


def _pids() -> list[int]:
    """List all processes of the machine, if it reports them: Linux does."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    except OSError:
        return []


def _threads(pid: int) -> int:
    """Count the threads of a process, if it is this user's."""
    try:
        return len(os.listdir(f"/proc/{pid}/task")) if os.stat(f"/proc/{pid}").st_uid == os.getuid() else 0
    except OSError:
        return 0
