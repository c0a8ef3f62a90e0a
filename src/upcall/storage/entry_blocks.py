"""Entries of a transcript as one text: a row of the log holds all that were added by one write.

A run has many of them, and most of their bytes are the same paths and empty fields: each agent is named once, times are
seconds since the first entry, and fields without a value at the end are left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

from upcall.errors import SchemaMismatch
from upcall.runs.transcript import EntryKind, TranscriptEntry

FORMAT = 1
"""The first value of a block. A change of what follows takes the next number, and this one stays readable."""

_KINDS = tuple(EntryKind)
"""A kind is stored as its place here: part of the format, so that a new kind comes last."""


def dump_block(entries: Sequence[TranscriptEntry], at: int, numbers: Sequence[int]) -> bytes:
    """Return entries as one text: ``[format, seconds from the first entry to `at`, paths, rows, gaps]``.

    Args:
        entries: one or more of one segment, in order.
        at: the time of their row in the log, in seconds since 1970.
        numbers: the number of each in the log, ascending.

    A path is a text, or ``[path, n]`` where `n` texts of this agent were added to the segment before. A row is ``[kind,
    path, text, name, seconds since the first entry, failed, number of the text]``. The gaps are there if the numbers
    are not consecutive: pairs of an index, and how many numbers are left out before the entry at it.
    """
    start = int(entries[0].at.timestamp())
    paths = list(dict.fromkeys(each.path for each in entries))
    before = dict.fromkeys(paths, 0)
    for entry in reversed(entries):
        if entry.number:
            before[entry.path] = entry.number - 1
    counts, rows = Counter(before), list[list[Any]]()
    for entry in entries:
        counts[entry.path] += entry.kind.is_text
        number = entry.number if entry.number != counts[entry.path] else 0
        after = int(entry.at.timestamp()) - start
        place = paths.index(entry.path)
        rows.append(_trim([_KINDS.index(entry.kind), place, entry.text, entry.name, after, int(entry.failed), number]))
    names = ["/".join(each) if not before[each] else ["/".join(each), before[each]] for each in paths]
    gaps = [
        value
        for index, (one, two) in enumerate(pairwise(numbers), start=1)
        if two > one + 1
        for value in (index, two - one - 1)
    ]
    block = [FORMAT, at - start, names, rows, *([gaps] if gaps else [])]
    return json.dumps(block, ensure_ascii=False, separators=(",", ":")).encode(errors="replace")


def load_block(text: bytes, at: int, last: int) -> list[tuple[int, TranscriptEntry]]:
    """Return the entries that `dump_block` was given, each with its number, of which `last` is that of the last one.

    Raises:
        SchemaMismatch: another version of upcall wrote it.
    """
    try:
        found, since, names, rows, *gaps = json.loads(text)
        if found != FORMAT:
            raise ValueError(f"format {found}")
        paths = [(name, 0) if isinstance(name, str) else (str(name[0]), int(name[1])) for name in names]
        counts = Counter(dict(paths))
        entries = [_load_entry(at - since, [name for name, _ in paths], counts, *row) for row in rows]
        skipped = dict(zip(*(iter(gaps[0] if gaps else ()),) * 2, strict=True))
    except (ValueError, TypeError, IndexError, AttributeError, OverflowError, OSError) as error:
        raise SchemaMismatch("A transcript cannot be read: another version of upcall wrote it.") from error
    number = last - len(entries) - sum(skipped.values())
    numbers = [number := number + 1 + skipped.get(index, 0) for index in range(len(entries))]
    return list(zip(numbers, entries, strict=True))


def _load_entry(
    start: int,
    paths: Sequence[str],
    counts: Counter[str],
    kind: int,
    place: int,
    text: str = "",
    name: str = "",
    after: int = 0,
    failed: int = 0,
    number: int = 0,
) -> TranscriptEntry:
    if not (isinstance(text, str) and isinstance(name, str)):
        raise TypeError("a text or a name is not a string")
    path, at = paths[place], datetime.fromtimestamp(start + after, UTC)
    if is_text := _KINDS[kind].is_text:
        counts[path] += 1
    of_text = (number or counts[path]) if is_text else 0
    return TranscriptEntry(_KINDS[kind], tuple(path.split("/")), at, text, name, bool(failed), of_text)


def _trim(row: list[Any]) -> list[Any]:
    """Drop the empty values at the end."""
    while row and not row[-1] and len(row) > 2:
        row.pop()
    return row
