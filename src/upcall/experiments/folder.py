"""The folder of an experiment: only one start at a time works in it, and a replay begins with it empty."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from upcall.errors import ConfigurationError, StoredStateError
from upcall.trees import remove_tree

LOOK_S = 0.1
"""How long a start waits for those who only look whether the folder is held."""


class ExperimentBusy(StoredStateError):
    """The experiment is already running, in this process or in another. Nothing was started."""

    def __init__(self, folder: Path) -> None:
        super().__init__(
            f"The experiment in {folder} is already running. Wait until it ends, or stop it: finished trials are kept. "
            "To see its progress: upcall experiment FILE.yaml --dry-run"
        )
        self.folder = folder


@contextmanager
def hold_folder(folder: Path) -> Iterator[None]:
    """Keep others from working in a folder while the block lasts. A killed process releases its folder.

    Raises:
        ConfigurationError: the folder cannot be made or written.
        ExperimentBusy: it is in use, in this process or in another.
    """
    with ExitStack() as held:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            # A database that stays empty. Its lock ends with the process on every system, and works within one too.
            lock = held.enter_context(
                closing(sqlite3.connect(folder / "lock.db", timeout=LOOK_S, isolation_level=None))
            )
            lock.execute("BEGIN EXCLUSIVE")
        except sqlite3.Error as error:
            if error.sqlite_errorcode == sqlite3.SQLITE_BUSY:
                raise ExperimentBusy(folder) from error
            raise ConfigurationError(f"The folder {folder} cannot be used: {error}.") from error
        except OSError as error:
            raise ConfigurationError(f"The folder {folder} cannot be used: {error.strerror or error}.") from error
        yield


def is_held(folder: Path) -> bool:
    """Return whether somebody works in a folder."""
    try:
        with closing(
            sqlite3.connect(f"{(folder / 'lock.db').resolve().as_uri()}?mode=ro", uri=True, timeout=0)
        ) as lock:
            lock.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.Error as error:
        return getattr(error, "sqlite_errorcode", None) == sqlite3.SQLITE_BUSY
    return False


def choose_store(named: str | None, folder: Path, *, replay: bool) -> tuple[str, Path]:
    """Return the store of the runs, and the folder of their workspaces; both are emptied for a replay.

    Raises:
        ConfigurationError: a replay of runs done by workers, which record no replies.
    """
    if not replay:
        return named or str(folder / "runs.db"), folder / "work"
    if named is not None and "://" in named:
        raise ConfigurationError(
            "Runs that workers do over PostgreSQL have no recorded replies to replay. Use a file as the store."
        )
    for name in ("replay.db", "replay.db-wal", "replay.db-shm"):
        (folder / name).unlink(missing_ok=True)
    remove_tree(folder / "replay-work")  # A coder would tell its model what it finds there.
    return str(folder / "replay.db"), folder / "replay-work"
