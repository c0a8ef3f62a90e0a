"""What a run changes in files: each change with what was there before, so that it can be shown and undone.

A change is recorded before it is made. A process that is killed in between leaves a change that did not take effect,
which the files tell; one killed after it leaves a change that is known, so that the call, made again, does not make it
twice.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from typing import Protocol

from pydantic import BaseModel, ConfigDict, Field

from upcall import identity
from upcall.storage import packing
from upcall.text import replace_surrogates

MAX_DIFF_CHARS = 20_000
"""Where a diff is longer it is cut, and says so. What the file held before and after is kept whole all the same."""

MAX_DIFFED_LINES = 10_000
"""Of a longer file it is only said how many bytes it has: comparing takes a time that grows with the square."""


class FileChange(BaseModel):
    """One file of a change.

    Attributes:
        path: where it is in the folder.
        before: the digest of what it held; None where there was no file.
        after: the digest of what it holds then; None where it was deleted.
        mode: its permission bits before.
        diff: the lines that changed, as a unified diff; cut where it is long.
    """

    model_config = ConfigDict(frozen=True)

    path: str
    before: str | None = None
    after: str | None = None
    mode: int | None = None
    diff: str = ""


class Change(BaseModel):
    """What one tool call changed in a folder, all of it or nothing.

    Attributes:
        id: its name, for `Upcall.undo`.
        tool: what changed it.
        folder: the workspace.
        files: what was changed in it.
        call: the call, by its idempotency key.
        undoes: the changes that this one takes back, by id.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(default_factory=identity.new_id)
    tool: str
    folder: str
    files: tuple[FileChange, ...]
    call: str | None = None
    undoes: tuple[str, ...] = ()


class ChangeLog(Protocol):
    """Where changes are kept, with what the files held."""

    async def record(self, change: Change, contents: Mapping[str, bytes]) -> None:
        """Keep a change that is about to be made, and what it names, by digest. It raises where it cannot be kept, and
        then the change must not be made."""

    async def drop(self, change: Change) -> None:
        """Note that a change that was recorded could not be made."""

    async def made(self) -> Sequence[Change]:
        """All changes but those dropped, oldest first."""

    async def content(self, digest: str) -> bytes:
        """What has this digest."""


class MemoryChanges:
    """A change log of a workbench that no driver runs. It ends with the process."""

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

    async def made(self) -> Sequence[Change]:
        """See `ChangeLog`."""
        return list(self._made.values())

    async def content(self, digest: str) -> bytes:
        """See `ChangeLog`."""
        return self._contents[digest]


def list_standing(changes: Iterable[Change]) -> list[Change]:
    """The changes that were not undone, oldest first, without the undoing."""
    made = list(changes)
    undone = {each for change in made for each in change.undoes}
    return [change for change in made if not change.undoes and change.id not in undone]


def digest(data: bytes) -> str:
    """The name under which a content is kept: the hash of the store's blobs."""
    return packing.digest(packing.Node(data, ())).hex()


def make_diff(path: str, before: bytes | None, after: bytes | None, *, limit: int = MAX_DIFF_CHARS) -> str:
    """A unified diff of a file's contents, None for no file. It is cut at `limit` characters, and says so."""
    old, new = _lines(before), _lines(after)
    if old is None or new is None:
        sizes = " -> ".join("none" if each is None else f"{len(each)} bytes" for each in (before, after))
        return f"{path}: {sizes}; too long to compare, or no text"
    names = ("/dev/null" if before is None else f"a/{path}", "/dev/null" if after is None else f"b/{path}")
    lines: list[str] = []
    size = 0
    for line in difflib.unified_diff(old, new, *names):
        size += len(line)
        if size > limit:
            return replace_surrogates("".join(lines)) + "[cut: the diff is longer]\n"
        lines.append(line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n")
    return replace_surrogates("".join(lines))


def count_lines(diff: str) -> str:
    """How many lines a diff adds and removes, as ``+2 -1``."""
    body = diff.split("\n")[2:]  # As the diff was made: other ends of lines are characters in them.
    added, removed = (sum(line.startswith(sign) for line in body) for sign in "+-")
    return f"+{added} -{removed}" + (" and more" if diff.endswith("[cut: the diff is longer]\n") else "")


def _lines(data: bytes | None) -> list[str] | None:
    """The lines, each with its end; None where it is no text, or too long."""
    if data is None:
        return []
    if b"\0" in data or data.count(b"\n") > MAX_DIFFED_LINES:
        return None
    text = data.decode("utf-8", "replace")
    return [line + "\n" for line in text.split("\n")[:-1]] + ([last] if (last := text.rpartition("\n")[2]) else [])
