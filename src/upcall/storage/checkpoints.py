"""The checkpoints of a run as reverse deltas: the newest one whole, each older one by its successor as prefix.

The newest is read without the others, a pause adds only what is new, and the oldest ones can be removed like any
other rows. A checkpoint with a successor stays whole if a delta would not save half of its bytes, or if the
deltas before it have grown to its size: these copies at most double the size of the deltas, and a damaged checkpoint
does not make all older ones unreadable.

The column ``deltas`` contains the bytes of the deltas since the last older whole checkpoint; it is empty for a
checkpoint that is a delta itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from upcall.errors import NewerFormat, SchemaMismatch, UnknownRun
from upcall.storage.compression import Damaged, UnknownDictionary, decode, encode
from upcall.storage.connection import Connection, database_errors
from upcall.storage.databases import is_unreadable

if TYPE_CHECKING:
    from upcall.runs.checkpoint import Checkpoint


def parse_checkpoint(text: bytes, run_id: str, *, bare: bool = False) -> Checkpoint:
    """Return the checkpoint in a JSON text, or a `bare` one without the state of its team. It is loaded here, with
    AutoGen: lists and reports of runs need none.

    Raises:
        SchemaMismatch: it has another version, or is damaged.
    """
    from upcall.runs.checkpoint import Checkpoint

    return Checkpoint.load_bare(text, run_id) if bare else Checkpoint.load(text, run_id)


def append_checkpoint(connection: Connection, run_id: str, version: int, text: bytes, whole: bytes) -> None:
    """Store the next checkpoint, given as JSON text and as `encode`d bytes; the previous one becomes a delta."""
    deltas = 0
    last = connection.execute(
        "SELECT version, state, deltas FROM upcall_checkpoints WHERE run_id = :run_id ORDER BY version DESC LIMIT 1",
        {"run_id": run_id},
    ).fetchone()
    if last is not None and last[2] is not None and last[2] < len(last[1]):
        try:
            delta = encode(decode(last[1]), prefix=text)
        except Damaged:
            pass  # It stays as it is, for a check to find.
        else:
            if len(delta) < len(last[1]) / 2:
                deltas = last[2] + len(delta)
                connection.execute(
                    "UPDATE upcall_checkpoints SET state = :state, deltas = NULL "
                    "WHERE run_id = :run_id AND version = :version",
                    {"state": delta, "run_id": run_id, "version": last[0]},
                )
    insert_whole(connection, run_id, version, whole, deltas)


def insert_whole(connection: Connection, run_id: str, version: int, whole: bytes, deltas: int = 0) -> None:
    """Store a checkpoint that `encode` returned without a prefix."""
    connection.execute(
        "INSERT INTO upcall_checkpoints (run_id, version, state, deltas) VALUES (:run_id, :version, :state, :deltas)",
        {"run_id": run_id, "version": version, "state": whole, "deltas": deltas},
    )


def list_versions(connection: Connection, run_id: str) -> list[int]:
    """List the versions of a run that have a checkpoint, oldest first."""
    query = "SELECT version FROM upcall_checkpoints WHERE run_id = :run_id ORDER BY version"
    return [version for (version,) in connection.execute(query, {"run_id": run_id}).fetchall()]


def load_newest(connection: Connection, run_id: str) -> Checkpoint:
    """Load the newest checkpoint of a run.

    Raises:
        SchemaMismatch: there is none, or it is damaged; the text names the newest intact one.
    """
    row = connection.execute(
        "SELECT version, state FROM upcall_checkpoints WHERE run_id = :run_id ORDER BY version DESC LIMIT 1",
        {"run_id": run_id},
    ).fetchone()
    if row is None:
        raise SchemaMismatch(f"The stored run {run_id} has no checkpoint. See what is damaged: upcall store check")
    try:
        text = decode(row[1])
    except Damaged as error:
        raise _explain_damage(connection, run_id, row[0], error) from error
    return parse_checkpoint(text, run_id)


def load_at(connection: Connection, run_id: str, version: int) -> Checkpoint:
    """Load one of the checkpoints of a run.

    Raises:
        UnknownRun: there is none of this version.
        SchemaMismatch: it is damaged; the text names the newest intact one before it.
    """
    for found, text in read_texts(connection, run_id, version):
        if found == version:
            if isinstance(text, Damaged):
                raise _explain_damage(connection, run_id, version, text) from text
            return parse_checkpoint(text, run_id)
    raise UnknownRun(run_id, f"it has no checkpoint of version {version}")


def load_since(connection: Connection, run_id: str, version: int) -> dict[int, Checkpoint]:
    """Load the checkpoints of a run from this version on, by version, oldest first.

    Raises:
        SchemaMismatch: one of them is damaged.
    """
    found = {}
    for each, text in read_texts(connection, run_id, version):
        if isinstance(text, Damaged):
            raise _explain_damage(connection, run_id, each, text) from text
        found[each] = parse_checkpoint(text, run_id)
    return dict(reversed(found.items()))


def go_back_to(connection: Connection, run_id: str, version: int, text: bytes) -> None:
    """Remove all checkpoints after the one of this version, found by `find_whole`; it then is whole."""
    values = {"run_id": run_id, "version": version}
    connection.execute("DELETE FROM upcall_checkpoints WHERE run_id = :run_id AND version >= :version", values)
    insert_whole(connection, run_id, version, encode(text))


def find_whole(connection: Connection, run_id: str, before: int) -> tuple[int, bytes] | None:
    """Find the newest readable checkpoint before a version: its version and its text."""
    for version, text in read_texts(connection, run_id):
        if version < before and isinstance(text, bytes):
            try:
                parse_checkpoint(text, run_id)
            except NewerFormat:
                raise  # A later version reads it: nothing is to go back behind it.
            except SchemaMismatch:
                continue
            return version, text
    return None


def read_texts(connection: Connection, run_id: str, until: int = 0) -> Iterator[tuple[int, bytes | Damaged]]:
    """Read the checkpoints of a run as JSON text, newest first, down to the version `until`; a damaged one yields
    its error."""
    text: bytes | Damaged = Damaged("the one after it is missing")
    for version in reversed(list_versions(connection, run_id)):
        if version < until:
            return
        text = _read_text(connection, run_id, version, text)
        yield version, text


def _read_text(connection: Connection, run_id: str, version: int, successor: bytes | Damaged) -> bytes | Damaged:
    try:
        # One by one: where a page of the file is damaged, the others can be read all the same.
        state, deltas = connection.execute(
            "SELECT state, deltas FROM upcall_checkpoints WHERE run_id = :run_id AND version = :version",
            {"run_id": run_id, "version": version},
        ).fetchone()
        if deltas is not None:
            return decode(state)
        if isinstance(successor, Damaged):
            return Damaged(f"it is stored by its successor, and of that one {successor}")
        return decode(state, prefix=successor)
    except Damaged as error:
        return error
    except database_errors() as error:
        if not is_unreadable(error):
            raise
        return Damaged("the file cannot be read there")


def _explain_damage(connection: Connection, run_id: str, version: int, error: Damaged) -> SchemaMismatch:
    if isinstance(error, UnknownDictionary):
        return error.explain(f"The checkpoint of run {run_id} (version {version})", "")
    whole = find_whole(connection, run_id, version)
    remedy = (
        "No older one is whole: start the task again, or restore the database from a backup."
        if whole is None
        else f"The one of version {whole[0]} is whole; go back to it with: upcall store restore {run_id}"
    )
    return SchemaMismatch(f"The checkpoint of run {run_id} (version {version}) is damaged: {error}. {remedy}")
