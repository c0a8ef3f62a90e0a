"""What the executors of commands share: the result of a command, and its captured output."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeAlias

from upcall.sandboxes.limits import Limits

if TYPE_CHECKING:
    from upcall.sandboxes.egress_proxy import NetworkAccess
    from upcall.sandboxes.views import View, ViewName

CommandLine: TypeAlias = str | Sequence[str]
"""A shell command line, or a program and its arguments."""

MEGABYTE = 1_000_000


@dataclass(frozen=True)
class Execution:
    """The result of a command.

    ``exit_status`` is that of a shell: 128 and the number of the signal that ended it. ``output`` is standard output
    and error together, as they came; a line in its middle says what is left out there. ``stopped`` names the limit it
    was stopped at, if any: ``time``, ``memory``, ``processes``, ``disk``, ``files``, ``depth`` or ``output``.
    """

    exit_status: int
    output: str
    stopped: str | None = None
    seconds: float = 0.0

    def stop_at(self, limit: str | None) -> Execution:
        """Return the same result, stopped at a limit.

        Its exit status is never that of a success: a shell whose children are killed first may still report one.
        """
        if limit is None:
            return self
        return replace(self, stopped=limit, exit_status=self.exit_status or 128 + signal.SIGKILL)


class ExecutorUnavailable(Exception):
    """This executor cannot run anything here. The text says why, and what its user can do."""


class Executor(Protocol):
    """Runs commands in one way.

    Attributes:
        name: its name in the settings.
        description: one line for people.
        isolated: whether a command reaches only its folder, and no host unless it is given access to it.
        gives_network: whether it can give that access.
        overlay: the only way in which a command can get its view of the folder, if there is just one.
    """

    name: str
    description: str
    isolated: bool
    gives_network: bool
    overlay: ViewName | None

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
        """Run a command with `folder` as its working directory until it ends or a limit stops it.

        With a `view` it sees that in place of the folder, and cannot reach the folder itself. None of its processes is
        left running afterwards, whether it ended, was stopped or the caller was cancelled.

        Raises:
            ExecutorUnavailable: nothing can be run.
        """
        ...

    async def close(self) -> None:
        """Release what it keeps between commands."""
        ...


class Output:
    """The head and the tail of a command's output, limited in bytes."""

    def __init__(self, keep: int) -> None:
        self._head, self._tail = bytearray(), bytearray()
        self._head_size, self._tail_size = keep - keep // 2, keep // 2
        self.size = 0

    def write(self, data: bytes) -> None:
        """Add more output."""
        self.size += len(data)
        room = self._head_size - len(self._head)
        self._head += data[:room]
        self._tail += data[room:] if room < len(data) else b""
        if len(self._tail) > self._tail_size:
            del self._tail[: len(self._tail) - self._tail_size]

    def text(self) -> str:
        """Return what is kept; if some is left out, a line there says how many bytes."""
        left_out = self.size - len(self._head) - len(self._tail)
        # With nothing left out, a character of several bytes may span both: they are decoded together.
        gap = f"\n[... {left_out} bytes left out ...]\n".encode() if left_out else b""
        return bytes(self._head + gap + self._tail).decode(errors="replace")
