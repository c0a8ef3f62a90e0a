"""Reproducible intervals and tests: bootstrap over tasks, and a permutation test for pairs.

Tasks are drawn with all their seeds: the trials of one task are not independent.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upcall.errors import missing_extra
from upcall.experiments.measures import COLUMNS, MEASURES, Measure
from upcall.experiments.records import TrialRecord
from upcall.text import first_line

try:
    import numpy as np
    from numpy.typing import NDArray
except ImportError as error:
    raise missing_extra(f"numpy cannot be loaded ({first_line(error)})", "experiments") from error

DRAWS = 2_000
SEED = 20_260_101
_SIGNIFICANT_P = 0.05
Z = 1.959964
"""The quantile of the normal distribution for 95 %."""

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Estimate:
    """A value with its 95 % interval; None if there are no data for it."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True)
class Difference:
    """How a measure of one cell differs from that of another, on the tasks that both have.

    Attributes:
        p: how often chance alone gives a difference this large, by a permutation test that exchanges the two within
            tasks.
    """

    estimate: Estimate
    p: float | None

    @property
    def is_sure(self) -> bool:
        """Whether chance alone seldom gives such a difference."""
        return self.p is not None and self.p < _SIGNIFICANT_P

    def as_json(self) -> dict[str, float | None]:
        """Return it as plain JSON."""
        return {**vars(self.estimate), "p": self.p}


def sum_by_task(records: Sequence[TrialRecord], tasks: Sequence[str]) -> Floats:
    """Return the sums of the columns, a row per task."""
    rows = {task: np.zeros(len(COLUMNS)) for task in tasks}
    for record in sorted(records, key=lambda each: each.trial):  # Sums of floats depend on their order.
        if record.task in rows:
            rows[record.task] += np.array([float(column(record)) for column in COLUMNS.values()])
    return np.array([rows[task] for task in tasks]).reshape(len(tasks), len(COLUMNS))


def estimate_all(records: Sequence[TrialRecord]) -> dict[str, Estimate]:
    """Return all measures of the records of one cell."""
    tasks = sorted({record.task for record in records})
    sums = sum_by_task(records, tasks)
    drawn = draw_weights(len(tasks)) @ sums
    found = {each.name: estimate(_value(each, sums.sum(0)), _value(each, drawn)) for each in MEASURES}
    return found | {each.name: _widen(found[each.name], _count_tasks(each, sums)) for each in MEASURES if each.is_share}


def _count_tasks(measure: Measure, sums: Floats) -> int:
    """Count the tasks that say something about a share."""
    names = [*COLUMNS]
    return int(np.count_nonzero(sums[:, [names.index(name) for name in measure.ratios[0].under]].sum(1)))


def _widen(found: Estimate, tasks: int) -> Estimate:
    """Return the estimate of a share with another interval where all tasks came out the same: so does every draw of
    them, and 3 of 3 would look as certain as 300 of 300."""
    if found.value not in (0.0, 1.0) or found.low != found.high or not tasks:
        return found
    return estimate_share(found.value, tasks)


def estimate_share(share: float, count: int) -> Estimate:
    """Return a share of so many with Wilson's interval (E. B. Wilson 1927), which is one for none and all, too."""
    middle, width = share + Z**2 / (2 * count), Z * (share * (1 - share) / count + Z**2 / (4 * count**2)) ** 0.5
    low, high = ((middle + each) / (1 + Z**2 / count) for each in (-width, width))
    return Estimate(share, low if share else 0.0, high if share < 1 else 1.0)


def compare_all(one: Sequence[TrialRecord], other: Sequence[TrialRecord]) -> dict[str, Difference]:
    """Return how all measures differ, the first minus the second, on the tasks and seeds that both have: an experiment
    that stopped early may have run a task once more under one policy."""
    pairs = {(each.task, each.seed) for each in one} & {(each.task, each.seed) for each in other}
    one, other = ([each for each in of if (each.task, each.seed) in pairs] for of in (one, other))
    tasks = sorted({task for task, _ in pairs})
    if not tasks:
        return {}
    first, second = sum_by_task(one, tasks), sum_by_task(other, tasks)
    weights = draw_weights(len(tasks))
    keep = np.random.default_rng(SEED).integers(0, 2, (DRAWS, len(tasks))).astype(float)
    mixed, rest = keep @ first + (1 - keep) @ second, (1 - keep) @ first + keep @ second
    found = {}
    for each in MEASURES:
        value = _value(each, first.sum(0)) - _value(each, second.sum(0))
        drawn = _value(each, weights @ first) - _value(each, weights @ second)
        chance = _value(each, mixed) - _value(each, rest)
        found[each.name] = Difference(estimate(value, drawn), _p(value, chance))
    return found


def draw_weights(tasks: int) -> Floats:
    """Return how often each task is in each draw."""
    if not tasks:
        return np.zeros((DRAWS, 0))
    return np.random.default_rng(SEED).multinomial(tasks, [1 / tasks] * tasks, DRAWS).astype(float)


def _value(measure: Measure, sums: Floats) -> Floats:
    """Return a measure computed from sums: of one row, or of many."""
    columns = {name: sums[..., at] for at, name in enumerate(COLUMNS)}
    with np.errstate(divide="ignore", invalid="ignore"):
        ratios = [
            np.divide(sum(columns[name] for name in each.over), sum(columns[name] for name in each.under))
            for each in measure.ratios
        ]
    return np.asarray(sum(ratios) / len(ratios), dtype=float)


def estimate(value: Floats, drawn: Floats) -> Estimate:
    """Return a value with its interval, from what the draws gave."""
    number = float(value)
    if not np.isfinite(number):
        return Estimate(None)
    finite = drawn[np.isfinite(drawn)]
    low, high = np.percentile(finite, [2.5, 97.5]) if len(finite) else (number, number)
    return Estimate(number, float(low), float(high))


def _p(value: Floats, chance: Floats) -> float | None:
    finite = chance[np.isfinite(chance)]
    if not np.isfinite(value) or not len(finite):
        return None
    # As large but for the last digits, which depend on the order of the sums.
    extreme = np.count_nonzero(np.abs(finite) >= abs(float(value)) - 1e-12)
    # What was seen is one of the permutations, so that p is never 0 (Phipson and Smyth 2010).
    return float((1 + extreme) / (1 + len(finite)))
