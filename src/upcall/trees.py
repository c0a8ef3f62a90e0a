"""Folders whose contents somebody else made: listed, copied and removed whatever their depth.

Nothing here calls itself for a folder in a folder: a command makes thousands of them in a moment, and Python's own
`os.walk` and `shutil.rmtree` (before 3.12 and 3.13) end with a `RecursionError`, or at a path longer than the system
takes. What is deeper than `MAX_DEPTH` is refused, not read in part; removing has no limit.
"""

from __future__ import annotations

import os
import secrets
import shutil
import stat
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path

MAX_DEPTH = 100
"""How many names a place may have. The deepest trees of package managers have about thirty."""

MAX_PLACE_BYTES = 3_000
"""How long a place may be. The system takes 4,096 bytes, with the path of the folder itself."""

MAX_NAME_BYTES = 256
"""How long one name may be, with the slash before it."""

OWNER = stat.S_IRWXU


class TreeTooDeep(ValueError):
    """A folder has too many folders in one another, or too long a path, to be read. The text says which."""


def join_place(place: str, name: str) -> str:
    """Return the place of a name in the folder at `place`.

    Raises:
        TreeTooDeep: it has too many names, or is too long.
    """
    joined = f"{place}/{name}" if place else name
    if joined.count("/") >= MAX_DEPTH:
        raise TreeTooDeep(f"folders are more than {MAX_DEPTH} deep in one another, at {joined[:40]!r}...")
    if len(os.fsencode(joined)) > MAX_PLACE_BYTES:
        raise TreeTooDeep(f"a path is longer than {MAX_PLACE_BYTES} bytes, at {joined[:40]!r}...")
    return joined


def scan(folder: str | Path) -> list[os.DirEntry[str]]:
    """List the entries of a folder by name; none if it cannot be read."""
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return []


def walk_tree(
    root: str | Path, enters: Callable[[os.DirEntry[str]], bool] = lambda _: True
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """List the names in a folder and below, each folder before its contents; links are not followed.

    `enters` returns whether the contents of a folder are listed.

    Raises:
        TreeTooDeep: a place has too many names, or is too long.
    """
    todo = [""]
    while todo:
        place = todo.pop()
        for entry in scan(os.path.join(root, place)):
            path = join_place(place, entry.name)
            yield path, entry
            if entry.is_dir(follow_symlinks=False) and enters(entry):
                todo.append(path)


def copy_tree(source: Path, target: Path) -> None:
    """Copy a folder: its folders, files and links, which are not followed. Pipes and sockets are left out.

    Raises:
        TreeTooDeep: it is too deep to copy.
        OSError: something cannot be read or written.
    """
    target.mkdir(parents=True, exist_ok=True)
    folders = [(source, target)]
    for place, entry in walk_tree(source):
        to = target / place
        if entry.is_symlink():
            with suppress(FileNotFoundError):  # There from an attempt that was cut off.
                to.unlink()
            to.symlink_to(os.readlink(entry.path))
        elif entry.is_dir(follow_symlinks=False):
            to.mkdir(exist_ok=True)
            folders.append((Path(entry.path), to))
        elif entry.is_file(follow_symlinks=False):
            shutil.copy2(entry.path, to)
    for each, to in reversed(folders):  # A folder that may not be written to is filled first.
        shutil.copystat(each, to)


def remove_tree(root: Path) -> bool:
    """Remove a folder and its contents, however deep, and whatever their permissions; return whether it is gone.

    Each folder is moved to the top before its turn, so that no path becomes long. What cannot be removed stays.
    """
    if not root.is_dir() or root.is_symlink():
        with suppress(OSError):
            root.unlink()
        return not os.path.lexists(root)
    names = (f".{secrets.token_hex(8)}-{number}" for number in count())
    with suppress(OSError):
        root.chmod(OWNER)
    todo = _clear(root, root, names)
    while todo:
        folder = todo.pop()
        todo += _clear(folder, root, names)
        with suppress(OSError):
            folder.rmdir()
    with suppress(OSError):
        root.rmdir()
    return not os.path.lexists(root)


def _clear(folder: Path, root: Path, names: Iterator[str]) -> list[Path]:
    """Remove the files in a folder, move its folders to the top, and return those."""
    moved = []
    for entry in scan(folder):
        with suppress(OSError):
            if entry.is_dir(follow_symlinks=False):
                os.chmod(entry.path, OWNER)
                moved.append(Path(entry.path) if folder == root else Path(entry.path).rename(root / next(names)))
            else:
                os.unlink(entry.path)
    return moved
