"""Lines that fit a terminal, measured in columns; a wide character takes two."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from upcall.text import QUOTE_MARK

LINE_CHARS = 160
"""How many characters of a text one line of a listing shows."""


def cut_to_width(text: str, columns: int) -> str:
    """Truncate a line to a number of columns."""
    return text if cell_len(text) <= columns else f"{set_cell_size(text, max(columns - 1, 0)).rstrip()}…"


def wrap_lines(text: str, width: int, indent: str = "", hanging: str | None = None) -> list[str]:
    """Break a text between words into lines of at most `width` columns.

    The first line begins with `indent`, the following ones with `hanging`. Quoted lines stay whole, for the terminal
    to break: text to consent to is shown as it is.
    """
    lines: list[str] = []
    below = indent if hanging is None else hanging
    console = Console(width=max(width - max(len(indent), len(below)), 10))
    for line in text.split("\n"):
        if line.lstrip().startswith(QUOTE_MARK):
            lines.append(line)
            continue
        parts = [part.plain.rstrip() for part in Text(line).wrap(console, console.width, tab_size=4)] or [""]
        for part in parts:
            lines.append(f"{below if lines else indent}{part}".rstrip())
    return lines
