"""The replies of a run that ended before their end: their models have written what came of them all the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from upcall.autogen.call_path import current_path
from upcall.runs.journal_records import BrokenOffReply

PREFIX = "broken off"
"""What the keys of their records begin with."""


class BrokenOffReplies:
    """Those since the last checkpoint. A fork begins with the records of its run, and counts none of these.

    Args:
        run_id: the run.
        records: those of its journal.
        write: adds records to it.
    """

    def __init__(
        self, run_id: str, records: Mapping[str, str], write: Callable[[Mapping[str, str | None]], None]
    ) -> None:
        known = [BrokenOffReply.model_validate_json(text) for key, text in records.items() if key.startswith(PREFIX)]
        self._run_id, self._write, self._count = run_id, write, len(known)
        self._left = [each for each in known if each.run == run_id]

    def __bool__(self) -> bool:
        return bool(self._left)

    def note(self, agent: str, pieces: int, spent: Mapping[str, str]) -> None:
        """Record a reply to `agent` of which only some pieces came, and what the run has `spent` with it, if it has a
        budget."""
        broken = BrokenOffReply(run=self._run_id, path=(*(name for name, _ in current_path()), agent), pieces=pieces)
        self._left.append(broken)
        self._count += 1
        self._write({f"{PREFIX} {self._count}": broken.model_dump_json(), **spent})

    def take(self) -> Sequence[BrokenOffReply]:
        """Return those that were not taken yet."""
        taken, self._left = self._left, []
        return taken
