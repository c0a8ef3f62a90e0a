"""The calls in which an agent works, and where an answer came into its work."""

from __future__ import annotations

from typing import TypeAlias

from pydantic import BaseModel

from upcall.questions.answer import Answer
from upcall.questions.question import Question

CallPath: TypeAlias = tuple[tuple[str, str], ...]
"""Calls, from the outermost on: who made each, and its id, which is empty for a team's turn."""


class Origin(BaseModel, frozen=True, defer_build=True):
    """Where an answer came into a run's work.

    Attributes:
        question: the question.
        since: the epoch in which it was asked or answered.
        is_open: whether it was asked before that epoch.
        answer: the other answer that it gets.
    """

    question: Question
    since: str
    is_open: bool = False
    answer: Answer | None = None
