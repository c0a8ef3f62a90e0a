"""The nodes of stored values in their table: written where they are not there yet, read and checked by their hashes."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeVar

from sqlalchemy.engine import Connection
from sqlalchemy.exc import DatabaseError

from upcall.storage import packing
from upcall.storage import statements as sql
from upcall.storage.packing import DamagedNode, Node

T = TypeVar("T")
AT_ONCE = 500
"""How many values one statement names; databases have a limit."""


def batches(values: Iterable[T]) -> Iterator[list[T]]:
    """The values, so many at once as a statement may name."""
    rest = iter(values)
    while batch := list(islice(rest, AT_ONCE)):
        yield batch


def insert_missing(connection: Connection, nodes: Mapping[bytes, Node]) -> None:
    """Store the nodes that are not there yet."""
    # In one order, so that two writers with the same nodes wait for each other and do not block each other.
    rows = [{"hash": each, "data": packing.dump(nodes[each])} for each in sorted(nodes)]
    insert_rows(connection, rows)


def insert_rows(connection: Connection, rows: Sequence[Mapping[str, Any]]) -> None:
    """As `insert_missing`, with what is stored already in its form."""
    if rows:
        connection.execute(sql.insert_blobs(connection.dialect.name), rows)


def fetch(connection: Connection, hashes: Collection[bytes]) -> dict[bytes, bytes]:
    """The stored forms of these nodes, as far as they are there and the file can be read."""
    found: dict[bytes, bytes] = {}
    for batch in batches(hashes):
        try:
            found |= _rows(connection, batch)
        except DatabaseError as error:
            if not unreadable(error):
                raise
            for each in batch:  # A damaged page holds some of them.
                with contextlib.suppress(DatabaseError):
                    found |= _rows(connection, [each])
    return found


def _rows(connection: Connection, hashes: list[bytes]) -> dict[bytes, bytes]:
    rows = connection.execute(sql.SELECT_BLOBS, {"hashes": hashes})
    return {bytes(row.hash): bytes(row.data) for row in rows}


def unreadable(error: DatabaseError) -> bool:
    """Whether an SQLite file is damaged where it was read."""
    return "malformed" in str(error.orig)


class Nodes:
    """The nodes under some roots, read level by level.

    A node that is damaged is told when it is needed: others can be read all the same.
    """

    def __init__(self, connection: Connection, roots: Iterable[Node]) -> None:
        self._stored: dict[bytes, bytes] = {}
        self._connection = connection
        for _ in packing.reachable([each for root in roots for each in root.references], self._below):
            pass

    def _below(self, level: Collection[bytes]) -> list[bytes]:
        found = fetch(self._connection, level)
        self._stored |= found
        return [each for stored in found.values() for each in references_or_none(stored)]

    @property
    def hashes(self) -> frozenset[bytes]:
        """Those that were found."""
        return frozenset(self._stored)

    def __getitem__(self, name: bytes) -> Node:
        stored = self._stored.get(name)
        if stored is None:
            raise DamagedNode(f"its part {name.hex()} is missing")
        return packing.load(stored, name)

    def value(self, root: Node) -> Any:
        """The value of a root.

        Raises:
            DamagedNode: a node is missing or damaged.
        """
        return packing.unpacked(root, self.__getitem__)


def references_or_none(stored: bytes, *, sealed: bool = False) -> list[bytes]:
    """What a stored node names; nothing where it is damaged, which is told when it is read."""
    try:
        return packing.references(stored, sealed=sealed)
    except DamagedNode:
        return []
