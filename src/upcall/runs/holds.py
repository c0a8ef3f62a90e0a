"""Holds: an operator stops the work on the runs of a user, a team or a model, or on all of them, for a while."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any

from upcall.runs.run import Run

ROOT_TEAM = "root"
"""The name by which the built-in team is held."""


class HoldKind(StrEnum):
    """What is held."""

    QUEUE = "queue"
    USER = "user"
    TEAM = "team"
    MODEL = "model"


@dataclass(frozen=True)
class Hold:
    """A hold. No work begins on a run that it is about; work that has begun continues to its next pause.

    Attributes:
        kind: what is held.
        name: the user, the team (``MODULE:FUNCTION``, or `ROOT_TEAM`) or the model; empty for the queue, which is all.
        reason: why, in the words of who placed it.
        placed_by: who; None is the operator.
        at: since when.
    """

    kind: HoldKind
    name: str
    reason: str
    placed_by: str | None
    at: datetime

    def is_about(self, run: Run) -> bool:
        """Return whether a run waits until this hold is released."""
        match self.kind:
            case HoldKind.QUEUE:
                return True
            case HoldKind.USER:
                return run.user == self.name
            case HoldKind.TEAM:
                return name_team(run) == self.name
            case HoldKind.MODEL:
                return self.name in list_models(run)

    @property
    def subject(self) -> str:
        """What is held, in words: ``user alice``, ``the queue``."""
        return "the queue" if self.kind is HoldKind.QUEUE else f"{self.kind.value} {self.name}"

    def as_line(self) -> str:
        """Return what is held, since when, by whom and why, in one line."""
        by = self.placed_by or "the operator"
        return f"{self.subject} is held since {self.at:%Y-%m-%d %H:%M} UTC by {by}: {self.reason}"

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return {
            "kind": self.kind.value,
            "name": self.name,
            "reason": self.reason,
            "placed_by": self.placed_by,
            "at": self.at.isoformat(),
        }


def name_team(run: Run) -> str | None:
    """Return the name of a run's team; None where a program brings a team that has no name."""
    if run.config.team is not None:
        return ROOT_TEAM
    return run.config.named_team.name if run.config.named_team is not None else None


def list_models(run: Run) -> frozenset[str]:
    """List the models that a run names; a team that brings its own clients names none."""
    team = run.config.team
    if team is None:
        return frozenset()
    given = [team.model, *team.models.values()]
    return frozenset(each.model for each in given if each is not None and each.model is not None)
