"""From older schemas to the present one, with Alembic's operations: all steps in one transaction, or none.

Each step stands for itself: it uses no table of tables.py, which goes on changing. A new schema is made directly; a
test holds that both come to the same.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import sqlalchemy as sa
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy.engine import Connection

from upcall.storage import packing
from upcall.storage.blobs import insert_missing


def migrate(connection: Connection, found: int) -> None:
    """Bring the tables from the version `found` to the present one."""
    operations = Operations(MigrationContext.configure(connection))
    for version, step in sorted(STEPS.items()):
        if version > found:
            step(operations, connection)
            connection.execute(
                sa.text("UPDATE upcall_meta SET value = :v WHERE key = 'schema_version'"), {"v": version}
            )


def _mail(operations: Operations, _: Connection) -> None:
    """Answers that come while a team is at work."""
    operations.create_table(
        "upcall_mail",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("question_id", sa.String, primary_key=True),
        sa.Column("answer", sa.Text, nullable=False),
    )


def _leases(operations: Operations, _: Connection) -> None:
    """Who works on a run; a journal and a log."""
    operations.add_column("upcall_runs", sa.Column("worker", sa.Text))
    operations.add_column("upcall_runs", sa.Column("beat", sa.Float))
    operations.create_table(
        "upcall_journal",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("record", sa.Text, nullable=False),
    )
    operations.create_table(
        "upcall_log",
        sa.Column("id", sa.Integer, primary_key=True, autoincrement=True),
        sa.Column("run_id", sa.String, nullable=False),
        sa.Column("at", sa.String, nullable=False),
        sa.Column("kind", sa.String, nullable=False),
        sa.Column("user", sa.String),
        sa.Column("detail", sa.Text, nullable=False),
    )
    operations.create_index("ix_upcall_log_run_id", "upcall_log", ["run_id"])


def _nodes(operations: Operations, connection: Connection) -> None:
    """JSON texts become compressed nodes, stored once; a run keeps all its checkpoints."""
    for name in ("upcall_runs", "upcall_checkpoints", "upcall_journal"):
        _put_aside(operations, connection, name)
    operations.drop_index("ix_upcall_runs_created_at", "upcall_runs_3")
    operations.create_table(
        "upcall_blobs",
        sa.Column("hash", sa.LargeBinary, primary_key=True),
        sa.Column("data", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    runs = operations.create_table(
        "upcall_runs",
        sa.Column("id", sa.String, primary_key=True),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("status", sa.String, nullable=False),
        sa.Column("user", sa.String),
        sa.Column("record", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.String, nullable=False),
        sa.Column("worker", sa.Text),
        sa.Column("beat", sa.Float),
    )
    operations.create_index("ix_upcall_runs_created_at", "upcall_runs", ["created_at"])
    checkpoints = operations.create_table(
        "upcall_checkpoints",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("state", sa.LargeBinary, nullable=False),
    )
    journal = operations.create_table(
        "upcall_journal",
        sa.Column("run_id", sa.String, primary_key=True),
        sa.Column("key", sa.String, primary_key=True),
        sa.Column("record", sa.LargeBinary, nullable=False),
    )
    for row in _rows(connection, "upcall_runs_3", "id"):
        connection.execute(runs.insert().values({**row, "record": _packed(connection, row["record"])}))
    for row in _rows(connection, "upcall_checkpoints_3", "run_id"):
        connection.execute(checkpoints.insert().values({**row, "state": _packed(connection, row["state"])}))
    for row in _rows(connection, "upcall_journal_3", "run_id", "key"):
        connection.execute(journal.insert().values({**row, "record": packing.seal_text(row["record"])}))
    for name in ("upcall_runs_3", "upcall_checkpoints_3", "upcall_journal_3"):
        operations.drop_table(name)


def _put_aside(operations: Operations, connection: Connection, name: str) -> None:
    operations.rename_table(name, f"{name}_3")
    if connection.dialect.name == "postgresql":  # Its keys have names of their own, which the new tables take.
        operations.execute(f"ALTER INDEX {name}_pkey RENAME TO {name}_3_pkey")


def _rows(connection: Connection, table: str, *key: str) -> Iterator[dict[str, Any]]:
    """The rows one by one: each may be large."""
    found = sa.Table(table, sa.MetaData(), autoload_with=connection)
    for names in connection.execute(sa.select(*(found.c[each] for each in key))).all():
        wanted = [found.c[each] == name for each, name in zip(key, names, strict=True)]
        yield dict(connection.execute(sa.select(found).where(*wanted)).mappings().one())


def _packed(connection: Connection, text: str) -> bytes:
    try:
        value = json.loads(text)
    except ValueError:
        value = text  # It was damaged before; that is said when it is read.
    packed = packing.packed(value)
    insert_missing(connection, packed.nodes)
    return packing.seal(packed.root)


STEPS: dict[int, Callable[[Operations, Connection], None]] = {2: _mail, 3: _leases, 4: _nodes}
