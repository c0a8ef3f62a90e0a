"""Export a run to a JSON file, and import it into another store."""

from __future__ import annotations

import base64
import hashlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import partial
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import Any, TextIO

from pydantic import ValidationError

from upcall import identity
from upcall.errors import ConfigurationError, NewerFormat, SchemaMismatch
from upcall.formats import Format, is_number
from upcall.questions.answer import Answer
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.config import DEFAULT_WORKSPACES
from upcall.runs.events import EntryAdded, FilesChanged, LogEvent, RunImported, parse_event
from upcall.runs.file_changes import digest
from upcall.runs.run import Run
from upcall.storage import checkpoints
from upcall.storage import store as stores
from upcall.storage.change_log import put_contents, read_contents
from upcall.storage.compression import encode
from upcall.storage.connection import Connection, Values
from upcall.storage.event_log import append_events, read_entries
from upcall.storage.journal import put_records, read_journal
from upcall.storage.queued_answers import insert_queued
from upcall.storage.run_leases import lease_columns
from upcall.storage.run_lists import read_queued
from upcall.storage.run_rows import dump_run, load_run, parse_run
from upcall.storage.schema import list_added, list_of_run
from upcall.storage.store import RunStore
from upcall.storage.stored_run import decode_records
from upcall.text import first_line

_RUNS_AT_ONCE = 50

KIND = "upcall-run"

EXPORT = Format()
"""Of an exported run; its checkpoints, its record and its plans have numbers of their own."""


async def export_run(store: RunStore, run_id: str, *, all_checkpoints: bool = False) -> dict[str, Any]:
    """Return everything stored about a run, with its last checkpoint or all of them, and a digest over it.

    Raises:
        UnknownRun: there is no such run.
        SchemaMismatch: it is damaged.
    """
    export = partial(_export, run_id=run_id, all_checkpoints=all_checkpoints, name=store.name)
    content = await store.database.read(export)
    return {**content, "digest": _digest(content)}


async def export_runs(store: RunStore, file: TextIO, *, all_checkpoints: bool = False) -> tuple[int, list[str]]:
    """Write every run of a store as a line of JSON; return how many were written, and a line for each that cannot be
    read."""
    written, problems, before = 0, list[str](), None
    while True:
        page = await store.list(limit=_RUNS_AT_ONCE, before=before)
        problems += [first_line(each.problem) for each in page.damaged]
        for run in page:
            try:
                content = await export_run(store, run.id, all_checkpoints=all_checkpoints)
            except SchemaMismatch as error:
                problems.append(first_line(error))
                continue
            file.write(json.dumps(content, separators=(",", ":")) + "\n")
            written += 1
        before = page.next
        if before is None:
            return written, problems


async def import_runs(store: RunStore, contents: Sequence[Any], *, as_new: bool = False) -> list[Run]:
    """Store runs from `export_run`, each whole or not at all, in their order. Of several, those whose id is there are
    left as they are: an import that was cut off can be made again.

    Raises:
        ConfigurationError, TooLarge: see `import_run`; those before are stored.
    """
    many = len(contents) > 1
    return [
        await import_run(store, content, as_new=as_new)
        for content in contents
        if as_new or not many or not await _is_known(store, content)
    ]


async def _is_known(store: RunStore, content: Any) -> bool:
    try:
        run_id = str(content["run"]["id"])
    except (LookupError, TypeError):
        return False
    return run_id in await store.find(run_id)


def _export(connection: Connection, *, run_id: str, all_checkpoints: bool, name: str) -> dict[str, Any]:
    run_id = stores.find_id(connection, run_id, name)
    query = "SELECT version, record FROM upcall_runs WHERE id = :id"
    version, record = connection.execute(query, {"id": run_id}).fetchone()
    versions = checkpoints.list_versions(connection, run_id) or [0]
    states = checkpoints.load_since(connection, run_id, versions[0 if all_checkpoints else -1])
    added = _read_added(connection, run_id)
    return {
        "format": KIND,
        **EXPORT.stamp(),
        "run": json.loads(dump_run(load_run(record, run_id))),
        "run_version": version,
        "checkpoints": [{"version": each, "state": state.as_json()} for each, state in states.items()],
        "journal": decode_records(run_id, read_journal(connection, run_id)),
        "queued_answers": [answer.model_dump(mode="json") for answer in read_queued(connection, run_id)],
        "log": [
            {"at": each.at, "kind": each.kind, "user": each.user, "detail": each.event.as_detail()}
            for each in read_entries(connection, ["run_id = :run_id"], {"run_id": run_id})
        ],
        "contents": {each: base64.b64encode(data).decode() for each, data in read_contents(connection, run_id).items()},
        **({"added": added} if added else {}),
    }


def _read_added(connection: Connection, run_id: str) -> dict[str, list[dict[str, Any]]]:
    """Read the rows about a run in tables that other packages add, by table."""
    found = {}
    for table in filter(attrgetter("is_exported"), list_of_run(connection)):
        query = f"SELECT {', '.join(table.columns)} FROM {table.name} WHERE run_id = :run_id ORDER BY {table.key}"
        rows = connection.execute(query, {"run_id": run_id}).fetchall()
        if rows:
            found[table.name] = [dict(zip(table.columns, row, strict=True)) for row in rows]
    return found


