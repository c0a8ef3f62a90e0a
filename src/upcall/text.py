"""Text that others wrote, as a line of ours: flattened, cut, and with its control characters visible."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterable
from typing import NewType

from upcall.lazy_pattern import LazyPattern

_BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""How a file that says its encoding begins, and which that is; the longer marks first."""

QUOTE_MARK = "| "
"""Begins each line of a command or a diff that a question quotes. Nothing breaks or reflows those lines."""

CONTROLS = LazyPattern("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters (C0 without tab and newline, C1), line separators, marks that turn the reading direction, and
halves of surrogate pairs: on a terminal or in a page they hide or repaint what a human is asked to agree to."""

_BLANKS = LazyPattern(
    "[\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180d\u180f\u2800\u3164\ufe00-\ufe0e\uffa0\U000e0100-\U000e01ef]"
)
"""Letters and marks without a sign of their own, by Unicode's Default_Ignorable_Code_Point; and an empty Braille cell.
Left out is the selector that stands after so many emoji."""

Shown = NewType("Shown", str)
"""A name that others chose (of a file, a tool, a server), as it may stand inside a sentence of ours. Only `show_name`
makes one, and what writes such sentences takes nothing else: a plain text could end our sentence and begin another."""

MAX_NAME_CHARS = 100
"""How many characters of a name a sentence shows."""

_PLAIN_NAME = LazyPattern(r"[\w./@+~-]*[\w/@+~-]")
"""A name that cannot be read as more than one: no blank, no quote, no full stop at its end."""

_KEY = LazyPattern(r"\bsk-[\w-]+")
"""What keys of the well-known servers look like: an SDK's exception may repeat one."""


def one_line(text: str, limit: int | None = None) -> str:
    """Join the words of a text into one line, cut after `limit` characters."""
    line = " ".join(text.split())
    return line if limit is None else shorten(line, limit)


def unify_minus(text: str) -> str:
    """Return a text with "-" for the minus sign of typesetters (U+2212), which no parser of numbers takes: phones and
    word processors write it."""
    return text.replace("\N{MINUS SIGN}", "-")


def first_line(text: BaseException | str) -> str:
    """Return the first line of a text or an error, without a key.

    A group chat's `RuntimeError` holds the name, the text and the whole traceback of its cause.
    """
    lines = str(text).strip().splitlines()
    if lines:
        return _KEY.sub("[key]", lines[0])
    return "" if isinstance(text, str) else type(text).__name__


def shorten(text: str, limit: int, note: str = "…") -> str:
    """Keep the first `limit` characters; `note` says that there were more, with ``{left}`` how many."""
    return text if len(text) <= limit else text[:limit] + note.format(left=len(text) - limit)


def shorten_middle(text: str, limit: int) -> str:
    """Keep the beginning and the end in `limit` characters, with a line between them that says how many are missing."""
    if len(text) <= limit:
        return text
    room = max(limit - len(_gap(len(text), len(text))), 2)
    head = room * 2 // 3
    return f"{text[:head]}{_gap(len(text) - room, len(text))}{text[head - room :]}"


def _gap(left_out: int, length: int) -> str:
    return f"\n[... {left_out} of {length} characters are left out here ...]\n"


def escape_controls(text: str, *, unseen: bool = False) -> str:
    """Write control characters out, as ``\\x1b`` or ``\\u202e``.

    With `unseen` so is everything else that leaves no mark, such as a zero-width space: a human is to see what a
    command holds. In running text some of it joins emoji and letters, and stays.
    """
    if unseen:
        return "".join(each if each in "\n\t" or _is_seen(each) else _code(each) for each in text)
    return CONTROLS.sub(lambda found: _code(found[0]), text)


def show_name(name: str, limit: int = MAX_NAME_CHARS) -> Shown:
    """Write a name as it is where it can only be read as one, else in quotes, as JSON with nothing in it unseen.

    Of a longer one the middle is left out.
    """
    plain = _PLAIN_NAME.fullmatch(name) is not None and _is_seen(name)
    chars = list(name) if plain else [_escape_in_quotes(each) for each in name]
    shown = "".join(chars)
    if len(shown) > limit:
        room = (limit - len(_LEFT_OUT)) // 2
        shown = f"{''.join(_fit(chars, room))}{_LEFT_OUT}{''.join(_fit(chars[::-1], room)[::-1])}"
    return Shown(shown if plain else f'"{shown}"')


def show_on_line(name: str) -> Shown:
    """Write a name that has a line, or the rest of one, to itself: in quotes only where it would not end there, or hide
    something in it. Whole, since it is copied from there."""
    alone = _is_seen(name) and name == name.strip() and not name.startswith('"')
    return Shown(name) if alone else show_name(name, len(name) * 20)


def list_names(names: Iterable[Shown], most: int) -> Shown:
    """List names in a sentence, the first ones if there are many."""
    shown = list(names)
    more = [f"and {len(shown) - most} more"] if len(shown) > most else []
    return Shown(", ".join([*shown[:most], *more]))


def quote(text: str) -> str:
    """Mark each line of a text for the human, so that none passes for ours, and nothing in it is unseen."""
    return "\n".join(f"{QUOTE_MARK}{line}" for line in escape_controls(text, unseen=True).split("\n"))


_LEFT_OUT = "[...]"


def _escape_in_quotes(char: str) -> str:
    """Escape what would end the quotes, a span of code in Markdown, or leave no mark."""
    if char in '"\\':
        return f"\\{char}"
    if char == "`" or not _is_seen(char):
        return json.dumps(char)[1:-1] if char != "`" else "\\u0060"
    return char


def _is_seen(text: str) -> bool:
    """Return whether each character leaves a mark, or is a space."""
    return text.isprintable() and _BLANKS.search(text) is None


def _fit(pieces: list[str], room: int) -> list[str]:
    """Return the first pieces that have room; none is cut."""
    at = 0
    while at < len(pieces) and (room := room - len(pieces[at])) >= 0:
        at += 1
    return pieces[:at]


def _code(char: str) -> str:
    return char.encode("unicode_escape").decode()


def decode(data: bytes) -> str:
    """Decode what a file holds: by its byte order mark, which is not of the text, else as UTF-8; what is neither is
    replaced. Windows PowerShell, say, writes UTF-16."""
    return data.decode(find_encoding(data) or "utf-8", errors="replace")


def find_encoding(data: bytes) -> str | None:
    """Return the encoding that a file's byte order mark says; None without one."""
    return next((encoding for mark, encoding in _BYTE_ORDER_MARKS if data.startswith(mark)), None)


def is_blank(text: str) -> bool:
    """Return whether a text has nothing that leaves a mark."""
    return all(each.isspace() or not _is_seen(each) for each in text)


def replace_surrogates(text: str) -> str:
    """Put a question mark for each half of a surrogate pair.

    No HTTP client sends one: a single one in the context (a file name in another encoding, a broken emoji) would make
    every further model call fail.
    """
    return text.encode(errors="replace").decode()
