"""Parse a model's text into a value: find the JSON, validate it, report errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from upcall.autogen.structured_text import WRAPPERS
from upcall.autogen.thoughts import split_thoughts
from upcall.lazy_pattern import LazyPattern

T = TypeVar("T", bound=BaseModel)

_FENCE = LazyPattern(r"```(?:json)?[ \t\r]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_WHOLE_FENCE = LazyPattern(r"(?:`{3,}|~{3,})[ \t]*[\w-]*[ \t\r]*\n(.*?)(?:`{3,}|~{3,})?", re.DOTALL)
_OWN_LINES = LazyPattern(r"^[ \t]*(\{.*?\})[ \t]*$", re.DOTALL | re.MULTILINE)
_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
"""Accepts line breaks inside texts; drops NaN and Infinity, which no field can contain."""

_MAX_REPORTED = 3
_MAX_TRIED = 1_000
"""The maximum number of opening braces tried in one text; each may cost a pass over it, which blocks the event loop."""

_MAX_REPAIRED_CHARS = 100_000
"""A longer text is not repaired: that takes a second for each megabyte."""


class UnreadableReply(ValueError):
    """A model's reply is not what was requested. The text tells the model what is wrong; ``reply`` is what it wrote."""

    def __init__(self, problem: str, reply: str = "") -> None:
        super().__init__(problem)
        self.reply = reply


@cache
def schema_text(kind: type[BaseModel]) -> str:
    """Return the JSON schema of a reply, as shown in a prompt."""
    return json.dumps(kind.model_json_schema(), ensure_ascii=False)


def parse_reply(text: str, kind: type[T], *, alone: bool = False) -> T:
    """Return the value in `text`: the first JSON object in it that fits (S0-63), repaired if its syntax is wrong.

    The model's thoughts are ignored. An object inside a single key (``{"result": {...}}``), and JSON that is sent as a
    JSON string, are read like the object itself. With `alone` the text must be JSON and nothing else.

    Raises:
        UnreadableReply: there is no JSON object, or none that fits; names the first problem. Or a fenced object that
            fits stands beside another one that does: one of them is an example.
    """
    text, problems = drop_thoughts(text), list[str]()
    for found in find_objects(text) if _is_json(text) or not alone else ():
        if isinstance(found, str):
            problems.append(found)
            continue
        try:
            value = kind.model_validate(_unwrap(found, kind))
        except ValidationError as error:
            problems.append(describe_misfit(error))
            continue
        if any(other != value for other in _list_beside(text, kind)):
            raise UnreadableReply("it holds several JSON objects that differ; reply with the one that you mean, alone")
        return value
    raise UnreadableReply(problems[0] if problems else "it holds no JSON object")


def _is_json(text: str) -> bool:
    """Return whether a text is JSON, possibly broken or in a fence, without other words before, between or after."""
    if whole := _WHOLE_FENCE.fullmatch(text):
        text = whole[1].strip()
    place = 0
    while place < len(text):
        if text[place] not in "{[":
            return False
        try:
            _, place = _DECODER.raw_decode(text, place)
        except (ValueError, RecursionError):
            return text.endswith(("}", "]"))
        place += len(text[place:]) - len(text[place:].lstrip(" \t\r\n,"))
    return bool(text)


def _list_beside(text: str, kind: type[T]) -> list[T]:
    """Return the values that fit in fenced blocks, and on lines of their own beside these; none without a fence."""
    fenced = [] if text.startswith("{") else _FENCE.findall(text)
    if not fenced:
        return []
    outside = [found[1] for found in _OWN_LINES.finditer(_FENCE.sub("\n", text))]
    values: list[T] = []
    for part in [*fenced, *outside]:
        with suppress(UnreadableReply):
            values.append(parse_reply(part, kind, alone=True))
    return values


def describe_misfit(error: ValidationError) -> str:
    """Return the first problems of a value that does not fit, in one line."""
    return "; ".join(
        f"{'.'.join(str(part) for part in each['loc']) or 'object'}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False)[:_MAX_REPORTED]
    )


def drop_thoughts(text: str) -> str:
    """Return the text without byte order mark and without thoughts, unquoted if it is a JSON string."""
    return _unquote(split_thoughts(_unquote(text.strip("\ufeff \t\r\n"))).text.strip())


def _unquote(text: str) -> str:
    if not text.startswith('"'):
        return text
    try:
        value = _DECODER.decode(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def _unwrap(found: dict[str, Any], kind: type[BaseModel]) -> Any:
    """Return the content of the single key of `found` if that is only a wrapper, else `found` itself."""
    if len(found) != 1:
        return found
    ((name, inner),) = found.items()
    word = name.replace("_", "").lower()
    if name in kind.model_fields or not (WRAPPERS.fullmatch(word) or word == kind.__name__.lower()):
        return found
    if isinstance(inner, str):
        inner = next(find_objects(inner), None)
    return inner if isinstance(inner, dict) else found


def find_objects(text: str) -> Iterator[dict[str, Any] | str]:
    """Yield the text's JSON objects, those in fenced blocks first; for a broken one, its problem."""
    fenced = [] if text.startswith("{") else _FENCE.findall(text)
    for part in [*fenced, text]:
        yield from _outermost(part)


def _outermost(text: str) -> Iterator[dict[str, Any] | str]:
    """Yield the outermost objects in order, then the broken ones repaired.

    Objects inside another object, or inside the intact part of a broken one, do not count: a part is not the reply.
    """
    start, broken = text.find("{"), False
    for _ in range(_MAX_TRIED):
        if start == -1:
            break
        try:
            value, end = _DECODER.raw_decode(text, start)
            yield value
        except json.JSONDecodeError as error:
            end = max(error.pos, start + 1)
            broken = True
            if error.pos > start + 1:  # Else it is a brace in prose.
                yield f"its JSON is broken: {error}"
        except RecursionError:
            yield "its JSON is nested too deeply"
            return
        except ValueError as error:  # An integer of more digits than Python reads.
            yield f"its JSON cannot be read: {error}"
            return
        start = text.find("{", end)
    if broken:
        yield from _repair(text)


def _repair(text: str) -> Iterator[dict[str, Any]]:
    """Yield the objects of a text with wrong syntax. A truncated one is not completed: half a plan is not a plan."""
    broken_off = text.count("{") != text.count("}")
    if broken_off or len(text) > _MAX_REPAIRED_CHARS:
        return
    import json_repair  # Here, since it is needed for a broken reply alone.

    try:
        found = json_repair.loads(text[text.find("{") : text.rfind("}") + 1])
    except (ValueError, RecursionError):
        return
    yield from (each for each in (found if isinstance(found, list) else [found]) if isinstance(each, dict))
