"""The folder of a run on another machine: created or updated there from the run's records."""

from __future__ import annotations

import asyncio
import os
import platform
import tempfile
from collections.abc import Sequence
from pathlib import Path

from upcall.runs.file_changes import CannotRestore, Change, ChangeLog, FileState, holds_same, list_history
from upcall.text import show_name
from upcall.workspace.folder import Folder, Write
from upcall.workspace.staging import read_old
from upcall.workspace.undo import is_same, leave_used_folders


async def restore(log: ChangeLog, root: Path, changes: Sequence[Change]) -> None:
    """Restore a folder that began empty to the state after its changes, oldest first, unless it is in that state.

    If the last of them was made on this machine and the folder exists, it is left alone: somebody has since changed
    whatever differs in it. Files that the run never made, in the folder of another machine's run, are left alone too.

    Raises:
        CannotRestore: the content of the folder was not recorded completely, or cannot be written here.
    """
    folder, history = Folder(root), list_history(changes)
    is_there = await asyncio.to_thread(folder.root.is_dir)
    if is_there and changes[-1].machine in ("", platform.node()):
        return
    if not is_there and any(states[0] is not None for states in history.values()):
        raise CannotRestore("it does not exist, and contained files before the run that the store does not have")
    try:
        writes = [write for path, states in history.items() if (write := await _catch_up(log, folder, path, states))]
        await asyncio.to_thread(_bring_up_to_date if is_there else _make, folder, writes)
    except (OSError, ValueError) as error:
        raise CannotRestore(f"it cannot be made from the store: {error}") from error


async def _catch_up(log: ChangeLog, folder: Folder, path: str, states: Sequence[FileState | None]) -> Write | None:
    wanted = states[-1]
    try:
        now = await asyncio.to_thread(folder.state, path)
    except NotADirectoryError:
        now = None
    if is_same(now, wanted) or not any(holds_same(now, each) for each in states):
        return None
    if wanted is not None and not wanted.kept:
        raise CannotRestore(f"{show_name(path)} was too large to be kept in the store")
    return Write(path, now, wanted, await read_old(log, wanted))


def _bring_up_to_date(folder: Folder, writes: Sequence[Write]) -> None:
    folder.write(leave_used_folders(folder, writes))


def _make(folder: Folder, writes: Sequence[Write]) -> None:
    """Make the folder beside its place, then move it there whole: a kill in between leaves none."""
    if not writes:
        return
    folder.root.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".restore-", dir=folder.root.parent) as beside:
        made = Folder(Path(beside, "made"))
        made.write(writes)
        os.rename(made.root, folder.root)
