"""How a segment ends: the run waits for answers, has its result, failed, or was stopped. It holds what was stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from upcall.storage.stored_run import StoredRun


@dataclass(frozen=True)
class Waiting:
    """The team has paused at its open questions."""

    stored: StoredRun

    @property
    def is_answered(self) -> bool:
        """Whether answers came while it paused, so that a new team continues at once."""
        return self.stored.run.working


@dataclass(frozen=True)
class Completed:
    """The team has a result."""

    stored: StoredRun


@dataclass(frozen=True)
class Failed:
    """The run can be resumed: from its last pause with the journal since then, or from this one.

    Attributes:
        kind: the name of what went wrong, as the metrics count it.
    """

    stored: StoredRun
    kind: str


@dataclass(frozen=True)
class Stopped:
    """The human stopped the run after a step: nobody works on it, and it can be resumed from the journal."""

    stored: StoredRun


SegmentOutcome: TypeAlias = Waiting | Completed | Failed | Stopped
