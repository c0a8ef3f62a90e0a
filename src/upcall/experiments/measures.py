"""The measures of an experiment, each a ratio of sums over trials, or the mean of two such ratios."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from upcall.experiments.records import TrialRecord

Column: TypeAlias = Callable[[TrialRecord], float]

COLUMNS: Mapping[str, Column] = {
    "trials": lambda each: 1,
    "checked": lambda each: each.success is not None,
    "successes": lambda each: bool(each.success),
    "questions": lambda each: each.questions,
    "asked": lambda each: each.questions > 0,
    "unclear": lambda each: each.missing > 0,
    "asked_unclear": lambda each: each.questions > 0 and each.missing > 0,
    "clear": lambda each: each.missing == 0,
    "silent_clear": lambda each: each.questions == 0 and each.missing == 0,
    "missing": lambda each: each.missing,
    "hits": lambda each: each.hits,
    "needless": lambda each: each.needless,
    "repeated": lambda each: each.repeated,
    "assumptions": lambda each: each.assumptions,
    "wrong": lambda each: each.wrong,
    "leaks": lambda each: each.leaks,
    "turns": lambda each: each.turns,
    "tokens": lambda each: each.tokens,
    "money": lambda each: each.money,
    "seconds": lambda each: each.seconds,
    "waited": lambda each: each.waited,
}
"""What is summed."""


@dataclass(frozen=True)
class Ratio:
    """One sum of columns divided by another; a column may be named twice."""

    over: Sequence[str]
    under: Sequence[str]


@dataclass(frozen=True)
class Measure:
    """A measure: the mean of its ratios.

    Attributes:
        name: for programs.
        title: for people.
        ratios: its parts.
        digits: decimal places.
        in_table: whether the terminal's table shows it.
        is_share: whether it is how many of the trials are such: its one ratio is never above 1.
    """

    name: str
    title: str
    ratios: tuple[Ratio, ...]
    digits: int = 2
    in_table: bool = True
    is_share: bool = False


def _per(name: str, title: str, over: str, under: str, *, digits: int = 2, in_table: bool = True) -> Measure:
    return Measure(name, title, (Ratio((over,), (under,)),), digits, in_table)


def _share(name: str, title: str, over: str, under: str, *, in_table: bool = True) -> Measure:
    return Measure(name, title, (Ratio((over,), (under,)),), in_table=in_table, is_share=True)


_RECALL, _SILENCE = Ratio(("asked_unclear",), ("unclear",)), Ratio(("silent_clear",), ("clear",))

MEASURES: Sequence[Measure] = (
    _share("success", "success", "successes", "checked"),
    _per("questions", "questions a task", "questions", "trials"),
    Measure("ask_f1", "Ask-F1", (Ratio(("hits", "hits"), ("hits", "needless", "repeated", "missing")),)),
    _share("precision", "precision of asking", "asked_unclear", "asked", in_table=False),
    _share("recall", "recall of asking", "asked_unclear", "unclear", in_table=False),
    Measure("balanced_accuracy", "balanced accuracy", (_RECALL, _SILENCE)),
    _per("hits", "missing details hit", "hits", "missing"),
    _per("needless", "needless questions", "needless", "questions"),
    _per("repeated", "repeated questions", "repeated", "questions", in_table=False),
    _per("assumptions", "assumptions a task", "assumptions", "trials", in_table=False),
    _per("wrong", "wrong assumptions a task", "wrong", "trials"),
    _per("leaks", "leaks of the user a task", "leaks", "trials", in_table=False),
    _per("turns", "turns", "turns", "trials", digits=1, in_table=False),
    _per("tokens", "tokens", "tokens", "trials", digits=0),
    _per("money", "money", "money", "trials", digits=5),
    _per("seconds", "seconds of models", "seconds", "trials", digits=1),
    _per("waited", "seconds of the user", "waited", "trials", digits=0, in_table=False),
)
"""All measures, in the order in which they are shown.

``ask_f1`` is the harmonic mean of the share of questions that hit a missing detail, and of the share of missing details
that were hit; a question for two details counts as two. ``precision``, ``recall`` and ``balanced_accuracy`` are about
tasks: whether something was asked where a detail is missing, and nothing where none is.
"""
