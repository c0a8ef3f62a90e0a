"""Changes to files, made whole and recorded: what the workspace's tools and an undo share."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

from upcall.autogen.concurrency import run_to_completion
from upcall.runs.file_changes import Change, ChangeLog, FileChange, digest, make_diff
from upcall.workspace.folder import ChangedMeanwhile, Content, Folder, Write


async def commit(
    folder: Folder,
    log: ChangeLog,
    writes: Sequence[Write],
    *,
    tool: str,
    call: str | None = None,
    undoes: Sequence[str] = (),
    made: bool = False,
) -> Change:
    """Record a change, then make it, also if the caller is cancelled meanwhile. What was `made` already (by a command)
    is only recorded.

    Raises:
        ChangedMeanwhile: a file is not what it was to be; nothing was changed.
        OSError: it could not be written; nothing was changed.
    """
    files = tuple(_recorded(each) for each in writes)
    change = Change(tool=tool, folder=str(folder.root), files=files, call=call, undoes=tuple(undoes))

    async def work() -> None:
        await log.record(change, _contents(writes))
        if made:
            return
        try:
            await asyncio.to_thread(folder.write, writes)
        except BaseException:
            await log.drop(change)
            raise

    await run_to_completion(work())
    return change


async def finish(folder: Folder, log: ChangeLog, change: Change) -> bool:
    """Make what is left to be made of a change that was recorded: its process was killed on the way. False, and nothing
    done, where a file is neither as it was before nor as it is to be: the change was not made, or others came after."""
    writes = []
    for file in change.files:
        now = await asyncio.to_thread(folder.read, file.path)
        there = digest(now.data) if now else None
        if there == file.after:
            continue
        if there != file.before:
            return False
        after = None if file.after is None else Content(await log.content(file.after), file.mode or 0)
        writes.append(Write(file.path, now, after))
    with suppress(ChangedMeanwhile):
        await run_to_completion(asyncio.to_thread(folder.write, writes))
        return True
    return False


def _recorded(write: Write) -> FileChange:
    before, after = (each.data if each else None for each in (write.before, write.after))
    return FileChange(
        path=write.path,
        before=None if before is None else digest(before),
        after=None if after is None else digest(after),
        mode=write.before.mode if write.before else None,
        diff=make_diff(write.path, before, after),
    )


def _contents(writes: Iterable[Write]) -> Mapping[str, bytes]:
    found = [each.data for write in writes for each in (write.before, write.after) if each is not None]
    return {digest(data): data for data in found}
