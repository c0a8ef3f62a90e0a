"""What a JSON schema refuses of a value, where no form of it is shown."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from upcall.text import one_line


def find_problem(schema: Mapping[str, Any], value: Any) -> str | None:
    """Say what of a value its schema refuses; nothing where that is none."""
    from jsonschema import FormatChecker
    from jsonschema.exceptions import UnknownType, best_match
    from referencing import Registry
    from referencing.exceptions import Unresolvable

    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return "it is not a number"
    validator = _validator()(schema, registry=Registry(), format_checker=FormatChecker())
    try:
        worst = best_match(validator.iter_errors(value))
    except (UnknownType, Unresolvable, TypeError, ValueError, AttributeError, RecursionError):
        return None
    return None if worst is None else one_line(worst.message, 200)


@cache
def _validator() -> Any:
    """Return a validator that leaves a ``pattern`` to the asker: one can take for ever."""
    from jsonschema.validators import Draft202012Validator, extend

    return extend(Draft202012Validator, {"pattern": lambda *_: ()})  # type: ignore[no-untyped-call]  # Theirs.
