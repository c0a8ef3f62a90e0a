"""Where the coder's commands run: in bubblewrap, in Docker, or on the machine itself where that is asked for."""

from upcall.sandboxes.base import Command, Execution, Executor, ExecutorUnavailable
from upcall.sandboxes.bubblewrap import Bubblewrap
from upcall.sandboxes.choice import Unavailable, executor_for
from upcall.sandboxes.docker import Docker
from upcall.sandboxes.local import Local

__all__ = [
    "Bubblewrap",
    "Command",
    "Docker",
    "Execution",
    "Executor",
    "ExecutorUnavailable",
    "Local",
    "Unavailable",
    "executor_for",
]
