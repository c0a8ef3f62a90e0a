"""The transcript of a run in its store: a filter of its log."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from upcall.runs.events import EntryAdded
from upcall.runs.transcript import TranscriptEntry
from upcall.storage.connection import Work
from upcall.storage.event_log import append_entries, read_segment
from upcall.storage.store import RunStore


def write_transcript(
    run_id: str, segment: int, entries: Sequence[TranscriptEntry], *, merge: bool = False
) -> Work[object]:
    """Return a function that adds entries to a segment's transcript, in the caller's transaction, which has locked the
    run. See `append_entries`."""
    return partial(append_entries, run_id=run_id, segment=segment, entries=entries, merge=merge)


async def load_segment(store: RunStore, run_id: str, segment: int) -> list[TranscriptEntry]:
    """Load the transcript of one segment of a run, which is expected to be short.

    Raises:
        SchemaMismatch: it is damaged, or another version of upcall wrote it.
    """
    read = partial(read_segment, run_id=run_id, segment=segment)
    return [entry for _, entry in await store.database.read(read, small=True)]


async def load_transcript(store: RunStore, run_id: str) -> list[TranscriptEntry]:
    """Load the whole transcript of a run, oldest first.

    Raises:
        SchemaMismatch: it is damaged, or another version of upcall wrote it.
    """
    entries = await store.events.read(run_id, types=(EntryAdded,))
    return [each.event.entry for each in entries if isinstance(each.event, EntryAdded)]
