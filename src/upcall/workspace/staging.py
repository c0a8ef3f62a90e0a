"""Changes to a folder, made whole and recorded: shared by file tools, commands and undo.

A change is recorded, with what it removes, before any of it is made. Whoever finds an interrupted one completes it
(`finish`), or reverts what was made.
"""

from __future__ import annotations

import asyncio
import platform
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from upcall.autogen.concurrency import run_to_completion
from upcall.runs.file_changes import Change, ChangeLog, FileChange, FileState, make_diff
from upcall.text import show_on_line
from upcall.workspace.changes import is_as_left
from upcall.workspace.folder import ChangedMeanwhile, Folder, Write

MAX_DIFF_CHARS = 20_000
"""How many characters of the diff of one file are kept."""

MAX_DIFFS_CHARS = 300_000
"""How many characters of the diffs of one change are kept: one of very many files names them all, and shows the
first."""

MAX_DIFFED_BYTES = 1_000_000
"""A larger file is not compared: its diff would say little and take long."""


class _Lost(Exception):
    """The content that a change was to write is neither in the log nor staged any more."""


async def commit(
    folder: Folder,
    log: ChangeLog,
    writes: Sequence[Write],
    *,
    tool: str,
    call: str | None = None,
    undoes: Sequence[str] = (),
    output: str = "",
    aside: Path | None = None,
) -> Change:
    """Record a change, then make it, even if the caller is cancelled meanwhile.

    Raises:
        ChangedMeanwhile: a file is not what it should be; nothing was changed.
        OSError: it could not be written; nothing was changed.
    """
    files = await asyncio.to_thread(lambda: tuple(_record_files(writes)))
    change = Change(
        tool=tool,
        folder=str(folder.root),
        files=files,
        call=call,
        undoes=tuple(undoes),
        output=output,
        machine=platform.node(),
    )

    async def work() -> None:
        # First: a missing folder with changes in the log counts as lost.
        await asyncio.to_thread(folder.make_for, writes)
        await log.record(change, await asyncio.to_thread(_contents, writes))
        try:
            await asyncio.to_thread(folder.write, writes, aside)
        except BaseException:
            await log.drop(change)
            raise

    await run_to_completion(work())
    return change


async def finish(folder: Folder, log: ChangeLog, change: Change, staged: Path | None = None) -> bool:
    """Complete a recorded change that was cut off; return whether all of it is made now.

    Its contents are in the log, or in the folder `staged` under the same path. If they are in neither, what was made is
    reverted and the change dropped. If a file is neither in its old nor in its new state, the change was not made or
    others came after it, and nothing is done.
    """
    left, made = list[FileChange](), list[FileChange]()
    for file in change.files:
        now = await asyncio.to_thread(folder.state, file.path)
        # Made first: a file with the same content before and after, in another mode, is both.
        if is_made(file, now):
            made.append(file)
        elif now is None or now.holds_same(file.before):
            left.append(file.model_copy(update={"before": now}))
        else:
            return False
    try:
        writes = [Write(each.path, each.before, each.after, await _source(log, each, staged)) for each in left]
    except _Lost:
        back = [Write(each.path, each.after, each.before, await read_old(log, each.before)) for each in made]
        await run_to_completion(asyncio.to_thread(folder.write, back))
        await log.drop(change)
        return False
    with suppress(ChangedMeanwhile):
        await run_to_completion(asyncio.to_thread(folder.write, writes))
        return True
    return False


def is_made(file: FileChange, now: FileState | None) -> bool:
    """Return whether a file of a change is in its new state, given what is there now."""
    if now is None or file.after is None:
        return now is file.after
    same_mode = file.after.mode in (0, now.mode) or not now.holds_same(file.before)
    return now.holds_same(file.after) and same_mode


async def read_old(log: ChangeLog, state: FileState | None) -> bytes:
    """Read the content of a file, or the target of a link, from before a change."""
    return await log.read_content(state.digest) if state is not None and state.kind != "folder" else b""


async def _source(log: ChangeLog, file: FileChange, staged: Path | None) -> bytes | Path:
    if file.after is None or file.after.kept:
        return await read_old(log, file.after)
    if staged is not None and await asyncio.to_thread(is_as_left, staged / file.path, file.after):
        return staged / file.path
    raise _Lost


def describe(write: Write, limit: int = MAX_DIFF_CHARS) -> str:
    """Return what a write changes in a file or a link, as a diff cut at `limit` characters."""
    old, new = (state if state and state.kind != "folder" else None for state in (write.before, write.after))
    if old is None and new is None:
        return ""
    if old is not None and old.holds_same(new):
        return f"{show_on_line(write.path)}: mode {old.mode:o} -> {new.mode if new else 0:o}\n"
    before, after = _text(old, write.old), _text(new, write.data)
    if (old and before is None) or (new and after is None):
        return f"{show_on_line(write.path)}: too large to compare\n"
    return make_diff(write.path, before, after, limit=limit)


def _text(state: FileState | None, data: bytes | Path | None) -> bytes | None:
    if state is None:
        return None
    if isinstance(data, Path):
        data = data.read_bytes() if data.stat().st_size <= MAX_DIFFED_BYTES else None
    if data is None or len(data) > MAX_DIFFED_BYTES:
        return None
    return b"-> " + data + b"\n" if state.kind == "link" else data


def _record_files(writes: Sequence[Write]) -> Iterator[FileChange]:
    room = MAX_DIFFS_CHARS
    for each in writes:
        diff = describe(each, min(room, MAX_DIFF_CHARS)) if room > 0 else ""
        room -= len(diff)
        yield FileChange(path=each.path, before=each.before, after=each.after, diff=diff)


def _contents(writes: Sequence[Write]) -> Mapping[str, bytes]:
    sides = [(state, data) for each in writes for state, data in ((each.before, each.old), (each.after, each.data))]
    return {
        state.digest: data.read_bytes() if isinstance(data, Path) else data
        for state, data in sides
        if state and state.kept and data is not None and state.digest
    }
