"""What a run changes in files: each change with what was there before, so that it can be shown and undone.

A change is recorded before it is made. A process that is killed in between leaves a change that did not take effect,
which the files tell; one killed after it leaves a change that is known, so that the call, made again, does not make it
twice.
"""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from hashlib import blake2b
from typing import Literal, Protocol, TypeAlias

from pydantic import BaseModel, Field

from upcall import identity
from upcall.text import replace_surrogates, show_on_line

MAX_DIFF_CHARS = 20_000
"""Where a diff is longer it is cut, and says so. What the file held before and after is kept whole all the same."""

DIGEST_BYTES = 16
"""The length of the hash that names a content, as the store keeps it."""

MAX_DIFFED_LINES = 10_000
"""Of a longer file it is only said how many bytes it has: comparing takes a time that grows with the square."""

CACHES = frozenset(
    {
        *("__pycache__", ".pytest_cache", ".mypy_cache", ".ruff_cache"),
        *(".hypothesis", ".nyc_output", ".ipynb_checkpoints"),
    }
)
"""Folders that tools fill for themselves: a list of changed files for a reader only counts what is in them."""

FileKind: TypeAlias = Literal["file", "link", "folder"]


class FileState(BaseModel, frozen=True, defer_build=True):
    """What a name in a folder stands for.

    Attributes:
        kind: a file, a symbolic link or a folder.
        digest: of what the file holds, or of where the link leads; empty for a folder.
        mode: permission bits; 0 where it is left to the system.
        kept: whether the change log has the content, so that it can be brought back.
    """

    kind: FileKind = "file"
    digest: str = ""
    mode: int = 0
    kept: bool = True

    def holds_same(self, other: FileState | None) -> bool:
        """Return whether both hold the same, whatever their permissions."""
        return other is not None and (self.kind, self.digest) == (other.kind, other.digest)


def holds_same(one: FileState | None, other: FileState | None) -> bool:
    """Return whether both hold the same, or both are nothing."""
    return one is other if one is None or other is None else one.holds_same(other)


class FileChange(BaseModel, frozen=True, defer_build=True):
    """The change of one name; ``before`` and ``after`` are None if nothing has that name.

    Attributes:
        path: its path in the folder.
        diff: the lines that changed, as a unified diff; truncated if it is long, empty if there are too many files.
    """

    path: str
    before: FileState | None = None
    after: FileState | None = None
    diff: str = ""

    @property
    def is_cached(self) -> bool:
        """Whether it is in a cache that a tool keeps for itself."""
        return not CACHES.isdisjoint(self.path.split("/"))

    @property
    def is_named(self) -> bool:
        """Whether a list of changed files names it: neither what is cached nor folders."""
        return not self.is_cached and all(state.kind != "folder" for state in (self.before, self.after) if state)


class Change(BaseModel, frozen=True, defer_build=True):
    """The changes of one tool call in a folder, all or nothing.

    Attributes:
        id: its id, for `Upcall.changes.undo`.
        tool: the tool that made it.
        folder: the workspace.
        files: the changed files.
        call: the call, by its idempotency key.
        undoes: the ids of the changes that this one undoes.
        output: the result of the call, if it cannot be derived from the files.
        machine: where it was made; empty if unknown.
    """

    id: str = Field(default_factory=identity.new_id)
    tool: str
    folder: str
    files: tuple[FileChange, ...]
    call: str | None = None
    undoes: tuple[str, ...] = ()
    output: str = ""
    machine: str = ""

    def list_contents(self) -> Iterator[str]:
        """List the digests of the contents that the change log keeps for it."""
        for file in self.files:
            yield from (state.digest for state in (file.before, file.after) if state and state.kept and state.digest)


class ChangeLog(Protocol):
    """Where changes are kept, with what the files held.

    Attributes:
        keeps_new: whether it is given what commands write as well, so that the folder can be made from it elsewhere.
    """

    keeps_new: bool

    async def record(self, change: Change, contents: Mapping[str, bytes]) -> None:
        """Keep a change that is about to be made, and the contents that it names, by digest.

        Where this raises, the change must not be made.
        """

    async def drop(self, change: Change) -> None:
        """Note that a recorded change could not be made."""

    async def list_changes(self) -> Sequence[Change]:
        """List all changes but those dropped, oldest first."""

    async def read_content(self, digest: str) -> bytes:
        """Return the content that has this digest."""


