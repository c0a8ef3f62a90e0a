"""The stored row of a run: one JSON document, and the columns by which lists find it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from pydantic import ValidationError

from upcall.errors import SchemaMismatch
from upcall.formats import Format
from upcall.questions.question import Question
from upcall.runs.json_text import dump_json
from upcall.runs.run import Run, list_assumed
from upcall.runs.run_page import EVERYBODY
from upcall.runs.states import ANSWERABLE, RunStatus
from upcall.storage.compression import Damaged, decode
from upcall.storage.connection import Connection, Values

SEARCHED_CHARS = 500
"""How much of a task is searched for text."""

COLUMNS = (
    *("status", "owner", "created_at", "updated_at", "asked_at", "open_questions", "due_at", "assignees", "task"),
    "record",
)
"""The columns set by a write of a run, besides version and lease."""


STATUS_NUMBERS: Mapping[str, int] = {
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
"""A status as columns and indexes have it. Part of the schema: a number stays what it is."""

STATUSES = {number: RunStatus(status) for status, number in STATUS_NUMBERS.items()}


def list_numbers(statuses: Iterable[RunStatus]) -> str:
    """List statuses for a statement: ``0, 3``; ``NULL`` for none."""
    return ", ".join(str(STATUS_NUMBERS[each]) for each in statuses) or "NULL"


RECORD = Format("format")
"""Of a run's record. Without a number it is the first; with one, that comes first in the text."""

_NUMBERED = b'{"format":'


def dump_run(run: Run) -> bytes:
    """Return the stored JSON text of a run."""
    text = dump_json(run, exclude_none=True).encode()
    if not RECORD.upgrades:
        return text
    stamp = json.dumps(RECORD.stamp(), separators=(",", ":")).encode()
    return stamp[:-1] + b"," + text[1:]


def load_run(record: bytes, run_id: str) -> Run:
    """Return the run that a row stores.

    Raises:
        NewerFormat: a later version of upcall stored it.
        SchemaMismatch: the record is damaged.
    """
    try:
        text = decode(record)
    except Damaged as error:
        raise error.explain(f"The record of run {run_id}", "See what can still be read: upcall store check") from error
    try:
        if RECORD.upgrades or text.startswith(_NUMBERED):
            return parse_run(json.loads(text), run_id)
        return Run.model_validate_json(text)
    except ValidationError:
        try:
            return parse_run(json.loads(text), run_id)  # Half a surrogate pair is nothing for pydantic's parser.
        except ValueError as error:
            found = error.errors()[0]["loc"] if isinstance(error, ValidationError) else ()
            where = ".".join(str(part) for part in found)
            raise SchemaMismatch(
                f"The stored run {run_id} cannot be read (field {where!r}). See what else is: upcall store check"
            ) from error


_BEING_REPLACED = b'"replacing":["'


def is_being_replaced(record: bytes, run_id: str) -> bool:
    """Return whether the run that a row stores is about to be replaced by a branch; not if it cannot be read."""
    try:
        # Most are not, and the text shows that: to read a whole run takes far longer.
        return _BEING_REPLACED in decode(record) and bool(load_run(record, run_id).replacing)
    except (Damaged, SchemaMismatch):
        return False


def parse_run(record: Mapping[str, Any], run_id: str) -> Run:
    """Return the run in a record of this or an earlier version.

    Raises:
        NewerFormat: a later version wrote it.
        pydantic.ValidationError: it is damaged.
    """
    now = RECORD.bring_up({RECORD.key: 1, **record}, f"The stored run {run_id}")
    del now[RECORD.key]
    return Run.model_validate(now)


def derive_columns(run: Run) -> dict[str, Any]:
    """Derive the columns by which lists find a run. Times are whole seconds since 1970.

    - ``asked_at``: since when it has had a question that is open or has only an assumption; None where it takes no
      answer.
    - ``open_questions``: how many open ones it has.
    - ``due_at``: when there is something to do about an open question, or earlier; None for never.
    - ``assignees``: who sees something of it besides its owner, one a line: to whom its questions are or were
      assigned, and `EVERYBODY` if it is open.
    - ``task``: what is searched for text.
    """
    asked = _list_asked(run)
    return {
        "status": STATUS_NUMBERS[run.status],
        "owner": run.user,
        "created_at": _seconds(run.created_at),
        "updated_at": _seconds(run.updated_at),
        "open_questions": len(asked),
        "due_at": _find_due(run) if asked else None,
        "task": as_searched(run.task)[:SEARCHED_CHARS],
        **derive_shown(run),
    }


def derive_shown(run: Run) -> dict[str, Any]:
    """Derive the columns by which a run is found for those to whom it is shown; see `derive_columns`."""
    assigned = {
        each.assignee for each in run.asked.values() if each.assignee and each.id not in run.records.unknown_outcomes
    }
    named = {each for each in assigned if each != EVERYBODY and "\n" not in each}  # A line break would name another.
    if run.config.open:
        named.add(EVERYBODY)
    return {
        "asked_at": min((_seconds(each.asked_at) for each in (*_list_asked(run), *list_assumed(run))), default=None),
        "assignees": "\n".join(sorted(named)) or None,
    }


def _list_asked(run: Run) -> Sequence[Question]:
    return run.open_questions if run.status in ANSWERABLE else ()


def as_searched(text: str) -> str:
    """Return text as it is searched: on one line, without the difference of capitals, and nothing in it that a database
    does not hold."""
    return " ".join(text.casefold().replace("\0", " ").split()).encode(errors="replace").decode()


def put_shown_to(connection: Connection, run_id: str, row: Values) -> None:
    """Store to whom a run is shown, as its row says."""
    connection.execute("DELETE FROM upcall_shown_to WHERE run_id = :run_id", {"run_id": run_id})
    if row["assignees"] is not None:
        more = {"run_id": run_id, "created_at": row["created_at"], "asked_at": row["asked_at"]}
        connection.executemany(
            "INSERT INTO upcall_shown_to (name, created_at, run_id, asked_at) "
            "VALUES (:name, :created_at, :run_id, :asked_at)",
            [{"name": name, **more} for name in row["assignees"].split("\n")],
        )


def _find_due(run: Run) -> int | None:
    waits = run.config.on_expiry == "wait"
    times = [
        # What was noted once stands, whatever the clock says later.
        each.asked_at if each.id in run.records.overdue else each.expires_at
        for each in run.open_questions
        if each.expires_at is not None
        and each.id not in run.records.unknown_outcomes
        and not (waits and each.id in run.records.overdue)
    ]
    if every := run.config.remind_after:
        reminders = ((each.asked_at, run.records.reminders.get(each.id, 0) + 1) for each in run.questions)
        times += [asked_at + timedelta(seconds=every * number) for asked_at, number in reminders]
    return min(map(_seconds, times), default=None)


def _seconds(at: datetime) -> int:
    return int(at.timestamp())


def name_values(values: Iterable[Any]) -> tuple[str, dict[str, Any]]:
    """Name values for a statement: ``:v0, :v1``, and the values by these names."""
    named = {f"v{number}": value for number, value in enumerate(values)}
    return ", ".join(f":{name}" for name in named), named
