"""The transcript of a run in its store: one compressed row per segment, which grows during the segment."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from upcall.errors import SchemaMismatch
from upcall.runs.transcript import TranscriptEntry, dump_entries, load_entries
from upcall.storage.compression import Damaged, decode, encode
from upcall.storage.connection import Connection, Work
from upcall.storage.store import RunStore


def write_transcript(run_id: str, segment: int, entries: Sequence[TranscriptEntry]) -> Work[object]:
    """Return a function that stores a segment's transcript in the caller's transaction."""
    return partial(put_transcript, run_id=run_id, segment=segment, text=dump_entries(entries))


def put_transcript(connection: Connection, *, run_id: str, segment: int, text: bytes) -> None:
    """Store the transcript of a segment, replacing an existing one."""
    connection.execute(
        "INSERT INTO upcall_transcripts (run_id, segment, entries) VALUES (:run_id, :segment, :entries) "
        "ON CONFLICT (run_id, segment) DO UPDATE SET entries = excluded.entries",
        {"run_id": run_id, "segment": segment, "entries": encode(text)},
    )


def copy_transcripts(connection: Connection, run_id: str, new_id: str, before: int) -> None:
    """Copy to a fork the transcript of the segments that it shares with its run."""
    connection.execute(
        "INSERT INTO upcall_transcripts (run_id, segment, entries) SELECT :new_id, segment, entries "
        "FROM upcall_transcripts WHERE run_id = :run_id AND segment < :before",
        {"new_id": new_id, "run_id": run_id, "before": before},
    )


def read_transcripts(connection: Connection, run_id: str, first: int = 0) -> dict[int, bytes]:
    """Read the transcripts of a run by segment, from one on, as `dump_entries` wrote them.

    Raises:
        SchemaMismatch: one is damaged.
    """
    query = (
        "SELECT segment, entries FROM upcall_transcripts WHERE run_id = :run_id AND segment >= :first ORDER BY segment"
    )
    rows = connection.execute(query, {"run_id": run_id, "first": first}).fetchall()
    try:
        return {segment: decode(entries) for segment, entries in rows}
    except Damaged as error:
        raise SchemaMismatch(
            f"The transcript of run {run_id} is damaged. See what else is: upcall store check"
        ) from error


async def load_segments(
    store: RunStore, run_id: str, first: int = 0, *, small: bool = False
) -> dict[int, list[TranscriptEntry]]:
    """Load the transcript of the segments of a run, from one on; `small` if it is short.

    Raises:
        SchemaMismatch: it is damaged, or another version of upcall wrote it.
    """
    texts = await store.database.read(partial(read_transcripts, run_id=run_id, first=first), small=small)
    return {segment: load_entries(text) for segment, text in texts.items()}


async def load_transcript(store: RunStore, run_id: str) -> list[TranscriptEntry]:
    """Load the whole transcript of a run, oldest first.

    Raises:
        SchemaMismatch: it is damaged, or another version of upcall wrote it.
    """
    return [entry for entries in (await load_segments(store, run_id)).values() for entry in entries]
