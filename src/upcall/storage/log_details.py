"""The detail of a log entry as its text: the entries of each pause as their values alone, all others as JSON objects.

A run that asks once has a handful of entries, and most of their bytes were the same names in every run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from upcall.errors import SchemaMismatch
from upcall.runs.call_timings import TIMED
from upcall.runs.run import RunStatus

_FIELDS: dict[str, tuple[str, ...]] = {
    "started": ("status",),
    "status": ("from", "to"),
    "asked": ("question", "path"),
    "answered": ("question", "outcome", "by"),
    TIMED: ("end", "ms", "calls"),
}
"""The kinds that are written as values, with their fields in order. Part of the schema."""

_WITH_STATUS = ("started", "status")

_STATUS_NUMBERS: dict[str, int] = {
    RunStatus.QUEUED: 0,
    RunStatus.INITIALIZING: 1,
    RunStatus.PLANNING: 2,
    RunStatus.EXECUTING: 3,
    RunStatus.AWAITING_CLARIFICATION: 4,
    RunStatus.COMPLETED: 5,
    RunStatus.FAILED: 6,
    RunStatus.CANCELLED: 7,
    RunStatus.EXPIRED: 8,
}
"""Part of the schema: a number stays what it is."""

_STATUSES = {number: str(status) for status, number in _STATUS_NUMBERS.items()}


def dump_detail(kind: str, detail: Mapping[str, Any]) -> str:
    """Give the detail of an entry as JSON text."""
    values = _list_values(kind, detail)
    return json.dumps(detail if values is None else values, separators=(",", ":"))


def _list_values(kind: str, detail: Mapping[str, Any]) -> list[Any] | None:
    """List the values of a detail that has the fields of its kind; None for any other."""
    fields = _FIELDS.get(kind, ())
    if not fields or detail.keys() != {*fields}:
        return None
    values = [detail[name] for name in fields]
    if kind not in _WITH_STATUS:
        return values
    numbers = [_STATUS_NUMBERS.get(each) if isinstance(each, str) else None for each in values]
    return None if None in numbers else numbers


def load_detail(kind: str, text: str) -> dict[str, Any]:
    """Give the detail that `dump_detail` was given.

    Raises:
        SchemaMismatch: it is damaged, or another version of upcall wrote it.
    """
    try:
        stored = json.loads(text)
        if isinstance(stored, dict):
            return stored
        values = [_STATUSES[each] for each in stored] if kind in _WITH_STATUS else stored
        return dict(zip(_FIELDS[kind], values, strict=True))
    except (ValueError, TypeError, KeyError) as error:
        raise SchemaMismatch(
            f"An entry of the log (kind {kind!r}) is damaged, or another version of upcall wrote it. See what else is: "
            "upcall store check"
        ) from error
