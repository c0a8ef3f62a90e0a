"""The ``pattern`` of a schema: checked in a time that does not grow beyond that of its text and its size.

They are those of pydantic, which do not try one way after another as Python's do. What they cannot read, such as a look
ahead, is for the asker to check.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

from upcall.lazy_pattern import LazyPattern

if TYPE_CHECKING:
    from pydantic_core import SchemaValidator

_MAX_SIZE = 5_000

_MAX_WORK = 10_000_000
"""The size of a pattern times the characters of a text: less than a second."""

_PART = LazyPattern(r"(?s)\\.|\[(?:\\.|[^\]\\])*\]|\{(\d{1,9})(?:,(\d{0,9}))?\}|.")


def fits_pattern(pattern: str, text: str) -> bool:
    """Return whether a text fits; also where the two are too much to be checked."""
    from pydantic_core import ValidationError

    checked = _compile(pattern) if len(text) <= count_checked(pattern) else None
    try:
        return checked is None or checked.validate_python(text) is not None
    except ValidationError:
        return False


@lru_cache(maxsize=200)
def count_checked(pattern: str) -> int:
    """Return how many characters of a text it is checked of; 0 where it is too large for any."""
    size = _measure(pattern)
    return _MAX_WORK // size if size <= _MAX_SIZE else 0


@lru_cache(maxsize=200)
def _compile(pattern: str) -> SchemaValidator | None:
    from pydantic_core import SchemaError, SchemaValidator, core_schema

    try:
        return SchemaValidator(core_schema.str_schema(pattern=pattern))
    except SchemaError:
        return None


def _measure(pattern: str) -> int:
    """Return how many parts a pattern has where what it repeats is written out: ``(ab{3}){2}`` has eight."""
    open_groups, last = [0], 0
    for part in _PART.finditer(pattern):
        match part[0]:
            case "(":
                open_groups.append(0)
                last = 0
                continue
            case ")" if len(open_groups) > 1:
                last = open_groups.pop()
                open_groups[-1] += last
                continue
        if part[1] is not None:
            more = last * (max(int(part[1]), int(part[2] or 0), 1) - 1)
            open_groups[-1] += more
            last += more
        else:
            last = 1
            open_groups[-1] += 1
    return max(1, sum(open_groups))
