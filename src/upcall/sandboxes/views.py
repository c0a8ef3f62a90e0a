"""The view of the workspace on which one command works: it may change all of the view, and none of the folder.

What the command left is read from the view afterwards. There are three ways to make one, tried in this order: an
overlay of the kernel (the folder below, an empty folder above, mounted in the command's own namespace, which needs no
rights), the same with fuse-overlayfs, and a copy. The first two cost what the command writes, a copy costs the size of
the folder.
"""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Literal, TypeAlias

from upcall.sandboxes.base import ExecutorUnavailable
from upcall.trees import OWNER, TreeTooDeep, copy_tree, join_place, remove_tree, scan, walk_tree

ViewName: TypeAlias = Literal["auto", "kernel", "fuse", "copy"]

MAX_COPIED_FILES = 50_000
MAX_COPIED_BYTES = 2_000_000_000

_ENTER = ("unshare", "--user", "--map-root-user", "--mount", "--")
"""Namespaces in which an ordinary user may mount. Their mounts end with the last process in them."""

_DIE_WITH_PARENT = ("setpriv", "--pdeathsig", "KILL", "--")


# $1 is the folder; it is bound to a name of ours, since mount options cannot express every path.
_KERNEL = """
mount --bind -- "$1" lower || exit 125
mount -t overlay -o userxattr,lowerdir=lower,upperdir=upper,workdir=work overlay "$1" || exit 125
cd "$1" && shift && exec "$@"
"""

# The process that serves the files dies with the shell (setpriv), the shell with upcall.
_FUSE = r"""
mount --bind -- "$1" lower || exit 125
setpriv --pdeathsig KILL -- fuse-overlayfs -f -o "lowerdir=$PWD/lower,upperdir=$PWD/upper,workdir=$PWD/work" "$1" \
  2> served.log &
served=$!
until mountpoint -q "$1"; do kill -0 $served 2> /dev/null || { cat served.log >&2; exit 125; }; sleep 0.005; done
cd "$1" && shift || exit 125
"$@"
status=$?
cd / && kill $served && wait $served 2> /dev/null
exit $status
"""


@dataclass(frozen=True)
class Left:
    """One name that differs after a command. ``source`` is where it is now, None if it is gone."""

    path: str
    source: Path | None


class View:
    """The view that one command gets of a folder.

    Attributes:
        name: the way in which it is made.
        source: what the command sees in place of the folder.
        written: the folder that receives what it writes.
        start: the folder in which `prefix` is started.
        prefix: the command line that shows `source` to the command after it.
    """

    name: str
    needs: Sequence[str] = ()
    prefix: Sequence[str] = ()

    def __init__(self, folder: Path, stage: Path) -> None:
        """Show `folder`, whose path contains no link, with what is needed for that in `stage`."""
        self.folder, self.stage = folder, stage
        self.source = self.written = self.start = folder

    def prepare(self) -> None:
        """Make what the view needs before the command starts."""

    def list_left(self) -> Iterator[Left]:
        """List what differs after the command, each folder before its contents."""
        return iter(())


def show_plainly(folder: Path) -> View:
    """Show the folder itself: what a command does there is final."""
    real = Path(os.path.realpath(folder))
    return View(real, real)


