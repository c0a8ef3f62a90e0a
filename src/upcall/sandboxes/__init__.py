"""Where commands and readers of documents run: in bubblewrap, in Docker, or on the machine itself if requested.

Each name below loads its module on first use: the settings need the limits alone.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from upcall.lazy_names import load_name

if TYPE_CHECKING:
    from upcall.sandboxes.base import CommandLine, Execution, Executor, ExecutorUnavailable
    from upcall.sandboxes.bubblewrap import Bubblewrap
    from upcall.sandboxes.choice import Unavailable, executor_for
    from upcall.sandboxes.docker import Docker
    from upcall.sandboxes.egress_proxy import NetworkAccess
    from upcall.sandboxes.local import Local

_HOMES = {
    "Bubblewrap": "sandboxes.bubblewrap",
    "CommandLine": "sandboxes.base",
    "Docker": "sandboxes.docker",
    "Execution": "sandboxes.base",
    "Executor": "sandboxes.base",
    "ExecutorUnavailable": "sandboxes.base",
    "Local": "sandboxes.local",
    "NetworkAccess": "sandboxes.egress_proxy",
    "Unavailable": "sandboxes.choice",
    "executor_for": "sandboxes.choice",
}

__all__ = [
    "Bubblewrap",
    "CommandLine",
    "Docker",
    "Execution",
    "Executor",
    "ExecutorUnavailable",
    "Local",
    "NetworkAccess",
    "Unavailable",
    "executor_for",
]


def __getattr__(name: str) -> object:
    return load_name("upcall", _HOMES, name)
