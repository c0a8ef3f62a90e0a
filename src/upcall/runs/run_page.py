"""Pages of runs, and who looks at them."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeVar

from upcall.extensions import display
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


Entry = TypeVar("Entry")


class StoredPage(list[Entry]):
    """A page of what a store has of runs. It prints as text for a reader.

    Attributes:
        damaged: runs that belong to it and cannot be read.
        next: where the next page starts, if there are more.
    """

    damaged: Sequence[DamagedRun] = ()
    next: str | None = None

    @abstractmethod
    def __str__(self) -> str:
        """Return it as text for a reader."""

    def _repr_mimebundle_(self, include: Any = None, exclude: Any = None) -> dict[str, str]:
        """Return its display in a notebook."""
        return display(self, str(self))

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """Print the same text in IPython, which would otherwise show the list."""
        printer.text(self._repr_mimebundle_()["text/plain"])


class RunPage(StoredPage[Run]):
    """A page of runs of a store; the next page starts after the run ``next``."""

    def __str__(self) -> str:
        """Return a line for each run, as `upcall list` prints them."""
        from upcall.ui.value_text import runs_text

        return runs_text(self)


def is_storable(name: str) -> bool:
    """Return whether a database can hold it."""
    return "\0" not in name and is_text(name)
