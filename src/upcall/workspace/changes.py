"""What a command changed: read from its view, checked against the folder, and prepared for writing."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

from upcall.runs.file_changes import FileChange, FileState, digest, holds_same
from upcall.sandboxes.views import View
from upcall.text import show_name
from upcall.trees import OWNER, TreeTooDeep
from upcall.workspace.folder import PERMISSIONS, ChangedMeanwhile, Folder, Write, hash_file
from upcall.workspace.later import is_cache

MAX_KEPT_FILE = 50_000_000
MAX_KEPT_BYTES = 200_000_000
"""How many bytes of what a change removes are kept for undo, per file and in all. Beyond that the human is asked."""

MAX_KEPT_NEW = 50_000_000
"""How many bytes of what a command writes are kept in all, so that the folder can be rebuilt from the log elsewhere."""

MAX_NAMES = 200_000
"""A command that changes more files and folders, or deletes them, is refused: nobody could judge it."""

_PROGRAMS = ("/usr", "/bin", "/sbin", "/lib", "/lib64")
"""System folders that a link to a program may lead into: all that a virtual environment needs."""


class ChangeRefused(ValueError):
    """A command left something that can never be written to the folder. The text says what it is."""


def read_changes(folder: Folder, view: View, since: int) -> list[FileChange]:
    """Read what differs after a command that was started at `since` (nanoseconds), by place.

    Anything but files, links and folders (a pipe, a socket) is left out, and so is what Python caches. The content of
    new files is not in the change log.

    Raises:
        ChangedMeanwhile: somebody else has changed one of the files since.
        ChangeRefused: a name cannot be shown to anybody, or there is too much to judge it.
    """
    try:
        found = list(_read_changes(folder, view, since))
    except TreeTooDeep as error:
        raise ChangeRefused(str(error)) from None
    return sorted(found, key=lambda each: each.path.split("/"))


def _read_changes(folder: Folder, view: View, since: int) -> Iterator[FileChange]:
    for number, left in enumerate(view.list_left()):
        if number >= MAX_NAMES:
            raise ChangeRefused(f"it changes more than {MAX_NAMES} files and folders")
        if left.source is not None and is_cache(left.path):
            continue
        after = _read_state(left.source) if left.source is not None else None
        before = state_below(folder, left.path)
        if holds_same(before, after) and (before is None or after is None or _same_mode(before, after)):
            continue
        try:
            left.path.encode()
        except UnicodeEncodeError:
            raise ChangeRefused(f"the name {os.fsencode(left.path)!r} is not UTF-8") from None
        # Of a file's times, only that of its last change cannot be set by anybody.
        if before is not None and before.kind != "folder" and os.lstat(folder.root / left.path).st_ctime_ns > since:
            raise ChangedMeanwhile(f"{left.path!r} was changed by somebody else meanwhile.")
        yield FileChange(path=left.path, before=before, after=after)


def prepare_writes(
    folder: Folder, files: Sequence[FileChange], written: Path, *, keeps_new: bool = False
) -> list[Write]:
    """Prepare changes for writing, with what they remove, and with `keeps_new` what they add, if it can be kept.

    Raises:
        ChangedMeanwhile: one of the files is not what it was.
    """
    return list(_prepare(folder, files, written, MAX_KEPT_NEW if keeps_new else 0))


def _prepare(folder: Folder, files: Sequence[FileChange], written: Path, new_room: int) -> Iterator[Write]:
    room = MAX_KEPT_BYTES
    for file in files:
        before = state_below(folder, file.path)
        if not holds_same(before, file.before):
            raise ChangedMeanwhile(f"{file.path!r} was changed by somebody else meanwhile.")
        before, old = read_present(folder, file.path, before, room)
        room -= len(old or b"")
        source = written / file.path
        after, is_link = file.after, file.after is not None and file.after.kind == "link"
        if after is not None and after.kind == "file" and (size := source.stat().st_size) <= new_room:
            after, new_room = after.model_copy(update={"kept": True}), new_room - size
        yield Write(file.path, before, after, os.fsencode(os.readlink(source)) if is_link else source, old)


def read_present(
    folder: Folder, place: str, now: FileState | None, room: int = MAX_KEPT_BYTES
) -> tuple[FileState | None, bytes | None]:
    """Read what a change is about to remove: a file of at most `room` bytes, or the target of a link. The state that is
    returned beside it says whether it can be kept."""
    if now is not None and now.kind == "link":
        return now, os.fsencode(folder.readlink(place))
    if now is None or now.kind != "file":
        return now, None
    content = folder.read_small(place, min(room, MAX_KEPT_FILE))
    return now.model_copy(update={"kept": content is not None}), content.data if content is not None else None


def holds_files(written: Path, files: Sequence[FileChange]) -> bool:
    """Return whether what a command wrote is still what was read after it: each file, link and folder."""
    return all(each.after is None or is_as_left(written / each.path, each.after) for each in files)


def is_as_left(source: Path, then: FileState) -> bool:
    """Return whether a staged file, link or folder is still what was read after its command."""
    try:
        now = _read_state(source)
    except OSError:
        return False
    # Reading it may have made it readable for us.
    return now is not None and now.holds_same(then) and now.mode | stat.S_IRUSR == then.mode | stat.S_IRUSR


def state_below(folder: Folder, place: str) -> FileState | None:
    """Return what is at a place; None also if a folder on the way is not one, and for a pipe or a socket."""
    try:
        return folder.state(place)
    except (NotADirectoryError, ValueError):
        return None


def refuse_changes(root: Path, files: Sequence[FileChange], written: Path) -> None:
    """Refuse what must never be written: links out of the folder, and changes to the Python that runs this.

    Raises:
        ChangeRefused: it is one of the changes.
    """
    for each in files:
        if is_interpreter(root, each.path):
            raise ChangeRefused(f"{show_name(each.path)} belongs to the Python that runs this")
        if each.after is not None and each.after.kind == "link":
            target = os.readlink(written / each.path)
            if _leads_out(root, each.path, target):
                raise ChangeRefused(
                    f"the link {show_name(each.path)} leads out of the workspace, to {show_name(target)}"
                )


def is_interpreter(root: Path, place: str) -> bool:
    """Return whether a place in a folder belongs to the Python that runs this."""
    above = (root / place).parents
    return any(prefix in above for prefix in find_interpreter() if root in prefix.parents)


@cache
def find_interpreter() -> frozenset[Path]:
    """Return the folders of the running Python."""
    return frozenset(Path(os.path.realpath(each)) for each in (sys.prefix, sys.base_prefix))


def _leads_out(root: Path, place: str, target: str) -> bool:
    if os.path.isabs(target):
        plain = os.path.normpath(target)
        if ".." not in target.split("/") and (plain == str(root) or plain.startswith(f"{root}{os.sep}")):
            return False
        real = os.path.realpath(target)
        homes = [*_PROGRAMS, *map(str, find_interpreter())]
        return not (
            os.access(real, os.X_OK) and os.path.isfile(real) and any(real.startswith(f"{each}/") for each in homes)
        )
    parts = [part for part in target.split("/") if part not in ("", ".")]
    up = next((number for number, part in enumerate(parts) if part != ".."), len(parts))
    # The path after a name may start from anywhere: that name may be a link.
    return ".." in parts[up:] or up > place.count("/")


def _read_state(source: Path) -> FileState | None:
    found = source.lstat()
    mode = stat.S_IMODE(found.st_mode) & PERMISSIONS
    if stat.S_ISDIR(found.st_mode):  # Its contents go in after it, and an undo takes them out of it.
        return FileState(kind="folder", mode=mode | OWNER)
    if stat.S_ISLNK(found.st_mode):
        return FileState(kind="link", digest=digest(os.fsencode(os.readlink(source))), mode=mode)
    if not stat.S_ISREG(found.st_mode):
        return None
    if not mode & stat.S_IRUSR:  # It is still ours, whatever the command did to it.
        source.chmod(mode | stat.S_IRUSR)
    with source.open("rb") as file:
        return FileState(digest=hash_file(file), mode=mode, kept=False)


def _same_mode(before: FileState, after: FileState) -> bool:
    ours = OWNER if before.kind == "folder" else 0
    return before.kind == "link" or (before.mode | ours) & PERMISSIONS == after.mode & PERMISSIONS
