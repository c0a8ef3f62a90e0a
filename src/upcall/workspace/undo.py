"""Undoing a run's changes to files: the last change, or a named one with all later ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from upcall.errors import CallerError
from upcall.runs.file_changes import Change, ChangeLog, FileChange, FileState, holds_same, list_standing
from upcall.text import first_line, show_name
from upcall.workspace.changes import read_present
from upcall.workspace.folder import Folder, Write
from upcall.workspace.staging import commit, read_old

TOOL = "undo"
"""The name of an undo in the log, beside the names of tools."""


async def undo(log: ChangeLog, run_id: str, change_id: str | None = None) -> list[Change]:
    """Undo a change and all later ones, all or none; without an id the last.

    Returns:
        the changes made to undo them, one for each folder.

    Raises:
        CallerError: there is no such change, or somebody else has changed a file since; nothing was changed.
    """
    changes = _select(list_standing(await log.list_changes()), run_id, change_id)
    return await undo_calls(log, run_id, changes)


async def undo_calls(log: ChangeLog, run_id: str, changes: Sequence[Change]) -> list[Change]:
    """Undo these changes, oldest first, all or none, as `undo` does."""
    undone = []
    by_folder: dict[str, list[Change]] = {}
    for change in changes:
        by_folder.setdefault(change.folder, []).append(change)
    prepared = [(Folder(Path(each)), await _prepare(log, run_id, each, made)) for each, made in by_folder.items()]
    for (folder, writes), made in zip(prepared, by_folder.values(), strict=True):
        try:
            ids = [change.id for change in made]
            undone.append(await commit(folder, log, writes, tool=TOOL, undoes=ids))
        except (OSError, ValueError) as error:
            raise CallerError(f"Run {run_id} cannot be undone in {folder.root}: {first_line(error)}") from error
    return undone


async def find_undoable(log: ChangeLog, changes: Sequence[Change]) -> tuple[list[Change], list[str]]:
    """Find those of these changes whose files nobody has changed since but others that can be undone with them; and a
    line for each file of the rest."""
    chosen, undoable, remaining = {each.id for each in changes}, list[Change](), list[str]()
    staying: dict[tuple[str, str], str] = {}
    """Why a name cannot be put back to what it was before a change that is older than those that were looked at."""
    looked: set[tuple[str, str]] = set()
    for change in reversed(list_standing(await log.list_changes())):
        names = [(change.folder, file.path) for file in change.files]
        for name, file in zip(names, change.files, strict=True):
            if name not in looked and not await asyncio.to_thread(_is_as_left, change.folder, file):
                staying[name] = "somebody has changed it since"
            looked.add(name)
        if change.id not in chosen:
            staying |= {name: "work that stays has changed it since" for name in names if name not in staying}
        elif reasons := [staying[name] for name in names if name in staying]:
            remaining += [f"{show_name(path)}: {staying.get((place, path), reasons[0])}" for place, path in names]
            staying |= dict.fromkeys((name for name in names if name not in staying), reasons[0])
        else:
            undoable.insert(0, change)
    return undoable, list(dict.fromkeys(remaining))


def _is_as_left(place: str, file: FileChange) -> bool:
    """Return whether a name is what its last change left, and what was there before can be brought back."""
    try:
        now = Folder(Path(place)).state(file.path)
    except NotADirectoryError:
        now = None
    except (OSError, ValueError):
        return False
    return holds_same(now, file.after) and (file.before is None or file.before.kept)


def _select(changes: Sequence[Change], run_id: str, change_id: str | None) -> Sequence[Change]:
    if not changes:
        raise CallerError(f"Run {run_id} has no change that can be undone. See what it did with: upcall log {run_id}")
    if change_id is None:
        return changes[-1:]
    at = [number for number, each in enumerate(changes) if each.id == change_id]
    at = at or [number for number, each in enumerate(changes) if len(change_id) >= 4 and each.id.startswith(change_id)]
    if len(at) != 1:
        known = ", ".join(each.id for each in changes[-10:])
        raise CallerError(f"Run {run_id} has no change {change_id!r} that can be undone. It has: {known}.")
    return changes[at[0] :]


async def _prepare(log: ChangeLog, run_id: str, place: str, changes: Sequence[Change]) -> list[Write]:
    """Work out what to write in one folder, checked against what is there now."""
    folder = Folder(Path(place))
    if not await asyncio.to_thread(folder.root.is_dir):
        raise CallerError(f"Run {run_id} cannot be undone: its folder {place} does not exist.")
    by_path: dict[str, list[FileChange]] = {}
    for change in changes:
        for file in change.files:
            by_path.setdefault(file.path, []).append(file)
    writes = []
    for path, made in by_path.items():
        try:
            now = await asyncio.to_thread(folder.state, path)
        except NotADirectoryError:  # A folder on the way is something else now, to be undone as well.
            now = None
        except (OSError, ValueError) as error:
            raise CallerError(f"Run {run_id} cannot be undone: {show_name(path)}: {first_line(error)}") from error
        wanted = made[0].before
        if is_same(now, wanted):
            continue
        if not _is_ours(now, made):
            raise CallerError(
                f"Run {run_id} cannot be undone: somebody else has changed {show_name(path)} since. Nothing was "
                f"changed; correct the file by hand; what the run did to it is in: upcall log {run_id} --diff"
            )
        if wanted is not None and not wanted.kept:
            raise CallerError(
                f"Run {run_id} cannot be undone: {show_name(path)} was too large to be kept when the run changed it. "
                "Nothing was changed."
            )
        before, old = await asyncio.to_thread(read_present, folder, path, now)
        writes.append(Write(path, before, wanted, await read_old(log, wanted), old))
    return await asyncio.to_thread(leave_used_folders, folder, writes)


def is_same(now: FileState | None, wanted: FileState | None) -> bool:
    """Return whether a name has the wanted state, permissions included if they are known."""
    if now is None or wanted is None:
        return now is wanted
    return now.holds_same(wanted) and wanted.mode in (0, now.mode)


def _is_ours(now: FileState | None, made: Sequence[FileChange]) -> bool:
    """Return whether the run left what is there now.

    Its last change may have been recorded and never made: its process was killed in between.
    """
    last = made[-1]
    # Nobody else may have written in between either: their work would be lost without notice.
    there = any(holds_same(now, each) for each in (last.after, last.before))
    return there and all(holds_same(one.after, following.before) for one, following in pairwise(made))


def leave_used_folders(folder: Folder, writes: Sequence[Write]) -> list[Write]:
    """Leave out folders that somebody else has put something into: they stay."""
    gone = {each.path for each in writes if each.after is None}
    left: list[Write] = []
    for each in sorted(writes, key=lambda write: write.path, reverse=True):
        if each.after is None and each.before and each.before.kind == "folder":
            names = {f"{each.path}/{name}" for name in os.listdir(folder.root / each.path)}
            if not names <= gone:
                gone.discard(each.path)
                continue
        left.append(each)
    return left[::-1]
