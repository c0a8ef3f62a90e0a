"""Control groups: kernel limits on what all processes of a command use together.

Few users may make one. Root may if the file system of control groups is writable, and needs it most: the kernel's limit
on the number of a user's processes does not apply to root.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path

from upcall.sandboxes.base import MEGABYTE
from upcall.sandboxes.limits import Limits

ROOM = 16
"""How many processes beyond the limit can be started: the watch notices the excess, and stops all."""

_TREE = Path("/sys/fs/cgroup")
_JOIN = 'for f in $1; do echo $$ > "$f" || exit 126; done; shift; exec "$@"'


class Group:
    """A control group for one command; with version 1 of control groups, one for each controller."""

    def __init__(self, limits: Limits) -> None:
        name = f"upcall-{secrets.token_hex(8)}"
        self._folders = {controller: home / name for controller, home in _homes().items()}
        memory = str((limits.memory_mb + 2 * limits.tmp_mb) * MEGABYTE)
        for controller, folder in self._folders.items():
            folder.mkdir(exist_ok=True)
            files = {"pids.max": str(limits.processes + ROOM)} if controller == "pids" else _memory(folder, memory)
            for each, value in files.items():
                (folder / each).write_text(value)

    @property
    def bounds_processes(self) -> bool:
        """Whether the number of processes is limited."""
        return "pids" in self._folders

    def join(self, command: Sequence[str]) -> list[str]:
        """Return a command that first joins the group."""
        files = " ".join(str(folder / "cgroup.procs") for folder in dict.fromkeys(self._folders.values()))
        return ["/bin/sh", "-c", _JOIN, "sh", files, *command] if files else list(command)

    def has_killed(self) -> bool:
        """Return whether the kernel killed a process in it for lack of memory."""
        for file in ("memory.events", "memory.oom_control"):
            with suppress(OSError, KeyError):
                lines = (self._folders["memory"] / file).read_text().splitlines()
                return any(line.startswith("oom_kill ") and line != "oom_kill 0" for line in lines)
        return False

    def remove(self) -> None:
        """Remove it; it must be empty."""
        for folder in dict.fromkeys(self._folders.values()):
            with suppress(OSError):
                folder.rmdir()


def _memory(folder: Path, most: str) -> Mapping[str, str]:
    if (folder / "memory.max").exists():
        return {"memory.max": most, **({"memory.swap.max": "0"} if (folder / "memory.swap.max").exists() else {})}
    return {"memory.limit_in_bytes": most}


@cache
def _homes() -> Mapping[str, Path]:
    """Find where a group can be made, for each available controller."""
    found = {}
    for line in _own():
        _, controllers, path = line.split(":", 2)
        for name in ("pids", "memory"):
            if name in controllers.split(","):
                found[name] = _TREE / name / path.lstrip("/")
            elif not controllers and name not in found and (home := _second(name, path)) is not None:
                found[name] = home
    return {name: home for name, home in found.items() if _can_make(home)}


def _own() -> list[str]:
    try:
        return Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []


def _second(controller: str, path: str) -> Path | None:
    """Find the nearest group of version 2 above our own that delegates the controller to its children."""
    own = _TREE / path.lstrip("/")
    for folder in own.parents:
        with suppress(OSError):
            if controller in (folder / "cgroup.subtree_control").read_text().split():
                return folder
        if folder == _TREE:
            break
    return None


def _can_make(home: Path) -> bool:
    trial = home / f"upcall-{secrets.token_hex(8)}"
    try:
        trial.mkdir()
        trial.rmdir()
    except OSError:
        return False
    return os.geteuid() == 0
