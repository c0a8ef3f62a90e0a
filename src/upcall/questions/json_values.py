"""What a JSON schema of others refers to, and what it refuses of a value, where no form of it is shown.

A tool, a server or an asker wrote it, and it may be none. A form refuses such a one; elsewhere it refuses nothing of a
value, and what stands at a word in a shape that this word has not is as if it were not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache, partial
from typing import TYPE_CHECKING, Any, TypeAlias
from urllib.parse import unquote

from upcall.lazy_pattern import LazyPattern
from upcall.text import one_line

if TYPE_CHECKING:
    from jsonschema import ValidationError
    from jsonschema.protocols import Validator

    Errors: TypeAlias = Iterator[ValidationError]

MAX_FORMAT_CHARS = 2_000
"""A longer text is not checked against a ``format``."""

_MAX_ALTERNATIVES = 300
"""How many schemas may apply to one value."""

_MAX_REFERENCES = 20

_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")

_WORDS_FOR_PEOPLE = frozenset({"title", "description", "default", "examples"})

_VALUES = frozenset({"const", "enum", "default", "examples"})
"""Under these stand values, no schemas."""

_MEANS_OTHERWISE = LazyPattern(r"\\[<>]|\\b\{|&&|--|~~")
"""What the linear search reads in another way than the patterns of JSON Schema are meant."""


def is_entangled(schema: Mapping[str, Any]) -> bool:
    """Return whether so many schemas apply to one value, by references in one another, that a check of it might not
    end."""
    waiting: list[Any] = [schema]
    while waiting:
        node = waiting.pop()
        if isinstance(node, dict):
            if _count_applied(node, schema) > _MAX_ALTERNATIVES:
                return True
            waiting += node.values()
        elif isinstance(node, list):
            waiting += node
    return False


def _count_applied(begin: Any, root: Mapping[str, Any]) -> int:
    waiting, count = [begin], 0
    while waiting and count <= _MAX_ALTERNATIVES:
        node = waiting.pop()
        if isinstance(node, list):
            waiting += node
        elif isinstance(node, dict):
            count += 1
            waiting += [node[each] for each in _IN_PLACE if each in node]
            waiting += [look_up(str(node["$ref"]), root)] if "$ref" in node else []
    return count


def look_up(reference: str, root: Mapping[str, Any]) -> Any:
    """Return what a reference of a schema refers to, a JSON pointer (RFC 6901); None where that is nothing."""
    place, *parts = unquote(reference).split("/")
    target: Any = root if place == "#" else None
    for part in parts:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(target, list):
            target = target[int(name)] if _is_index(name) and int(name) < len(target) else None
        else:
            target = target.get(name) if isinstance(target, Mapping) else None
    return target


def _is_index(name: str) -> bool:
    return name.isascii() and name.isdecimal() and len(name) < 7


def list_fields(schema: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the schemas of an object's fields, by their names."""
    fields = schema.get("properties")
    return fields if isinstance(fields, Mapping) else {}


def list_required(schema: Mapping[str, Any]) -> list[str]:
    """Return the names of the fields that an object must have."""
    names = schema.get("required")
    names = [names] if isinstance(names, str) else names
    return [each for each in names if isinstance(each, str)] if isinstance(names, list) else []


def _requires_names(schema: Mapping[str, Any]) -> bool:
    """Return whether what an object must have is written as a list of names, if at all."""
    return list_required(schema) == (schema.get("required") or [])


