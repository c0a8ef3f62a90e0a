"""`ElicitedForm`: a form that an MCP server asks for, as the person fills it in, and what of that the server gets.

What is drawn is a schema of its own, made of the server's: flat, with names that can be read, without defaults, and
with those rules that a form can show. All the others count too: what would be sent is checked with the schema of the
server.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, TypeAlias

from pydantic import JsonValue

from upcall.errors import UnusableSchema
from upcall.questions.answer_form import MAX_SCHEMA_CHARS, AnswerForm
from upcall.questions.json_values import find_problem, is_entangled, list_required, look_up, resolve_root
from upcall.text import CONTROLS, one_line, unify_minus

_Schema: TypeAlias = dict[str, Any]

_MAX_DEPTH = 10

_RULES = (
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
    *("minLength", "maxLength", "pattern", "minItems", "maxItems", "uniqueItems"),
)
_KINDS = {"string": "a text", "integer": "a whole number", "number": "a number", "boolean": "yes or no"}
_FLAGS = {"yes": True, "no": False}

_MOMENT = "a date and time with its zone, such as 2026-01-31T14:30:00+01:00"
"""What the format ``date-time`` takes. Which zone is meant only the person knows, so none is added."""


@dataclass(frozen=True)
class _ValueSchema:
    """A schema of one value, without a reference.

    Attributes:
        schema: what it says; of null nothing.
        nullable: whether null is allowed too.
        choices: what may be chosen, each value with its title, if it has one.
        kinds: what the value may be, in the server's order, where that is several.
        items: what each value of a list is.
    """

    schema: _Schema
    nullable: bool = False
    choices: tuple[tuple[Any, str | None], ...] | None = None
    kinds: tuple[_ValueSchema, ...] = ()
    items: _ValueSchema | None = None

    @property
    def is_moment(self) -> bool:
        """Whether it is a date and time, or a list of these."""
        return (self.items or self).schema.get("format") == "date-time" and not (self.items or self).kinds


class ElicitedForm:
    """The form of a server.

    Raises:
        UnusableSchema: it cannot be shown.
    """

    def __init__(self, schema: Mapping[str, Any]) -> None:
        if len(json.dumps(schema)) > MAX_SCHEMA_CHARS or is_entangled(schema):
            raise UnusableSchema("it is too long, or has too many alternatives in one another")
        schema = resolve_root(schema)
        if "$ref" in schema or "allOf" in schema:
            raise UnusableSchema("it is made of parts that are not objects")
        properties, required = schema.get("properties"), list_required(schema)
        if not isinstance(properties, dict) or not all(isinstance(each, dict) for each in properties.values()):
            raise UnusableSchema("its fields have no schema")
        self._names = _name_fields(properties)
        needed = [each for each in properties if each in required]
        self._checked = {**schema, "required": needed}
        try:
            self._parts = {shown: self._read_part(properties[name], name) for shown, name in self._names.items()}
            drawn = {shown: _draw_field(self._parts[shown], shown, name) for shown, name in self._names.items()}
        except (TypeError, AttributeError, KeyError, ValueError, RecursionError) as error:
            if isinstance(error, UnusableSchema):
                raise
            raise UnusableSchema("it is not a JSON schema") from error
        needed = [shown for shown, name in self._names.items() if name in needed]
        self.schema: _Schema = {"type": "object", "properties": drawn, "required": needed}
        """What is drawn."""
        AnswerForm.of(self.schema)

    def _read_part(self, schema: Any, name: str, depth: int = 0) -> _ValueSchema:
        if depth > _MAX_DEPTH:
            raise UnusableSchema(f"{_show(name)} refers to itself")
        if schema in (None, True, {}):
            return _ValueSchema({"type": "string"})
        if not isinstance(schema, dict):
            raise UnusableSchema(f"{_show(name)} has no schema")
        if "$ref" in schema:
            rest = {word: each for word, each in schema.items() if word != "$ref"}
            target = look_up(str(schema["$ref"]), self._checked)
            if not isinstance(target, dict):
                raise UnusableSchema(f"{_show(name)} refers to what is not in the schema")
            return self._read_part({**target, **rest}, name, depth + 1)
        if "allOf" in schema:
            rest = {word: each for word, each in schema.items() if word != "allOf"}
            for each in schema["allOf"]:
                part = self._read_part(each, name, depth + 1)
                rest = {**part.schema, **rest}
            return self._read_part(rest, name, depth + 1)
        if not isinstance(schema.get("type", "string"), str | list):
            raise UnusableSchema(f"{_show(name)} has a type that is none")
        if schema.get("format") == "password" or schema.get("writeOnly"):
            raise UnusableSchema(f"{_show(name)} is a secret, which no server may ask for in a form")
        if (choices := _list_choices(schema)) is not None:
            return _ValueSchema(schema, any(value is None for value, _ in choices), choices)
        kinds = [self._read_part(each, name, depth + 1) for each in _list_kinds(schema)]
        plain = [each for each in kinds if each.schema.get("type") != "null"]
        nullable = len(plain) < len(kinds) or any(each.nullable for each in plain)
        if len(plain) == 1:
            only = plain[0]
            return _ValueSchema({**only.schema, **_list_words(schema)}, nullable, only.choices, only.kinds, only.items)
        if plain:
            if not any(each.choices or each.schema.get("type", "string") in _KINDS for each in plain):
                raise UnusableSchema(f"{_show(name)} may be of several kinds, none of which a form shows")
            return _ValueSchema(schema, nullable, kinds=tuple(plain))
        is_list = schema.get("type") == "array"
        return _ValueSchema(schema, items=self._read_part(schema.get("items"), name, depth + 1) if is_list else None)

    def read(self, answer: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """Return what the server gets for what was filled in."""
        return {self._names[shown]: self._read_value(self._parts[shown], value) for shown, value in answer.items()}

    def _read_value(self, part: _ValueSchema, value: JsonValue) -> JsonValue:
        if part.items is not None and isinstance(value, list):
            return [self._read_value(part.items, each) for each in value]
        if part.choices is not None or not isinstance(value, str):
            return value
        for kind in part.kinds:
            for each in (_read_json(value), _write_moment(kind, value)):
                if find_problem({**self._definitions, **kind.schema}, each) is None:
                    return each
        return _write_moment(part, value)

    @property
    def _definitions(self) -> _Schema:
        return {name: self._checked[name] for name in ("$defs", "definitions") if name in self._checked}

    def find_problem(self, content: Mapping[str, JsonValue]) -> str | None:
        """Say what of it the server would not take."""
        for shown, name in self._names.items():
            value = content.get(name)
            for each in value if isinstance(value, list) else [value]:
                if self._parts[shown].is_moment and isinstance(each, str) and _read_moment(each) is None:
                    return f"{_show(name)}: {one_line(each, 60)!r} is not {_MOMENT}"
        return find_problem(self._checked, dict(content))


def _name_fields(properties: Mapping[str, Any]) -> dict[str, str]:
    """Return the names of the fields, by names that a form can show.

    Raises:
        UnusableSchema: one cannot be seen.
    """
    names: dict[str, str] = {}
    plain = {each for each in properties if each and "." not in each and one_line(each) == each}
    for name in properties:
        shown = name if name in plain else one_line(name.replace(".", "_")) or "field"
        if CONTROLS.search(name) or not shown.isprintable():
            raise UnusableSchema(f"{_show(name)!r} cannot be the name of a field")
        while shown in names or (shown in plain and shown != name):
            shown += "_"
        names[shown] = name
    return names


def _list_choices(schema: Mapping[str, Any]) -> tuple[tuple[Any, str | None], ...] | None:
    """Return what may be chosen; None where that is anything. What passes for another choice has its value beside
    it."""
    titled = next((schema[word] for word in ("oneOf", "anyOf") if _are_constants(schema.get(word))), None)
    if titled is not None:
        given = [(None, None) if each.get("type") == "null" else (each["const"], each.get("title")) for each in titled]
    elif "const" in schema:
        given = [(schema["const"], None)]
    elif "enum" in schema:
        values, names = schema["enum"], schema.get("enumNames") or ()
        given = [*zip(values, names if len(names) == len(values) else [None] * len(values), strict=True)]
    else:
        return None
    choices = {json.dumps(value): (value, title) for value, title in reversed(given)}
    folded = {value.casefold() for value, _ in choices.values() if isinstance(value, str)}
    return tuple((value, _title_choice(value, title, folded)) for value, title in reversed(choices.values()))


def _are_constants(alternatives: Any) -> bool:
    kinds = [each for each in alternatives or () if each.get("type") != "null"]
    return bool(kinds) and all("const" in each for each in kinds)


def _title_choice(value: Any, title: Any, values: set[str]) -> str | None:
    if not isinstance(title, str):
        return None
    shown = one_line(CONTROLS.sub("", title), 200)
    own = value if isinstance(value, str) else json.dumps(value)
    is_taken = shown.casefold() in values - {own.casefold()}
    return f"{shown} ({one_line(own, 60)})" if is_taken else shown


def _list_kinds(schema: Mapping[str, Any]) -> list[_Schema]:
    """Return what a value may be, where several are named."""
    word = next((each for each in ("anyOf", "oneOf") if schema.get(each)), None)
    if word is not None:
        rest = {each: value for each, value in schema.items() if each not in ("anyOf", "oneOf")}
        return [{**rest, **each} for each in schema[word]]
    named = schema.get("type")
    return [{**schema, "type": each} for each in named] if isinstance(named, list) else []


def _list_words(schema: Mapping[str, Any]) -> _Schema:
    """Return the words of a schema that say what it is for, as they are seen."""
    return {name: schema[name] for name in ("title", "description", "default") if schema.get(name) is not None}


def _draw_field(part: _ValueSchema, shown: str, name: str) -> _Schema:
    drawn = _draw(part, name)
    words = {each: CONTROLS.sub("", str(text)) for each, text in _list_words(part.schema).items() if each != "default"}
    hints = list(_list_hints(part))
    if hints:
        words["description"] = " ".join([one_line(words.get("description", ""), 300), *hints]).strip()
    return ({} if shown == name else {"title": one_line(name, 100)}) | words | drawn


def _draw(part: _ValueSchema, name: str) -> _Schema:
    """Return what is drawn for a value: a text where it may be of several kinds."""
    schema, kind = part.schema, "string" if part.kinds else part.schema.get("type", "string")
    typed = {"type": [kind, "null"] if part.nullable else kind}
    if part.choices is not None:
        choices = [each for each in part.choices if each[0] is not None]
        named = {"enum": [value for value, _ in choices], "enumNames": [title for _, title in choices]}
        return named | (typed if part.nullable else {})
    if part.kinds:
        return typed
    if kind == "object" or "properties" in schema:
        raise UnusableSchema(f"{_show(name)} is an object: a form has flat fields")
    if part.items is not None:
        typed["items"] = _draw(part.items, name)
    if kind == "string" and schema.get("format") not in (None, "date-time"):
        typed["format"] = str(schema["format"])
    return typed | {word: schema[word] for word in _RULES if word in schema and _is_drawn(kind, word, schema[word])}


def _is_drawn(kind: str, word: str, value: Any) -> bool:
    """Return whether a form can show and check a rule: not a fraction as the bound of a whole number, say."""
    if isinstance(value, bool) is not (word == "uniqueItems"):
        return False
    field = {"type": kind, word: value, **({"items": {"type": "string"}} if kind == "array" else {})}
    try:
        AnswerForm.of({"properties": {"x": field}})
    except UnusableSchema:
        return False
    return True


def _list_hints(part: _ValueSchema) -> Iterator[str]:
    """Yield what else stands with a field: what it takes, and what the server suggests."""
    if part.kinds:
        kinds = [_KINDS.get(str(each.schema.get("type", "string")), "") for each in part.kinds]
        yield f"Takes {' or '.join(dict.fromkeys(each for each in kinds if each)) or 'a text'}."
    if part.is_moment:
        yield f"Takes {_MOMENT}."
    if (suggested := part.schema.get("default")) is not None:
        text = suggested if isinstance(suggested, str) else json.dumps(suggested)
        yield f"The server suggests: {one_line(CONTROLS.sub('', text), 200)}."


def _read_json(text: str) -> JsonValue:
    """Read a value as it is typed: what is neither a flag nor JSON is a text, and so is one in quotes."""
    plain = text.strip()
    if plain.casefold() in _FLAGS:
        return _FLAGS[plain.casefold()]
    for each in (plain, unify_minus(plain)):  # As it is typed first: a text inside of it keeps its signs.
        try:
            value: JsonValue = json.loads(each)
        except (ValueError, RecursionError):
            continue
        return text if isinstance(value, str) else value
    return text


def _write_moment(part: _ValueSchema, text: str) -> str:
    """Return a text as the server reads it: a date and time in the form of RFC 3339."""
    return (_read_moment(text) if part.is_moment else None) or text


def _read_moment(text: str) -> str | None:
    try:
        moment = datetime.fromisoformat(text.strip())
    except ValueError:
        return None
    return None if moment.tzinfo is None else moment.isoformat()


def _show(name: str) -> str:
    return one_line(CONTROLS.sub("", name), 100)
