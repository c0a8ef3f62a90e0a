"""Whether a task is similar to an earlier one, by their common words."""

from __future__ import annotations

from collections.abc import Sequence

from upcall.policy.same_question import content_words

LIKE = 0.7
"""The share of common words from which two tasks are similar (Dice's coefficient of their sets of words)."""

MAX_TASK_CHARS = 4_000
"""How many characters of a task are compared, from its beginning."""

_LITTLE = frozenset({"and", "or", "with", "in", "on", "to", "from", "by", "at", "me", "my", "us", "our", "i", "please"})
"""Words that do not distinguish tasks, besides those that `content_words` leaves out."""


def measure_likeness(one: str, other: str) -> float:
    """Return the similarity of two tasks: 0 for nothing in common, 1 for the same words in any order."""
    first, second = _words(one), _words(other)
    return 2 * len(first & second) / (len(first) + len(second)) if first and second else 0.0


def find_like(task: str, tasks: Sequence[str]) -> int | None:
    """Return the position of the task most similar to this one, the first if several; None if none is similar."""
    measured = [measure_likeness(task, each) for each in tasks]
    best = max(measured, default=0.0)
    return measured.index(best) if best >= LIKE else None


def _words(text: str) -> frozenset[str]:
    return frozenset(content_words(text[:MAX_TASK_CHARS])) - _LITTLE
