"""A copy of a live SQLite file, whole or not there at all."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from itertools import count
from pathlib import Path
from urllib.parse import quote


def copy_sqlite(source: Path, target: Path) -> None:
    """Copy what is committed in an SQLite file, with what its log has of it, readable by whom the file is readable by.

    Others may read and write meanwhile. Until it is whole, the copy has another name.

    Raises:
        OSError: the copy cannot be written.
        sqlite3.Error: from reading or writing, or the disk is full.
    """
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    os.close(os.open(part, os.O_CREAT | os.O_EXCL | os.O_WRONLY, source.stat().st_mode & 0o666))
    try:
        with (
            closing(sqlite3.connect(f"file:{quote(str(source))}?mode=ro", uri=True)) as live,
            closing(sqlite3.connect(part)) as copy,
        ):
            live.backup(copy)
        _sync(part)
        part.rename(target)
    finally:
        part.unlink(missing_ok=True)
    _sync(target.parent)


def name_copy(file: Path, number: int) -> Path:
    """Return the name for a copy of a store of a format: the first that is free."""
    first = file.with_name(f"{file.name}.format-{number}")
    names = (first if again == 1 else first.with_name(f"{first.name}-{again}") for again in count(1))
    return next(each for each in names if not each.exists())


def _sync(place: Path) -> None:
    opened = os.open(place, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