class CannotRestore(ValueError):
    """A folder cannot be rebuilt from the records of its changes. Nothing was changed; the text says why."""


class MemoryChanges:
    """The change log of a workbench that no driver runs: it ends with the process."""

    keeps_new = False

    def __init__(self) -> None:
        self._made: dict[str, Change] = {}
        self._contents: dict[str, bytes] = {}

    async def record(self, change: Change, contents: Mapping[str, bytes]) -> None:
        """See `ChangeLog`."""
        self._made[change.id] = change
        self._contents |= contents

    async def drop(self, change: Change) -> None:
        """See `ChangeLog`."""
        self._made.pop(change.id, None)

    async def list_changes(self) -> Sequence[Change]:
        """See `ChangeLog`."""
        return list(self._made.values())

    async def read_content(self, digest: str) -> bytes:
        """See `ChangeLog`."""
        return self._contents[digest]


def list_standing(changes: Iterable[Change]) -> list[Change]:
    """List the changes that were not undone, oldest first, without the undoing ones."""
    made = list(changes)
    undone = {each for change in made for each in change.undoes}
    return [change for change in made if not change.undoes and change.id not in undone]


def list_history(changes: Iterable[Change]) -> dict[str, list[FileState | None]]:
    """List the states that the changes of one folder, oldest first, gave each name: from before the run's first change
    of it to its last."""
    found: dict[str, list[FileState | None]] = {}
    for change in changes:
        for file in change.files:
            found.setdefault(file.path, [file.before]).append(file.after)
    return found


def leaves_files(changes: Iterable[Change]) -> bool:
    """Return whether anything is left after the changes of one folder."""
    return any(states[-1] is not None for states in list_history(changes).values())


def start_digest() -> blake2b:
    """Start the hash that names a content, for one that is read piece by piece."""
    return blake2b(digest_size=DIGEST_BYTES)


def digest(data: bytes) -> str:
    """Name a content by its hash."""
    hashed = start_digest()
    hashed.update(data)
    return hashed.hexdigest()


def make_diff(path: str, before: bytes | None, after: bytes | None, *, limit: int = MAX_DIFF_CHARS) -> str:
    """Compare two contents of a file, None for no file, in a unified diff, which is cut at `limit` characters."""
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        sizes = " -> ".join("none" if each is None else f"{len(each)} bytes" for each in (before, after))
        return f"{show_on_line(path)}: {sizes}; too long to compare, or no text"
    old_name, new_name = show_on_line(f"a/{path}"), show_on_line(f"b/{path}")
    names = ("/dev/null" if before is None else old_name, "/dev/null" if after is None else new_name)
    lines: list[str] = []
    size = 0
    for line in difflib.unified_diff(old, new, *names):
        size += len(line)
        if size > limit:
            return replace_surrogates("".join(lines)) + "[cut: the diff is longer]\n"
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return replace_surrogates("".join(lines))


def count_lines(diff: str) -> str:
    """Count the lines that a diff adds and removes, as ``+2 -1``."""
    signs = count_signs(diff)
    return f"+{signs['+']} -{signs['-']}" + (" and more" if diff.endswith("[cut: the diff is longer]\n") else "")


def count_signs(diff: str) -> Counter[str]:
    """Count the lines of a diff by their first character."""
    return Counter(line[:1] for line in diff.split("\n")[2:])  # Other ends of lines are characters in them.


def _lines(data: bytes | None) -> list[str] | None:
    """Split into lines, each with its end; None where it is not text, or too long."""
    if data is None:
        return []
    if b"\0" in data or data.count(b"\n") > MAX_DIFFED_LINES:
        return None
    text = data.decode("utf-8", "replace")
    return [line + "\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.rpartition("\n")[2]) else [])
