"""The tables of a store, the same on SQLite and PostgreSQL."""

from __future__ import annotations

from sqlalchemy import Column, Float, Integer, LargeBinary, MetaData, String, Table, Text

SCHEMA_VERSION = 4
"""Raised with each change of a table or of what a column holds; migrations.py then gets the step."""

metadata = MetaData()
meta = Table("upcall_meta", metadata, Column("key", String, primary_key=True), Column("value", String))
runs = Table(
    "upcall_runs",
    metadata,
    Column("id", String, primary_key=True),
    Column("version", Integer, nullable=False),
    Column("status", String, nullable=False),
    Column("user", String),
    Column("record", LargeBinary, nullable=False),
    Column("created_at", String, nullable=False, index=True),
    Column("worker", Text),
    Column("beat", Float),
)
checkpoints = Table(
    "upcall_checkpoints",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("version", Integer, primary_key=True, autoincrement=False),
    Column("state", LargeBinary, nullable=False),
)
blobs = Table(
    "upcall_blobs",
    metadata,
    Column("hash", LargeBinary, primary_key=True),
    Column("data", LargeBinary, nullable=False),
    sqlite_with_rowid=False,  # With row ids each hash would be stored twice.
)
mail = Table(
    "upcall_mail",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("question_id", String, primary_key=True),
    Column("answer", Text, nullable=False),
)
journal = Table(
    "upcall_journal",
    metadata,
    Column("run_id", String, primary_key=True),
    Column("key", String, primary_key=True),
    Column("record", LargeBinary, nullable=False),
)
log = Table(
    "upcall_log",
    metadata,
    Column("id", Integer, primary_key=True, autoincrement=True),
    Column("run_id", String, nullable=False, index=True),
    Column("at", String, nullable=False),
    Column("kind", String, nullable=False),
    Column("user", String),
    Column("detail", Text, nullable=False),
)
OF_A_RUN = (checkpoints, mail, journal, log)
"""What belongs to a run, beside its row and the blobs that it shares with others."""
