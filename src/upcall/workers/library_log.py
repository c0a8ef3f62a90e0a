"""What the libraries of a worker log: procrastinate's queue, and psycopg with the pool of its connections.

While a database is away each of their tasks reports it again and again, with a traceback: 200 lines a minute that say
what the store says in one (`upcall.storage.databases.Outage`). What else they report is passed on.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from procrastinate.exceptions import ConnectorException
from psycopg_pool import PoolTimeout

from upcall.errors import StoreUnavailable
from upcall.text import first_line
from upcall.tracebacks import walk_causes

_LIBRARIES = ("procrastinate", "psycopg")
_OUTAGE = (StoreUnavailable, ConnectorException, psycopg.OperationalError, psycopg.InterfaceError, PoolTimeout)
_log = logging.getLogger("upcall")


class _PassOn(logging.Handler):
    """Passes on warnings and errors, but those of a database that is away."""

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if record.name.startswith("psycopg") or (
            error is not None and any(isinstance(each, _OUTAGE) for each in walk_causes(error))
        ):
            return
        message = f"{record.name}: {first_line(record.getMessage())}"
        _log.log(record.levelno, "%s", f"{message}: {error!r}" if error is not None else message)


@contextmanager
def quiet_libraries() -> Iterator[None]:
    """Let the libraries of a worker report what is not the database's outage, in one line each, inside."""
    handler = _PassOn(logging.WARNING)
    loggers = [logging.getLogger(name) for name in _LIBRARIES]
    before = [each.propagate for each in loggers]
    for each in loggers:
        each.addHandler(handler)
        each.propagate = False
    try:
        yield
    finally:
        for each, propagated in zip(loggers, before, strict=True):
            each.removeHandler(handler)
            each.propagate = propagated
