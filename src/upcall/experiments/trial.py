"""A trial: one task, done once, under one of each of what is compared."""

from __future__ import annotations

from typing import NamedTuple

from pydantic import BaseModel

from upcall.experiments.tasks import Task


class Cell(NamedTuple):
    """What is compared."""

    team: str
    policy: str
    model: str

    @property
    def name(self) -> str:
        """It in one line."""
        return " / ".join(self)


class Trial(BaseModel, frozen=True):
    """One task under one policy, with a team, a model and a seed.

    Attributes:
        id: the same each time that the same is tried; the id of its run.
        branch: where a fork of its run is meant, which question was answered how.
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
        """Its name, by which its recorded replies are found: the same after a change of what is behind these names."""
        parts = (self.task.id, self.team, self.policy, self.model, str(self.seed), *filter(None, [self.branch]))
        return "/".join(parts)

    @property
    def cell(self) -> Cell:
        """What it is a trial of."""
        return Cell(self.team, self.policy, self.model)
