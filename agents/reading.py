"""From a model's text to the value it stands for: find the JSON, validate it, say what is wrong with it."""

from __future__ import annotations

import json
import re
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

T = TypeVar("T", bound=BaseModel)

_FENCE = re.compile(r"```(?:json)?\s*\n(.*?)```", re.DOTALL | re.IGNORECASE)
_MAX_REPORTED = 3


class UnreadableReply(ValueError):
    """A model's reply is not what was asked for. The text is for the model: it says what is wrong."""


def schema_text(kind: type[BaseModel]) -> str:
    """The JSON schema of a reply, as a prompt shows it."""
    return json.dumps(kind.model_json_schema(), ensure_ascii=False)


def read_reply(text: str, kind: type[T]) -> T:
    """The value in `text`: the text itself, a fenced block, or the first JSON object in it that fits (S0-63).

    Raises:
        UnreadableReply: there is no JSON object, or none that fits; with the first problems.
    """
    problem: ValidationError | None = None
    for candidate in _objects(text):
        try:
            return kind.model_validate(candidate)
        except ValidationError as error:
            problem = problem or error
    if problem is None:
        raise UnreadableReply("it holds no JSON object")
    found = [
        f"{'.'.join(str(part) for part in each['loc']) or 'object'}: {each['msg']}"
        for each in problem.errors()[:_MAX_REPORTED]
    ]
    raise UnreadableReply("; ".join(found))


def _objects(text: str) -> list[dict[str, Any]]:
    found = []
    for part in [text, *_FENCE.findall(text)]:
        value = _loaded(part.strip())
        if isinstance(value, dict):
            found.append(value)
    return found or _embedded(text)


def _loaded(text: str) -> Any:
    try:
        return json.loads(text, strict=False)
    except (json.JSONDecodeError, RecursionError):
        return None


def _embedded(text: str) -> list[dict[str, Any]]:
    """The outermost JSON objects inside prose, in order."""
    decoder, found, start = json.JSONDecoder(strict=False), [], text.find("{")
    while start != -1:
        try:
            value, end = decoder.raw_decode(text, start)
        except (json.JSONDecodeError, RecursionError):
            end = start + 1
        else:
            found.append(value)
        start = text.find("{", end)
    return found
