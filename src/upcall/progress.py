"""How far long work has come, told to whoever listens: the driver shows it among a run's events."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TypeAlias

PROGRESS = "upcall.progress"
"""The key in an event's metadata that marks it as an account of progress."""


@dataclass(frozen=True)
class Progress:
    """`done` of `total` things of a kind ("files indexed"); `total` is None where nobody knows it yet."""

    what: str
    done: int
    total: int | None = None

    def to_text(self) -> str:
        """In words: ``files indexed: 12 of 200``."""
        return f"{self.what}: {self.done}" + (f" of {self.total}" if self.total is not None else "")


Listener: TypeAlias = Callable[[Progress], None]

listener: ContextVar[Listener | None] = ContextVar("upcall_progress", default=None)
"""Who hears of progress. The driver sets it before it runs a team, and the team's tasks inherit it. It is called from
worker threads too; it must not raise."""


def report(what: str, done: int, total: int | None = None) -> None:
    """Tell how far a piece of long work has come; nothing happens where nobody listens."""
    if (tell := listener.get()) is not None:
        tell(Progress(what, done, total))
