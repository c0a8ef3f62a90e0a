"""The detail of a log entry as its text: of the entries of each pause the values alone, of all others a JSON object.

A run that asks once has a handful of entries, and most of their bytes were the same names in every run.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from upcall.errors import SchemaMismatch
from upcall.runs.call_timings import TIMED
from upcall.storage.run_rows import STATUS_NUMBERS, STATUSES

_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError)


@dataclass(frozen=True)
class _Form:
    """How a value is written: as a text, with the entry's own second, and back."""

    write: Callable[[Any, int], str]
    read: Callable[[str, int], Any]


def _dump_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


_WORD = _Form(lambda value, _: str(value), lambda text, _: text)
_NUMBER = _Form(lambda value, _: str(value), lambda text, _: int(text))
_STATUS = _Form(lambda value, _: str(STATUS_NUMBERS[value]), lambda text, _: STATUSES[int(text)].value)
_PATH = _Form(lambda value, _: "/".join(value), lambda text, _: text.split("/"))
_MOMENT = _Form(lambda value, at: str(value - at * 1000), lambda text, at: int(text) + at * 1000)
_JSON = _Form(lambda value, _: _dump_json(value), lambda text, _: json.loads(text))

_FORMS: dict[str, dict[str, _Form]] = {
    "started": {"status": _STATUS},
    "status": {"from": _STATUS, "to": _STATUS},
    "asked": {"question": _WORD, "path": _PATH},
    "answered": {"question": _WORD, "outcome": _WORD, "by": _WORD},
    TIMED: {"end": _MOMENT, "ms": _NUMBER, "calls": _JSON},
}
"""The kinds that are written as their values, one space between two: the fields in order. Part of the schema."""


def dump_detail(kind: str, detail: Mapping[str, Any], at: int = 0) -> str:
    """Give the detail of an entry as a text; `at` is the entry's own second."""
    try:
        text = " ".join(form.write(detail[name], at) for name, form in _FORMS[kind].items())
        if load_detail(kind, text, at) == detail:
            return text
    except (*_UNREADABLE, SchemaMismatch):
        pass  # Another kind, more or other fields, a name with a space in it.
    return _dump_json(detail)


def load_detail(kind: str, text: str, at: int = 0) -> dict[str, Any]:
    """Give the detail that `dump_detail` was given, with the same `at`.

    Raises:
        SchemaMismatch: it is damaged, or another version of upcall wrote it.
    """
    try:
        if text.startswith("{"):
            return dict(json.loads(text))
        forms = _FORMS[kind]
        values = zip(forms.items(), text.split(" ", len(forms) - 1), strict=True)
        return {name: form.read(value, at) for (name, form), value in values}
    except _UNREADABLE as error:
        raise SchemaMismatch(
            f"An entry of the log (kind {kind!r}) is damaged, or another version of upcall wrote it. See what else is: "
            "upcall store check"
        ) from error
