"""A trial: one task, run once, in one cell of the comparison."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import BaseModel

from upcall.experiments.tasks import Task


class Cell(NamedTuple):
    """One combination of what is compared."""

    team: str
    policy: str
    model: str

    @property
    def name(self) -> str:
        """The cell in one line."""
        return " / ".join(self)


class Trial(BaseModel, frozen=True):
    """One task under one policy, with a team, a model and a seed.

    Attributes:
        id: the same each time the same is tried; also the id of its run.
        branch: for a fork of its run, which question got which answer.
    """

    id: str
    task: Task
    team: str
    policy: str
    model: str
    seed: int
    branch: str = ""

    @property
    def slot(self) -> str:
        """The name of its recorded replies: it stays the same if what is behind these names changes."""
        parts = (self.task.id, self.team, self.policy, self.model, str(self.seed), *filter(None, [self.branch]))
        return "/".join(parts)

    @property
    def cell(self) -> Cell:
        """The cell that it belongs to."""
        return Cell(self.team, self.policy, self.model)
