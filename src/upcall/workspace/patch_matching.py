"""Exact replacement in a text; if nothing matches, the nearest lines, so that a model can correct its next call."""

from __future__ import annotations

import re
from collections.abc import Sequence
from difflib import SequenceMatcher, get_close_matches

from upcall.lazy_pattern import LazyPattern

MAX_COMPARED = 5_000
"""How many lines of a file are searched for the nearest ones."""
AROUND = 2
MAX_SHOWN = 20
MAX_LINE_SHOWN = 200
_NUMBERED = LazyPattern(r"^\s*\d+(?:\t|: ?)", re.MULTILINE)


def replace_text(text: str, old: str, new: str, *, everywhere: bool, name: str) -> str:
    """Replace `old` by `new` in a text.

    If the lines of the text end in CRLF, and those of `old` do not, they are treated as if they did.

    Raises:
        ValueError: `old` does not occur once (or at all, with `everywhere`); names the nearest lines, or the places.
    """
    if not old:
        raise ValueError("'old' is empty; give the text to replace. A new file is written with write_file.")
    if old == new:
        raise ValueError("'old' and 'new' are the same; nothing was changed.")
    if has_crlf(text) and "\r" not in old:
        old, new = to_crlf(old), to_crlf(new)
    count = text.count(old)
    if count == 0:
        raise ValueError(f"'old' does not occur in {name!r}; nothing was changed. {_explain_miss(text, old)}")
    if count > 1 and not everywhere:
        at = ", ".join(str(number) for number in _line_numbers(text, old, 10))
        raise ValueError(
            f"'old' occurs {count} times in {name!r} (lines {at}{', ...' if count > 10 else ''}); nothing was changed. "
            "Add lines around it so that it occurs once, or set 'all'."
        )
    return text.replace(old, new)


def has_crlf(text: str) -> bool:
    """Return whether all lines of a text end in CRLF."""
    return "\r\n" in text and text.count("\r\n") == text.count("\n")


def to_crlf(text: str) -> str:
    """End the lines of a text in CRLF."""
    return text.replace("\r\n", "\n").replace("\n", "\r\n")


def number_lines(lines: Sequence[str], first: int) -> str:
    """Return lines with their numbers and a tab before each."""
    return "\n".join(f"{number}\t{line[:MAX_LINE_SHOWN]}" for number, line in enumerate(lines, start=first))


def find_similar(lines: Sequence[str], wanted: Sequence[str]) -> str:
    """Return the place in a file most similar to some lines; empty if none is."""
    lines = lines[:MAX_COMPARED]
    known = [line.strip() for line in lines]
    sought = [line.strip() for line in wanted]
    anchors = sorted({line for line in sought if len(line) > 2}, key=len, reverse=True)[:5]
    starts = {
        at - sought.index(anchor)
        for anchor in anchors
        for close in get_close_matches(anchor, set(known), n=2, cutoff=0.6)
        for at in [number for number, line in enumerate(known) if line == close][:20]
    }
    if not starts:
        return ""

    def alike(start: int) -> float:
        there = known[max(start, 0) : max(start, 0) + len(sought)]
        return SequenceMatcher(None, "\n".join(there)[:2_000], "\n".join(sought)[:2_000]).ratio()

    best = max(max(sorted(starts), key=alike), 0)
    first = max(best - AROUND, 0)
    return number_lines(lines[first : min(best + len(sought) + AROUND, first + MAX_SHOWN)], first + 1)


def _explain_miss(text: str, old: str) -> str:
    lines, wanted = text.splitlines(), old.strip("\r\n").splitlines()
    bare = _NUMBERED.sub("", old)
    if bare != old and bare in text:
        return "Leave out the line numbers: they are not in the file."
    known, sought = [line.split() for line in lines], [line.split() for line in wanted]
    for at in range(min(len(known), MAX_COMPARED) - len(sought) + 1):
        if sought and known[at : at + len(sought)] == sought:
            shown = number_lines(lines[at : at + min(len(sought), MAX_SHOWN)], at + 1)
            return f"It does, except for white space; the lines there are (number, tab, text):\n{shown}"
    shown = find_similar(lines, wanted)
    return f"The closest lines (number, tab, text):\n{shown}" if shown else "Nothing in it is similar; read the file."


def _line_numbers(text: str, old: str, most: int) -> list[int]:
    found, at = list[int](), text.find(old)
    while at >= 0 and len(found) < most:
        found.append(text.count("\n", 0, at) + 1)
        at = text.find(old, at + len(old))
    return found
