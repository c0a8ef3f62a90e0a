"""The body of an event as its text: of the events of each pause the values alone, of all others a JSON object.

A run that asks once has a handful of events, and most of their bytes were the same names in every run. A type that a
later version adds has a JSON object, so that this version can keep it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from upcall.errors import SchemaMismatch
from upcall.lazy_pattern import LazyPattern
from upcall.questions.answer import AnsweredBy, Outcome
from upcall.runs.events import (
    EVENTS,
    CallTiming,
    LogEvent,
    QuestionAnswered,
    QuestionAsked,
    RunStarted,
    SegmentTimed,
    StatusChanged,
    parse_event,
)
from upcall.storage.run_rows import STATUS_NUMBERS, STATUSES

_UNREADABLE = (ValueError, TypeError, LookupError, AttributeError)


@dataclass(frozen=True)
class _Form:
    """How a value is written: as a text, with the event's own second, and back."""

    write: Callable[[Any, int], str]
    read: Callable[[str, int], Any]


def _dump_json(value: object) -> str:
    return json.dumps(value, separators=(",", ":"))


def _dump_calls(calls: Iterable[CallTiming]) -> str:
    """Return calls as one text: the path of an agent before its calls. ``900+12!:search`` began after 900 ms, took 12,
    failed, and was of the tool search."""
    words, last = list[str](), ""
    for each in calls:
        if (path := "/".join(each.path)) != last:
            words.append(last := path)
        tool = f":{each.tool}" if each.tool else ""
        words.append(f"{each.began_ms}+{each.took_ms}{'!' if each.failed else ''}{tool}")
    return " ".join(words)


_CALL = LazyPattern(r"(\d+)\+(\d+)(!?)(?::(.+))?", re.ASCII)


def _load_calls(text: str) -> Iterator[CallTiming]:
    path, is_used = tuple[str, ...](), True
    for word in text.split(" ") if text else ():
        if path and (call := _CALL.fullmatch(word)):
            began, took, failed, tool = call.groups("")
            yield CallTiming(path, int(began), int(took), tool, bool(failed))
            is_used = True
        elif is_used:
            path, is_used = tuple(word.split("/")), False
        else:
            raise ValueError(f"no call: {word}")
    if not is_used:
        raise ValueError("an agent without a call")


_WORD = _Form(lambda value, _: str(value), lambda text, _: text)
_NUMBER = _Form(lambda value, _: str(value), lambda text, _: int(text))
_STATUS = _Form(lambda value, _: str(STATUS_NUMBERS[value]), lambda text, _: STATUSES[int(text)])
_OUTCOME = _Form(lambda value, _: str(value), lambda text, _: Outcome(text))
_ANSWERED_BY = _Form(lambda value, _: str(value), lambda text, _: AnsweredBy(text))
_PATH = _Form(lambda value, _: "/".join(value), lambda text, _: tuple(text.split("/")))
_MOMENT = _Form(lambda value, at: str(value - at * 1000), lambda text, at: int(text) + at * 1000)
_CALLS = _Form(lambda value, _: _dump_calls(value), lambda text, _: tuple(_load_calls(text)))

_FORMS: dict[type[LogEvent], dict[str, _Form]] = {
    RunStarted: {"status": _STATUS},
    StatusChanged: {"before": _STATUS, "after": _STATUS},
    QuestionAsked: {"question": _WORD, "path": _PATH},
    QuestionAnswered: {"question": _WORD, "outcome": _OUTCOME, "by": _ANSWERED_BY},
    SegmentTimed: {"ended_ms": _MOMENT, "took_ms": _NUMBER, "calls": _CALLS},
}
"""The types that are written as their values, one space between two: the fields in order. Part of the schema."""

_USUAL: dict[type[LogEvent], Sequence[str]] = {
    QuestionAnswered: (Outcome.ANSWERED.value, AnsweredBy.HUMAN.value),
}
"""The values at the end that are left out together if they are these. Part of the schema."""


def dump_event(event: LogEvent, at: int = 0) -> str:
    """Return the body of an event; `at` is its own second."""
    if (forms := _FORMS.get(type(event))) is not None:
        values = [form.write(getattr(event, name), at) for name, form in forms.items()]
        if (usual := _USUAL.get(type(event))) and values[-len(usual) :] == [*usual]:
            values = values[: -len(usual)]
        text = " ".join(values)
        try:
            if load_event(event.type, text, at, event.user) == event:
                return text
        except SchemaMismatch:
            pass  # It has another field, or a name with a space in it.
    return _dump_json(event.as_detail())


def load_event(kind: str, text: str, at: int = 0, user: str | None = None) -> LogEvent:
    """Return the event that `dump_event` was given, with the same `at`.

    Raises:
        SchemaMismatch: it is damaged, or another version of upcall wrote it.
    """
    try:
        if text.startswith("{"):
            return parse_event(kind, json.loads(text), user)
        forms = _FORMS[EVENTS[kind]]
        found, usual = text.split(" ", len(forms) - 1), _USUAL.get(EVENTS[kind], ())
        if len(found) == len(forms) - len(usual):
            found = [*found, *usual]
        values = zip(forms.items(), found, strict=True)
        return EVENTS[kind](user=user, **{name: form.read(value, at) for (name, form), value in values})
    except _UNREADABLE as error:
        raise SchemaMismatch(
            f"An event of the log (type {kind!r}) is damaged, or another version of upcall wrote it. See what else is: "
            "upcall store check"
        ) from error
