"""A reply that arrives in pieces: whether it begins as calls do that are written as text, which nobody is shown."""

from __future__ import annotations

from functools import cache
from typing import Any

from upcall.autogen.text_calls.formats import AROUND, OPENING
from upcall.autogen.text_calls.reader import BrokenCall, parse_calls

_FIRST = "<[]>`"
"""The first characters of most beginnings."""

_WORDS = ("analysis", "assistant", "commentary", "function call<", "functools", "to=")
"""The words that the others begin with."""


class CallFilter:
    """Holds a reply back that begins as calls do; at its end it is passed on after all if it is text.

    Args:
        shows_json: whether JSON is passed on, also behind a mark: the reply that is asked for is JSON, and so is the
            call that it may be written in.
    """

    def __init__(self, *, shows_json: bool) -> None:
        self._shows_json = shows_json
        self._waiting, self._is_open, self._is_held = "", True, False

    def add(self, piece: str) -> str:
        """Add a piece; return what is passed on."""
        if not self._is_open:
            return piece
        self._waiting += piece
        if self._is_held or (begins := self._begins()) is None:
            return ""
        self._is_held = begins
        return "" if begins else self._pass_on()

    def end(self) -> str:
        """End the reply; return what was held back and is text."""
        try:
            is_text = parse_calls(self._waiting) is None
        except BrokenCall:
            is_text = False
        return self._pass_on() if is_text or not self._is_held else ""

    def withdraw(self) -> None:
        """Begin again: what came so far was no part of the reply."""
        self._waiting, self._is_open, self._is_held = "", True, False

    def _pass_on(self) -> str:
        text, self._waiting, self._is_open = self._waiting, "", False
        return text

    def _begins(self) -> bool | None:
        """Return whether the reply begins as calls do; None if what comes next decides."""
        text = self._waiting.lstrip().lstrip("\ufeff")
        if not text:
            return None
        if text[0] not in _FIRST and not any(each.startswith(text[: len(each)]) for each in _WORDS):
            return False
        if (found := _opening().match(text, partial=True)) is None:
            return False
        if found.partial:
            return None
        if not self._shows_json:
            return True
        around = AROUND.match(text)
        rest = "" if around is None else text[around.end() :]
        return rest[:2] not in ("{", "{\n", "{ ", '{"', "[{", "[ ", "[\n") if rest[1:] else None


@cache
def _opening() -> Any:
    """Return the pattern of a beginning, by the library that can say whether the end of a text may be part of one."""
    import regex  # Here, since few replies begin so: it takes 30 ms to load.

    return regex.compile(OPENING, regex.IGNORECASE)
