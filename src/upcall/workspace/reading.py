"""The text of a file as a tool shows it: whole, or some of its lines with their numbers."""

from __future__ import annotations

import io
from typing import BinaryIO

from upcall.autogen.workbenches import MAX_READ_CHARS
from upcall.text import shorten


def read_lines(file: BinaryIO, path: str, first: int | None, last: int | None) -> str:
    """Read the text of a file, cut if it is long; with a range, its lines are numbered.

    Raises:
        ValueError: it is not text.
    """
    if first is None and last is None:
        return _read_whole(file, path)
    start = max(first or 1, 1)
    if last is not None and last < start:
        return f"There are no lines from {start} to {last}: the range ends before it begins."
    return _read_range(file, path, start, last)


def _read_whole(file: BinaryIO, path: str) -> str:
    reader = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
    text, more = reader.read(MAX_READ_CHARS), reader.read(1)
    reader.detach()
    if "\0" in text:
        raise ValueError(f"{path!r} is not a text file.")
    if not more:
        return text
    on = f"; read on from first_line={text.count(chr(10)) + 1}" if "\n" in text else ""
    return f"{text}\n[cut: only the first {MAX_READ_CHARS} characters are shown{on}]"


def _read_range(file: BinaryIO, path: str, first: int, last: int | None) -> str:
    shown: list[str] = []
    room, number = MAX_READ_CHARS, 0
    reader = iter(lambda: file.readline(4 * MAX_READ_CHARS), b"")
    for number, line in enumerate(reader, start=1):
        if b"\0" in line:
            raise ValueError(f"{path!r} is not a text file.")
        if number < first:
            continue
        if last is not None and number > last:
            break
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        room -= len(text) + 8
        if room < 0 and shown:
            return "\n".join([*shown, f"[cut; read on from first_line={number}]"])
        shown.append(f"{number}\t{shorten(text, MAX_READ_CHARS, ' [cut]')}")
    return "\n".join(shown) if shown else f"{path} has {number} lines; there are none from {first} on."
