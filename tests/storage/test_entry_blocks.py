"""Entries of a transcript that are stored as one row: they come back as they were, each with its number."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from upcall.errors import SchemaMismatch
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.storage.entry_blocks import dump_block, load_block

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
AT = int(NOON.timestamp()) + 60
TASK = TranscriptEntry(EntryKind.TASK, ("user",), NOON)
FAILED = TranscriptEntry(EntryKind.RESULT, ("lead", "coder"), NOON, "Error", "run_command", failed=True)


def text_of(agent: str, number: int, *, after: int = 0, kind: EntryKind = EntryKind.MESSAGE) -> TranscriptEntry:
    return TranscriptEntry(kind, (agent,), NOON + timedelta(seconds=after), f"{agent} {number}", number=number)


def test_entries_are_stored_without_empty_ends() -> None:
    block = dump_block([TASK, FAILED], AT, [6, 7])
    assert block == b'[1,60,["user","lead/coder"],[[0,0],[4,1,"Error","run_command",0,1]]]'
    assert load_block(block, AT, 7) == [(6, TASK), (7, FAILED)]


@pytest.mark.parametrize(
    ("entries", "more"),
    [
        ([text_of("a", 1), text_of("b", 1), text_of("a", 2)], ""),
        ([text_of("a", 4), text_of("a", 5)], '["a",3]'),  # Those before are in an earlier row.
        ([text_of("a", 2), text_of("a", 1), text_of("a", 3)], '["a",1]'),  # It was begun before, and ended later.
        ([text_of("a", 1, kind=kind) for kind in EntryKind if kind.is_text][:1], ""),
        ([text_of("a", 1, after=5), text_of("a", 2, after=-5)], ""),  # A clock that was set back.
        ([TASK, text_of("a", 1, after=100_000)], ""),
        ([TranscriptEntry(EntryKind.MESSAGE, ("a",), NOON, 'é\n"\\', number=1)], ""),
    ],
)
def test_numbers_of_texts_are_stored_where_they_differ(entries: list[TranscriptEntry], more: str) -> None:
    numbers = list(range(3, 3 + len(entries)))
    block = dump_block(entries, AT, numbers)
    assert load_block(block, AT, numbers[-1]) == list(zip(numbers, entries, strict=True))
    assert more in block.decode()


@pytest.mark.parametrize("numbers", [[1, 2, 3, 4], [1, 3, 4, 9], [5, 6, 7, 20], [2, 30, 31, 32]])
def test_entry_keeps_its_number_among_others(numbers: list[int]) -> None:
    entries = [text_of("a", number) for number in range(1, 5)]
    assert [number for number, _ in load_block(dump_block(entries, AT, numbers), AT, numbers[-1])] == numbers


SHAPES: list[Any] = [
    b'{"x": 1}',
    b"[1, 0, [2], [[0, 0]]]",
    b'[1, 0, ["a"], [[0, 0, 7]]]',
    b'[1, 1e40, ["a"], [[0, 0]]]',
    b'[2, 0, ["a"], [[0, 0]]]',
    b'[1, 0, ["a"], [[99, 0]]]',
    b'[1, 0, ["a"], [[0, 0]], [1]]',
]


@pytest.mark.parametrize("text", SHAPES)
def test_block_of_another_shape_is_refused(text: bytes) -> None:
    with pytest.raises(SchemaMismatch, match="cannot be read"):
        load_block(text, AT, 1)
