"""Parse a model's text into a value: find the JSON, validate it, report errors."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

T = TypeVar("T", bound=BaseModel)

_FENCE = re.compile(r"```(?:json)?[ \t\r]*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_THINKING = r"(?:think|thinking|thought|reasoning)>"
_OPENED = re.compile(rf"\s*<{_THINKING}", re.IGNORECASE)
_CLOSED = re.compile(rf"</{_THINKING}", re.IGNORECASE)
_WRAPPERS = re.compile("answer|classification|clarification|data|json|output|plan|reply|report|response|result")
"""The names, besides its own, of a single key that models put around the requested object."""

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


def parse_reply(text: str, kind: type[T]) -> T:
    """Return the value in `text`: the first JSON object in it that fits (S0-63), repaired if its syntax is wrong.

    The model's thoughts before the reply are ignored. An object inside a single key (``{"result": {...}}``), and JSON
    that is sent as a JSON string, are read like the object itself.

    Raises:
        UnreadableReply: there is no JSON object, or none that fits; names the first problem.
    """
    problems: list[str] = []
    for found in find_objects(drop_thoughts(text)):
        if isinstance(found, str):
            problems.append(found)
            continue
        try:
            return kind.model_validate(_unwrap(found, kind))
        except ValidationError as error:
            problems.append(describe_misfit(error))
    raise UnreadableReply(problems[0] if problems else "it holds no JSON object")


def describe_misfit(error: ValidationError) -> str:
    """Return the first problems of a value that does not fit, in one line."""
    return "; ".join(
        f"{'.'.join(str(part) for part in each['loc']) or 'object'}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False)[:_MAX_REPORTED]
    )


def drop_thoughts(text: str) -> str:
    """Return the text without byte order mark and without the thoughts before it, unquoted if it is a JSON string."""
    text, start = _unquote(text.strip("\ufeff \t\r\n")), 0
    while _OPENED.match(text, start):
        closed = _CLOSED.search(text, start)
        start = closed.end() if closed else len(text)
    if not text.startswith(("{", "[", "`"), start):
        closed = _CLOSED.search(text, start)  # The tag that opens them is often part of the prompt.
        start = closed.end() if closed and "{" in text[closed.end() :] else start
    return _unquote(text[start:].strip())


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
    if name in kind.model_fields or not (_WRAPPERS.fullmatch(word) or word == kind.__name__.lower()):
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
