"""From a model's text to the value it stands for: find the JSON, validate it, say what is wrong with it."""

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
"""What models call the one key they put around the object that was asked for, besides its own name."""

_DECODER = json.JSONDecoder(strict=False, parse_constant=lambda _: None)
"""Reads line breaks inside texts, and NaN and Infinity, which no field can hold, as left out."""

_MAX_REPORTED = 3
_MAX_TRIED = 1_000
"""Opening braces tried in one text; each may cost a pass over it, and the event loop waits meanwhile."""


class UnreadableReply(ValueError):
    """A model's reply is not what was asked for. The text is for the model: it says what is wrong. ``reply`` is what it
    wrote."""

    def __init__(self, problem: str, reply: str = "") -> None:
        super().__init__(problem)
        self.reply = reply


@cache
def schema_text(kind: type[BaseModel]) -> str:
    """The JSON schema of a reply, as a prompt shows it."""
    return json.dumps(kind.model_json_schema(), ensure_ascii=False)


@cache
def shape_text(kind: type[BaseModel]) -> str:
    """The shape of a reply with what each field is for in its place: `{"summary": "<the result>", ...}`.

    For a model that answers after using tools: small ones repeat a schema instead of filling it.
    """
    schema = kind.model_json_schema()
    return json.dumps(_places(schema["properties"], schema.get("$defs", {})), ensure_ascii=False)


def _places(fields: dict[str, Any], parts: dict[str, Any]) -> dict[str, Any]:
    return {name: _place(name, definition, parts) for name, definition in fields.items()}


def _place(name: str, definition: dict[str, Any], parts: dict[str, Any]) -> Any:
    place = f"<{definition.get('description', name)}>"
    if definition.get("type") != "array":
        return place
    inner = parts.get(definition["items"].get("$ref", "").rpartition("/")[2])
    return [_places(inner["properties"], parts) if inner else place]


@cache
def construct_unchecked(kind: type[BaseModel]) -> type[BaseModel]:
    """A class to ask a server for `kind` with: its schema, but it takes any text.

    OpenAI's SDK validates a structured reply itself and raises on one that is wrong (openai 3.54,
    `chat.completions.parse`); a wrong reply must come back instead, to be repaired.
    """

    def schema(cls: type[BaseModel], *args: Any, **options: Any) -> dict[str, Any]:
        return kind.model_json_schema(*args, **options)

    def anything(cls: type[BaseModel], *args: Any, **options: Any) -> BaseModel:
        return cls.model_construct()

    methods = {"model_json_schema": classmethod(schema), "model_validate_json": classmethod(anything)}
    return type(kind.__name__, (BaseModel,), {**methods, "__module__": __name__})


def parse_reply(text: str, kind: type[T]) -> T:
    """The value in `text`: the text itself, a fenced block, or the first JSON object in it that fits (S0-63).

    What the model thinks before it replies is no reply. An object inside a single key (``{"result": {...}}``), and JSON
    that is sent as a JSON string, are read like the object itself.

    Raises:
        UnreadableReply: there is no JSON object, or none that fits; with the first problems.
    """
    problems: list[str] = []
    reply = _reply_in(text)
    for found in _objects(reply):
        if isinstance(found, str):
            problems.append(found)
            continue
        try:
            return kind.model_validate(_unwrapped(found, kind))
        except ValidationError as error:
            problems.append(_misfit(error))
    nothing = "it holds no JSON object" + (" (names and texts need double quotes)" if "{" in reply else "")
    raise UnreadableReply(problems[0] if problems else nothing)


def _misfit(error: ValidationError) -> str:
    return "; ".join(
        f"{'.'.join(str(part) for part in each['loc']) or 'object'}: {each['msg']}"
        for each in error.errors(include_url=False, include_input=False)[:_MAX_REPORTED]
    )


def _reply_in(text: str) -> str:
    """The text without byte order mark and without the thoughts before it, and what it stands for if it is quoted."""
    text, start = _unquoted(text.strip("\ufeff \t\r\n")), 0
    while _OPENED.match(text, start):
        closed = _CLOSED.search(text, start)
        start = closed.end() if closed else len(text)
    if not text.startswith(("{", "[", "`"), start):
        closed = _CLOSED.search(text, start)  # The tag that opens them is often part of the prompt.
        start = closed.end() if closed and "{" in text[closed.end() :] else start
    return _unquoted(text[start:].strip())


def _unquoted(text: str) -> str:
    """The string that `text` is as JSON, or `text` itself where it is none."""
    if not text.startswith('"'):
        return text
    try:
        value = _DECODER.decode(text)
    except ValueError:
        return text
    return value if isinstance(value, str) else text


def _unwrapped(found: dict[str, Any], kind: type[BaseModel]) -> Any:
    """What is inside the one key of `found` if that is only a name for the whole, else `found` itself."""
    if len(found) != 1:
        return found
    ((name, inner),) = found.items()
    word = name.replace("_", "").lower()
    if name in kind.model_fields or not (_WRAPPERS.fullmatch(word) or word == kind.__name__.lower()):
        return found
    if isinstance(inner, str):
        inner = next(_objects(inner), None)
    return inner if isinstance(inner, dict) else found


def _objects(text: str) -> Iterator[dict[str, Any] | str]:
    """The text's JSON objects, those in fenced blocks first; for one that is broken, what is wrong with it."""
    fenced = [] if text.startswith("{") else _FENCE.findall(text)
    for part in [*fenced, text]:
        yield from _outermost(part)


def _outermost(text: str) -> Iterator[dict[str, Any] | str]:
    """Objects in order. What lies inside one, or in a broken one up to the break, is none: a part is not the reply."""
    start = text.find("{")
    for _ in range(_MAX_TRIED):
        if start == -1:
            return
        try:
            value, end = _DECODER.raw_decode(text, start)
            yield value
        except json.JSONDecodeError as error:
            end = max(error.pos, start + 1)
            if error.pos > start + 1:  # else it is a brace in prose
                yield f"its JSON is broken: {error}"
        except RecursionError:
            yield "its JSON is nested too deeply"
            return
        except ValueError as error:  # an integer of more digits than Python reads
            yield f"its JSON cannot be read: {error}"
            return
        start = text.find("{", end)
