"""The text for a person in a reply that is JSON, read while the reply arrives: the pieces may be cut anywhere.

A reply may be anything: JSON in a fence, in a wrapper or in a string, a call written as text, several objects, prose.
The rules are those by which the whole reply is read afterwards (`upcall.agents.tool_loop.parse_output`): the first
object with a text counts, and what is not JSON is text as it stands. What streams is a preview: where the whole reply
turns out to be another text, the message that ends the turn replaces it.

Each character is read once.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from enum import Enum, auto
from itertools import count
from typing import NamedTuple

from upcall.lazy_pattern import LazyPattern
from upcall.runs.shown_text import TextFields

WRAPPERS = LazyPattern("answer|classification|clarification|data|json|output|plan|reply|report|response|result")
"""The names, besides its own, of a single key that models put around the requested object."""

_CALL_FIELDS = frozenset({"arguments", "function", "parameters", "tool_calls"})
"""Where the object stands in a call that is written as text."""

_MAX_WRAPPERS = 4
"""How many objects and lists may stand around the object."""

_BETWEEN_FIELDS, _BETWEEN_ITEMS = "\n\n", "\n"

_PLAIN = LazyPattern(r'[^"\\]+')
_SPACE = LazyPattern(r"[ \t\r\n\ufeff]*")
_WORD = LazyPattern(r"[\w.+-]*")
_FENCE = LazyPattern(r"(?:`{3,12}|~{3,12})[ \t]*(?:json\w*)?[ \t\r]*\n\s*(?=[{\[])", re.IGNORECASE)
_FENCE_BEGUN = LazyPattern(r"(?:`{1,2}|~{1,2}|(?:`{3,12}|~{3,12})[ \t]{0,9}\w{0,20}[ \t\r]{0,9}(?:\n\s{0,99})?)\Z")
_QUOTED = LazyPattern(r'"(?:\\[nrt]|\s)*\{')
_QUOTED_BEGUN = LazyPattern(r'"(?:\\[nrt]|\s){0,99}\\?\Z')
_MARKUP_BEGUN = LazyPattern(r"[<\[|][^>\]{]{0,24}\Z")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f"}
_HIGH, _LOW = range(0xD800, 0xDC00), range(0xDC00, 0xE000)
_BROKEN = "\ufffd"
_MAX_DEPTH = 200
_MAX_TRIED = 1_000
"""How many opening braces are tried in words: each takes a while."""


class Around(Enum):
    """What words around the JSON are."""

    REPLY = auto()
    """A reply too, so JSON counts only if the reply begins with it."""

    NOTHING = auto()
    """Left out; a reply of nothing but words is text."""

    INVALID = auto()
    """Never text."""


class _BrokenJson(ValueError):
    """What arrives is not JSON."""


class _Wanted(Enum):
    VALUE = auto()
    KEY = auto()
    COLON = auto()
    NEXT = auto()


class _Frame(NamedTuple):
    """An open object or list.

    ``fields`` are those looked for in it; None where none are. The items of a list `of_texts` are texts themselves.
    ``number``: of the innermost list that it is or is in, 0 for none.
    """

    fields: TextFields | None
    is_list: bool
    of_texts: bool
    number: int


class _JsonReader:
    """Reads one JSON value and passes on the texts in it.

    Args:
        fields: the fields with text.
        emit: receives the texts.
    """

    def __init__(self, fields: TextFields, emit: Callable[[str], None]) -> None:
        self._root, self._emit = fields, emit
        self._frames: list[_Frame] = []
        self._lists = count(1)
        self._wanted = _Wanted.VALUE
        self._in_string = self._in_word = self._is_key = self._is_shown = self._is_begun = False
        self._key: list[str] = []
        self._name, self._escape, self._high = "", "", 0
        self._inside: StructuredText | None = None
        self._seen: set[tuple[int, str]] = set()
        self._last_list = 0
        self.place = 0
        """Where it stopped reading."""
        self.has_text = False
        """Whether a text was passed on."""

    def read(self, text: str, place: int) -> bool:
        """Read on from a place; return whether the value has ended.

        Raises:
            BrokenJson: it is none.
        """
        self.place, is_over = place, False
        while self.place < len(text) and not is_over:
            if self._in_string:
                self.place = self._read_string(text, self.place)
                is_over = not self._in_string and not self._frames
            elif self._in_word:
                self.place = self._read_word(text, self.place)
            else:
                is_over = self._read_structure(text)
        return is_over

    # -- structure --------------------------------------------------------------------------------------------------

    def _read_structure(self, text: str) -> bool:
        """Read one sign; return whether the value has ended."""
        self.place = _end_of(_SPACE, text, self.place)
        if self.place == len(text):
            return False
        sign = text[self.place]
        if sign in "}]":
            return self._close(sign)
        if self._wanted is _Wanted.VALUE:
            self._begin_value(sign)
            return False
        if self._wanted is _Wanted.KEY and sign == '"':
            self._in_string, self._is_key, self._key = True, True, []
        elif self._wanted is _Wanted.COLON and sign == ":":
            self._wanted = _Wanted.VALUE
        elif self._wanted is _Wanted.NEXT and sign == ",":
            self._wanted = _Wanted.VALUE if self._frames[-1].is_list else _Wanted.KEY
        else:
            raise _BrokenJson
        self.place += 1
        return False

    def _begin_value(self, sign: str) -> None:
        if sign in "{[":
            if len(self._frames) >= _MAX_DEPTH:
                raise _BrokenJson
            self._frames.append(self._open(is_list=sign == "["))
            self._wanted = _Wanted.VALUE if sign == "[" else _Wanted.KEY
        elif sign == '"':
            self._begin_text()
        elif _WORD.match(sign) and sign.strip():
            self._in_word = True
            return
        else:
            raise _BrokenJson
        self.place += 1

    def _read_word(self, text: str, place: int) -> int:
        """Read on in a number or a name."""
        end = _end_of(_WORD, text, place)
        if end < len(text):  # At the end of a piece a number may go on in the next one.
            self._in_word, self._wanted = False, _Wanted.NEXT
        return end

    def _open(self, *, is_list: bool) -> _Frame:
        """Return the frame of a value: what is looked for in it."""
        outer = self._frames[-1] if self._frames else _Frame(self._root, is_list=True, of_texts=False, number=0)
        number = next(self._lists) if is_list else outer.number
        if outer.is_list:
            return _Frame(outer.fields, is_list, outer.of_texts and is_list, number)
        if outer.fields is not None and self._name in outer.fields:
            inner = outer.fields[self._name]
            return _Frame(inner, is_list, is_list and inner is None and self._is_first(), number)
        return _Frame(self._root if self._is_wrapper(outer) else None, is_list, of_texts=False, number=number)

    def _close(self, sign: str) -> bool:
        """Close the innermost value; return whether it was the outermost, or the object that was looked for."""
        # A comma too many is let through, since the whole reply is repaired afterwards.
        if not self._frames or self._frames[-1].is_list is not (sign == "]") or self._wanted is _Wanted.COLON:
            raise _BrokenJson
        closed = self._frames.pop()
        self._wanted = _Wanted.NEXT
        # The next object at this depth begins with no field seen.
        self._seen = {each for each in self._seen if each[0] <= len(self._frames)}
        self.place += 1
        return not self._frames or (closed.fields is self._root and not closed.is_list and self.has_text)

    def _is_wrapper(self, outer: _Frame) -> bool:
        """Return whether the object that is looked for is in this field of another."""
        if outer.fields is not self._root or len(self._frames) > _MAX_WRAPPERS:
            return False
        return self._name in _CALL_FIELDS or WRAPPERS.fullmatch(self._name.replace("_", "").lower()) is not None

    def _is_first(self) -> bool:
        """Return whether the field comes for the first time in its object."""
        known = (key := (len(self._frames), self._name)) in self._seen
        self._seen.add(key)
        return not known

    # -- strings ----------------------------------------------------------------------------------------------------

    def _begin_text(self) -> None:
        self._in_string, self._is_key, self._is_begun, self._is_shown, self._inside = True, False, False, False, None
        outer = self._frames[-1] if self._frames else None
        if outer is not None and outer.is_list:
            self._is_shown = outer.of_texts
        elif outer is not None and outer.fields is not None and self._name in outer.fields:
            self._is_shown = outer.fields[self._name] is None and self._is_first()
        elif outer is None or self._is_wrapper(outer):  # Models write the object as a string, too.
            self._inside = StructuredText(self._root, Around.INVALID)

    def _read_string(self, text: str, place: int) -> int:
        """Read on in a string: plain characters at once, escapes one by one."""
        if self._escape:
            self._read_escape(text[place])
        elif plain := _PLAIN.match(text, place):
            self._take(plain[0])
            return plain.end()
        elif text[place] == "\\":
            self._escape = "\\"
        else:
            self._end_string()
        return place + 1

    def _read_escape(self, sign: str) -> None:
        self._escape += sign
        kind = self._escape[1]
        if kind != "u":
            self._escape = ""
            self._take(_ESCAPES.get(kind, kind))
        elif len(self._escape) == len("\\u0000"):
            digits, self._escape = self._escape[2:], ""
            try:
                self._take_code(int(digits, 16))
            except ValueError as error:
                raise _BrokenJson from error

    def _take_code(self, code: int) -> None:
        """Take half a character or a whole one: those beyond 16 bits are written as two escapes."""
        if self._high and code in _LOW:
            high, self._high = self._high, 0
            self._take(chr(0x10000 + ((high - _HIGH.start) << 10) + (code - _LOW.start)))
        elif code in _HIGH:
            self._take("")  # An earlier first half has no second one.
            self._high = code
        else:
            self._take(_BROKEN if code in _LOW else chr(code))

    def _take(self, decoded: str) -> None:
        if self._high:
            decoded, self._high = f"{_BROKEN}{decoded}", 0
        if self._is_key:
            self._key.append(decoded)
        elif self._inside is not None:
            self._emit_text(self._inside.add(decoded))
        elif self._is_shown:
            self._emit_text(decoded)

    def _emit_text(self, text: str) -> None:
        if not text:
            return
        if not self._is_begun:
            number = self._frames[-1].number if self._frames else 0
            if self.has_text:
                text = f"{_BETWEEN_ITEMS if number and number == self._last_list else _BETWEEN_FIELDS}{text}"
            self._is_begun, self._last_list = True, number
        self.has_text = True
        self._emit(text)

    def _end_string(self) -> None:
        self._take("")  # A first half at the very end has no second one.
        if self._is_key:
            self._name = "".join(self._key)
        self._wanted = _Wanted.COLON if self._is_key else _Wanted.NEXT
        self._in_string = self._is_key = self._is_shown = False


class StructuredText:
    """The text for a person in one reply.

    Args:
        fields: the fields with text; none where JSON can only be a call.
        around: what words around the JSON are.
        markup: matches what may stand around calls that are written as text.
    """

    def __init__(self, fields: TextFields, around: Around, markup: LazyPattern | None = None) -> None:
        self._fields, self._around, self._markup = fields, around, markup
        self._texts: list[str] = []
        self._begin()

    def _begin(self) -> None:
        self._state = self._find_form
        self._held: list[str] = []
        self._waiting = ""
        self._has_object, self._tried = False, 0

    def add(self, piece: str) -> str:
        """Add a piece of the reply; return the text that it adds."""
        place = 0
        while place < len(piece):
            piece, place = self._state(piece, place)
        text = "".join(self._texts)
        self._texts.clear()
        return text

    def end(self) -> str:
        """End the reply; return the text that waited for that: all of it, if there was no JSON."""
        if self._state == self._find_form:  # What waited became neither a fence nor JSON.
            self._take_words()
        if self._around is Around.NOTHING and self._state == self._find_object and not self._has_object:
            self._texts += self._held
        return self.add("")

    def withdraw(self) -> None:
        """Begin again: what came so far was no part of the reply."""
        self._begin()

    # -- states: each reads on in a piece from a place, and returns where to read on -----------------------------------

    def _find_form(self, piece: str, place: int) -> tuple[str, int]:
        """Find out what the reply begins with."""
        text = self._skip_markup(piece, place)
        # What may become a fence, an object in quotes or markup waits for the next piece: it may be cut anywhere.
        if not text or any(each.match(text) for each in (_FENCE_BEGUN, _QUOTED_BEGUN)) or self._may_be_markup(text):
            return text, len(text)
        fence = _FENCE.match(text)
        start = 0 if fence is None else fence.end()
        if text[start] in "{[" or _QUOTED.match(text):
            self._waiting = ""
            return self._begin_object(text, 0, start)
        self._take_words()
        return text, len(text)

    def _skip_markup(self, piece: str, place: int) -> str:
        """Return what waits and has come, from where neither white space nor markup stands."""
        text = self._waiting + piece[place:]
        start = _end_of(_SPACE, text, 0)
        if self._markup is not None:
            start = _end_of(self._markup, text, start)
        self._held.append(text[:start])
        self._waiting = text[start:]
        return self._waiting

    def _may_be_markup(self, text: str) -> bool:
        return self._markup is not None and _MARKUP_BEGUN.match(text) is not None

    def _take_words(self) -> None:
        """Take a reply that begins with words."""
        text, self._held, self._waiting = "".join([*self._held, self._waiting]), [], ""
        if self._around is Around.REPLY:
            self._state = self._read_words
            self._read_words(text, 0)
        elif self._around is Around.NOTHING:
            self._state = self._find_object
            self._texts.append(self.add(text))
        else:
            self._state = self._skip

    def _read_words(self, piece: str, place: int) -> tuple[str, int]:
        self._texts.append(piece[place:])
        return piece, len(piece)

    def _skip(self, piece: str, place: int) -> tuple[str, int]:
        """Read no more: the text was there, or none can follow."""
        return piece, len(piece)

    def _find_object(self, piece: str, place: int) -> tuple[str, int]:
        """Find where the next object begins, in words that are no part of it."""
        start = piece.find("{", place)
        if start == -1 or self._tried >= _MAX_TRIED:
            self._held.append(piece[place:])
            return piece, len(piece)
        return self._begin_object(piece, place, start)

    def _find_more(self, piece: str, place: int) -> tuple[str, int]:
        """Read what follows an object without text: another one, or the reply is words that begin with JSON."""
        text = self._skip_markup(piece, place)
        if not text or self._may_be_markup(text):
            return text, len(text)
        self._waiting = ""
        if text[0] in "{[":
            return self._begin_object(text, 0, 0)
        self._held.append(text[0])
        if text[0].isalnum() or text[0] == "<":  # Prose: the JSON before it was a part of what the model says.
            self._held.append(text[1:])
            self._texts += self._held
            self._held, self._state = [], self._read_words
            return text, len(text)
        return text, 1

    def _begin_object(self, piece: str, place: int, start: int) -> tuple[str, int]:
        self._held.append(piece[place:start])
        self._tried += 1
        self._json, self._state = _JsonReader(self._fields, self._texts.append), self._read_object
        return piece, start

    def _read_object(self, piece: str, place: int) -> tuple[str, int]:
        reader, is_broken, is_over = self._json, False, False
        try:
            is_over = reader.read(piece, place)
        except _BrokenJson:
            is_broken = True
        if reader.has_text:
            self._held = []
            self._state = self._skip if is_over or is_broken else self._state
            return piece, reader.place
        self._held.append(piece[place : reader.place])
        self._has_object = self._has_object or is_over
        if is_broken and self._around is Around.REPLY and not self._has_object:  # Words that begin with a brace.
            self._texts += self._held
            self._held, self._state = [], self._read_words
        elif is_broken or is_over:
            self._state = self._find_more if self._around is Around.REPLY and not is_broken else self._find_object
        return piece, reader.place


def _end_of(pattern: LazyPattern, text: str, place: int) -> int:
    """Return where a match ends that begins at a place; the place itself if there is none."""
    found = pattern.match(text, place)
    return place if found is None else found.end()
