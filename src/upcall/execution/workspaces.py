"""A run's workspace on the machine that continues it: its own is rebuilt there, a named one must exist."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import TypeAlias, cast

from upcall.errors import ConfigurationError, UnknownRun, WorkspaceMissing, require_type
from upcall.extensions import find_added, load_added
from upcall.runs.config import make_absolute
from upcall.runs.events import FolderMissing
from upcall.runs.file_changes import CannotRestore, Change, ChangeLog, leaves_files
from upcall.runs.run import Run
from upcall.storage.change_log import StoredChanges
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredRun

RestoreFolder: TypeAlias = Callable[[ChangeLog, Path, Sequence[Change]], Awaitable[None]]
"""Makes a folder that began empty what its changes, oldest first, left; raises `CannotRestore`."""

_log = logging.getLogger("upcall")


def require_path(name: str, path: object) -> Path:
    """Return the argument `name` as an absolute path.

    Raises:
        ConfigurationError: it is neither text nor a path.
    """
    require_type(name, path, (str, Path), "a path, as text or Path")
    return make_absolute(cast("str | Path", path))


def refuse_unusable(folder: Path) -> None:
    """Refuse a workspace that cannot be made or written, before any work is done; it is made with its first file. An
    unnamed file tests this: the permissions of a folder are not reliable everywhere, as in ``/proc`` for root.

    Raises:
        ConfigurationError: it cannot be used.
    """
    there = folder
    try:
        with suppress(FileNotFoundError, NotADirectoryError):
            folder.lstat()
        there = next(each for each in (folder, *folder.parents) if each.exists())
        problem = "" if there.is_dir() else "it is not a folder"
        if not problem:
            TemporaryFile(dir=there).close()
    except ValueError as error:  # A NUL, or half a surrogate pair.
        raise ConfigurationError(f"The workspace {str(folder)!r} is not a path. Name another --workspace.") from error
    except OSError as error:
        problem = f"it cannot be written ({error.strerror})"
    if problem:
        raise ConfigurationError(
            f"The workspace {folder} cannot be used: {there}: {problem}. Name another --workspace."
        )


async def restore_workspace(store: RunStore, stored: StoredRun) -> None:
    """Ensure that the files changed by a run are here before its team continues with them.

    Raises:
        WorkspaceMissing: they are not, and cannot be rebuilt here.
        SchemaMismatch: their contents are damaged in the store.
    """
    run, team = stored.run, stored.run.config.team
    if team is None:
        return
    log = StoredChanges(store, run.id)
    changes, is_there = await log.list_changes(), await asyncio.to_thread(team.workspace.is_dir)
    if not changes:
        if not is_there and await _builds_on_changes(store, run):
            raise WorkspaceMissing(
                run.id, team.workspace, "it does not exist, and should contain the files of an earlier run"
            )
        return
    if team.has_own_workspace(run.id):
        if await store.leases.find_worker(stored) is None:
            try:
                if "restore" not in find_added("changes"):
                    raise CannotRestore("nothing installed here can make it from the store")
                restore: RestoreFolder = load_added("changes", "restore")
                await restore(log, team.workspace, changes)
            except CannotRestore as error:
                raise WorkspaceMissing(run.id, team.workspace, str(error)) from error
    elif not is_there and leaves_files(changes):
        raise WorkspaceMissing(run.id, team.workspace)


async def _builds_on_changes(store: RunStore, run: Run) -> bool:
    """Return whether a run starts with files of another run: it is a fork of that, or follows it in the
    same folder."""
    while earlier := run.forked_from or run.follows:
        try:
            before = (await store.load(earlier)).run
        except UnknownRun:
            return False
        if not run.forked_from and before.workspace != run.workspace:
            return False
        if await StoredChanges(store, before.id).list_changes():
            return True
        run = before
    return False


async def note_missing(store: RunStore, error: WorkspaceMissing) -> None:
    """Note in the run's log, once per machine, that it waits for a worker that has its folder."""
    event = FolderMissing(machine=error.machine, folder=str(error.folder))
    if any(each.event == event for each in await store.events.read(error.run_id, types=(FolderMissing,))):
        return
    _log.warning("%s", error)
    await store.events.append(error.run_id, event)
