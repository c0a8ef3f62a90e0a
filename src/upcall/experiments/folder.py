"""The folder of an experiment: one start at a time works in it, and a replay begins in it with nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from shutil import rmtree

from upcall.errors import ConfigurationError, ExperimentBusy


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Keep others from working in a folder, inside. What a process that was killed held is free.

    Raises:
        ConfigurationError: the folder cannot be made or written.
        ExperimentBusy: somebody works in it, in this process or in another.
    """
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # A database that stays empty. Its lock ends with the process on every system, and holds inside one too.
            lock = held.enter_context(closing(sqlite3.connect(folder / "lock.db", timeout=0, isolation_level=None)))
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise ExperimentBusy(folder) from error
            raise ConfigurationError(f"The folder {folder} cannot be used: {error}.") from error
        except OSError as error:
            raise ConfigurationError(f"The folder {folder} cannot be used: {error.strerror or error}.") from error
        yield


def choose_store(named: str | None, folder: Path, *, replay: bool) -> tuple[str, Path]:
    """Return where the runs are kept, and the folder of their workspaces; both are emptied for a replay.

    Raises:
        ConfigurationError: a replay of runs that are done by workers, which record no replies.
    """
    if not replay:
        return named or str(folder / "runs.db"), folder / "work"
    if named is not None and "://" in named:
        raise ConfigurationError(
            "Runs that workers do over PostgreSQL have no recorded replies to replay. Use a file as the store."
        )
    for name in ("replay.db", "replay.db-wal", "replay.db-shm"):
        (folder / name).unlink(missing_ok=True)
    rmtree(folder / "replay-work", ignore_errors=True)  # What a coder finds there it would tell its model.
    return str(folder / "replay.db"), folder / "replay-work"
