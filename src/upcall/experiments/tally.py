"""The progress and cost of an experiment's trials, as running sums: reporting one does not read all the others."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from upcall.experiments.budget import Budget, Cost
from upcall.experiments.progress import ExperimentProgress
from upcall.experiments.records import TrialRecord
from upcall.experiments.trial import Cell, Trial
from upcall.runs.states import RunStatus


@dataclass
class _Sum:
    """A sum of costs. Money is a fraction, so that it is exact in whatever order costs are added and removed."""

    number: int = 0
    tokens: int = 0
    money: Fraction = Fraction()

    def add(self, cost: Cost, sign: int = 1) -> None:
        self.number += sign
        self.tokens += sign * cost.tokens
        self.money += sign * Fraction(cost.money)


class Tally:
    """The results and costs of trials so far.

    Args:
        trials: the trials to run.
        budget: the cost at which nothing more is started.

    Attributes:
        records: the records of finished trials, by id.
        held_back: whether something was not started because the budget was spent.
    """

    def __init__(self, trials: Sequence[Trial], budget: Budget | None = None) -> None:
        self._total, self._budget = len(trials), budget
        self.records: dict[str, TrialRecord] = {}
        self.held_back = False
        self._failed = 0
        self._spent: dict[str, Cost] = {}
        self._all = _Sum()
        self._done: defaultdict[Cell, _Sum] = defaultdict(_Sum)
        self._left = Counter(trial.cell for trial in trials)

    def note_cost(self, trial: Trial, cost: Cost) -> Cost:
        """Note what a trial, or a fork of one, has cost so far."""
        if trial.id in self._spent:
            self._all.add(self._spent[trial.id], -1)
        self._spent[trial.id] = cost
        self._all.add(cost)
        return cost

    def note_done(self, trial: Trial, record: TrialRecord) -> None:
        """Note that a trial, whose cost is noted, is done."""
        self.records[trial.id] = record
        self._change(trial, record, 1)

    def take_up(self, trial: Trial) -> None:
        """Note that a trial is in progress, even if it was done before and failed."""
        if (record := self.records.pop(trial.id, None)) is not None:
            self._change(trial, record, -1)

    def _change(self, trial: Trial, record: TrialRecord, sign: int) -> None:
        self._left[trial.cell] -= sign
        self._done[trial.cell].add(self._spent[trial.id], sign)
        self._failed += sign * (record.status == RunStatus.FAILED)

    @property
    def cost(self) -> Cost:
        """The total cost so far."""
        return Cost(tokens=self._all.tokens, money=float(self._all.money))

    def may_begin(self) -> bool:
        """Whether the budget allows starting something more."""
        self.held_back = self.held_back or self.is_spent
        return not self.is_spent

    @property
    def is_spent(self) -> bool:
        """Whether the budget is spent."""
        return self._budget is not None and self._budget.is_spent(self.cost)

    def progress(self) -> ExperimentProgress:
        """Return the progress."""
        return ExperimentProgress(
            len(self.records), self._total, self._failed, self.cost, self.estimate_cost(self._left)
        )

    def estimate_cost(self, left: Mapping[Cell, int]) -> Cost | None:
        """Estimate the cost of a number of trials of each cell from the finished trials, of the same cell if there are
        any; None if none is done."""
        if not self.records:
            return None
        done = self._done.values()
        every = _Sum(
            number=sum(of.number for of in done),
            tokens=sum(of.tokens for of in done),
            money=sum((of.money for of in done), Fraction()),
        )
        tokens = money = Fraction()
        for cell, number in left.items():
            of = self._done[cell] if cell in self._done and self._done[cell].number else every
            tokens += Fraction(number * of.tokens, of.number)
            money += number * of.money / of.number
        return Cost(tokens=round(tokens), money=float(money))
