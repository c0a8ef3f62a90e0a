"""What one segment's entries are stored as."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from upcall.errors import SchemaMismatch
from upcall.runs.transcript import EntryKind, TranscriptEntry, dump_entries, load_entries


def test_transcript_entries_are_stored_without_empty_ends() -> None:
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    entries = [
        TranscriptEntry(EntryKind.TASK, ("user",), noon),
        TranscriptEntry(EntryKind.RESULT, ("lead", "coder"), noon, "Error", "run_command", failed=True),
    ]
    stored = dump_entries(entries)
    assert stored == b'[1769860800,["user","lead/coder"],[[0,0],[4,1,"Error","run_command",0,1]]]'
    assert load_entries(stored) == entries


@pytest.mark.parametrize(
    "text", [b'{"x": 1}', b"[1, [2], [[0, 0]]]", b'[1, ["a"], [[0, 0, 7]]]', b'[1e40, ["a"], [[0, 0]]]']
)
def test_entries_of_another_shape_are_refused_in_one_line(text: bytes) -> None:
    with pytest.raises(SchemaMismatch, match="cannot be read"):
        load_entries(text)