def _put_added(connection: Connection, run_id: str, added: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Store what `_read_added` read; what is of packages that are not installed here is left out."""
    for table in filter(attrgetter("is_exported"), list_of_run(connection)):
        names = ", ".join(f":{name}" for name in table.columns)
        for row in added.get(table.name, ()):
            values = {**{name: row[name] for name in table.columns}, "run_id": run_id}
            into = f"INSERT INTO {table.name} ({', '.join(table.columns)}) VALUES ({names})"
            connection.execute(f"{into} ON CONFLICT ({table.key}) DO NOTHING", values)


async def import_run(
    store: RunStore, content: Any, *, as_new: bool = False, workspace: str | Path | None = None
) -> Run:
    """Store a run from `export_run`, all of it or nothing. With `as_new` it gets a new id, and nothing of what other
    packages noted of the first one.

    Folders and servers of the original machine are dropped: its files are in `workspace`, or where
    those of a new run would be, and it uses the model and the documents of whoever resumes it.

    Raises:
        ConfigurationError: it is not an exported run, damaged, written by a later version, or its id is taken.
        TooLarge: a part of it is larger than the store accepts.
    """
    content = _check(content)
    run, states = _read(content)
    if as_new:
        states = {version: _keep_lineage(state, run.id) for version, state in states.items()}
        run = run.model_copy(update={"id": identity.new_id()})
    folder = workspace or Path(DEFAULT_WORKSPACES, run.id)
    run = run.model_copy(update={"config": run.config.reset_for_import(folder)})
    row = {**store.prepare_run(run), "version": content["run_version"], **lease_columns(None)}
    texts = {version: store.dump_checkpoint(run, state) for version, state in sorted(states.items())}
    place = run.config.team.workspace if run.config.team else None
    await store.database.write(partial(_import, run_id=run.id, row=row, texts=texts, content=content, folder=place))
    return run


def _keep_lineage(state: Checkpoint, run_id: str) -> Checkpoint:
    """Return the checkpoint of a run under another id: its journal is looked up under the id it was written with."""
    progress = state.reached
    return state.model_copy(update={"progress": progress.model_copy(update={"lineage": progress.lineage or run_id})})


def _import(
    connection: Connection,
    *,
    run_id: str,
    row: Values,
    texts: Mapping[int, bytes],
    content: Mapping[str, Any],
    folder: Path | None,
) -> None:
    stores.insert_run(connection, run_id, row)
    for version, text in texts.items():
        checkpoints.append_checkpoint(connection, run_id, version, text, encode(text))
    put_records(connection, run_id, content["journal"])
    for each in content["queued_answers"]:
        insert_queued(connection, run_id, Answer.model_validate(each))
    for _, events in groupby(_read_log(content["log"], folder), key=_row_of):
        together = list(events)
        append_events(connection, run_id, [event for _, event in together], together[-1][0])
    contents = [base64.b64decode(text) for text in content["contents"].values()]
    put_contents(connection, run_id, {digest(data): data for data in contents})
    if run_id == content["run"]["id"]:
        _put_added(connection, run_id, content.get("added", {}))
    append_events(connection, run_id, [RunImported(origin=content["run"]["id"])])


def _read_log(log: Iterable[Mapping[str, Any]], folder: Path | None = None) -> Iterator[tuple[int, LogEvent]]:
    for each in log:
        yield int(datetime.fromisoformat(each["at"]).timestamp()), _parse_event(each, folder)


def _row_of(entry: tuple[int, LogEvent]) -> tuple[int, int]:
    """Return what entries of a log share that are stored together: their time, or the segment of a transcript."""
    at, event = entry
    return (-1, event.segment) if isinstance(event, EntryAdded) else (at, 0)


def _parse_event(entry: Mapping[str, Any], folder: Path | None = None) -> LogEvent:
    """Return the event of a log entry; a change in the root team's folder is one in its folder here."""
    event = parse_event(entry["kind"], entry["detail"], entry["user"])
    if folder is None or not isinstance(event, FilesChanged):
        return event
    return replace(event, change=event.change.model_copy(update={"folder": os.path.realpath(folder), "machine": ""}))


def _check(content: Any) -> dict[str, Any]:
    """Return an exported run as this version exports it.

    Raises:
        ConfigurationError: a later version exported it, or it is something else.
    """
    if not isinstance(content, dict) or content.get("format") != KIND or not is_number(content.get(EXPORT.key)):
        raise ConfigurationError("This is not a run that upcall exported.")
    try:
        now = EXPORT.bring_up(content, "This exported run")
    except NewerFormat as error:
        raise ConfigurationError(str(error)) from error
    if content.get("digest") != _digest({name: each for name, each in content.items() if name != "digest"}):
        raise ConfigurationError("This exported run is damaged or was changed: its digest differs. Export it again.")
    return now


def _read(content: Mapping[str, Any]) -> tuple[Run, dict[int, Checkpoint]]:
    """Return the run and its checkpoints by version, checked in every part."""
    try:
        run = parse_run(content["run"], content["run"]["id"])
        states = {int(each["version"]): Checkpoint.from_json(each["state"], run.id) for each in content["checkpoints"]}
        for each in content["queued_answers"]:
            Answer.model_validate(each)
        for _ in _read_log(content["log"]):
            pass
        _check_added(content.get("added", {}))
    except NewerFormat as error:
        raise ConfigurationError(str(error)) from error
    except (SchemaMismatch, ValidationError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise ConfigurationError("This exported run cannot be read: it is damaged. Export it again.") from error
    if not states:
        raise ConfigurationError("This exported run has no checkpoint. Export it again.")
    return run, states


def _check_added(added: Mapping[str, Any]) -> None:
    """Check that rows of other packages' tables can be stored.

    Raises:
        LookupError, TypeError, AttributeError: they cannot.
    """
    for table in list_added():
        for row in added.get(table.name, ()):
            if not all(isinstance(row[name], str | int | float | None) for name in table.columns):
                raise TypeError(table.name)


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
