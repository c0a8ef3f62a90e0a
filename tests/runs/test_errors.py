"""Errors through pickle and copy, as process pools and task queues need them."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import pytest

from upcall import errors
from upcall.errors import PortableError

MADE: dict[type[BaseException], tuple[object, ...]] = {
    errors.UnknownRun: ("abc",),
    errors.UnknownQuestion: ("q1", ["a", "b"]),
    errors.FieldsRefused: ("q1", {"age": "a number is needed"}, {"age": "x"}),
    errors.OverrulesAssumption: ("q1", "Express"),
    errors.EffectsRemain: (["mail was sent"],),
    errors.ModelReplyUnfinished: ("cut off", "length"),
    errors.StoreUnavailable: ("gone", "x.db"),
    errors.TeamMismatch: ("abc", ["one", "two"]),
    errors.RunConflict: ("abc",),
    errors.RunGone: ("abc", "x.db"),
    errors.TooLarge: ("state", 10_000_000, 1_000_000),
    errors.RunBusy: ("abc", "worker", 3.0),
    errors.RunBeingReplaced: ("abc", ["q1", "q2"]),
    errors.RunHeld: ("abc", "the queue is held", 1.0),
    errors.UserAtLimit: ("abc", "alice", 2, 1.0),
    errors.WorkspaceMissing: ("abc", Path("w")),
    errors.UserInputRequired: ("Which?", ["a"]),
    errors.AlreadyAnswered: ("Question q1 was answered", "q1"),
    errors.AskedOutsideTool: ("'Which?' was asked in f", errors.UserInputRequired("Which?")),
    errors.SharedAgent: ("Agent 'a' has worked in another run",),
}
"""What makes an error of each class with a constructor of its own; the others take a text."""

KINDS = [
    each
    for each in vars(errors).values()
    if isinstance(each, type) and issubclass(each, PortableError) and each is not PortableError
]


def make(kind: type[BaseException]) -> BaseException:
    error = kind(*MADE.get(kind, ("what, which value, what to do",)))
    error.add_note("a note")
    return error


def raise_one(kind: type[BaseException]) -> None:
    raise make(kind)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("again", [lambda error: pickle.loads(pickle.dumps(error)), copy.copy, copy.deepcopy])
def test_error_comes_through_pickle_and_copy(
    kind: type[BaseException], again: Callable[[BaseException], BaseException]
) -> None:
    error = make(kind)
    back = again(error)
    assert (type(back), str(back), vars(back)) == (kind, str(error), vars(error))


def test_error_of_a_process_pool_is_the_callers() -> None:
    with ProcessPoolExecutor(1, mp_context=get_context("fork")) as pool:
        for kind in (errors.RunBusy, errors.UserInputRequired):
            with pytest.raises(kind, match=r"abc|Which"):
                pool.submit(raise_one, kind).result(timeout=20)
