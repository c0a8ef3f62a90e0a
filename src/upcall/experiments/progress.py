"""The progress of an experiment, for display."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from upcall.experiments.budget import Cost


@dataclass(frozen=True)
class ExperimentProgress:
    """Trials that are done, their cost, and the cost of the remaining ones if they are similar.

    Attributes:
        done: trials that are done, including `failed` ones.
        total: all trials.
        failed: those whose run failed.
        cost: the cost so far, including trials in progress.
        to_come: the expected remaining cost; None while unknown.
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


StepListener: TypeAlias = Callable[[ExperimentProgress], None]
"""Learns of each step."""
