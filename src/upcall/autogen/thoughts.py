"""A model's thoughts and its text, distinguished: the only place that knows how models mark them.

A thought is shown apart from the text. It is never a result, and never read for calls, questions or JSON. Servers with
a parser for their model send thoughts in a field of their own; the others leave them in the text, between marks. Most
marks follow one rule, a tag that names thinking. `_MARKS` is a list: a model with marks of another kind needs a row.

The rules, in the order in which a text is read:

- Thoughts stand before the text, or on lines of their own between its paragraphs.
- Thoughts before the text that do not end are all of the reply; between paragraphs, what does not end is text.
- The mark that opens them is often part of the prompt, so that only the one that closes them arrives: at the end of a
  line, or without a space on either side, it ends them, and what came before is withdrawn.
- Marks in code, in a JSON value or within a sentence are text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from itertools import groupby
from typing import Any, NamedTuple

from autogen_core.models import CreateResult

from upcall.lazy_pattern import LazyPattern

_NAME = r"(?:\w+[:_])?(?:think|thinking|thoughts?|reasoning|reflection)"
_TAG_CLOSES = rf"</{_NAME}>|\[/THINK\]|◁/think▷"
_TOKEN_CLOSES = rf"<\|(?:/|end_of_|end_){_NAME}\|>|<channel\|>"
"""Marks that are one token of the model's vocabulary: nobody else writes a line that begins with one."""

_HARMONY_ENDS = r"<\|(?:end|return|call)\|>|(?=<\|(?:start|channel)\|>)"
_HARMONY = r"(?:<\|start\|>(?:assistant)?)?<\|channel\|>"


@dataclass(frozen=True)
class _Mark:
    """How a family of models marks a part of its replies, as patterns.

    ``opens`` and ``closes`` stand around thoughts; of a mark without ``closes``, what follows is the answer. ``ends``
    is what may stand behind the answer. An ``unsure`` mark is ordinary words, which only count if they are closed.
    """

    opens: str
    closes: str = ""
    ends: str = ""
    unsure: bool = False


_MARKS = (
    # DeepSeek, Qwen, GLM, MiniMax and most others; Seed (`seed:think`), LongCat (`longcat_think`); Mistral; Kimi.
    _Mark(rf"<{_NAME}>|\[THINK\]|◁think▷", f"{_TAG_CLOSES}|{_TOKEN_CLOSES}"),
    # OpenThinker (`begin_of_thought`), Command A (`START_THINKING`), Gemma on devices (`think`).
    _Mark(rf"<\|(?:begin_of_|start_)?{_NAME}\|>", f"{_TAG_CLOSES}|{_TOKEN_CLOSES}"),
    _Mark(
        r"<\|(?:begin_of_|start_)(?:solution|response|answer)\|>",
        ends=r"<\|(?:end_of_|end_)(?:solution|response|answer)\|>",
    ),
    # Gemma 4.
    _Mark(r"<\|channel>\s*(?:thought|analysis)\b", r"<channel\|>"),
    # gpt-oss (harmony): channels; then the same where a server drops the tokens and leaves the words.
    _Mark(rf"{_HARMONY}\s*analysis\b[^<\n]*<\|message\|>", _HARMONY_ENDS, _HARMONY_ENDS),
    _Mark(
        rf"{_HARMONY}\s*(?:final|commentary)\b(?!\s*to=)[^<\n]*(?:<\|constrain\|>\w*)?<\|message\|>", ends=_HARMONY_ENDS
    ),
    _Mark(r"(?-i:analysis(?=[A-Z]))", r"(?-i:assistant(?:final|commentary))", unsure=True),
    # Granite 3, Apriel.
    _Mark(
        r"Here (?:is my thought process|are my reasoning steps):",
        r"Here is my response:|\[BEGIN FINAL RESPONSE\]",
        r"\[END FINAL RESPONSE\]",
        unsure=True,
    ),
)

_OPENS = "|".join(f"(?P<m{number}>{mark.opens})" for number, mark in enumerate(_MARKS))
_OPENS_BETWEEN = "|".join(mark.opens for mark in _MARKS if mark.closes and not mark.ends and not mark.unsure)
"""The marks of thoughts that may also stand between paragraphs."""

_SIGNS = "<[◁"
_WORDS = ("analysis", "here is my thought process:", "here are my reasoning steps:")
"""How marks begin: with a sign, or as words, here in lower case. Elsewhere no pattern is compiled."""

