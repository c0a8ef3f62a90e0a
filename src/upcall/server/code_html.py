"""Code and diffs as HTML whose colours the style sheet gives: classes alone, since a page allows no inline style."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

from upcall.ui.markdown_html import markdown_html

MAX_CODE_CHARS = 5_000
"""Longer code keeps one colour: a page is not to wait for it."""

MAX_TEXTS = 500
"""How many rendered texts are kept: a page that is refreshed renders what is new alone."""


def highlight_code(code: str, language: str, _: str = "") -> str:
    """Return code with a class for each kind of word; an empty text if its language is unknown, or it is too long."""
    lexer = _find_lexer(language.lower()) if language and len(code) <= MAX_CODE_CHARS else None
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True, classprefix="h-"))) if lexer is not None else ""


@lru_cache(maxsize=MAX_TEXTS)
def message_html(text: str) -> str:
    """Return a message's Markdown as HTML, its code highlighted."""
    return markdown_html(text, highlight_code)


@lru_cache(maxsize=MAX_TEXTS)
def _find_lexer(language: str) -> Lexer | None:
    try:
        return get_lexer_by_name(language, stripnl=False)
    except ClassNotFound:
        return None


@dataclass(frozen=True)
class DiffLine:
    """One line of a diff.

    Attributes:
        kind: ``add``, ``del``, ``hunk`` or ``same``; the style sheet knows them.
        text: the line with its sign.
    """

    kind: str
    text: str


def diff_rows(diff: str) -> Iterator[DiffLine]:
    """Yield the lines of a unified diff, without its two lines of names."""
    lines = diff.removesuffix("\n").split("\n")
    for line in lines[2:] if diff.startswith("--- ") else lines:
        kind = {"+": "add", "-": "del", "@": "hunk"}.get(line[:1], "same")
        yield DiffLine(kind, line)
