"""Where the coder's commands run: in bubblewrap, in Docker, or on the machine itself if requested."""

from upcall.workspace.sandboxes.base import CommandLine, Execution, Executor, ExecutorUnavailable
from upcall.workspace.sandboxes.bubblewrap import Bubblewrap
from upcall.workspace.sandboxes.choice import Unavailable, executor_for
from upcall.workspace.sandboxes.docker import Docker
from upcall.workspace.sandboxes.egress_proxy import NetworkAccess
from upcall.workspace.sandboxes.local import Local

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
