"""Arguments of tool calls that mean one thing only, in another form than the tool's schema wants.

A value that is legal as it is is never changed. What could mean two things, or is broken off, goes back to the model
with the error. Mended where a reply comes in, so that what is shown, approved and recorded is what is made.
"""

from __future__ import annotations

import ast
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import CreateResult
from autogen_core.tools import Tool, ToolSchema

from upcall.lazy_pattern import LazyPattern
from upcall.questions.json_values import list_fields, list_required, look_up
from upcall.text import one_line

_log = logging.getLogger("upcall")

_FENCE = LazyPattern(r"\s*(?P<marks>`{3,}|~{3,})[ \t]*\w*[ \t\r]*\n(?P<inside>.*?)\n?[ \t]*(?P=marks)\s*", re.DOTALL)
_TRAILING_COMMA = LazyPattern(r'("(?:[^"\\]|\\.)*+(?:"|\Z))|,(?=\s*[}\]])', re.DOTALL)
_MARKS = LazyPattern(r"(?:\s*(?:<\|[^|<>]{1,40}\|>|</?(?:tool_call|function_call|arguments)>))+\s*\Z")
"""Marks of chat templates after the arguments, which some servers leave in them."""

_INTEGER = LazyPattern(r"-?(?:0|[1-9]\d{0,17})")
_NUMBER = LazyPattern(r"-?(?:0|[1-9]\d{0,17})(?:\.\d{1,17})?(?:[eE][+-]?\d{1,2})?")
_BOOLEANS: Mapping[str, bool] = {"true": True, "false": False}
_WRAPPERS = ("arguments", "args", "input", "kwargs", "parameters", "params")
"""The names that models put around arguments."""

_MAX_CHARS = 100_000
"""Broken arguments that are longer are not mended: reading them would hold up others."""

_MAX_DEPTH = 8

_DECODER = json.JSONDecoder(strict=False)
_MISSING = object()


@dataclass
class _Notes:
    """What was mended, for the log."""

    repairs: list[str] = field(default_factory=list)

    def add(self, where: str, what: str) -> None:
        self.repairs.append(f"{where}: {what}" if where else what)


def mend_reply(reply: CreateResult, tools: Iterable[Tool | ToolSchema], agent: str) -> CreateResult:
    """Return the reply with the arguments of its calls mended by the schemas of the `tools`; what was mended is
    logged."""
    if isinstance(reply.content, str) or not reply.content:
        return reply
    calls = mend_calls(reply.content, tools, agent)
    return reply if calls == reply.content else reply.model_copy(update={"content": calls})


def mend_calls(calls: Iterable[FunctionCall], tools: Iterable[Tool | ToolSchema], agent: str) -> list[FunctionCall]:
    """Return the calls of an agent with their arguments mended."""
    by_name = {each["name"] if isinstance(each, Mapping) else each.name: each for each in tools}
    return [_mend_call(call, by_name.get(call.name), agent) for call in calls]


def _mend_call(call: FunctionCall, tool: Tool | ToolSchema | None, agent: str) -> FunctionCall:
    schema: Mapping[str, Any] = {} if tool is None else tool if isinstance(tool, Mapping) else tool.schema
    arguments, notes = mend_arguments(call.arguments, schema.get("parameters") or {}, call.name)
    if notes:
        _log.info("%s: mended the arguments of %s: %s", agent, one_line(str(call.name), 64), "; ".join(notes))
    return call if arguments == call.arguments else replace(call, arguments=arguments)


def mend_arguments(
    given: str | Mapping[str, Any] | None, schema: Mapping[str, Any], tool: str = ""
) -> tuple[str, list[str]]:
    """Return the arguments of a call, as JSON of an object where they can be read in one way, and what was mended.

    Some clients send an object in place of its JSON, or nothing. With the name of the `tool` a whole call in place of
    its arguments is one of it.
    """
    text = json.dumps(given, ensure_ascii=False, default=str) if isinstance(given, Mapping) else given
    if text is None or not text.strip():
        return "{}", []
    notes = _Notes()
    value = _read(text, notes)
    if isinstance(value, str):
        value = _read_twice_encoded(value, notes)
    if value is None:
        notes.add("", "null for no arguments")
        value = {}
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], dict):
        notes.add("", "a list around the arguments")
        value = value[0]
    if not isinstance(value, dict):
        return text, []
    with suppress(RecursionError):
        value = _unwrap(value, schema, tool, notes)
        value = _mend_object(value, schema, schema, "", notes, 0)
    return (json.dumps(value, ensure_ascii=False), notes.repairs) if notes.repairs else (text, [])


