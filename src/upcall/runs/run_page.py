"""Pages of runs, and who looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from upcall.questions.matching import is_text
from upcall.runs.run import Run

EVERYBODY = "role:"
"""Stands for everybody among the assignees of a row: a role without a name, which no question is assigned to."""


@dataclass(frozen=True)
class Viewer:
    """A viewer: a user, and the names by which a run may be theirs to see (their own, their roles, everybody)."""

    user: str
    names: frozenset[str]

    def sees(self, owner: str | None, assignees: str | None) -> bool:
        """Return whether there is a run with this owner and these assignees for them."""
        named = () if assignees is None else assignees.split("\n")
        return (owner is not None and owner == self.user) or not self.names.isdisjoint(named)


@dataclass(frozen=True)
class DamagedRun:
    """A run that cannot be read: its id, when it was created, and what is wrong, in one line."""

    id: str
    created_at: datetime
    problem: str

    def as_json(self) -> dict[str, Any]:
        """Return the object that stands for it in a list of runs."""
        return {
            "run_id": self.id,
            "status": "damaged",
            "interrupted": False,
            "result": None,
            "error": self.problem,
            "questions": [],
            "assumptions": [],
        }


class RunPage(list[Run]):
    """A page of runs of a store.

    Attributes:
        damaged: those among them that cannot be read.
        next: the id after which the next page starts, if there are more.
    """

    damaged: Sequence[DamagedRun] = ()
    next: str | None = None


def is_storable(name: str) -> bool:
    """Return whether a database can hold it."""
    return "\0" not in name and is_text(name)
