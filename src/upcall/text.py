"""Text of models and users as a terminal shows it: control characters are shown, not sent, and lines are as long as
asked for."""

from __future__ import annotations

from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.text import Text

from upcall.errors import one_line

SHOWN_CHARS = 160
"""What a line of a listing says of a longer text."""

MARK = "| "
"""Begins each line of a command or a diff that is quoted in a question: those lines are never broken by us."""


def escape_controls(text: str) -> str:
    """The text with its control characters made visible, so that it cannot move the cursor or change the title."""
    return "".join(
        char if char == "\n" or char == "\t" or (char.isprintable() and char != "\x7f") else f"\\x{ord(char):02x}"
        for char in text
    )


def shorten(text: str, limit: int = SHOWN_CHARS) -> str:
    """The text in one line, cut where it is longer."""
    return one_line(text, limit)


def cut_to_width(text: str, cells: int) -> str:
    """One line that takes at most so many columns; a wide character takes two."""
    return text if cell_len(text) <= cells else f"{set_cell_size(text, max(cells - 1, 0)).rstrip()}…"


def wrap_lines(text: str, width: int, indent: str = "", hanging: str | None = None) -> list[str]:
    """The text in lines of at most `width` columns, broken between words: the first begins with `indent`, what follows
    with `hanging`. Quoted lines stay whole, for the terminal to break: what is consented to is shown as it is."""
    lines: list[str] = []
    rest = indent if hanging is None else hanging
    console = Console(width=max(width - max(len(indent), len(rest)), 10))
    for line in text.split("\n"):
        if line.lstrip().startswith(MARK):
            lines.append(line)
            continue
        parts = [part.plain.rstrip() for part in Text(line).wrap(console, console.width, tab_size=4)] or [""]
        for part in parts:
            lines.append(f"{rest if lines else indent}{part}".rstrip())
    return lines
