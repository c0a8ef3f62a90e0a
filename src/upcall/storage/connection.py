"""An open transaction: the part of Python's DB-API that SQLite and psycopg share."""

from __future__ import annotations

import sqlite3
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeAlias, TypeVar

T = TypeVar("T")
Values: TypeAlias = Mapping[str, Any]
NO_VALUES: Values = {}


class Cursor(Protocol):
    """The rows of a statement, as tuples."""

    @property
    def rowcount(self) -> int:
        """The number of changed rows."""

    def fetchone(self) -> Any:
        """Return the next row, None at the end."""

    def fetchall(self) -> list[Any]:
        """Return the rest of the rows."""

    def __iter__(self) -> Iterator[Any]: ...


class Connection(Protocol):
    """A connection in a transaction. Statements name their values ``:name``, on both databases."""

    @property
    def dialect(self) -> str:
        """``sqlite`` or ``postgresql``."""

    @property
    def driver(self) -> Any:
        """The driver's own connection, for a library that writes in the same transaction."""

    def execute(self, statement: str, values: Values = NO_VALUES, /) -> Cursor:
        """Execute a statement."""

    def executemany(self, statement: str, rows: Iterable[Values], /) -> object:
        """Execute a statement once for each row of values."""


Work: TypeAlias = Callable[[Connection], T]
"""The work of one transaction: a plain function of its connection."""


def join_work(parts: Iterable[Work[object] | None]) -> Work[None]:
    """Return work that does all of these in turn."""
    some = [each for each in parts if each is not None]

    def work(connection: Connection) -> None:
        for each in some:
            each(connection)

    return work


def database_errors() -> tuple[type[Exception], ...]:
    """Return the error classes of the database drivers that are loaded."""
    psycopg = sys.modules.get("psycopg")
    return (sqlite3.Error,) if psycopg is None else (sqlite3.Error, psycopg.Error)
