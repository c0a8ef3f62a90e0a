"""What the journal holds: a model's reply, and a tool call with what came of it."""

from __future__ import annotations

from typing import Any

from autogen_core.models import CreateResult
from pydantic import BaseModel


class ReplyRecord(BaseModel, frozen=True, defer_build=True):
    """A model's reply in the journal: who asked in which form, as a digest, and its number among these. ``returned`` is
    what its server wants back with it (`upcall.autogen.model_notes`). ``above`` are the calls in which it was given,
    from the outermost on: who made each, and its id."""

    who: str
    number: int
    reply: CreateResult
    returned: dict[str, Any] | None = None
    above: tuple[tuple[str, str], ...] = ()


class ToolOutcome(BaseModel, frozen=True, defer_build=True):
    """What came of a tool call: ``content`` is plain JSON. ``asked`` is the question of a tool that needs the human,
    and ``kept`` what the tool finds again with the answer."""

    content: Any = None
    is_error: bool = False
    asked: dict[str, Any] | None = None
    kept: dict[str, Any] | None = None


class ToolRecord(BaseModel, frozen=True, defer_build=True):
    """A tool call in the journal. Without an ``outcome`` it was begun, and nobody knows what became of it."""

    path: tuple[str, ...]
    calls: tuple[str, ...]
    tool: str
    arguments: str
    idempotent: bool
    outcome: ToolOutcome | None = None

    @property
    def in_doubt(self) -> bool:
        """Whether it may have taken effect, and must not be made again without the human's word."""
        return self.outcome is None and not self.idempotent
