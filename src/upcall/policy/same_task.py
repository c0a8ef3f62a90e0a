"""Whether a task is like an earlier one, by the words that both have."""

from __future__ import annotations

from collections.abc import Sequence

from upcall.policy.same_question import content_words

LIKE = 0.7
"""From this share of common words on, two tasks are like each other (Dice's coefficient of their sets of words)."""

MAX_TASK_CHARS = 4_000
"""How much of a task is compared, its beginning."""

_LITTLE = frozenset({"and", "or", "with", "in", "on", "to", "from", "by", "at", "me", "my", "us", "our", "i", "please"})
"""Words that tell no task from another, besides those that `content_words` leaves out."""


def measure_likeness(one: str, other: str) -> float:
    """Return how much two tasks have in common: 0 for nothing, 1 for the same words in any order."""
    first, second = _words(one), _words(other)
    return 2 * len(first & second) / (len(first) + len(second)) if first and second else 0.0


def find_like(task: str, tasks: Sequence[str]) -> int | None:
    """Return the place of the one most like a task, the first of several; None where none is like it."""
    measured = [measure_likeness(task, each) for each in tasks]
    best = max(measured, default=0.0)
    return measured.index(best) if best >= LIKE else None


def _words(text: str) -> frozenset[str]:
    return frozenset(content_words(text[:MAX_TASK_CHARS])) - _LITTLE
