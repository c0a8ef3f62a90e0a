"""The executor that the settings request."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from upcall.errors import ConfigurationError
from upcall.options import ExecutorName
from upcall.sandboxes.base import CommandLine, Execution, Executor, ExecutorUnavailable
from upcall.sandboxes.bubblewrap import INSTALL, Bubblewrap, explain_unusable
from upcall.sandboxes.docker import IMAGE, Docker
from upcall.sandboxes.egress_proxy import NetworkAccess
from upcall.sandboxes.limits import Limits
from upcall.sandboxes.local import Local
from upcall.sandboxes.views import View, ViewName


class Unavailable:
    """Runs nothing, and says why: there is no sandbox, and nobody consented to do without."""

    name = "none"
    isolated = True
    gives_network = False
    overlay: ViewName | None = None

    def __init__(self, why: str) -> None:
        self.description = f"cannot be run: {why}"
        self.why = why

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
        """Refuse."""
        raise ExecutorUnavailable(self.why)

    async def close(self) -> None:
        """Do nothing: nothing is kept."""


def executor_for(
    name: ExecutorName, *, unsafe_local: bool = False, image: str = IMAGE, readable: Sequence[str | Path] = ()
) -> Executor | None:
    """Return the requested executor; None if nothing should be executed at all.

    ``auto`` is bubblewrap if that works, and the machine itself with `unsafe_local`, the user's explicit consent.
    Without either, nothing is executed, and each command gets a note on what the user must do.

    Raises:
        ConfigurationError: `unsafe_local` is set beside a named executor.
    """
    if unsafe_local and name != "auto":
        raise ConfigurationError(
            f"workspace.unsafe_local is true and workspace.executor is {name!r}: leave out unsafe_local to use that, "
            "or executor to run commands without a sandbox."
        )
    if name == "none":
        return None
    if unsafe_local:
        return Local()
    if name == "docker":
        return Docker(image)
    why = explain_unusable()
    if why is None:
        return Bubblewrap(readable)
    return Unavailable(
        f"{why}. The user can {INSTALL}, set workspace.executor: docker, or consent to commands without a sandbox with "
        "--unsafe-local (the setting workspace.unsafe_local)"
    )
