"""A folder that no path leaves: each name on the way is opened from the folder before it, and links are resolved here.

Checking a path before use proves little: a concurrent process (a command of the agent's own) may replace it with a link
in between. So nothing is opened by its path. The folder is opened, then each name in it from the open folder
(``openat``) and never through a link (``O_NOFOLLOW``); the target of a link is walked in the same way. The kernel's
``openat2(RESOLVE_BENEATH)`` and Go's ``os.Root`` do the same. If the system cannot open a name from an open folder
(Windows), the path of that folder is used instead, and each name is checked first.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, TypeAlias

from upcall.autogen.workbenches import TEMPORARY
from upcall.runs.file_changes import FileState, digest, holds_same, start_digest
from upcall.workspace.paths import MAX_DEPTH, outside, parse_path

MAX_BYTES = 10_000_000
"""The file tools do not change a larger file."""

MAX_LINKS = 40
PERMISSIONS = 0o777
"""The mode bits that count: set-uid, set-gid and sticky bits are never written."""

HAS_OPENAT = os.open in os.supports_dir_fd and os.scandir in os.supports_fd

_CHUNK = 1 << 20
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_FILE = (
    os.O_RDONLY
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # A pipe that replaces the file in between must not block.
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
)
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)

_Stamp: TypeAlias = tuple[int, int, int, int, int] | None
_PassOver: TypeAlias = Callable[["Folder", str, str, bool], bool]


class ChangedMeanwhile(ValueError):
    """A file has changed since a change to it was worked out. Nothing was changed."""


@dataclass(frozen=True)
class Content:
    """The content of a file, and its permission bits."""

    data: bytes
    mode: int

    @property
    def state(self) -> FileState:
        """The file in the form of the change log."""
        return FileState(digest=digest(self.data), mode=self.mode)


@dataclass(frozen=True)
class Write:
    """A name before and after a change; None if nothing is there.

    ``data`` is the content of a new file, or the file outside of the folder that takes its place, or the target of a
    new link. ``old`` is the former content; None if that is not kept.
    """

    path: str
    before: FileState | None
    after: FileState | None
    data: bytes | Path = b""
    old: bytes | None = None

    @classmethod
    def of_contents(cls, path: str, before: Content | None, after: Content | None) -> Write:
        """Make the write of a file from its old and new contents."""
        return cls(
            path,
            before.state if before else None,
            after.state if after else None,
            after.data if after else b"",
            before.data if before else None,
        )

    @property
    def replaces(self) -> bool:
        """Whether the new thing can replace the old one in one step."""
        kinds = {each.kind for each in (self.before, self.after) if each is not None}
        return self.after is not None and (kinds == {"folder"} or "folder" not in kinds)


class _Missing(FileNotFoundError):
    """A folder on the way is missing. ``rest`` is the part of the path that was not walked."""

    def __init__(self, rest: Iterable[str]) -> None:
        super().__init__(errno.ENOENT, os.strerror(errno.ENOENT))
        self.rest = list(rest)


class _OpenFolder:
    """An open folder, from which its contents are reached."""

    def __init__(self, path: str, at: int | None) -> None:
        self._path, self._at = path, at

    @classmethod
    def root(cls, path: str, openat: bool) -> _OpenFolder:
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

    def find_mode(self, name: str) -> int | None:
        try:
            return self.lstat(name).st_mode
        except FileNotFoundError:
            return None

    def readlink(self, name: str) -> str:
        return os.readlink(self._name(name), dir_fd=self._at)

    def enter(self, name: str) -> _OpenFolder:
        path = os.path.join(self._path, name)
        if self._at is not None:
            return _OpenFolder(path, os.open(name, _FOLDER, dir_fd=self._at))
        if not stat.S_ISDIR(self.lstat(name).st_mode) or getattr(os.path, "isjunction", lambda _: False)(path):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        return _OpenFolder(path, None)

    def make(self, name: str, mode: int) -> None:
        os.mkdir(self._name(name), dir_fd=self._at)
        if mode:
            self.chmod(name, mode)

    def chmod(self, name: str, mode: int) -> None:
        if self._at is None:
            os.chmod(self._name(name), mode & PERMISSIONS)
            return
        folder = self.enter(name)  # On Linux no `os.chmod` refuses a link.
        try:
            assert folder._at is not None
            os.fchmod(folder._at, mode & PERMISSIONS)
        finally:
            folder.close()

    def open(self, name: str) -> BinaryIO:
        """Open a regular file for reading; anything else is refused before it is opened, and checked again
        afterwards."""
        _refuse_other(self.lstat(name), name)
        file = os.fdopen(os.open(self._name(name), _FILE, dir_fd=self._at), "rb")
        try:
            _refuse_other(os.fstat(file.fileno()), name)
        except BaseException:
            file.close()
            raise
        return file

    def replace(self, name: str, data: bytes | Path, mode: int) -> None:
        """Write the whole file or nothing: a full disk or a kill leaves the old file.

        The name gets a new file: another name of the old one (a hard link), in the folder or outside of it, keeps its
        content.
        """
        if isinstance(data, Path):
            with suppress(OSError):  # On another file system, or for another user's file, it is copied.
                _strip(data, mode)
                os.replace(data, self._name(name), dst_dir_fd=self._at)
                return
        with self._temporary() as (temporary, file), os.fdopen(file, "wb") as out:
            if isinstance(data, Path):
                with data.open("rb") as source:
                    shutil.copyfileobj(source, out, _CHUNK)
                times = data.stat()
                os.utime(out.fileno(), ns=(times.st_atime_ns, times.st_mtime_ns))
            else:
                out.write(data)
            if mode and hasattr(os, "fchmod"):
                os.fchmod(out.fileno(), mode & PERMISSIONS)
            out.close()
            os.replace(temporary, self._name(name), src_dir_fd=self._at, dst_dir_fd=self._at)

    def link(self, name: str, target: str) -> None:
        """Make a symbolic link, which may replace a file."""
        temporary = self._name(f"{TEMPORARY}{secrets.token_hex(8)}")  # A link cannot be made over what is there.
        os.symlink(target, temporary, dir_fd=self._at)
        os.replace(temporary, self._name(name), src_dir_fd=self._at, dst_dir_fd=self._at)

    @contextmanager
    def _temporary(self) -> Iterator[tuple[str, int]]:
        temporary = self._name(f"{TEMPORARY}{secrets.token_hex(8)}")
        file = os.open(temporary, _NEW, 0o666, dir_fd=self._at)
        try:
            yield temporary, file
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=self._at)
            raise

    def keep(self, name: str, aside: Path) -> None:
        """Give a file a second name outside of the folder, or copy it there if that is impossible."""
        try:
            os.link(self._name(name), aside, src_dir_fd=self._at, follow_symlinks=False)
        except OSError:
            with self.open(name) as source, aside.open("wb") as copy:
                shutil.copyfileobj(source, copy, _CHUNK)

    def remove(self, name: str, *, folder: bool = False) -> None:
        (os.rmdir if folder else os.unlink)(self._name(name), dir_fd=self._at)

    def entries(self) -> list[tuple[str, int]]:
        """List its entries by name, each with its file type."""
        with os.scandir(self._at if self._at is not None else self._path) as found:
            return sorted((entry.name, _kind(entry)) for entry in found)


class _Way:
    """The open folders on the way to a name: the root, and those in it by their names."""

    def __init__(self, root: _OpenFolder) -> None:
        self.names: list[str] = []
        self._open = [root]

    @property
    def here(self) -> _OpenFolder:
        return self._open[-1]

    def enter(self, name: str) -> None:
        self._open.append(self.here.enter(name))
        self.names.append(name)

    def leave(self, folders: int = 1) -> None:
        """Go back up, at most to the root."""
        for _ in range(folders):
            self.names.pop()
            self._open.pop().close()

    def close(self) -> None:
        for each in self._open:
            each.close()


class Folder:
    """Reads and writes files by paths relative to `root`. Errors name the given path, never the folder's location.

    A ``path`` is what a model writes. A ``place`` is what `place_of` or `walk` returns: without links and ``..``. It
    may be in git's own folder, which a path cannot name.

    Raises:
        OutsideWorkspace: from each method; the path leads out, by its text or through a link.
        ValueError: from each method; it names something other than a regular file.
        OSError: from each method; the system refuses.
    """

    def __init__(self, root: Path, *, openat: bool = HAS_OPENAT) -> None:
        self.root = Path(os.path.realpath(root))
        self._openat = openat

    def place_of(self, path: str) -> str:
        """Resolve a path, even of a file that does not exist yet; empty for the folder itself."""
        try:
            with self._walk_to(self._parse(path), path) as (_, name, place):
                return "/".join([*place, name] if name else place)
        except _Missing as error:
            if ".." in error.rest:
                raise
            return "/".join(error.rest)

    @contextmanager
    def open(self, path: str) -> Iterator[BinaryIO]:
        """Open a regular file for reading.

        Raises:
            FileNotFoundError: there is no file of this name.
        """
        with self._walk_to(self._parse(path), path) as (here, name, _):
            file = here.open(name or ".")
        with file:
            yield file

    @contextmanager
    def open_place(self, place: str) -> Iterator[BinaryIO]:
        """Open a regular file for reading, as `open` does, but not through any link."""
        with self._walk_to(_names(place), place, follow=False) as (here, name, _):
            file = here.open(name or ".")
        with file:
            yield file

    def read(self, place: str, most: int = MAX_BYTES) -> Content | None:
        """Read a file; None if there is none.

        Raises:
            ValueError: it has more than `most` bytes.
        """
        try:
            with self.open_place(place) as file:
                found = os.fstat(file.fileno())
                data = file.read(most + 1) if found.st_size <= most else b""
                if found.st_size > most or len(data) > most:
                    raise ValueError(f"{place!r} is larger than {most // 1_000_000} MB; it is not changed here.")
                return Content(data, stat.S_IMODE(found.st_mode))
        except FileNotFoundError:
            return None

    def read_small(self, place: str, most: int) -> Content | None:
        """Read a file of at most `most` bytes; None if it is larger."""
        with self.open_place(place) as file:
            found = os.fstat(file.fileno())
            data = file.read(most + 1) if found.st_size <= most else None
            return Content(data, stat.S_IMODE(found.st_mode)) if data is not None and len(data) <= most else None

    def state(self, place: str) -> FileState | None:
        """Return what is at a place; None if nothing is.

        Raises:
            ValueError: it is neither a file nor a link nor a folder.
        """
        return self._look(place)[0]

    def readlink(self, place: str) -> str:
        """Return the target of a link."""
        with self._walk_to(_names(place), place, follow=False) as (here, name, _):
            return here.readlink(name)

    def is_link(self, path: str) -> bool:
        """Return whether the last name of a path is a link."""
        with suppress(FileNotFoundError), self._walk_to(self._parse(path), path, last=False) as (here, name, _):
            return bool(name) and stat.S_ISLNK(here.lstat(name).st_mode)
        return False

    def make_for(self, writes: Sequence[Write]) -> None:
        """Create the folder itself, if one of these changes puts something into it."""
        if any(each.after is not None for each in writes):
            self.root.mkdir(parents=True, exist_ok=True)

    def write(self, writes: Sequence[Write], aside: Path | None = None) -> None:
        """Make all of these changes, or none: if one fails, the earlier ones are reverted.

        `aside` is a folder for files whose old content is not at hand, in case they must be restored.

        Raises:
            ChangedMeanwhile: a file is not what it should be.
        """
        # All files are checked before any is written, and each once more at its turn: a file that somebody else writes
        # meanwhile is theirs.
        seen = [self._refuse_changed(each) for each in writes]
        done: list[tuple[int, bool]] = []
        self.make_for(writes)
        try:
            for number, removes in _order(writes):
                there = seen[number] if removes or writes[number].replaces else None
                self._take_step(writes[number], removes, there, _name_aside(aside, number))
                done.append((number, removes))
        except BaseException:
            for number, removes in reversed(done):
                with suppress(OSError, ValueError):  # One that cannot be restored must not stop the others.
                    self._take_back(writes[number], removes, _name_aside(aside, number))
            raise

    def _refuse_changed(self, write: Write) -> _Stamp:
        try:
            now, stamp = self._look(write.path)
        except NotADirectoryError:  # It becomes a folder only by other changes of the same call.
            now, stamp = None, None
        if not holds_same(now, write.before):
            raise ChangedMeanwhile(f"{write.path!r} was changed by somebody else meanwhile. Read it again.")
        return stamp

    def _take_step(self, write: Write, removes: bool, seen: _Stamp, aside: Path | None) -> None:
        with self._walk_to(_names(write.path), write.path, follow=False) as (here, name, _):
            if not name:
                raise ValueError(f"{write.path!r} is a folder; name a file.")
            if _stamp_of(here, name) != seen:
                raise ChangedMeanwhile(f"{write.path!r} was changed by somebody else meanwhile. Read it again.")
            if aside is not None and write.before and write.before.kind == "file" and write.old is None:
                here.keep(name, aside)
            if removes:
                here.remove(name, folder=write.before is not None and write.before.kind == "folder")
            else:
                _create(here, name, write.before, write.after, write.data)

    def _take_back(self, write: Write, removes: bool, aside: Path | None) -> None:
        old = write.old if write.old is not None else aside or b""
        with self._walk_to(_names(write.path), write.path, follow=False) as (here, name, _):
            if removes or (write.replaces and write.before is not None):
                _create(here, name, None if removes else write.after, write.before, old)
            elif write.after is not None:
                here.remove(name, folder=write.after.kind == "folder")

    def _look(self, place: str) -> tuple[FileState | None, _Stamp]:
        try:
            with self._walk_to(_names(place), place, follow=False) as (here, name, _):
                found = here.lstat(name or ".")
                mode, stamp = stat.S_IMODE(found.st_mode), _stamp(found)
                if stat.S_ISDIR(found.st_mode):
                    return FileState(kind="folder", mode=mode), stamp
                if stat.S_ISLNK(found.st_mode):
                    return FileState(kind="link", digest=digest(os.fsencode(here.readlink(name))), mode=mode), stamp
                with here.open(name) as file:
                    return FileState(digest=hash_file(file), mode=mode), stamp
        except FileNotFoundError:
            return None, None

    def walk(self, path: str = "", passed_over: _PassOver = lambda *_: False) -> Iterator[str]:
        """List the places of the files under a folder, sorted; links are listed and not followed.

        `passed_over` returns whether to skip a name, given this folder, the folder that contains it, its name, and
        whether it is a folder.

        Raises:
            FileNotFoundError, NotADirectoryError: there is no such folder.
        """
        with self._walk_to(self._parse(path), path) as (here, name, place):
            start = here.enter(name) if name else None
            try:
                yield from self._list_under(start or here, "/".join([*place, name] if name else place), passed_over, 0)
            finally:
                if start is not None:
                    start.close()

    def _list_under(self, here: _OpenFolder, place: str, passed_over: _PassOver, depth: int) -> Iterator[str]:
        for name, kind in here.entries():
            if passed_over(self, place, name, kind == stat.S_IFDIR):
                continue
            path = f"{place}/{name}" if place else name
            if kind in (stat.S_IFREG, stat.S_IFLNK):
                yield path
            elif kind == stat.S_IFDIR and depth < MAX_DEPTH:
                try:
                    below = here.enter(name)
                except OSError:  # Not readable for us, or gone by now.
                    continue
                try:
                    yield from self._list_under(below, path, passed_over, depth + 1)
                finally:
                    below.close()

    def _parse(self, path: str) -> list[str]:
        return parse_path(path, str(self.root))

    @contextmanager
    def _walk_to(
        self, parts: Sequence[str], path: str, *, last: bool = True, follow: bool = True
    ) -> Iterator[tuple[_OpenFolder, str, tuple[str, ...]]]:
        """Open the folder that a path ends in; also return the last name and the names of the folders on the way.

        The name is empty if the path names a folder by ``..`` or is empty. Without `last`, the last name may be a link;
        without `follow`, there must be no link on the way either.
        """
        todo, links = deque(parts), 0
        way = _Way(self._open_root(todo))
        try:
            while todo:
                name = todo.popleft()
                if name == "..":
                    if not way.names:
                        raise outside(path)
                    way.leave()
                    continue
                mode = way.here.find_mode(name)
                if mode is None and todo:
                    raise _Missing([*way.names, name, *todo])
                if mode is not None and stat.S_ISLNK(mode) and follow and (todo or last):
                    links += 1
                    if links > MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
                    todo.extendleft(reversed(self._read_link(way, name, path)))
                elif not todo:
                    yield way.here, name, tuple(way.names)
                    return
                else:
                    way.enter(name)
            yield way.here, "", tuple(way.names)
        finally:
            way.close()

    def _open_root(self, todo: Iterable[str]) -> _OpenFolder:
        try:
            return _OpenFolder.root(str(self.root), self._openat)
        except FileNotFoundError:
            raise _Missing(todo) from None

    def _read_link(self, way: _Way, name: str, path: str) -> list[str]:
        """Split the target of a link into names; an absolute one is relative to the folder."""
        target = way.here.readlink(name)
        if os.path.isabs(target):
            root = str(self.root)
            if target != root and not target.startswith(root + os.sep):
                raise outside(path)
            target = target.removeprefix(root)
            way.leave(len(way.names))
        return [part for part in target.replace(os.sep, "/").split("/") if part not in ("", ".")]


def hash_file(file: BinaryIO) -> str:
    """Hash the rest of an open file, as `upcall.runs.file_changes.digest` does."""
    hashed = start_digest()
    while chunk := file.read(_CHUNK):
        hashed.update(chunk)
    return hashed.hexdigest()


def _names(place: str) -> list[str]:
    return place.split("/") if place else []


def _order(writes: Sequence[Write]) -> list[tuple[int, bool]]:
    """Order the steps of several writes: first the removals, bottom up, then the creations, top down."""
    found = sorted(range(len(writes)), key=lambda number: _names(writes[number].path))
    removed = [each for each in reversed(found) if writes[each].before is not None and not writes[each].replaces]
    made = [each for each in found if writes[each].after is not None]
    return [*((each, True) for each in removed), *((each, False) for each in made)]


def _create(
    here: _OpenFolder, name: str, there: FileState | None, wanted: FileState | None, data: bytes | Path
) -> None:
    """Create what is wanted in place of what is there, which can be replaced in one step."""
    if wanted is None:
        return
    if wanted.kind == "folder":
        if there is None or there.kind != "folder":  # A file in its place is removed by now.
            here.make(name, wanted.mode)
        else:
            here.chmod(name, wanted.mode)
    elif wanted.kind == "link":
        here.link(name, os.fsdecode(data if isinstance(data, bytes) else os.fsencode(os.readlink(data))))
    else:
        here.replace(name, data, wanted.mode)


def _name_aside(aside: Path | None, number: int) -> Path | None:
    return None if aside is None else aside / str(number)


def _strip(file: Path, mode: int) -> None:
    """Remove from a file about to be written what only its overlay needs, and what grants rights."""
    if stat.S_IMODE(file.stat().st_mode) != mode & PERMISSIONS:
        file.chmod(mode & PERMISSIONS)
    for name in os.listxattr(file) if hasattr(os, "listxattr") else ():
        if not _is_kept(name):
            with suppress(OSError):
                os.removexattr(file, name)


def read_attributes(file: Path) -> list[tuple[str, str]]:
    """List the extended attributes that a file keeps when it is written to the folder, with a digest of each."""
    names = os.listxattr(file) if hasattr(os, "listxattr") else ()
    return [(name, digest(os.getxattr(file, name))) for name in sorted(names) if _is_kept(name)]


def _is_kept(attribute: str) -> bool:
    return attribute.startswith("user.") and not attribute.startswith(("user.overlay.", "user.fuseoverlayfs."))


def _stamp(found: os.stat_result) -> _Stamp:
    if stat.S_ISDIR(found.st_mode):  # A folder's times change with its contents.
        return found.st_ino, found.st_dev, found.st_mode, 0, 0
    return found.st_ino, found.st_dev, found.st_mode, found.st_mtime_ns, found.st_size


def _stamp_of(here: _OpenFolder, name: str) -> _Stamp:
    try:
        return _stamp(here.lstat(name))
    except FileNotFoundError:
        return None


def _refuse_other(found: os.stat_result, name: str) -> None:
    if stat.S_ISDIR(found.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    if not stat.S_ISREG(found.st_mode):
        raise ValueError(f"{name!r} is not a regular file.")


def _kind(entry: os.DirEntry[str]) -> int:
    try:
        return stat.S_IFMT(entry.stat(follow_symlinks=False).st_mode)
    except OSError:
        return 0
