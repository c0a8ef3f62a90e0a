"""What the journal holds: a model's reply, and a tool call with what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from autogen_core.models import CreateResult
from pydantic import BaseModel

from upcall.runs.call_paths import CallPath


class ReplyRecord(BaseModel, frozen=True, defer_build=True):
    """A model's reply in the journal: who asked in which form, as a digest, and its number among these. ``returned`` is
    what its server wants back with it (`upcall.autogen.model_notes`). ``above`` are the calls in which it was given,
    from the outermost on: who made each, and its id. ``agent`` is who asked, and ``place`` its number among all replies
    of the journal. A fork's ``own`` reply is one that its run has not."""

    who: str
    number: int
    reply: CreateResult
    returned: dict[str, Any] | None = None
    above: CallPath = ()
    agent: str = ""
    place: int = 0
    own: bool | None = None


class BrokenOffReply(BaseModel, frozen=True, defer_build=True):
    """A reply that ended before its end: by a stop, a timeout, or a server that is gone. Its model has written it all
    the same. A fork gets the journal of its run, and these were not its own.

    Attributes:
        run: whose it was.
        path: the agents from the outermost to the one that it was for.
        pieces: how many pieces came: most servers send each token in one.
    """

    run: str
    path: tuple[str, ...]
    pieces: int


class ToolOutcome(BaseModel, frozen=True, defer_build=True):
    """What came of a tool call: ``content`` is plain JSON. ``asked`` is the question of a tool that needs the human,
    and ``kept`` what the tool finds again with the answer."""

    content: Any = None
    is_error: bool = False
    asked: dict[str, Any] | None = None
    kept: dict[str, Any] | None = None


class ToolRecord(BaseModel, frozen=True, defer_build=True):
    """A tool call in the journal. Without an ``outcome`` it was begun, and nobody knows what became of it. ``place`` is
    that of the last reply before it. A fork's ``own`` call is one that it made itself. A ``reversible`` call's
    tool says how to take it back; that of an ``effect_free`` one that there is nothing to take back."""

    path: tuple[str, ...]
    calls: tuple[str, ...]
    tool: str
    arguments: str
    idempotent: bool
    outcome: ToolOutcome | None = None
    place: int = 0
    own: bool | None = None
    reversible: bool | None = None
    effect_free: bool | None = None

    @property
    def content(self) -> tuple[object, ...]:
        """Who called what with which arguments, without the ids of the calls."""
        return self.path, self.tool, self.arguments

    def is_inside(self, other: ToolRecord) -> bool:
        """Return whether it was made by an agent that another call of the same run has brought to work."""
        end = len(other.path)
        return end < len(self.path) and (self.path[:end], self.calls[:end]) == (other.path, other.calls)

    @property
    def place_in_run(self) -> str:
        """The agents and the calls, as in the call's idempotency key."""
        return "/".join([*self.path, *self.calls])

    def name_in(self, run_id: str) -> str:
        """Return the call's idempotency key in a run."""
        return f"{run_id}/{self.place_in_run}"

    @property
    def in_doubt(self) -> bool:
        """Whether it may have taken effect, and must not be made again without the human's word."""
        return self.outcome is None and not self.idempotent


def disown(records: Mapping[str, str]) -> dict[str, str]:
    """Return the records of a fork's journal as those of the run that another fork leaves."""
    kinds: dict[str, type[ReplyRecord | ToolRecord]] = {"model": ReplyRecord, "tool": ToolRecord}
    found = dict(records)
    for key, text in records.items():
        kind = kinds.get(key.partition(":")[0])
        if kind is not None and '"own":true' in text:
            record = kind.model_validate_json(text).model_copy(update={"own": None})
            found[key] = record.model_dump_json(exclude_none=True)
    return found


@dataclass(frozen=True)
class EarlierWork:
    """What was done between two checkpoints of another branch: the records of that journal, and the epoch that their
    keys were made with."""

    epoch: str
    records: Mapping[str, str]