def merge_objects(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one schema of an object that is what all of these describe: it has the fields of each. Of other words the
    last one's count."""
    merged = {word: each for part in parts for word, each in part.items()}
    if "properties" in merged:
        fields: dict[str, Any] = {}
        for part in parts:
            for name, each in list_fields(part).items():
                fields[name] = _merge_field(fields[name], each) if name in fields else each
        merged["properties"] = fields
        merged["required"] = [*dict.fromkeys(name for part in parts for name in list_required(part))]
    return merged


def _is_object(part: Any) -> bool:
    return isinstance(part, dict) and isinstance(part.get("properties", {}), dict) and _requires_names(part)


def _merge_field(one: Any, other: Any) -> Any:
    """Return the schema of a field that two parts describe: the rules of both hold."""
    are_schemas = isinstance(one, dict) and isinstance(other, dict)
    if are_schemas and all(one[word] == other[word] for word in one.keys() & other.keys() - _WORDS_FOR_PEOPLE):
        return {**one, **other}
    return {"allOf": [one, other]}


def resolve_root(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a schema of an object without a reference, or ``allOf``, at its root: it is that of which it is made.

    What refers to nothing, or in a circle, is returned as it is.
    """
    found = dict(schema)
    for _ in range(_MAX_REFERENCES):
        if "$ref" in found:
            parts = [look_up(str(found.pop("$ref")), schema), found]
        elif "allOf" in found:
            made_of = found.pop("allOf")
            parts = [*made_of, found] if isinstance(made_of, list) else []
        else:
            return found
        if not parts or not all(map(_is_object, parts)):
            break
        found = merge_objects(parts)
    return dict(schema)


def find_problem(schema: Mapping[str, Any], value: Any) -> str | None:
    """Say what of a value its schema refuses; nothing where that is none, or the schema is too entangled to tell."""
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.exceptions import best_match

    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "it is not a number"
    if is_entangled(schema):
        return None
    checker = FormatChecker() if len(str(value)) <= MAX_FORMAT_CHARS else None
    try:
        validator = make_validator(Draft202012Validator, schema, format_checker=checker)
        worst = best_match(validator.iter_errors(value))
    except Exception:  # noqa: BLE001  (Of what is no schema, it raises anything.)
        return None
    return None if worst is None else describe_error(worst, 200)


def describe_error(error: ValidationError, max_chars: int) -> str:
    """Say in one line what a schema refuses, and where."""
    where = ".".join(map(str, error.absolute_path))
    return one_line(f"{where}: {error.message}" if where else error.message, max_chars)


def make_validator(kind: type[Validator], schema: Mapping[str, Any], **options: Any) -> Validator:
    """Return a validator that searches in a time linear in the text: others' patterns can be written to take for ever.
    What a schema refers to is not fetched.

    What no such search knows is left to who wrote it: patterns that look around or back, and
    ``unevaluatedProperties`` where patterns describe properties. The root alone says of which draft a schema is.
    """
    from referencing import Registry

    linear = _make_linear(kind, _has_word(schema, "patternProperties"))
    return linear(_without_drafts(schema), registry=Registry(), **options)  # type: ignore[no-any-return]


@cache
def _make_linear(kind: type[Validator], has_patterns: bool) -> Any:
    from jsonschema.validators import extend

    checks: dict[str, Callable[..., Errors]] = {
        "pattern": _check_pattern,
        "patternProperties": _check_pattern_properties,
        "additionalProperties": partial(_check_other_properties, kind.VALIDATORS["additionalProperties"]),
    }
    if has_patterns:
        checks["unevaluatedProperties"] = _check_nothing
    return extend(kind, checks)  # type: ignore[no-untyped-call]  # Theirs.


def _has_word(schema: Any, word: str) -> bool:
    if isinstance(schema, list):
        return any(_has_word(each, word) for each in schema)
    return isinstance(schema, dict) and (word in schema or any(_has_word(each, word) for each in schema.values()))


def _without_drafts(schema: Any) -> Any:
    """Return a schema without ``$schema``, by which jsonschema would check a part of it in its own way."""
    if isinstance(schema, list):
        return [_without_drafts(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: each if word in _VALUES else _without_drafts(each)
        for word, each in schema.items()
        if not (word == "$schema" and isinstance(each, str))
    }


def _check_nothing(*_: object) -> Errors:
    return iter(())


@lru_cache(maxsize=8)
def _compile(pattern: str) -> Callable[[str], bool] | None:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    if _MEANS_OTHERWISE.search(pattern):
        return None
    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern, regex_engine="rust-regex")).isinstance_python
    except SchemaError:
        return None


def _check_pattern(validator: Validator, pattern: str, value: Any, schema: Mapping[str, Any]) -> Errors:
    from jsonschema import ValidationError

    if validator.is_type(value, "string") and (is_found := _compile(pattern)) and not is_found(value):
        yield ValidationError(f"{value!r} does not match {pattern!r}")


def _check_pattern_properties(
    validator: Any, patterns: Mapping[str, Any], value: Any, schema: Mapping[str, Any]
) -> Errors:
    searches = [(is_found, each) for pattern, each in patterns.items() if (is_found := _compile(pattern))]
    for name, held in value.items() if validator.is_type(value, "object") else ():
        for is_found, each in searches:
            if is_found(name):
                yield from validator.descend(held, each, path=name)


def _check_other_properties(
    check: Callable[..., Errors], validator: Any, others: Any, value: Any, schema: Mapping[str, Any]
) -> Errors:
    """Check the properties that nothing describes; where patterns do that, only those of which none is found."""
    if not (patterns := schema.get("patternProperties")) or not validator.is_type(value, "object"):
        yield from check(validator, others, value, schema) or ()
        return
    searches = [*map(_compile, patterns)]
    described = {name for name in value if any(is_found is None or is_found(name) for is_found in searches)}
    left = {name: held for name, held in value.items() if name not in described}
    rest = {word: each for word, each in schema.items() if word != "patternProperties"}
    yield from check(validator, others, left, rest) or ()
