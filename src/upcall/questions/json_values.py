"""What a JSON schema refuses of a value, where no form of it is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from upcall.text import one_line

MAX_FORMAT_CHARS = 2_000
"""A longer text is not checked against a ``format``."""

_MAX_ALTERNATIVES = 300
"""How many schemas may apply to one value."""

_MAX_REFERENCES = 20

_IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else")

_WORDS_FOR_PEOPLE = frozenset({"title", "description", "default", "examples"})


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
    """Return what a reference of a schema refers to; None where that is nothing."""
    target: Any = root
    for part in reference.split("/")[1:]:
        target = target.get(part) if isinstance(target, dict) else None
    return target


def merge_objects(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return one schema of an object that is what all of these describe: it has the fields of each. Of other words the
    last one's count."""
    merged = {word: each for part in parts for word, each in part.items()}
    if "properties" in merged:
        fields: dict[str, Any] = {}
        for part in parts:
            for name, each in part.get("properties", {}).items():
                fields[name] = _merge_field(fields[name], each) if name in fields else each
        merged["properties"] = fields
        merged["required"] = [*dict.fromkeys(name for part in parts for name in part.get("required") or ())]
    return merged


def _is_object(part: Any) -> bool:
    return (
        isinstance(part, dict)
        and isinstance(part.get("properties", {}), dict)
        and isinstance(part.get("required") or [], list)
    )


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
    from jsonschema import FormatChecker
    from jsonschema.exceptions import UnknownType, best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "it is not a number"
    if is_entangled(schema):
        return None
    checker = FormatChecker() if len(str(value)) <= MAX_FORMAT_CHARS else None
    validator = _validator()(_without_patterns(schema), registry=Registry(), format_checker=checker)
    try:
        worst = best_match(validator.iter_errors(value))
    except (UnknownType, Unresolvable, TypeError, ValueError, AttributeError, RecursionError):
        return None
    if worst is None:
        return None
    where = ".".join(map(str, worst.absolute_path))
    return one_line(f"{where}: {worst.message}" if where else worst.message, 200)


def _without_patterns(schema: Any, name: str = "") -> Any:
    """Return a schema without ``patternProperties``, which other words look at too: one can take for ever."""
    if isinstance(schema, list):
        return [_without_patterns(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        word: _without_patterns(each, word)
        for word, each in schema.items()
        if word != "patternProperties" or name == "properties"
    }


@cache
def _validator() -> Any:
    """Return a validator that leaves a ``pattern`` to the asker: one can take for ever."""
    from jsonschema.validators import Draft202012Validator, extend

    return extend(Draft202012Validator, {"pattern": lambda *_: ()})  # type: ignore[no-untyped-call]  # Theirs.
