"""A document in passages: parts that are short enough to be shown whole, with their positions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from upcall.lazy_pattern import LazyPattern
from upcall.research.sources.base import Passage
from upcall.research.sources.fences import MAX_TEXT_CHARS
from upcall.research.sources.readers import Text

PASSAGE_CHARS = 900
"""The maximum length of a passage; a longer line or page is cut into several of that size."""

UNITS_PER_READ = {"line": 200, "paragraph": 200, "row": 200, "page": 4}

_SENTENCE = LazyPattern(r"(?<=[.!?。！？])\s+|\n+")


@dataclass(frozen=True)
class TextPart:
    """The units `first` to `last` of a document, or a part of one, and the heading above them."""

    first: int
    last: int
    text: str
    heading: str = ""


def cut_into_parts(text: Text) -> Iterator[TextPart]:
    """Cut a document into passages, in order. A heading begins one, a blank line ends one that is long enough."""
    lines: list[str] = []
    begun, length, heading = 1, 0, ""
    for number, unit in enumerate(text.units, start=1):
        blank, new_heading = not unit.strip(), _heading(unit) if text.unit == "line" else ""
        full = length + len(unit) > PASSAGE_CHARS or (blank and length > PASSAGE_CHARS // 2)
        if lines and (full or new_heading or text.unit == "page"):
            yield TextPart(begun, number - 1, "\n".join(lines), heading)
            lines, length = [], 0
        heading = new_heading or heading
        if blank and not lines:
            continue
        if not lines:
            begun = number
        if len(unit) > PASSAGE_CHARS:
            yield from (TextPart(number, number, piece, heading) for piece in _pieces(unit))
            continue
        lines.append(unit)
        length += len(unit) + 1
    while lines and not lines[-1].strip():
        lines.pop()
    if lines:
        yield TextPart(begun, begun + len(lines) - 1, "\n".join(lines), heading)


def take_passage(source: str, ref: str, text: Text, start: int) -> Passage:
    """Return as much of a text as one read allows, from a unit on.

    Raises:
        ValueError: it has fewer units; the message is for the model.
    """
    start = max(start, 1)
    if start > len(text.units):
        raise ValueError(f"{ref} has {len(text.units)} {text.unit}{'s' if len(text.units) != 1 else ''}.")
    shown: list[str] = []
    room = MAX_TEXT_CHARS
    for unit in text.units[start - 1 : start - 1 + UNITS_PER_READ[text.unit]]:
        if shown and len(unit) >= room:
            break
        shown.append(unit)
        room -= len(unit) + 1
    last = start + len(shown) - 1
    more = len(text.units) - last
    return Passage(
        source=source,
        ref=ref,
        title=text.title or ref,
        text="\n".join(shown),
        place=text.place(start, last),
        next=last + 1 if more else None,
        note=f"{more} more {text.unit}{'s' if more > 1 else ''}." if more else "",
    )


def _heading(line: str) -> str:
    """Return the text of a Markdown heading, empty for any other line."""
    return line.strip(" #")[:100] if line.startswith("#") and line.lstrip("#")[:1] in (" ", "") else ""


def _pieces(unit: str) -> Iterator[str]:
    """Cut a long unit into pieces, between sentences if there are any."""
    piece = ""
    for sentence in _SENTENCE.split(unit):
        if piece and len(piece) + len(sentence) > PASSAGE_CHARS:
            yield piece
            piece = ""
        piece = f"{piece}\n{sentence}" if piece else sentence
        while len(piece) > PASSAGE_CHARS:
            yield piece[:PASSAGE_CHARS]
            piece = piece[PASSAGE_CHARS:]
    if piece.strip():
        yield piece
