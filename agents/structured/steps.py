"""The next steps of a structured agent: ask, wait for answers, hand off its turn, or return the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from upcall.questions.question import Question


@dataclass(frozen=True)
class Ask:
    """Ask the user these questions first."""

    questions: Sequence[Question]
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Wait:
    """Wait for the answers to questions of this turn's tool calls, which were published already."""

    questions: Sequence[Question]


@dataclass(frozen=True)
class HandOver:
    """Give the turn to `target`."""

    target: str
    content: str
    metadata: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Respond:
    """End the run with this result."""

    content: str
    metadata: dict[str, str] = field(default_factory=dict)


Step = Ask | Wait | HandOver | Respond
