"""Taking back what a run changed in files: the last change, or a named one with all that came after it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

from upcall.errors import CallerError
from upcall.runs.file_changes import Change, ChangeLog, FileChange, digest, list_standing
from upcall.text import first_line
from upcall.workspace.folder import Content, Folder, Write
from upcall.workspace.staging import commit

TOOL = "undo"
"""What an undo is called in the log, beside the names of tools."""


async def undo(log: ChangeLog, run_id: str, change_id: str | None = None) -> list[Change]:
    """Undo a change and all that came after it, all of them or none; without an id the last. What was done to that end,
    a change for each folder.

    Raises:
        CallerError: there is no such change, or a file was changed since by somebody else; nothing was changed.
    """
    changes = _chosen(list_standing(await log.made()), run_id, change_id)
    undone = []
    by_folder: dict[str, list[Change]] = {}
    for change in changes:
        by_folder.setdefault(change.folder, []).append(change)
    prepared = [(Folder(Path(each)), await _writes(log, run_id, each, made)) for each, made in by_folder.items()]
    for (folder, writes), made in zip(prepared, by_folder.values(), strict=True):
        try:
            ids = [change.id for change in made]
            undone.append(await commit(folder, log, writes, tool=TOOL, undoes=ids))
        except (OSError, ValueError) as error:
            raise CallerError(f"Run {run_id} cannot be undone in {folder.root}: {first_line(error)}") from error
    return undone


def _chosen(changes: Sequence[Change], run_id: str, change_id: str | None) -> Sequence[Change]:
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


async def _writes(log: ChangeLog, run_id: str, place: str, changes: Sequence[Change]) -> list[Write]:
    """What is to be written in one folder, checked against what the files hold now."""
    folder = Folder(Path(place))
    if not await asyncio.to_thread(folder.root.is_dir):
        raise CallerError(f"Run {run_id} cannot be undone: its folder {place} is not there.")
    by_path: dict[str, list[FileChange]] = {}
    for change in changes:
        for file in change.files:
            by_path.setdefault(file.path, []).append(file)
    writes = []
    for path, made in by_path.items():
        first, last = made[0], made[-1]
        try:
            now = await asyncio.to_thread(folder.read, path)
        except (OSError, ValueError) as error:
            raise CallerError(f"Run {run_id} cannot be undone: {path}: {first_line(error)}") from error
        there = digest(now.data) if now else None
        if there == first.before:
            continue
        steps = pairwise(made)
        # The last one may have been recorded and never made: its process was killed in between.
        if there not in (last.after, last.before) or any(one.after != next_.before for one, next_ in steps):
            raise CallerError(
                f"Run {run_id} cannot be undone: {path} was changed since by somebody else. Nothing was changed; put "
                f"the file right by hand, what the run did to it is in: upcall log {run_id} --diff"
            )
        mode = first.mode if first.mode is not None else now.mode if now else 0
        after = None if first.before is None else Content(await log.content(first.before), mode)
        writes.append(Write(path, now, after))
    return writes
