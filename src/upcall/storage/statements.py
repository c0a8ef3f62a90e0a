"""The statements of a store's daily work, each built once: to build one anew takes longer than to execute it."""

from __future__ import annotations

from functools import cache
from typing import Any

from sqlalchemy import BindParameter, Table, bindparam, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.sql.dml import Insert

from upcall.storage.tables import blobs, checkpoints, journal, log, mail, runs

_RUN: BindParameter[str] = bindparam("of_run")
_KEY: BindParameter[str] = bindparam("of_key")
_VERSION: BindParameter[int] = bindparam("of_version")
_WORKER: BindParameter[str] = bindparam("of_worker")
"""What a statement looks for. Its parameters have other names than the columns that it sets."""

INSERT_RUN = runs.insert().inline()
SELECT_RUN = select(runs.c.id).where(runs.c.id == _RUN)
SELECT_RECORD = select(runs.c.record).where(runs.c.id == _RUN)
SELECT_HEAD = select(runs.c.record, runs.c.version, runs.c.worker).where(runs.c.id == _RUN)
SELECT_BEAT = select(runs.c.beat).where(runs.c.id == _RUN)
SELECT_IDS = select(runs.c.id).where(runs.c.id.like(bindparam("pattern"), escape="/")).limit(3)
LOCK_RUN = runs.update().where(runs.c.id == _RUN).values(id=_RUN)
"""Changes nothing: from here on nobody else writes the run."""
UPDATE_HEAD = (
    runs.update()
    .where(runs.c.id == _RUN, runs.c.version == _VERSION)
    .values({name: bindparam(name) for name in ("version", "worker", "beat", "status", "user", "record", "created_at")})
)
RENEW = runs.update().where(runs.c.id == _RUN, runs.c.worker == _WORKER).values(beat=bindparam("beat"))
RELEASE = runs.update().where(runs.c.id == _RUN).values(worker=None)

INSERT_CHECKPOINT = checkpoints.insert().inline()
SELECT_STATE = select(checkpoints.c.state).where(checkpoints.c.run_id == _RUN, checkpoints.c.version == _VERSION)
SELECT_LAST_STATE = (
    select(checkpoints.c.version, checkpoints.c.state)
    .where(checkpoints.c.run_id == _RUN)
    .order_by(checkpoints.c.version.desc())
    .limit(1)
)
SELECT_VERSIONS = select(checkpoints.c.version).where(checkpoints.c.run_id == _RUN).order_by(checkpoints.c.version)

SELECT_BLOBS = select(blobs.c.hash, blobs.c.data).where(blobs.c.hash.in_(bindparam("hashes", expanding=True)))

INSERT_MAIL = mail.insert().inline()
SELECT_MAIL = select(mail.c.answer).where(mail.c.run_id == _RUN)
DELETE_MAIL = mail.delete().where(mail.c.run_id == _RUN)

SELECT_JOURNAL = select(journal.c.key, journal.c.record).where(journal.c.run_id == _RUN)
DELETE_JOURNAL = journal.delete().where(journal.c.run_id == _RUN)
DELETE_RECORD = journal.delete().where(journal.c.run_id == _RUN, journal.c.key == _KEY)

INSERT_LOG = log.insert().inline()


@cache
def insert_blobs(dialect: str) -> Any:
    """Store what is not there yet."""
    return _insert(blobs, dialect).on_conflict_do_nothing()


@cache
def put_record(dialect: str) -> Any:
    """Write a record of the journal, in the place of one that has its key."""
    insert = _insert(journal, dialect)
    return insert.on_conflict_do_update(
        index_elements=[journal.c.run_id, journal.c.key], set_={"record": insert.excluded.record}
    )


def _insert(table: Table, dialect: str) -> Any:
    made: Insert = postgresql.insert(table) if dialect == "postgresql" else sqlite.insert(table)
    return made.inline()
