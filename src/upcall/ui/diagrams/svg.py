"""Shared drawing code: an SVG that grows downwards, text of known width, and colours.

Texts are in a monospaced font, and positions are absolute: whether two of them overlap can be seen from the
file alone. The colours are those of Okabe and Ito, distinguishable without colour vision; shapes carry the same
information.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from html import escape

from upcall.ui.diagrams.diagram import Picture

WIDTH = 800
MARGIN = 16
FONT = "ui-monospace, SFMono-Regular, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
ADVANCE = 0.61
"""The width of a character relative to the font size, for the widest of the fonts above."""

MAX_CHARS = 4000
"""What is longer is cut anywhere before it is looked at: no line of a picture takes more. (To put
a pile of accents in order takes a time that grows with its square.)"""

INK, FAINT, LINE, PAPER, SHADE = "#1b1f24", "#525a64", "#9aa3ad", "#ffffff", "#f2f4f6"
BLUE, ORANGE, RED, GREEN = "#0072b2", "#e69f00", "#c04a00", "#00694a"


def clean_text(text: str) -> str:
    """Return the text as one line of characters that are safe for XML and readers: no control characters, no
    direction marks, no piles of accents."""
    line: list[str] = []
    marks = 0
    for char in unicodedata.normalize("NFC", text):
        kind = unicodedata.category(char)
        marks = marks + 1 if kind in ("Mn", "Me") else 0
        if kind in ("Cc", "Zl", "Zp"):
            line.append(" ")
        elif kind not in ("Cf", "Cs", "Cn", "Co") and marks < 3:
            line.append(char)
    return " ".join("".join(line).split())


def measure_width(text: str, size: float) -> float:
    """Return the maximum width of a text in pixels. Characters from a fallback font may be twice as wide."""
    return sum(map(_cells, text)) * ADVANCE * size


def fit_text(text: str, width: float, size: float) -> str:
    """Return the cleaned text, truncated to `width`; empty if not one character fits."""
    room, used, last = width / (ADVANCE * size) + 1e-6, 0, 0
    text = clean_text(text[:MAX_CHARS])
    for place, char in enumerate(text):
        used += _cells(char)
        if used > room:
            return f"{text[:last].rstrip()}…" if last else ""
        if used <= room - 1:
            last = place + 1
    return text


def format_duration(seconds: float) -> str:
    """Format a duration briefly: ``340 ms``, ``12 s``, ``2 h 5 min``, ``3 d 4 h``."""
    if seconds < 1:
        return f"{round(seconds * 1000)} ms"
    if seconds < 59.5:
        return f"{seconds:.1f} s" if seconds < 9.95 else f"{round(seconds)} s"
    minutes = round(seconds / 60)
    for unit, smaller, size in (("d", "h", 1440), ("h", "min", 60)):
        if minutes >= size:
            rest = minutes % size // (60 if unit == "d" else 1)
            return f"{minutes // size} {unit}" + (f" {rest} {smaller}" if rest else "")
    return f"{minutes} min"


def count_phrase(number: int, one: str) -> str:
    """Format a count with its noun: ``1 call``, ``2 calls``."""
    return f"{number:,} {one}{'' if number == 1 else 's'}"


class Drawing:
    """An SVG under construction. ``name`` makes its ids unique if several pictures are on one page."""

    def __init__(self, title: str, description: str, name: str) -> None:
        self._title, self._description = clean_text(title), clean_text(description)
        self.id = f"upcall-{blake2b(name.encode(errors='replace'), digest_size=6).hexdigest()}"
        self._parts: list[str] = []

    def text(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = 12,
        width: float = WIDTH,
        bold: bool = False,
        colour: str = INK,
        anchor: str = "start",
    ) -> None:
        """Draw a line of text with its baseline at `y`, truncated to `width`."""
        if not (line := fit_text(text, width, size)):
            return
        weight = ' font-weight="bold"' if bold else ""
        at = f' text-anchor="{anchor}"' if anchor != "start" else ""
        self._parts.append(
            f'<text x="{_n(x)}" y="{_n(y)}" font-size="{_n(size)}" fill="{colour}"{weight}{at}>{escape(line)}</text>'
        )

    def rect(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        *,
        fill: str = "none",
        stroke: str | None = None,
        dashed: bool = False,
        radius: float = 0,
        tip: str = "",
        kind: str = "",
    ) -> None:
        """Draw a rectangle, optionally with a tooltip."""
        more = f' stroke="{stroke}"' if stroke else ""
        more += ' stroke-dasharray="4 3"' if dashed else ""
        more += f' rx="{_n(radius)}"' if radius else ""
        more += f' class="{kind}"' if kind else ""
        shape = f'<rect x="{_n(x)}" y="{_n(y)}" width="{_n(width)}" height="{_n(height)}" fill="{fill}"{more}'
        self._parts.append(f"{shape}><title>{escape(clean_text(tip))}</title></rect>" if tip else f"{shape}/>")

    def line(self, points: Sequence[tuple[float, float]], *, stroke: str = LINE, width: float = 1) -> None:
        """Draw a line through the points."""
        through = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        self._parts.append(f'<polyline points="{through}" fill="none" stroke="{stroke}" stroke-width="{_n(width)}"/>')

    def shape(self, points: Iterable[tuple[float, float]], *, fill: str, stroke: str = "none", tip: str = "") -> None:
        """Draw a closed shape with these corners."""
        corners = " ".join(f"{_n(x)},{_n(y)}" for x, y in points)
        shape = f'<polygon points="{corners}" fill="{fill}" stroke="{stroke}"'
        self._parts.append(f"{shape}><title>{escape(clean_text(tip))}</title></polygon>" if tip else f"{shape}/>")

    def diamond(self, x: float, y: float, radius: float = 5, *, tip: str = "") -> None:
        """Draw the mark of a question."""
        corners = [(x, y - radius), (x + radius, y), (x, y + radius), (x - radius, y)]
        self.shape(corners, fill=RED, stroke=PAPER, tip=tip)

    @property
    def hatched(self) -> str:
        """The fill of the mark of a wait."""
        return f"url(#{self.id}-wait)"

    def finish(self, height: float) -> Picture:
        """Return the whole file."""
        own, box = self.id, f"{WIDTH} {_n(height)}"
        head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{_n(height)}" viewBox="0 0 {box}" '
            f'role="img" aria-labelledby="{own}-title {own}-text" font-family="{FONT}">'
            f'<title id="{own}-title">{escape(self._title)}</title>'
            f'<desc id="{own}-text">{escape(self._description)}</desc>'
            f'<defs><pattern id="{own}-wait" width="6" height="6" patternUnits="userSpaceOnUse">'
            f'<rect width="6" height="6" fill="{SHADE}"/><path d="M0 6L6 0" stroke="{LINE}"/></pattern></defs>'
            f'<rect width="{WIDTH}" height="{_n(height)}" fill="{PAPER}"/>'
        )
        return Picture("\n".join([head, *self._parts, "</svg>\n"]), f"{self._title}: {self._description}")


def _cells(char: str) -> int:
    """Return the maximum number of columns that a character takes in a monospaced font."""
    if char < "\u0300":  # Before the first mark that is put on another character.
        return 1
    if unicodedata.category(char) in ("Mn", "Me"):
        return 0
    # Latin, Greek and Cyrillic are in the fonts above; from Hebrew on a browser may take another one. Dashes, quotation
    # marks and dots lie behind, and are in them.
    return 2 if char >= "\u0590" and not "\u2010" <= char <= "\u2027" else 1


def _n(number: float) -> str:
    """Return a number with only the visible digits."""
    return f"{number:.2f}".rstrip("0").rstrip(".")