class KernelOverlay(View):
    """An overlay of the kernel."""

    name = "kernel"
    needs: Sequence[str] = ("unshare", "mount")

    def __init__(self, folder: Path, stage: Path) -> None:
        super().__init__(folder, stage)
        self.written, self.start = stage / "upper", stage
        self.prefix = [*_ENTER, "/bin/sh", "-c", _KERNEL, "sh", str(folder)]

    def prepare(self) -> None:
        """Make the folders that are mounted."""
        for name in ("lower", "upper", "work"):
            (self.stage / name).mkdir(parents=True)
        shutil.copymode(self.folder, self.written)

    def list_left(self) -> Iterator[Left]:
        """List the contents of the upper folder, and what its marks remove."""
        todo = [("", False)]
        while todo:
            place, opaque = todo.pop()
            entries = _scan_own(self.written / place)
            marks = {entry.name: self._read_mark(entry) for entry in entries}
            names = {name for name, mark in marks.items() if mark is None}
            gone = {mark for mark in marks.values() if mark}
            # An opaque folder hides everything below it: what was removed and recreated has no mark for each name.
            if opaque or "" in marks.values():
                opaque, gone = True, {each.name for each in scan(self.folder / place)} - names
            for name in sorted(gone):
                yield from _list_gone(self.folder, join_place(place, name))
            for entry in entries:
                if entry.name in names:
                    path = join_place(place, entry.name)
                    yield Left(path, Path(entry.path))
                    below = _is_folder(self.folder / path)
                    if entry.is_dir(follow_symlinks=False):
                        todo.append((path, below and (opaque or _is_opaque(entry.path))))
                    elif below:
                        yield from _list_gone(self.folder, path, itself=False)

    def _read_mark(self, entry: os.DirEntry[str]) -> str | None:
        """Return the name that an entry marks as gone; empty if it stands for all, None if it is not a mark."""
        found = entry.stat(follow_symlinks=False)
        return entry.name if stat.S_ISCHR(found.st_mode) and found.st_rdev == 0 else None


class FuseOverlay(KernelOverlay):
    """An overlay by fuse-overlayfs, which may mark what is gone by names."""

    name = "fuse"
    needs = ("unshare", "mount", "fuse-overlayfs", "setpriv", "mountpoint")

    def __init__(self, folder: Path, stage: Path) -> None:
        super().__init__(folder, stage)
        self.prefix = [*_ENTER, *_DIE_WITH_PARENT, "/bin/sh", "-c", _FUSE, "sh", str(folder)]

    def _read_mark(self, entry: os.DirEntry[str]) -> str | None:
        if entry.name == ".wh..wh..opq":
            return ""
        return entry.name.removeprefix(".wh.") if entry.name.startswith(".wh.") else super()._read_mark(entry)


class Copy(View):
    """A copy of the folder, by reference if the file system supports that."""

    name = "copy"

    def __init__(self, folder: Path, stage: Path) -> None:
        super().__init__(folder, stage)
        self.source = self.written = self.start = stage / "copy"
        self._copied: Mapping[str, tuple[int, ...]] = {}

    def prepare(self) -> None:
        """Copy the folder.

        Raises:
            ExecutorUnavailable: it is too large to copy for each command.
        """
        _refuse_large(self.folder)
        self.stage.mkdir(parents=True)
        if shutil.which("cp") and sys.platform.startswith("linux"):
            command = ["cp", "--archive", "--reflink=auto", "--", str(self.folder), str(self.written)]
            # It fails if one file is unreadable, but copies all the others.
            subprocess.run(command, check=False, capture_output=True)
        else:
            copy_tree(self.folder, self.written)
        self._copied = dict(_list_stamps(self.written))

    def list_left(self) -> Iterator[Left]:
        """List what differs from the copied folder, by the files' time of change, which nobody can set."""
        now = dict(_list_stamps(self.written))
        for path in sorted(now.keys() | self._copied.keys(), key=lambda each: each.split("/")):
            if now.get(path) != self._copied.get(path):
                yield Left(path, self.written / path if path in now else None)


_OVERLAYS: Mapping[str, type[KernelOverlay]] = {each.name: each for each in (KernelOverlay, FuseOverlay)}


def make_view(folder: Path, stage: Path, name: ViewName = "auto") -> View:
    """Make the view of a folder for one command; `stage` is an empty place for what it writes.

    Raises:
        ExecutorUnavailable: the requested way does not work here, or none does.
    """
    for each in _OVERLAYS if name == "auto" else () if name == "copy" else (name,):
        if (why := explain_no_overlay(each, folder, stage.parent)) is None:
            return _OVERLAYS[each](folder, stage)
        if name != "auto":
            raise ExecutorUnavailable(f"workspace.overlay is set to {name}, and that does not work here ({why})")
    return Copy(folder, stage)