def _read(text: str, notes: _Notes) -> Any:
    """Return the value of a text that is JSON and nothing else, or nearly; `_MISSING` for any other."""
    with suppress(ValueError, RecursionError):
        return json.loads(text)
    if len(text) > _MAX_CHARS:
        return _MISSING
    inside = found["inside"] if (found := _FENCE.fullmatch(text)) else text
    for what, attempt in _attempts(inside.strip().strip("\ufeff")):
        with suppress(ValueError, RecursionError, SyntaxError, MemoryError, TypeError):
            value = json.loads(json.dumps(attempt(), allow_nan=False))
            notes.add("", "a fence" if found and what == "line breaks in a text" else what)
            return value
    return _MISSING


def _attempts(text: str) -> Iterator[tuple[str, Any]]:
    text = _MARKS.sub("", text)
    yield "line breaks in a text", lambda: _DECODER.decode(text)
    yield "sent again", lambda: _read_repeated(text)
    yield "a trailing comma", lambda: _DECODER.decode(drop_trailing_commas(text))
    yield "written as Python", lambda: ast.literal_eval(text) if text.startswith("{") else _fail()


def _read_repeated(text: str) -> Any:
    """Return the value that a text contains several times and nothing else."""
    value, end = _DECODER.raw_decode(text)
    while rest := text[end:].lstrip():
        again, length = _DECODER.raw_decode(rest)
        if again != value:
            raise ValueError
        end = len(text) - len(rest) + length
    return value


def drop_trailing_commas(text: str) -> str:
    """Return JSON without the commas after the last item of a list or an object."""
    return _TRAILING_COMMA.sub(lambda found: found[1] or "", text)


def _fail() -> Any:
    raise ValueError


def _read_twice_encoded(value: str, notes: _Notes) -> Any:
    inner = _read(value, notes)
    inner = _read(inner, notes) if isinstance(inner, str) else inner
    if not isinstance(inner, dict):
        return value
    notes.add("", "encoded twice")
    return inner


def _unwrap(value: dict[str, Any], schema: Mapping[str, Any], tool: str, notes: _Notes) -> dict[str, Any]:
    """Return what a single key contains that the schema does not have, or the arguments of a whole call of the tool."""
    fields = list_fields(schema)
    named = [name for name in ("name", "tool", "function") if tool and value.get(name) == tool and name not in fields]
    left = {name: inner for name, inner in value.items() if name not in named}
    if len(left) != 1 or not fields or schema.get("additionalProperties"):
        return value
    ((name, inner),) = left.items()
    if name not in _WRAPPERS or name in fields:
        return value
    inner = _read(inner, _Notes()) if isinstance(inner, str) else inner
    if not isinstance(inner, dict) or not inner.keys() <= fields.keys():
        return value
    notes.add("", f"{name!r} around the arguments")
    return inner


def _spell(value: dict[str, Any], fields: Mapping[str, Any], where: str, notes: _Notes) -> dict[str, Any]:
    """Return an object with the names of the schema where only their spelling differs: ``filePath``, ``File-Path``."""
    known = [name for name in fields if name not in value]
    spelled = {}
    for name, each in value.items():
        alike = [one for one in known if name not in fields and _simplify(one) == _simplify(name)]
        if len(alike) == 1 and [_simplify(other) for other in value].count(_simplify(name)) == 1:
            notes.add(where, f"{name!r} read as {alike[0]!r}")
            name = alike[0]
        spelled[name] = each
    return spelled


def _simplify(name: str) -> str:
    return re.sub(r"[\W_]", "", name).casefold()


def _mend_object(
    value: dict[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], where: str, notes: _Notes, depth: int
) -> dict[str, Any]:
    fields, required = list_fields(schema), list_required(schema)
    mended = {}
    if not (schema.get("additionalProperties") or value.keys() <= fields.keys()):
        value = _spell(value, fields, where, notes)
    for name, each in value.items():
        if name in fields:
            place = f"{where}.{name}" if where else name
            each = _mend_value(each, fields[name], root, place, notes, depth, optional=name not in required)
        if each is not _MISSING:
            mended[name] = each
    return mended


