"""A model's thoughts and its text, told apart: the only place that knows how models mark them.

A thought is shown apart from the text. It is never a result, and never read for calls, questions or JSON. Servers with
a parser for their model send thoughts in a field of their own; the others leave them in the text, in tags. The list of
these tags is a list: a model with another tag needs an entry.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from autogen_core.models import CreateResult

_NAMES = r"(?:\w+:)?(?:think|thinking|thought|thoughts|reasoning|reflection)"
_OPENS = rf"<{_NAMES}>|\[THINK\]|◁think▷"
_CLOSES = rf"</{_NAMES}>|\[/THINK\]|◁/think▷"

_TAG = re.compile(rf"(?P<open>{_OPENS})|(?P<close>{_CLOSES})", re.IGNORECASE)
_LEADING = re.compile(rf"\s*(?:(?P<open>{_OPENS})|(?:{_CLOSES}))", re.IGNORECASE)
_CLOSED = re.compile(_CLOSES, re.IGNORECASE)
_LINE_END = re.compile(r"[ \t\r]*(?:\n|\Z|[{\[])")
"""What follows a tag that ends thoughts: a new line, the end, or the JSON that was asked for."""

_FENCE_LINE = re.compile(r"^[ \t]*(?P<marks>`{3,}|~{3,})(?P<info>.*)$", re.MULTILINE)
_CODE = re.compile(r"`[^`\n]+`")
_INDENT = 100
"""How far, in characters, a tag may be indented on its line."""


class Spoken(NamedTuple):
    """What a model thought, and what it said."""

    thought: str
    text: str


def split_thoughts(text: str) -> Spoken:
    """Return the thoughts in a text, and the text without them; one without thoughts is returned unchanged.

    Thoughts stand before the text, or on lines of their own between its paragraphs. If they do not end, all of the rest
    is thought. The tag that opens them is often part of the prompt: then the one that closes them, at the end of a
    line, ends them. Tags in code, in a quoted text or within a sentence are text.
    """
    thoughts, place = list[str](), 0
    while opened := _LEADING.match(text, place):
        if opened["open"]:
            closed = _CLOSED.search(text, opened.end())
            thoughts.append(text[opened.end() : closed.start() if closed else len(text)])
            place = closed.end() if closed else len(text)
        elif thoughts:
            place = opened.end()  # Thoughts within thoughts.
        else:
            break
    rest = text[place:]
    if _TAG.search(rest):
        if not thoughts and (end := _find_end(rest)) is not None:
            thoughts.append(rest[: end.start()])
            rest = rest[end.end() :]
        rest, between = _cut_between(rest)
        thoughts += between
    if not thoughts:
        return Spoken("", text)
    said = [each.strip() for each in thoughts]
    return Spoken("\n\n".join(each for each in said if each), rest.strip())


def separate_thoughts(reply: CreateResult) -> CreateResult:
    """Return the reply with the thoughts of its text in its field `thought`, after those that are there."""
    if not isinstance(reply.content, str):
        return reply
    thought, text = split_thoughts(reply.content)
    if text == reply.content:
        return reply
    known = [each for each in (reply.thought, thought) if each]
    return reply.model_copy(update={"content": text, "thought": "\n\n".join(known) or None})


def _find_end(text: str) -> re.Match[str] | None:
    """Return the tag that ends thoughts whose opening tag is part of the prompt."""
    if text.startswith(("{", "[", "`")):
        return None  # JSON, or code: a tag in it is a value.
    for tag in _TAG.finditer(_mask_code(text)):
        if tag["open"]:
            return None
        if _LINE_END.match(text, tag.end()):
            return tag
    return None


def _cut_between(text: str) -> tuple[str, list[str]]:
    """Return the text without the thoughts on lines of their own in it, or right before JSON, and those."""
    kept, cut, end = list[str](), list[str](), 0
    opened: re.Match[str] | None = None
    for tag in [] if text.startswith(("{", "[")) else _TAG.finditer(_mask_code(text)):
        if tag["open"]:
            opened = opened or tag
        elif opened is not None:
            before = text[max(0, opened.start() - _INDENT) : opened.start()].rstrip(" \t")
            begins_line = not before or before.endswith("\n")
            after = _LINE_END.match(text, tag.end())
            if after and (begins_line or after[0][-1:] in ("{", "[")):
                kept.append(text[end : opened.start()])
                cut.append(text[opened.end() : tag.start()])
                end = tag.end()
            opened = None
    return "".join([*kept, text[end:]]), cut


def _mask_code(text: str) -> str:
    """Return a text of the same length with blanks for what stands in code."""
    parts, end = list[str](), 0
    for start, stop in find_fences(text):
        parts += [text[end:start], " " * (stop - start)]
        end = stop
    return _CODE.sub(lambda code: " " * len(code[0]), "".join([*parts, text[end:]]))


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
