"""What trials came to and cost, in sums that are kept."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from math import fsum
from typing import Any

from trial_world import task

from upcall.experiments.budget import Budget, Cost
from upcall.experiments.records import TrialRecord
from upcall.experiments.tally import Tally
from upcall.experiments.trial import Trial


def trials(number: int, policy: str = "never") -> list[Trial]:
    """Return trials of one cell."""
    return [
        Trial(id=f"{policy}-{at}", task=task(0), team="solo", policy=policy, model="script", seed=at)
        for at in range(number)
    ]


def record(status: str = "completed") -> TrialRecord:
    """Return what nobody looks at but for the status."""
    fields: dict[str, Any] = {"status": status}
    return TrialRecord.model_construct(**fields)


def test_tally_estimates_by_cell_then_by_all() -> None:
    never, always, other = trials(4), trials(3, "always"), trials(2, "other")
    tally = Tally([*never, *always, *other])
    assert tally.progress().to_come is None
    for trial, tokens in ((never[0], 10), (never[1], 20), (always[0], 90)):
        tally.note_cost(trial, Cost(tokens=tokens, money=tokens / 10))
        tally.note_done(trial, record())
    emitted = tally.progress()
    assert (emitted.done, emitted.total, emitted.cost) == (3, 9, Cost(tokens=120, money=12.0))
    assert emitted.to_come == Cost(tokens=2 * 15 + 2 * 90 + 2 * 40, money=3.0 + 18.0 + 8.0)


def test_tally_of_a_resumed_trial_is_paid_once() -> None:
    (trial,) = trials(1)
    tally = Tally([trial])
    tally.note_cost(trial, Cost(tokens=7))
    tally.note_done(trial, record("failed"))
    assert (tally.progress().done, tally.progress().failed) == (1, 1)
    tally.take_up(trial)
    assert (tally.progress().done, tally.progress().failed, tally.cost.tokens) == (0, 0, 7)
    tally.note_cost(trial, Cost(tokens=9))
    assert tally.cost.tokens == 9


def test_tally_of_money_is_independent_of_order() -> None:
    chosen = trials(3)
    amounts = (0.1, 1e16, 0.2)
    for order in permutations(range(3)):
        tally = Tally(chosen)
        for at in order:
            tally.note_cost(chosen[at], Cost(money=amounts[at]))
        tally.note_cost(chosen[1], Cost())  # A float that was added and taken away again would have left nothing.
        assert tally.cost.money == fsum((0.1, 0.2))


def test_what_was_held_back_is_noted() -> None:
    (trial,) = trials(1)
    tally = Tally([trial], Budget(tokens=5))
    assert (tally.may_begin(), tally.held_back) == (True, False)
    tally.note_cost(trial, Cost(tokens=5))
    assert (tally.may_begin(), tally.held_back) == (False, True)


class Unread(dict[str, Any]):
    """A mapping that is looked up in, and never gone through."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all trials are gone through")

    def values(self) -> Any:
        raise AssertionError("all trials are gone through")

    items = values


def test_tally_reports_an_end_without_rereading_others() -> None:
    """With thousands of trials each end would take longer than the one before."""
    chosen = trials(3)
    tally = Tally(chosen, Budget(tokens=10**9))
    tally.records, tally._spent = Unread(), Unread()
    for trial in chosen:
        assert tally.may_begin()
        tally.note_cost(trial, Cost(tokens=1, money=0.1))
        tally.note_done(trial, record())
    assert tally.progress().done == 3
    assert tally.progress().to_come == Cost()