def _mend_value(
    value: Any,
    schema: Any,
    root: Mapping[str, Any],
    where: str,
    notes: _Notes,
    depth: int,
    *,
    optional: bool = False,
) -> Any:
    """Return a value as its schema wants it, `_MISSING` for one that is left out, else the value itself."""
    branches = list(_list_branches(schema, root))
    kinds = {kind for branch in branches for kind in _list_kinds(branch)}
    if not kinds or depth > _MAX_DEPTH:
        return value
    if not _list_kinds_of(value) & kinds:
        other = _read_as(value, kinds, optional=optional)
        if other is value:
            return value
        notes.add(where, "left out" if other is _MISSING else f"{type(value).__name__} read as {type(other).__name__}")
        value = other
    return _mend_inside(value, branches, root, where, notes, depth)


def _mend_inside(
    value: Any, branches: list[Mapping[str, Any]], root: Mapping[str, Any], where: str, notes: _Notes, depth: int
) -> Any:
    if isinstance(value, str):
        return _read_choice(value, branches, where, notes)
    wanted = "object" if isinstance(value, dict) else "array" if isinstance(value, list) else None
    fitting = [each for each in branches if wanted in _list_kinds(each)]
    if len(fitting) != 1:
        return value  # A plain value, or one of several forms.
    if isinstance(value, dict):
        return _mend_object(value, fitting[0], root, where, notes, depth + 1)
    items = fitting[0].get("items")
    return [_mend_value(each, items, root, f"{where}[{at}]", notes, depth + 1) for at, each in enumerate(value)]


def _read_choice(value: str, branches: list[Mapping[str, Any]], where: str, notes: _Notes) -> str:
    """Return the one of the texts that are allowed which a text is in another case, else the text itself."""
    texts = [each for each in branches if "string" in _list_kinds(each)]
    choices = [_list_choices(each) for each in texts]
    if not texts or None in choices:
        return value  # Any text is allowed.
    allowed = [each for values in choices for each in values or ()]
    alike = [each for each in allowed if isinstance(each, str) and each.casefold() == value.strip().casefold()]
    if value in allowed or len(alike) != 1:
        return value
    notes.add(where, f"read as {alike[0]!r}")
    return alike[0]


def _read_as(value: Any, kinds: set[str], *, optional: bool) -> Any:
    """Return a value of another kind as one of these, if it can only mean that; else the same object."""
    if value is None:
        return _MISSING if optional else value
    if isinstance(value, int | float) and not isinstance(value, bool) and kinds <= {"string", "null"}:
        return json.dumps(value)
    if not isinstance(value, str):
        return value
    text = value.strip()
    if not text:
        return _MISSING if optional else value
    if "boolean" in kinds and text.lower() in _BOOLEANS:
        return _BOOLEANS[text.lower()]
    if kinds & {"integer", "number"} and _INTEGER.fullmatch(text):
        return int(text)
    if "number" in kinds and _NUMBER.fullmatch(text):
        return float(text)
    if "null" in kinds and text == "null":
        return None
    inner = _read(text, _Notes())
    if (isinstance(inner, list) and "array" in kinds) or (isinstance(inner, dict) and "object" in kinds):
        return inner
    return value


def _list_branches(schema: Any, root: Mapping[str, Any], depth: int = 0) -> Iterator[Mapping[str, Any]]:
    """Yield the forms that a schema allows, references resolved. One that says nothing of its kind allows any."""
    if not isinstance(schema, Mapping) or depth > _MAX_DEPTH:
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        yield from _list_branches(look_up(reference, root), root, depth + 1)
        return
    choices = schema.get("anyOf") or schema.get("oneOf")
    if not isinstance(choices, list):
        yield schema
        return
    for each in choices:
        yield from _list_branches(each, root, depth + 1)


def _list_choices(schema: Mapping[str, Any]) -> list[Any] | None:
    """Return the values that one form allows; None where it does not say."""
    values = [schema["const"]] if "const" in schema else schema.get("enum")
    return values if isinstance(values, list) else None


_ANY = frozenset({"array", "boolean", "integer", "null", "number", "object", "string"})


def _list_kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    """Return the kinds of values that one form allows; all if it does not say."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(map(str, kind))
    values = _list_choices(schema)
    return _ANY if values is None else frozenset().union(*map(_list_kinds_of, values))


def _list_kinds_of(value: Any) -> frozenset[str]:
    match value:
        case None:
            return frozenset({"null"})
        case bool():
            return frozenset({"boolean"})
        case int():
            return frozenset({"integer", "number"})
        case float():
            return frozenset({"integer", "number"} if value.is_integer() else {"number"})
        case str():
            return frozenset({"string"})
        case list():
            return frozenset({"array"})
    return frozenset({"object"})
