"""One process and all that it starts: its output, its limits while it runs, and ending all of it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from upcall.autogen.concurrency import run_to_completion
from upcall.sandboxes.base import MEGABYTE, Execution, Output
from upcall.sandboxes.limits import Limits
from upcall.trees import TreeTooDeep, walk_tree

POLL_INTERVAL_S = 0.05
"""The interval between checks of a command's usage. It can overshoot by what it uses in that time."""

MAX_UNSEEN = 3
"""A disk may fill by this many times a command's limit; beyond that, invisible files stop the command too."""

KILL_TIMEOUT_S = 5.0
"""How long killed processes may take to disappear: the kernel frees their memory first."""

_CHUNK = 1 << 16


class Family(Protocol):
    """A process and all that it starts, as one executor tracks them."""

    async def take_hold(self, process: asyncio.subprocess.Process) -> None:
        """Record the process, which was just started."""
        ...

    def members(self, most: int) -> list[int]:
        """List the ids of the live ones, up to a maximum."""
        ...

    def kill(self) -> None:
        """Kill all that are left."""
        ...

    async def wait_gone(self) -> None:
        """Wait until they are gone."""
        ...


class Watch:
    """The usage of a command's processes, and the first limit that they exceed.

    No process limit counts the sum of its children (`setrlimit`), and the number of processes is not limited for root;
    control groups do both, but need rights that few users have. So the usage is measured from outside, on Linux;
    elsewhere only the limits of each process apply.

    Args:
        written: the folder that receives what they write.
    """

    def __init__(self, family: Family, written: Path, limits: Limits) -> None:
        self._family, self._written, self._limits = family, written, limits
        self._free, self._count_shared, self._free_files = _free(written), _count_shared(), _free_files(written)

    def find_exceeded(self) -> str | None:
        """Return the limit that they exceed now."""
        try:
            return self._find_exceeded()
        except TreeTooDeep:  # What cannot be measured could be of any size.
            return "depth"

    def _find_exceeded(self) -> str | None:
        pids = self._family.members(self._limits.processes + 2)
        if len(pids) > self._limits.processes:
            return "processes"
        most = self._limits.memory_mb * MEGABYTE
        # Pages shared by several processes count once, which takes longer to measure.
        if sum(map(_resident, pids)) > most and sum(map(_proportional, pids)) > most:
            return "memory"
        # Memory that no process has mapped (a memfd) belongs to none; only the machine's total includes it.
        if _count_shared() - self._count_shared > most + 2 * self._limits.tmp_mb * MEGABYTE:
            return "memory"
        # Others write too, so only files here are counted. Open files without a name are invisible here.
        most_bytes, used = self._limits.disk_mb * MEGABYTE, self._free - _free(self._written)
        if used > MAX_UNSEEN * most_bytes or (used > most_bytes and _is_larger(self._written, most_bytes)):
            return "disk"
        most_files = self._limits.files
        if self._free_files - _free_files(self._written) > most_files and _has_more_files(self._written, most_files):
            return "files"
        return None


@dataclass(frozen=True)
class ProcessStart:
    """How to start a program; ``written`` is the folder that receives what it writes, if different."""

    command: Sequence[str]
    folder: Path
    environment: Mapping[str, str]
    stdin: str = ""
    pass_fds: Sequence[int] = ()
    written: Path | None = None


async def run_process(start: ProcessStart, family: Family, limits: Limits, seconds: float) -> Execution:
    """Run a program until it ends, exceeds a limit, or the caller is cancelled; then nothing of its family is left.

    Raises:
        OSError: it cannot be started.
    """
    # In its own task: one cancelled while it starts a process could not say what to kill.
    given_up = asyncio.Event()
    running = asyncio.ensure_future(_run(start, family, limits, seconds, given_up))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        given_up.set()
        with suppress(Exception):
            await running
        raise


