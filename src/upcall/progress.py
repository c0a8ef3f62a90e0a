"""How far long work has come: the driver shows it among a run's events (`upcall.autogen.scope.report_progress`)."""

from __future__ import annotations

from dataclasses import dataclass

PROGRESS = "upcall.progress"
"""The key in an event's metadata that marks it as an account of progress."""


@dataclass(frozen=True)
class Progress:
    """`done` of `total` things of a kind ("files indexed"); `total` is None where nobody knows it yet."""

    what: str
    done: int
    total: int | None = None

    def to_text(self) -> str:
        """Render it in words: ``files indexed: 12 of 200``."""
        return f"{self.what}: {self.done}" + (f" of {self.total}" if self.total is not None else "")
