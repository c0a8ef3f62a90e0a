"""The next steps of a structured agent: ask, hand off its turn, or return the result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, Literal, TypeAlias

from pydantic import Field

from upcall.questions.question import Question


@dataclass(frozen=True)
class Ask:
    """Ask the user these questions first."""

    questions: Sequence[Question]
    metadata: dict[str, str] = field(default_factory=dict)
    kind: Literal["ask"] = "ask"


@dataclass(frozen=True)
class HandOver:
    """Give the turn to `target`."""

    target: str
    content: str
    metadata: dict[str, str] = field(default_factory=dict)
    kind: Literal["hand over"] = "hand over"


@dataclass(frozen=True)
class Respond:
    """End the run with this result."""

    content: str
    metadata: dict[str, str] = field(default_factory=dict)
    kind: Literal["respond"] = "respond"


Step: TypeAlias = Annotated[Ask | HandOver | Respond, Field(discriminator="kind")]
