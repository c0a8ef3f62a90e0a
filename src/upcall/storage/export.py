"""A run as one JSON file: out of one store, into another."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from sqlalchemy import select
from sqlalchemy.engine import Connection

from upcall import identity
from upcall.errors import ConfigurationError, SchemaMismatch, UnknownRun
from upcall.questions.answer import Answer
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.config import DEFAULT_WORKSPACES
from upcall.runs.run import Run, RunProgress
from upcall.storage import packing
from upcall.storage import store as stores
from upcall.storage.blobs import insert_missing
from upcall.storage.change_log import exported_contents, import_contents
from upcall.storage.packing import Packed
from upcall.storage.store import RunStore
from upcall.storage.tables import checkpoints, journal, log, mail, runs

FORMAT, FORMAT_VERSION = "upcall-run", 1


async def export_run(store: RunStore, run_id: str, *, all_checkpoints: bool = False) -> dict[str, Any]:
    """All that is stored of a run, with its last checkpoint or all of them, and a digest over that.

    Raises:
        UnknownRun: there is no such run.
        SchemaMismatch: it is damaged.
    """
    stored = await store.load(run_id)
    return await store.database.read(partial(_export, run_id=stored.run.id, all_checkpoints=all_checkpoints))


def _export(connection: Connection, *, run_id: str, all_checkpoints: bool) -> dict[str, Any]:
    head = connection.execute(select(runs.c.version, runs.c.record).where(runs.c.id == run_id)).one_or_none()
    if head is None:
        raise UnknownRun(run_id)
    versions = stores.versions_of(connection, run_id=run_id)
    run, _ = stores.run_of(connection, head.record, run_id)
    entries = connection.execute(select(log).where(log.c.run_id == run_id).order_by(log.c.id)).all()
    content = {
        "format": FORMAT,
        "version": FORMAT_VERSION,
        "run": run.model_dump(mode="json", exclude_none=True),
        "run_version": head.version,
        "checkpoints": [
            {
                "version": version,
                "state": stores.checkpoint_at(connection, run_id=run_id, version=version).as_json(),
            }
            for version in (versions if all_checkpoints else versions[-1:])
        ],
        "journal": stores.records_of(connection, run_id=run_id),
        "mail": [answer.model_dump(mode="json") for answer in stores.mail_of(connection, run_id)],
        "log": [
            {"at": row.at, "kind": row.kind, "user": row.user, "detail": json.loads(row.detail)} for row in entries
        ],
    }
    content["contents"] = exported_contents(connection, run_id)
    return {**content, "digest": _digest(content)}


async def import_run(
    store: RunStore, content: Any, *, as_new: bool = False, workspace: str | Path | None = None
) -> Run:
    """Store a run that `export_run` gave, all of it or nothing. With `as_new` it gets a new id.

    Of the machine that it comes from it names no folder and no server here: its files are in `workspace`, or where
    those of a new run would be, and it has the model and the documents of whoever resumes it.

    Raises:
        ConfigurationError: it is no such run, damaged, written by a later version, or its id is taken.
        TooLarge: a part of it is larger than the store takes.
    """
    run, states = _read(content)
    if as_new:
        states = {version: _of_lineage(state, run.id) for version, state in states.items()}
        run = run.model_copy(update={"id": identity.new_id()})
    folder = workspace or Path(DEFAULT_WORKSPACES, run.id)
    run = run.model_copy(update={"config": run.config.reset_for_import(folder)})
    record = store.packed_record(run)
    packed = {version: store.packed_state(run, state) for version, state in states.items()}
    await store.database.write(partial(_import, run=run, record=record, states=packed, content=content))
    return run


def _of_lineage(state: Checkpoint, run_id: str) -> Checkpoint:
    """The checkpoint under another run's id: its journal is looked up under the id it was written with."""
    so_far = state.progress or RunProgress()
    return state.model_copy(update={"progress": so_far.model_copy(update={"lineage": so_far.lineage or run_id})})


def _import(
    connection: Connection, *, run: Run, record: Packed, states: Mapping[int, Packed], content: Mapping[str, Any]
) -> None:
    row = {"version": content["run_version"], "worker": None, "beat": time.time(), **stores.columns_of(run, record)}
    stores.insert_run(connection, run, row)
    insert_missing(connection, record.nodes)
    for version, state in states.items():
        insert_missing(connection, state.nodes)
        row = {"run_id": run.id, "version": version, "state": packing.seal(state.root)}
        connection.execute(checkpoints.insert().values(**row))
    for key, record_text in content["journal"].items():
        connection.execute(journal.insert().values(run_id=run.id, key=key, record=packing.seal_text(record_text)))
    for each in content["mail"]:
        answer = Answer.model_validate(each)
        row = {"run_id": run.id, "question_id": answer.question_id, "answer": answer.model_dump_json()}
        connection.execute(mail.insert().values(**row))
    for entry in content["log"]:
        row = {"run_id": run.id, "at": entry["at"], "kind": entry["kind"], "user": entry["user"]}
        connection.execute(log.insert().values(**row, detail=json.dumps(entry["detail"])))
    import_contents(connection, content.get("contents", {}))
    stores.add_to_log(connection, run.id, [("imported", None, {"from": content["run"]["id"]})])


def _read(content: Any) -> tuple[Run, dict[int, Checkpoint]]:
    """The run and its checkpoints by version, checked in every part."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ConfigurationError("This is no run that upcall exported.")
    if content.get("version") != FORMAT_VERSION:
        raise ConfigurationError(
            f"This run was exported in version {content.get('version')!r} of the format; this version of upcall reads "
            f"version {FORMAT_VERSION}. Use the version of upcall that exported it."
        )
    if content.get("digest") != _digest({name: each for name, each in content.items() if name != "digest"}):
        raise ConfigurationError(
            "This exported run is damaged or was changed: its digest does not fit. Export it again."
        )
    try:
        run = Run.model_validate(content["run"])
        states = {int(each["version"]): Checkpoint.from_json(each["state"], run.id) for each in content["checkpoints"]}
        for each in content["mail"]:
            Answer.model_validate(each)
    except (SchemaMismatch, ValidationError, LookupError, TypeError, ValueError) as error:
        raise ConfigurationError(
            "This exported run cannot be read. Use the version of upcall that exported it."
        ) from error
    if not states:
        raise ConfigurationError("This exported run has no checkpoint. Export it again.")
    return run, states


def _digest(content: Mapping[str, Any]) -> str:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()