async def _run(
    start: ProcessStart, family: Family, limits: Limits, seconds: float, given_up: asyncio.Event
) -> Execution:
    begun, output = time.monotonic(), Output(limits.output_chars)
    process, pipe = await _start(start)
    ended = asyncio.create_task(process.wait())
    leaving = asyncio.create_task(given_up.wait())
    tasks = [ended, asyncio.create_task(_read(pipe, output)), asyncio.create_task(_feed(process, start.stdin))]
    stopped = None
    try:
        watch = Watch(family, start.written or start.folder, limits)
        await family.take_hold(process)
        while not (ended.done() or leaving.done() or stopped):
            await asyncio.wait([ended, leaving], timeout=POLL_INTERVAL_S, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():  # One that ended in time keeps its own status, whatever it used.
                stopped = await _find_limit(watch, output, limits, begun + seconds)
    finally:
        family.kill()
        leaving.cancel()
        await run_to_completion(_settle(family, tasks))
    status = process.returncode if process.returncode is not None else -signal.SIGKILL
    status = 128 - status if status < 0 else status
    return Execution(status, output.text(), seconds=time.monotonic() - begun).stop_at(stopped)


async def _start(start: ProcessStart) -> tuple[asyncio.subprocess.Process, BinaryIO]:
    """Start a process; its output comes through a pipe of our own, so that nobody who keeps it open is waited for."""
    written, writing = os.pipe()
    pipe = os.fdopen(written, "rb", buffering=0)
    try:
        process = await asyncio.create_subprocess_exec(
            *start.command,
            cwd=start.folder,
            env=dict(start.environment),
            stdin=asyncio.subprocess.PIPE,
            stdout=writing,
            stderr=writing,
            start_new_session=True,
            pass_fds=start.pass_fds,
        )
    except BaseException:
        pipe.close()
        raise
    finally:
        os.close(writing)
    return process, pipe


async def _settle(family: Family, tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait until all killed processes are gone, and abandon the pipes: what was written is read by then.

    An outside process that keeps one of them open is not waited for.
    """
    with suppress(TimeoutError):
        async with asyncio.timeout(KILL_TIMEOUT_S):
            await family.wait_gone()
            await asyncio.wait(tasks)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def _find_limit(watch: Watch, output: Output, limits: Limits, deadline: float) -> str | None:
    if time.monotonic() > deadline:
        return "time"
    if output.size > limits.max_output_mb * MEGABYTE:
        return "output"
    return await asyncio.to_thread(watch.find_exceeded)


async def _feed(process: asyncio.subprocess.Process, text: str) -> None:
    assert process.stdin is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(text.encode(errors="replace"))
        await process.stdin.drain()
    process.stdin.close()


async def _read(pipe: BinaryIO, output: Output) -> None:
    reader = asyncio.StreamReader()
    loop = asyncio.get_running_loop()
    transport, _ = await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), pipe)
    try:
        while data := await reader.read(_CHUNK):
            output.write(data)
    finally:
        transport.close()


# -- information on processes ------------------------------------------------------------------------------------------


def list_descendants(pid: int, most: int) -> list[int]:
    """List a process and its descendants, up to a maximum."""
    found = [pid]
    for parent in found:
        with suppress(OSError):
            for task in os.listdir(f"/proc/{parent}/task"):
                found += map(int, Path(f"/proc/{parent}/task/{task}/children").read_text().split())
        if len(found) > most:
            break
    return found


def _resident(pid: int) -> int:
    """Return the memory of a process in bytes, including what it shares with others."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError):
        return 0


def _proportional(pid: int) -> int:
    """Return the memory of a process in bytes, with its part of what it shares; all of it if that is unknown."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))
    except (OSError, StopIteration):
        return _resident(pid)


def _count_shared() -> int:
    """Return the memory of this machine in bytes that is used for shared memory and files in memory."""
    try:
        lines = Path("/proc/meminfo").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("Shmem:"))
    except (OSError, StopIteration):
        return 0


def _free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


def _free_files(folder: Path) -> int:
    """Return how many more files can be made on a file system; 0 if it has no such limit."""
    return os.statvfs(folder).f_ffree if hasattr(os, "statvfs") else 0


def _is_larger(folder: Path, most: int) -> bool:
    size = 0
    for _, entry in walk_tree(folder):
        with suppress(OSError):
            size += entry.stat(follow_symlinks=False).st_blocks * 512
        if size > most:
            return True
    return False


def _has_more_files(folder: Path, most: int) -> bool:
    return any(number > most for number, _ in enumerate(walk_tree(folder), start=1))


def to_argv(command: str | Sequence[str]) -> list[str]:
    """Return the program and arguments of a command; a command line goes to the shell."""
    return [shutil.which("bash") or "/bin/sh", "-c", command] if isinstance(command, str) else list(command)
