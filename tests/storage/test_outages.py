"""A database that is away: one line in the log when that begins, one when it is over."""

from __future__ import annotations

import logging
import sqlite3
from pathlib import Path

import pytest

from upcall.errors import StoreUnavailable
from upcall.storage.databases import Outage, explain_errors
from upcall.storage.store import RunStore


def call(outage: Outage, verb: str, *, fails: bool) -> None:
    """Make a call that fails, or does not."""
    try:
        with explain_errors(verb, outage, "runs.db", lambda _: "Look at the disk."):
            if fails:
                raise sqlite3.OperationalError("disk I/O error")
    except StoreUnavailable:
        pass


@pytest.mark.parametrize(
    ("calls", "lines"),
    [
        ("read read", 0),
        ("read! read! write! read!", 1),
        ("read! read read", 2),
        ("write! read read", 1),  # A full disk: what can be read says nothing of what can be written.
        ("write! read write", 2),
        ("read! write", 2),
        ("read! write! read write", 2),
        ("read! read read! read", 4),
    ],
)
def test_outage_is_one_line_and_so_is_its_end(calls: str, lines: int, caplog: pytest.LogCaptureFixture) -> None:
    outage = Outage("runs.db")
    outage.reports = True
    for each in calls.split():
        call(outage, each.removesuffix("!"), fails=each.endswith("!"))
    assert len(caplog.records) == lines
    assert all("\n" not in record.getMessage() for record in caplog.records)


def test_process_that_does_not_stand_by_logs_no_outage(caplog: pytest.LogCaptureFixture) -> None:
    call(Outage("runs.db"), "read", fails=True)
    assert not caplog.records


async def test_store_reports_its_outage_once(caplog: pytest.LogCaptureFixture) -> None:
    Path("runs.db").write_bytes(b"no database" * 100)
    store = RunStore("runs.db")
    store.database.outage.reports = True
    for _ in range(5):
        with pytest.raises(StoreUnavailable):
            await store.list()
    Path("runs.db").unlink()
    await store.jobs.open()
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "Cannot read the store" in caplog.text
    assert "Waiting for it." in caplog.text