_CLOSES = f"{_TAG_CLOSES}|(?P<token>{_TOKEN_CLOSES})"
_BEGINS = re.escape("".join({*_SIGNS, *(each[0] for each in _WORDS)}))
_ANY = LazyPattern(
    # The look at one character makes a search through a long text four times as fast.
    rf"(?=[{_BEGINS}])(?:{'|'.join([_CLOSES, *(mark.opens for mark in _MARKS)])})",
    re.IGNORECASE,
)

_STOPS = LazyPattern(r"[\n<\[◁]")
"""Where text may stop being plain text: a new line, or the first character of a mark."""

_FENCE_LINE = LazyPattern(r"^[ \t]*(?P<marks>`{3,}|~{3,})(?P<info>.*)$", re.MULTILINE)
_BLANKS = LazyPattern(r"[ \t\r]*")
_GLUED_BEFORE = LazyPattern(r"[\w.!?:;)*…。！？]")
_GLUED_AFTER = LazyPattern(r"[\w*#|-]")
_INDENT = 100
"""How far, in characters, a mark may be indented on its line."""


class Spoken(NamedTuple):
    """What a model thought, and what it said."""

    thought: str
    text: str


class PartKind(Enum):
    """What a part of a reply is."""

    TEXT = auto()
    THOUGHT = auto()
    WITHDRAWN = auto()
    """All text so far, which was a thought."""


class ReplyPart(NamedTuple):
    """A part of a reply, in the order of its arrival."""

    kind: PartKind
    content: str


def split_thoughts(text: str) -> Spoken:
    """Return the thoughts in a text, and the text without them; one without thoughts is returned unchanged."""
    if not _ANY.search(text):
        return Spoken("", text)
    thoughts, texts, splitter = list[str](), list[str](), ThoughtSplitter()
    for kind, content in splitter.end(text):
        if kind is PartKind.WITHDRAWN:
            texts.clear()
        (texts if kind is PartKind.TEXT else thoughts).append(content)
    return Spoken("".join(thoughts).strip(), "".join(texts).strip()) if splitter.has_marks else Spoken("", text)


def separate_thoughts(reply: CreateResult) -> CreateResult:
    """Return the reply with the thoughts of its text in its field `thought`, after those that are there."""
    if not isinstance(reply.content, str):
        return reply
    thought, text = split_thoughts(reply.content)
    if text == reply.content:
        return reply
    known = [each for each in (reply.thought, thought) if each]
    return reply.model_copy(update={"content": text, "thought": "\n\n".join(known) or None})


def drop_marks(text: str) -> str:
    """Return all of a text that is shown as a thought, without the marks in it."""
    return "\n\n".join(filter(None, split_thoughts(text)))


class _NeedMore(Exception):
    """What comes next decides."""


class _OpenThought(NamedTuple):
    """A thought that is being read.

    ``opening`` is the mark, which is text again if the thought `may_be_text` and does not end. A thought that is `held`
    is passed on when it has ended. ``between``: it stands between paragraphs.
    """

    closes: str
    opening: str = ""
    may_be_text: bool = False
    held: bool = False
    between: bool = False