@cache
def explain_no_overlay(name: str, folder: Path, parent: Path) -> str | None:
    """Say why such an overlay of a folder does not work here; None if it does. It is tried once per process."""
    view = _OVERLAYS[name](folder, parent / f".trial-{os.getpid()}-{name}")
    missing = [each for each in view.needs if shutil.which(each) is None]
    if missing:
        return f"{' and '.join(missing)} cannot be found"
    try:
        view.prepare()
        os.setxattr(view.written, "user.upcall", b"y")  # Without such marks, what is gone could not be read.
        command = [*view.prefix, "/bin/sh", "-c", "mkdir .upcall-trial && rmdir .upcall-trial && mkdir .upcall-trial"]
        path = {"PATH": os.environ.get("PATH", os.defpath)}
        tried = subprocess.run(command, cwd=view.start, env=path, capture_output=True, text=True, check=False)
        if tried.returncode == 0 and (view.written / ".upcall-trial").is_dir():
            return None
        errors = tried.stderr.strip().splitlines()
        return errors[-1] if errors else f"exit status {tried.returncode}"
    except OSError as error:
        return error.strerror or type(error).__name__
    finally:
        remove_tree(view.stage)


def _is_opaque(path: str) -> bool:
    for name in ("user.overlay.opaque", "user.fuseoverlayfs.opaque", "trusted.overlay.opaque"):
        with suppress(OSError):
            if os.getxattr(path, name, follow_symlinks=False) == b"y":
                return True
    return False


def _is_folder(path: Path) -> bool:
    try:
        return stat.S_ISDIR(path.lstat().st_mode)
    except OSError:
        return False


def _scan_own(folder: Path) -> list[os.DirEntry[str]]:
    """List the entries of a folder that is ours, whatever a command did to its permissions."""
    with suppress(OSError):
        if (mode := folder.stat().st_mode) & OWNER != OWNER:
            folder.chmod(stat.S_IMODE(mode) | OWNER)
    return scan(folder)


def _list_gone(folder: Path, path: str, *, itself: bool = True) -> Iterator[Left]:
    """List a name and everything below it as gone; links are not followed."""
    if itself and os.path.lexists(folder / path):
        yield Left(path, None)
    if _is_folder(folder / path):
        for below, _ in walk_tree(folder / path):
            yield Left(join_place(path, below), None)


def _list_stamps(root: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """List each name below a folder of ours with what changes when it is written or replaced."""
    todo = [""]
    while todo:
        place = todo.pop()
        for entry in _scan_own(root / place):
            path, found = join_place(place, entry.name), entry.stat(follow_symlinks=False)
            if stat.S_ISDIR(found.st_mode):
                yield path, (found.st_ino, found.st_mode | OWNER)
                todo.append(path)
            else:
                yield path, (found.st_ino, found.st_size, found.st_ctime_ns)


def _refuse_large(folder: Path) -> None:
    files = size = 0
    try:
        for _, entry in walk_tree(folder):
            files += 1
            with suppress(OSError):
                size += 0 if entry.is_dir(follow_symlinks=False) else entry.stat(follow_symlinks=False).st_size
            if files > MAX_COPIED_FILES or size > MAX_COPIED_BYTES:
                raise ExecutorUnavailable(
                    f"without an overlay each command works on a copy of the workspace, and this one has more than "
                    f"{MAX_COPIED_FILES} files or {MAX_COPIED_BYTES // 1_000_000_000} GB. The user can install "
                    "fuse-overlayfs, or name a smaller workspace"
                )
    except TreeTooDeep as error:
        raise ExecutorUnavailable(
            f"without an overlay each command works on a copy of the workspace, whose {error}. "
            "The user can install fuse-overlayfs, or name another workspace"
        ) from None
