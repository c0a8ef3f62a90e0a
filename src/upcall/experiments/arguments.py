"""The arguments of a tool call, for reports: a model wrote them, so they may be no JSON, or nested without end."""

from __future__ import annotations

import json
from typing import Any

MAX_DEPTH = 100
"""How many levels of lists and objects are read: what writes JSON calls itself for each, and fails at a few hundred."""


def read_arguments(text: str) -> Any:
    """Return the JSON value of a text.

    Raises:
        ValueError: it is no JSON, or nested deeper than `MAX_DEPTH`.
    """
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("it is nested too deep") from error
    if not _is_within(value, MAX_DEPTH):
        raise ValueError("it is nested too deep")
    return value


def _is_within(value: object, levels: int) -> bool:
    """Whether a value has at most so many levels."""
    if not isinstance(value, dict | list):
        return True
    inner = value.values() if isinstance(value, dict) else value
    return levels > 0 and all(_is_within(each, levels - 1) for each in inner)