class ThoughtSplitter:
    """Distinguishes thoughts from text in a reply that arrives in pieces, wherever these are cut.

    What is certain is passed on; what may be the beginning of a mark waits for the next piece.

    Args:
        begins_within: whether the prompt opened the thoughts. A reply that never closes them had none: its text comes
            at its end.
    """

    def __init__(self, *, begins_within: bool = False) -> None:
        self.has_marks = False
        """Whether anything of the reply was a mark."""
        self.opened_by_prompt = False
        """Whether the prompt had opened its thoughts."""
        self._buffer, self._at, self._is_last = "", 0, False
        self._parts: list[ReplyPart] = []
        self._state = self._read_first if begins_within else self._read_start
        self._space = ""  # Before the text; part of it where nothing is a mark.
        self._pending_text: list[str] | None = []  # The text, as long as it may turn out to be a thought.
        self._line, self._fence, self._is_json, self._ends = "", "", False, ""
        self._last_character = ""  # The last character of the text.
        self._open = _OpenThought("")
        self._body: list[str] = []
        self._within = self._thought_before = False
        self._gap = ""  # White space that belongs to a thought if more of it follows.
        self._next_close = -1

    def add(self, piece: str) -> list[ReplyPart]:
        """Add a piece; return the parts that are certain now."""
        self._buffer, self._at = self._buffer[self._at :] + piece, 0
        try:
            while self._state():
                pass
        except _NeedMore:
            pass
        parts, self._parts = self._parts, []
        grouped = groupby(parts, lambda each: each.kind)
        return [ReplyPart(kind, "".join(each.content for each in same)) for kind, same in grouped]

    def end(self, piece: str = "") -> list[ReplyPart]:
        """Add the last piece; return the rest."""
        self._is_last = True
        return self.add(piece)

    # -- states: each reads on from a place, and returns whether there may be more to read -------------------------

    def _read_first(self) -> bool:
        """Read the beginning of a reply whose thoughts the prompt opened."""
        if not self._skip_space():
            return False
        self._state = self._read_start
        if self._buffer[self._at] not in "{[<◁":
            self._begin(_OpenThought(_CLOSES, self._space, may_be_text=True))
        return True

    def _read_start(self) -> bool:
        """Read what stands before the text: thoughts, and marks of the answer."""
        if not self._skip_space():
            return False
        if opened := self._match(_OPENS):
            mark = _MARKS[int(opened.lastgroup[1:])]
            self._at, self._ends = opened.end(), mark.ends or self._ends
            if mark.closes:
                self._begin(_OpenThought(mark.closes, f"{self._space}{opened[0]}", mark.unsure, mark.unsure))
            if not mark.unsure:
                self._note_mark()
        elif closed := self._match_close(starts_line=True):
            self._note_mark()
            self._at = closed.end()
        else:
            first = self._buffer[self._at]
            self._is_json = first in "{["
            if self.has_marks or first in "{[`":
                self._pending_text = None
            self._emit_text(self._space)
            self._space, self._state = "", self._read_text
        return True

    def _read_thought(self) -> bool:
        """Read a thought, up to the mark that closes it."""
        closed, opened = self._find(self._open.closes), self._open
        stop = len(self._buffer) if closed is None else closed.start()
        self._think(self._buffer[self._at : stop])
        self._at = stop
        if closed is None:
            if self._is_last and opened.may_be_text:
                self._emit_text("".join([opened.opening, *self._body]))
            return False
        if closed.partial:
            raise _NeedMore
        if opened.between and not self._ends_line(closed.end()):
            self._emit_text("".join([opened.opening, *self._body, closed[0]]))
        else:
            if opened.held:
                self._pass_on("".join(self._body))
            self.opened_by_prompt = self.opened_by_prompt or (opened.may_be_text and not opened.held)
            self._note_mark()
        self._within, self._gap = False, ""
        self._at, self._state = closed.end(), self._read_text if opened.between else self._read_start
        return True

    def _read_text(self) -> bool:
        """Read text, up to what may be a mark in it. All of JSON is text."""
        if self._is_json:
            found = self._find(self._ends) if self._ends else None
        else:
            found = _STOPS.search(self._buffer, self._at)
        stop = len(self._buffer) if found is None else found.start()
        self._emit_text(self._buffer[self._at : stop])
        self._at = stop
        if found is None:
            return False
        if self._buffer[stop : stop + 1] == "\n" or not self._read_mark():
            self._emit_text(self._buffer[self._at])
            self._at += 1
        return True

    def _read_mark(self) -> bool:
        """Read a mark in the text, if one stands here."""
        if self._ends and (ended := self._match(self._ends)):
            if ended.end() == self._at:  # Another part begins, perhaps of a kind that is text, as a call is.
                self._ends = ""
            self._at, self._state = ended.end(), self._read_start
            return True
        if self._is_json or self._fence or self._line.count("`") % 2:
            return False
        starts_line = len(self._line) <= _INDENT and not self._line.strip(" \t")
        if opened := self._match(_OPENS_BETWEEN):
            self._pending_text = None
            if not starts_line and not self._is_before_json(opened.end()):
                return False
            self._at = opened.end()
            closes = f"{_TAG_CLOSES}|{_TOKEN_CLOSES}"
            self._begin(_OpenThought(closes, opened[0], may_be_text=True, held=True, between=True))
            return True
        if self._pending_text is None or not (closed := self._match_close(starts_line=starts_line)):
            return False
        self._parts.append(ReplyPart(PartKind.WITHDRAWN, thought := "".join(self._pending_text).strip()))
        self._thought_before, self.opened_by_prompt = bool(thought), True
        self._note_mark()
        self._at, self._state = closed.end(), self._read_start
        return True

    # -- thoughts ---------------------------------------------------------------------------------------------------

    def _begin(self, opened: _OpenThought) -> None:
        self._open, self._body, self._state = opened, [], self._read_thought

    def _note_mark(self) -> None:
        self.has_marks, self._pending_text, self._space = True, None, ""

    def _think(self, content: str) -> None:
        if self._open.may_be_text:
            self._body.append(content)
        if not self._open.held:
            self._pass_on(content)

    def _pass_on(self, content: str) -> None:
        """Pass on a thought, without the white space around it."""
        if not self._within:
            content = content.lstrip()
            self._gap = "\n\n" if self._thought_before else ""
        if not (body := content.rstrip()):
            self._gap += content
            return
        self._parts.append(ReplyPart(PartKind.THOUGHT, f"{self._gap}{body}"))
        self._within = self._thought_before = True
        self._gap = content[len(body) :]

    # -- text -------------------------------------------------------------------------------------------------------

    def _skip_space(self) -> bool:
        """Skip white space before the text; return whether something else has come."""
        rest = self._buffer[self._at :].lstrip()
        place = len(self._buffer) - len(rest)
        self._space += "" if self.has_marks else self._buffer[self._at : place]
        self._at = place
        if not rest and self._is_last:
            self._emit_text(self._space)
            self._space = ""
        return bool(rest)

    def _emit_text(self, content: str) -> None:
        """Pass on text, and note what its last line begins with."""
        if not content:
            return
        self._parts.append(ReplyPart(PartKind.TEXT, content))
        if self._pending_text is not None:
            self._pending_text.append(content)
        self._last_character = content[-1]
        *lines, last = content.split("\n")
        for line in lines:
            self._end_line(self._line + line)
            self._line = ""
        # Of a long line only its code counts from here on.
        self._line += last if len(self._line) <= _INDENT else "`" * (last.count("`") % 2)

    def _end_line(self, line: str) -> None:
        if fence := _FENCE_LINE.match(line):
            if not self._fence:
                self._fence = fence["marks"]
            elif fence["marks"].startswith(self._fence) and not fence["info"].strip():
                self._fence = ""

    def _is_before_json(self, place: int) -> bool:
        """Return whether a thought that begins in the middle of a line ends right before JSON, if that can be known."""
        if self._is_last and self._next_close < place:
            closed = _compile(_CLOSES).search(self._buffer, place)
            self._next_close = len(self._buffer) if closed is None else closed.end()
        if not self._is_last or self._next_close == len(self._buffer):
            return False
        blanks = _BLANKS.match(self._buffer, self._next_close)
        return blanks is not None and self._buffer[blanks.end() : blanks.end() + 1] in ("{", "[")

    # -- matching ---------------------------------------------------------------------------------------------------

    def _match_close(self, *, starts_line: bool) -> Any:
        """Match a mark that closes thoughts: at the end of its line, or where it could be nothing else."""
        closed = self._match(_CLOSES)
        sure = closed and (self.has_marks or (starts_line and closed["token"]))
        return closed if sure or (closed and (self._ends_line(closed.end()) or self._is_glued(closed.end()))) else None

    def _ends_line(self, place: int) -> bool:
        """Return whether a line ends at a place, or the JSON begins that was asked for."""
        blanks = _BLANKS.match(self._buffer, place)
        assert blanks is not None, "it matches nothing too"
        if blanks.end() == len(self._buffer) and not self._is_last:
            raise _NeedMore
        return self._buffer[blanks.end() : blanks.end() + 1] in ("", "\n", "{", "[")

    def _is_glued(self, place: int) -> bool:
        """Return whether text stands right before and after a mark: one that is mentioned has spaces or quotes."""
        return bool(_GLUED_BEFORE.match(self._last_character) and _GLUED_AFTER.match(self._buffer, place))

    def _match(self, pattern: str) -> Any:
        if not _may_be_mark(self._buffer, self._at):
            return None
        found = _compile(pattern).match(self._buffer, self._at, partial=not self._is_last)
        if found is not None and found.partial:
            raise _NeedMore
        return found

    def _find(self, pattern: str) -> Any:
        """Find the first match from here on, perhaps a partial one at the end."""
        return _compile(pattern).search(self._buffer, self._at, partial=not self._is_last)


def _may_be_mark(text: str, place: int) -> bool:
    """Return whether a mark may begin at a place of a text: at its end any may."""
    if text[place : place + 1] in _SIGNS:
        return True
    begun = text[place : place + max(map(len, _WORDS))].lower()
    return any(begun.startswith(each[: len(begun)]) for each in _WORDS)


@cache
def _compile(pattern: str) -> Any:
    """Compile with the library that can say whether the end of a text may be the beginning of a match."""
    import regex  # Here, since few replies have marks: it takes 30 ms to load.

    return regex.compile(pattern, regex.IGNORECASE)


def find_fences(text: str) -> Iterator[tuple[int, int]]:
    """Yield where the fenced blocks of a text begin and end, fences included; one that is not closed ends with it."""
    opened: re.Match[str] | None = None
    for line in _FENCE_LINE.finditer(text):
        if opened is None:
            opened = line
        elif line["marks"].startswith(opened["marks"]) and not line["info"].strip():
            yield opened.start(), line.end()
            opened = None
    if opened is not None:
        yield opened.start(), len(text)
