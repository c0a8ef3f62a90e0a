"""Whether a task is similar to an earlier one, by their common words."""

from __future__ import annotations

from collections.abc import Sequence

from upcall.policy.same_question import is_negated
from upcall.words import MEANING, SEARCH

LIKE = 0.7
"""The share of common words from which two tasks are similar (Dice's coefficient of their sets of words)."""

MAX_TASK_CHARS = 4_000
"""How many characters of a task are compared, from its beginning."""


def measure_likeness(one: str, other: str) -> float:
    """Return the similarity of two tasks: 0 for nothing in common, 1 for the same words in any order.

    The common words do not count. A task that denies something is like none that does not.
    """
    first, second = _split(one), _split(other)
    if is_negated(first) is not is_negated(second):
        return 0.0
    first, second = first - SEARCH.stop_words, second - SEARCH.stop_words
    return 2 * len(first & second) / (len(first) + len(second)) if first and second else 0.0


def find_like(task: str, tasks: Sequence[str]) -> int | None:
    """Return the position of the task most similar to this one, the first if several; None if none is similar."""
    measured = [measure_likeness(task, each) for each in tasks]
    best = max(measured, default=0.0)
    return measured.index(best) if best >= LIKE else None


def _split(text: str) -> frozenset[str]:
    return frozenset(MEANING.content_words(text[:MAX_TASK_CHARS]))
