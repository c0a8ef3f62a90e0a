"""Where the coder's commands run: in bubblewrap, in Docker, or on the machine itself if requested."""

from upcall.workspace.sandboxes.base import Command, Execution, Executor, ExecutorUnavailable
from upcall.workspace.sandboxes.bubblewrap import Bubblewrap
from upcall.workspace.sandboxes.choice import Unavailable, executor_for
from upcall.workspace.sandboxes.docker import Docker
from upcall.workspace.sandboxes.local import Local
from upcall.workspace.sandboxes.proxy import NetworkAccess

__all__ = [
    "Bubblewrap",
    "Command",
    "Docker",
    "Execution",
    "Executor",
    "ExecutorUnavailable",
    "Local",
    "NetworkAccess",
    "Unavailable",
    "executor_for",
]
