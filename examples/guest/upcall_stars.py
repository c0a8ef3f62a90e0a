"""Gives each run that is completed a star for every question it asked, and lists the stars: ``upcall stars``."""

from collections.abc import Sequence

from upcall import Run, RunStatus, Settings, run_sync
from upcall.runs.events import LogEvent
from upcall.storage.connection import Connection, Work
from upcall.storage.schema import Table
from upcall.storage.store import Listener
from upcall.ui.cli.commands.store import StoreCommand, store_options

STARS = Table("stars", {"run_id": "NAME", "number": "NUMBER NOT NULL"}, "run_id")


def make_listener(settings: Settings) -> Listener:
    """Return what is given each change of a run. Its work is stored with the change, or not at all."""

    def listen(run: Run, events: Sequence[LogEvent]) -> Work[object] | None:
        if run.status is not RunStatus.COMPLETED:
            return None
        values = {"run_id": run.id, "number": len(run.answers)}
        insert = "INSERT INTO stars (run_id, number) VALUES (:run_id, :number) ON CONFLICT (run_id) DO NOTHING"
        return lambda connection: connection.execute(insert, values)

    return listen


@store_options
def stars(command: StoreCommand) -> None:
    """List the stars of all runs."""

    def read(connection: Connection) -> list[tuple[str, int]]:
        return connection.execute("SELECT run_id, number FROM stars ORDER BY run_id").fetchall()

    with command:
        found = run_sync(command.store.database.write(read))  # A first write makes the table.
        command.print_lines(dict(found), [f"{run_id}  {'*' * number}" for run_id, number in found])
