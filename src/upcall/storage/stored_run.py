"""A run as it is stored, with its checkpoint and its journal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from upcall.runs.run import Run
from upcall.storage.compression import Damaged, decode

if TYPE_CHECKING:
    from upcall.runs.checkpoint import Checkpoint


EMPTY_CHECKPOINT = b'{"version":1,"team_state":null,"inbox":[],"progress":null,"journal":{},"model_notes":{}}'
"""What `Checkpoint()` dumped in the first version of its format: of a run on which no team works. To make one loads
AutoGen; later versions read this one like any other."""


@dataclass(frozen=True)
class StoredHead:
    """A run as stored, without what its team needs to continue. `version` counts its writes."""

    run: Run
    version: int


@dataclass(frozen=True)
class StoredRun:
    """A run as stored. `version` counts its writes; a write names the version it follows. `worker` is
    the holder of its lease."""

    run: Run
    checkpoint: Checkpoint
    version: int
    worker: str | None = None
    journal: Mapping[str, bytes] = field(default_factory=dict, compare=False, repr=False)
    """The journal since the checkpoint, as stored when the run was created, read or claimed."""

    @cached_property
    def records(self) -> Mapping[str, str]:
        """The records of the journal by their keys.

        Raises:
            SchemaMismatch: a record is damaged.
        """
        return decode_records(self.run.id, self.journal)


def decode_records(run_id: str, stored: Mapping[str, bytes]) -> dict[str, str]:
    """Return the records of a journal as they were written.

    Raises:
        SchemaMismatch: one is damaged.
    """
    found = {}
    for key, record in stored.items():
        try:
            found[key] = decode(record).decode("utf-8", "surrogatepass")
        except Damaged as error:
            what = f"The journal of run {run_id} at {key!r}"
            raise error.explain(what, "See what else is: upcall store check") from error
    return found
