"""From one format of the tables to the next: every released format is upgraded by every later version of upcall.

The rules:

- A format is a number, of the core's tables and of those of each guest. It rises with each change of a table, of an
  index that must be there, or of what a column holds that the version before could not read (what has a number of its
  own, `upcall.formats`, is upgraded when it is loaded).
- `STEPS` has one step for each format after the first; a guest has its own in the group ``upcall.upgrades``, under the
  name of its tables. A step that was released is never changed.
- All steps that are missing are done in one transaction, so that a store is old or new and never between.
- Old and new programs may work side by side: `TableUpgrade.expand` adds what the new ones need and leaves the old
  ones working, `TableUpgrade.contract` takes away what only the old ones need, once they are gone. The store says which
  formats a program must know to work on it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from upcall.errors import SchemaMismatch
from upcall.extensions import find_added, load_added
from upcall.formats import refuse_newer
from upcall.storage.connection import Connection, Work

FIRST_RELEASE = "0.1.0"
"""The version of upcall that came with the first format."""

CORE = "core"
"""The name of the core's tables among those of the guests."""


@dataclass(frozen=True)
class TableUpgrade:
    """What brings tables to the next format.

    Attributes:
        release: the version of upcall, or of the guest, that came with that format.
        expand: adds what programs of that format need.
        contract: takes away what only programs of the format before need; None if there is nothing.
        breaks: whether programs of the format before cannot work on the tables after `expand`.
    """

    release: str
    expand: Work[object]
    contract: Work[object] | None = None
    breaks: bool = False


STEPS: Sequence[TableUpgrade] = ()
"""Those of the core's tables: the first brings format 1 to format 2."""


@dataclass(frozen=True)
class TableFormat:
    """The format that some tables of a store have.

    Attributes:
        number: the format.
        reads_from: the oldest format whose programs may work on them.
        needs: the version that came with that one.
    """

    number: int = 1
    reads_from: int = 1
    needs: str = FIRST_RELEASE


@dataclass(frozen=True)
class Pending:
    """A step that a store has yet to make."""

    tables: str
    number: int
    step: TableUpgrade

    def __str__(self) -> str:
        return f"{self.tables}: format {self.number - 1} to {self.number} (upcall {self.step.release})"


def list_steps() -> Mapping[str, Sequence[TableUpgrade]]:
    """Return the steps of the core, and of each guest that adds tables, by name.

    Raises:
        ConfigurationError: those of a guest cannot be loaded.
    """
    guests = find_added("upgrades")
    added = {name: load_added("upgrades", name) if name in guests else () for name in find_added("tables")}
    return {CORE: STEPS, **added}


def put_new(connection: Connection, tables: str) -> None:
    """Note that tables were made as this version makes them."""
    steps = list_steps()[tables]
    number = 1 + len(steps)
    _put(connection, tables, TableFormat(number, number, steps[-1].release if steps else FIRST_RELEASE))


def read_formats(connection: Connection, name: str) -> Mapping[str, TableFormat]:
    """Read the formats of a store's tables, as `parse_formats` does."""
    return parse_formats(dict(connection.execute("SELECT key, value FROM upcall_meta").fetchall()), name)


def parse_formats(rows: Mapping[str, str], name: str) -> Mapping[str, TableFormat]:
    """Return the formats of a store's tables, by what the store notes. Those of a guest that has none noted have the
    first.

    Raises:
        SchemaMismatch: the store has none, or what is no format.
    """
    found = {}
    for tables in list_steps():
        values = [rows.get(_key(tables, field)) for field in ("format", "reads_from", "needs")]
        if tables != CORE and values == [None, None, None]:
            found[tables] = TableFormat()
            continue
        try:
            number, reads_from, needs = map(str, values)
            found[tables] = TableFormat(int(number), int(reads_from), needs)
        except ValueError:
            raise SchemaMismatch(
                f"The store {name} has no format: it was made before upcall {FIRST_RELEASE} was released, or it is "
                "damaged. Choose another store with --store."
            ) from None
    return found


def refuse_unknown(formats: Mapping[str, TableFormat], name: str) -> None:
    """Refuse tables that this version cannot work on.

    Raises:
        NewerFormat: they have a later format, and leave none of this version's working.
    """
    for tables, steps in list_steps().items():
        found, known = formats[tables], 1 + len(steps)
        if found.number > known and found.reads_from > known:
            what = f"The store {name}" if tables == CORE else f"What {tables!r} keeps in the store {name}"
            raise refuse_newer(what, found.number, known, found.needs)


def list_pending(formats: Mapping[str, TableFormat]) -> Sequence[Pending]:
    """List the steps whose `TableUpgrade.expand` a store has yet to make, in their order."""
    return [
        Pending(tables, number, steps[number - 2])
        for tables, steps in list_steps().items()
        for number in range(formats[tables].number + 1, len(steps) + 2)
    ]


def list_unfinished(formats: Mapping[str, TableFormat]) -> Sequence[Pending]:
    """List the steps behind which programs of the format before may still work."""
    return [
        Pending(tables, number, steps[number - 2])
        for tables, steps in list_steps().items()
        for number in range(formats[tables].reads_from + 1, min(formats[tables].number, len(steps) + 1) + 1)
    ]


def expand_tables(connection: Connection, name: str) -> Sequence[Pending]:
    """Make the steps that are missing, in the caller's transaction; return them. Programs of the formats before go on
    working, unless a step says otherwise."""
    formats = dict(read_formats(connection, name))
    pending = list_pending(formats)
    for each in pending:
        found = formats[each.tables]
        if each.step.breaks:
            _contract(connection, formats, each.tables)
        each.step.expand(connection)
        reads_from = each.number if each.step.breaks else formats[each.tables].reads_from
        needs = each.step.release if each.step.breaks else found.needs
        formats[each.tables] = TableFormat(each.number, reads_from, needs)
    for tables in {each.tables for each in pending}:
        _put(connection, tables, formats[tables])
    return pending


def contract_tables(connection: Connection, name: str) -> Sequence[Pending]:
    """Take away what only programs of formats before the newest need, in the caller's transaction; return the steps."""
    formats = dict(read_formats(connection, name))
    unfinished = list_unfinished(formats)
    for tables in {each.tables for each in unfinished}:
        _contract(connection, formats, tables)
        _put(connection, tables, formats[tables])
    return unfinished


def _contract(connection: Connection, formats: dict[str, TableFormat], tables: str) -> None:
    found = formats[tables]
    for number in range(found.reads_from + 1, found.number + 1):
        step = list_steps()[tables][number - 2]
        if step.contract is not None:
            step.contract(connection)
        formats[tables] = TableFormat(found.number, number, step.release)


def _put(connection: Connection, tables: str, found: TableFormat) -> None:
    for key, value in _rows(tables, found):
        connection.execute(
            "INSERT INTO upcall_meta (key, value) VALUES (:key, :value) "
            "ON CONFLICT (key) DO UPDATE SET value = excluded.value",
            {"key": key, "value": value},
        )
    if connection.dialect == "sqlite":  # Programs that have the file open see by it that they have to look again.
        (changes,) = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {changes + 1}")


def _rows(tables: str, found: TableFormat) -> Iterator[tuple[str, str]]:
    values = {"format": found.number, "reads_from": found.reads_from, "needs": found.needs}
    yield from ((_key(tables, field), str(value)) for field, value in values.items())


def _key(tables: str, field: str) -> str:
    return field if tables == CORE else f"{tables}.{field}"
