"""A folder that no path leaves: each name on the way is opened from the folder before it, and links are read by hand.

A check of a path before it is used says little: what runs beside (a command of the agent's own) may put a link in its
place in between. So nothing is opened by its path. The folder is opened, then each name in it from the open folder
(``openat``) and never through a link (``O_NOFOLLOW``); where there is a link, its target is walked in the same way. The
kernel's ``openat2(RESOLVE_BENEATH)`` and Go's ``os.Root`` do the same. Where the system cannot open a name from an open
folder (Windows), the path of that folder is used instead, with each name checked before.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from upcall.autogen.workbenches import TEMPORARY
from upcall.workspace.paths import MAX_DEPTH, OutsideWorkspace, outside, parts_of

MAX_BYTES = 10_000_000
"""A larger file is not changed: what it was could not be kept to undo that."""

MAX_LINKS = 40

HAS_OPENAT = os.open in os.supports_dir_fd and os.scandir in os.supports_fd

_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # A pipe that takes the file's place in between must not block.
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)


class ChangedMeanwhile(ValueError):
    """A file is no longer what it was when a change to it was worked out. Nothing was changed."""


@dataclass(frozen=True)
class Content:
    """What a file holds, and its permission bits."""

    data: bytes
    mode: int


@dataclass(frozen=True)
class Write:
    """A file as it is and as it is to be; None where there is none. ``path`` is its own, with no link in it."""

    path: str
    before: Content | None
    after: Content | None


class _Missing(FileNotFoundError):
    """A folder on the way is not there. ``rest`` is the path as far as it was not walked."""

    def __init__(self, rest: Iterable[str]) -> None:
        super().__init__(errno.ENOENT, os.strerror(errno.ENOENT))
        self.rest = list(rest)


class _Open:
    """An open folder: what is in it is reached from here."""

    def __init__(self, path: str, at: int | None) -> None:
        self._path, self._at = path, at

    @classmethod
    def root(cls, path: str, openat: bool) -> _Open:
        if openat:
            return cls(path, os.open(path, _FOLDER & ~getattr(os, "O_NOFOLLOW", 0)))
        if not os.path.isdir(path):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
        return cls(path, None)

    def close(self) -> None:
        if self._at is not None:
            os.close(self._at)

    def _name(self, name: str) -> str:
        return name if self._at is not None else os.path.join(self._path, name)

    def lstat(self, name: str) -> os.stat_result:
        return os.stat(self._name(name), dir_fd=self._at, follow_symlinks=False)

    def readlink(self, name: str) -> str:
        return os.readlink(self._name(name), dir_fd=self._at)

    def enter(self, name: str) -> _Open:
        path = os.path.join(self._path, name)
        if self._at is not None:
            return _Open(path, os.open(name, _FOLDER, dir_fd=self._at))
        if not stat.S_ISDIR(self.lstat(name).st_mode) or getattr(os.path, "isjunction", lambda _: False)(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return _Open(path, None)

    def make(self, name: str) -> None:
        with suppress(FileExistsError):
            os.mkdir(self._name(name), dir_fd=self._at)

    def open(self, name: str) -> BinaryIO:
        """Open a regular file to read; anything else is refused before it is opened, and once more after that."""
        _refuse_other(self.lstat(name), name)
        file = os.fdopen(os.open(self._name(name), _FILE, dir_fd=self._at), "rb")
        try:
            _refuse_other(os.fstat(file.fileno()), name)
        except BaseException:
            file.close()
            raise
        return file

    def replace(self, name: str, data: bytes, mode: int | None) -> None:
        """Write whole or not at all: a full disk or a kill leaves the old file. The name gets a new file: another name
        of the old one (a hard link), in the folder or outside of it, keeps what it has."""
        temporary = f"{TEMPORARY}{secrets.token_hex(8)}"
        try:
            with os.fdopen(os.open(self._name(temporary), _NEW, 0o666, dir_fd=self._at), "wb") as file:
                file.write(data)
                if mode is not None and hasattr(os, "fchmod"):
                    os.fchmod(file.fileno(), mode & 0o777)
            os.replace(self._name(temporary), self._name(name), src_dir_fd=self._at, dst_dir_fd=self._at)
        except BaseException:
            with suppress(OSError):
                os.unlink(self._name(temporary), dir_fd=self._at)
            raise

    def remove(self, name: str) -> None:
        os.unlink(self._name(name), dir_fd=self._at)

    def entries(self) -> list[tuple[str, int]]:
        """What is in it by name, each with the kind of file that it is."""
        with os.scandir(self._at if self._at is not None else self._path) as found:
            return sorted((entry.name, _kind(entry)) for entry in found)


class Folder:
    """Reads and writes files by paths from `root` on. Errors name what was given, never where the folder is.

    Raises:
        OutsideWorkspace: from each method; the path leads out, by its words or by a link.
        ValueError: from each method; what it names is no regular file.
        OSError: from each method; the system refuses.
    """

    def __init__(self, root: Path, *, openat: bool = HAS_OPENAT) -> None:
        self.root = Path(os.path.realpath(root))
        self._openat = openat

    def place_of(self, path: str) -> str:
        """The path with no link, ``.`` or ``..`` in it; of a file that may not be there yet. Empty for the folder
        itself."""
        try:
            with self._walked(path) as (_, name, place):
                return "/".join([*place, name] if name else place)
        except _Missing as error:
            if ".." in error.rest:
                raise
            return "/".join(error.rest)

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """A regular file, to be read.

        Raises:
            FileNotFoundError: there is none of this name.
        """
        with self._walked(path) as (here, name, _):
            file = here.open(name or ".")
        with file:
            yield file

    @contextmanager
    def open_itself(self, path: str) -> Iterator[BinaryIO]:
        """As `open`, where the last name is not that of a link."""
        with self._walked(path, last=False) as (here, name, _):
            file = here.open(name or ".")
        with file:
            yield file

    def read(self, path: str) -> Content | None:
        """What a file holds; None where there is none. The path is as `place_of` gives it: it ends in no link.

        Raises:
            ValueError: it is too large to be changed.
        """
        try:
            with self.open_itself(path) as file:
                found = os.fstat(file.fileno())
                data = file.read(MAX_BYTES + 1) if found.st_size <= MAX_BYTES else b""
                if found.st_size > MAX_BYTES or len(data) > MAX_BYTES:
                    raise ValueError(f"{path!r} is larger than {MAX_BYTES // 1_000_000} MB; it is not changed here.")
                return Content(data, stat.S_IMODE(found.st_mode))
        except FileNotFoundError:
            return None

    def is_link(self, path: str) -> bool:
        """Whether the last name of a path is that of a link."""
        with suppress(FileNotFoundError), self._walked(path, last=False) as (here, name, _):
            return bool(name) and stat.S_ISLNK(here.lstat(name).st_mode)
        return False

    def write(self, writes: Sequence[Write]) -> None:
        """Make all of these changes, or none: where one fails, those before it are taken back.

        Raises:
            ChangedMeanwhile: a file is not what it was to be.
        """
        for each in writes:
            self._refuse_changed(each)
        done: list[Write] = []
        try:
            for each in writes:
                self._write(each)
                done.append(each)
        except BaseException:
            for each in reversed(done):
                with suppress(OSError, ValueError):
                    self._write(Write(each.path, each.after, each.before))
            raise

    def _refuse_changed(self, write: Write) -> None:
        now = self.read(write.path)
        if (now and now.data) != (write.before and write.before.data) or (now is None) != (write.before is None):
            raise ChangedMeanwhile(f"{write.path!r} was changed by somebody else meanwhile. Read it again.")

    def _write(self, write: Write) -> None:
        if write.after is not None:
            self.root.mkdir(parents=True, exist_ok=True)
        with self._walked(write.path, make=write.after is not None, last=False) as (here, name, _):
            if not name:
                raise ValueError(f"{write.path!r} is a folder; name a file.")
            self._refuse_changed(write)
            if write.after is None:
                here.remove(name)
            else:
                here.replace(name, write.after.data, write.after.mode or None)

    def walk(
        self, path: str = "", passed_over: Callable[[Folder, str, str, bool], bool] = lambda *_: False
    ) -> Iterator[str]:
        """The paths of the files under a folder, sorted; links are named and not followed. `passed_over` tells of a
        path (this folder, the folder that it is in, its name, whether it is a folder) that it is to be left out.

        Raises:
            FileNotFoundError, NotADirectoryError: there is no such folder.
        """
        with self._walked(path) as (here, name, place):
            start = here.enter(name) if name else None
            try:
                yield from self._under(start or here, "/".join([*place, name] if name else place), passed_over, 0)
            finally:
                if start is not None:
                    start.close()

    def _under(
        self, here: _Open, place: str, passed_over: Callable[[Folder, str, str, bool], bool], depth: int
    ) -> Iterator[str]:
        for name, kind in here.entries():
            if passed_over(self, place, name, kind == stat.S_IFDIR):
                continue
            path = f"{place}/{name}" if place else name
            if kind in (stat.S_IFREG, stat.S_IFLNK):
                yield path
            elif kind == stat.S_IFDIR and depth < MAX_DEPTH:
                try:
                    below = here.enter(name)
                except OSError:  # Not ours to read, or gone since.
                    continue
                try:
                    yield from self._under(below, path, passed_over, depth + 1)
                finally:
                    below.close()

    @contextmanager
    def _walked(
        self, path: str, *, make: bool = False, last: bool = True
    ) -> Iterator[tuple[_Open, str, tuple[str, ...]]]:
        """The open folder that a path ends in, the last name, and the names of the folders on the way. The name is
        empty where the path names a folder by ``..`` or is empty. Without `last`, the last name may be a link."""
        todo = deque(parts_of(path, str(self.root)))
        way, names, links = list[_Open](), list[str](), 0
        try:
            way.append(self._opened(todo))
            while todo:
                name = todo.popleft()
                if name == "..":
                    if not names:
                        raise outside(path)
                    names.pop()
                    way.pop().close()
                    continue
                try:
                    mode = way[-1].lstat(name).st_mode
                except FileNotFoundError:
                    if not todo:
                        yield way[-1], name, tuple(names)
                        return
                    if not make or ".." in todo:
                        raise _Missing([*names, name, *todo]) from None
                    way[-1].make(name)
                    mode = way[-1].lstat(name).st_mode
                if stat.S_ISLNK(mode) and (todo or last):
                    links += 1
                    if links > MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    target = way[-1].readlink(name)
                    if os.path.isabs(target):
                        for each in way[1:]:
                            each.close()
                        del way[1:], names[:]
                    todo.extendleft(reversed(self._link(target, path)))
                elif not todo:
                    yield way[-1], name, tuple(names)
                    return
                else:
                    way.append(way[-1].enter(name))
                    names.append(name)
            yield way[-1], "", tuple(names)
        finally:
            for each in way:
                each.close()

    def _opened(self, todo: Iterable[str]) -> _Open:
        try:
            return _Open.root(str(self.root), self._openat)
        except FileNotFoundError:
            raise _Missing(todo) from None

    def _link(self, target: str, path: str) -> list[str]:
        """The names in the target of a link; an absolute one counts from the folder on."""
        if os.path.isabs(target):
            root = str(self.root)
            if target != root and not target.startswith(root + os.sep):
                raise outside(path)
            target = target.removeprefix(root)
        return [part for part in target.replace(os.sep, "/").split("/") if part not in ("", ".")]


def _refuse_other(found: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{name!r} is no regular file.")


def _kind(entry: os.DirEntry[str]) -> int:
    try:
        return stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return 0


__all__ = ["MAX_BYTES", "ChangedMeanwhile", "Content", "Folder", "OutsideWorkspace", "Write"]
