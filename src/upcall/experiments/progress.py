"""How far an experiment has come, for who watches it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from upcall.experiments.budget import Cost


@dataclass(frozen=True)
class ExperimentProgress:
    """Trials that are done, what they cost, and what those to come will cost if they are like these.

    Attributes:
        done: trials that are done, `failed` among them.
        total: all trials.
        failed: those whose run failed.
        cost: what was spent so far, by what is under way too.
        to_come: what is still to be spent; None while nobody can know.
    """

    done: int
    total: int
    failed: int
    cost: Cost
    to_come: Cost | None

    def to_text(self) -> str:
        """Render it in words."""
        failed = f", {self.failed} failed" if self.failed else ""
        left = f"; to come about {self.to_come.to_text()}" if self.to_come is not None else ""
        return f"{self.done} of {self.total} trials{failed}; {self.cost.to_text()}{left}"


Listener: TypeAlias = Callable[[ExperimentProgress], None]
"""Hears of each step."""
