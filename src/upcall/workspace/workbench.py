"""The coder's file tools: view, search and change the files of one folder that it cannot leave."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Self
from weakref import WeakValueDictionary

from pydantic import BaseModel

from upcall.autogen.api import CancellationToken, Component, ToolResult, ToolSchema
from upcall.autogen.concurrency import Locks
from upcall.autogen.scope import current_scope
from upcall.autogen.tool_calls import idempotency_key, is_repeated_call
from upcall.autogen.workbenches import FileWorkbench, tool_result
from upcall.runs.file_changes import (
    Change,
    ChangeLog,
    FileChange,
    FileState,
    MemoryChanges,
    count_lines,
    list_standing,
    make_diff,
)
from upcall.text import show_name, show_on_line
from upcall.workspace.changes import is_interpreter
from upcall.workspace.consent import Consent
from upcall.workspace.effects import FileEffect, OwnFiles, ProposedChange
from upcall.workspace.file_tools import TOOLS
from upcall.workspace.folder import MAX_BYTES, Content, Folder, Write
from upcall.workspace.patch_matching import replace_text
from upcall.workspace.patches import read_patch
from upcall.workspace.paths import OutsideWorkspace
from upcall.workspace.reading import read_lines
from upcall.workspace.searching import MAX_HITS, list_visible, search
from upcall.workspace.staging import commit, describe, finish

MAX_LISTED = 500
"""More files than this are not listed, and the result says so."""

MAX_LISTED_WITH_ERROR = 50
MAX_SHOWN_DIFF = 30_000
MAX_ECHO = 3_000
"""How many characters of a change's diff are returned to the model that made it."""

MAX_LOST_LINES = 20
"""How many of the lines that an overwritten file lost are returned."""


class Place:
    """A folder that several workbenches may share, those of agents that work at the same time."""


_places: WeakValueDictionary[str, Place] = WeakValueDictionary()
_locks: Locks[Place] = Locks()


def share_place(folder: Path) -> Place:
    """Return what all workbenches on a folder share."""
    return _places.setdefault(os.path.realpath(folder), Place())


def lock_place(place: Place) -> asyncio.Lock:
    """Return the lock of a place, held by whatever changes its files."""
    return _locks.of(place)


def current_call() -> str | None:
    """Return the name of the current tool call, the same when it is repeated; None without a driver."""
    try:
        return idempotency_key()
    except LookupError:
        return None


class WorkspaceConfig(BaseModel):
    """The declarative form of a `WorkspaceWorkbench`."""

    folder: str


class WorkspaceWorkbench(FileWorkbench, Component[WorkspaceConfig]):
    """The tools of `TOOLS` on one folder.

    The folder is created when the first file is written. Paths are opened step by step and never through a link that
    leads out (see `upcall.workspace.folder`). Each change is recorded before it is made, in the run's log if the driver
    runs the team, and can be undone with `Upcall.changes.undo`.

    Args:
        folder: the workspace.
        consent: asked before deleting a file that the run did not make, or writing one that would run later.
    """

    component_config_schema = WorkspaceConfig
    component_provider_override = "upcall.agents.WorkspaceWorkbench"

    def __init__(self, folder: str | Path, *, consent: Consent | None = None) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.consent = consent or Consent()
        self._own = MemoryChanges()
        self._place = share_place(self.folder)
        self._looks: Mapping[str, Callable[..., str]] = {
            "list_files": self._list_files,
            "read_file": self._read_file,
            "search_files": self._search_files,
        }
        self._prepares: Mapping[str, Callable[..., list[Write]]] = {
            "write_file": self._write_file,
            "edit_file": self._edit_file,
            "apply_patch": self._apply_patch,
            "delete_file": self._delete_file,
        }

    async def list_tools(self) -> list[ToolSchema]:
        """List the schemas of the tools."""
        return list(_schemas())

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Make one call. Mistakes of the model are returned as error results, never raised."""
        if name not in TOOLS:
            return tool_result(name, f"There is no tool {name!r}.", is_error=True)
        try:
            given = TOOLS[name].read(name, arguments or {})
            if look := self._looks.get(name):
                return tool_result(name, await asyncio.to_thread(look, **given))
            if name == "show_diff":
                return tool_result(name, await self._show_diff(given["path"]))
            return tool_result(name, await self._change(name, given))
        except OSError as error:
            return tool_result(name, f"{name} failed: {error.strerror or type(error).__name__}.", is_error=True)
        except ValueError as error:
            return tool_result(name, str(error), is_error=True)

    @property
    def changes(self) -> ChangeLog:
        """The log of changes: the run's, or this object's if no driver runs the team."""
        return current_scope().changes or self._own

    def _root(self) -> Folder:
        return Folder(self.folder)

    # -- reading ------------------------------------------------------------------------------------------------------

    def _list_files(self, folder: str | None, glob: str | None) -> str:
        found = self._files(folder, glob)
        if not found:
            what = f" like {glob!r}" if glob else ""
            where = repr(folder) if folder else "the workspace"
            return f"There are no files{what} in {where}." if folder or glob else "The workspace is empty."
        return _list(found, MAX_LISTED)

    def _files(self, folder: str | None = None, glob: str | None = None) -> list[str]:
        try:
            return list_visible(self._root(), folder or "", glob)
        except (FileNotFoundError, NotADirectoryError):
            if not folder:
                return []
            raise ValueError(f"There is no folder {folder!r}.") from None

    def _read_file(self, path: str, first_line: int | None, last_line: int | None) -> str:
        try:
            with self._root().open(path) as file:
                return read_lines(file, path, first_line, last_line)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            raise self._no_file(path) from None

    def _search_files(self, pattern: str, glob: str | None) -> str:
        paths = self._files(glob=glob)
        found = search(self._root(), pattern, paths)
        large = [f"[{found.too_large} large files were not searched]"] if found.too_large else []
        if not found.hits:
            return "\n".join([f"Nothing found for {pattern!r} in {len(paths)} files.", *large])
        more = [f"[only the first {MAX_HITS} are shown; narrow it down]"] if found.more else []
        return "\n".join([*found.hits, *more, *large])

    async def _show_diff(self, path: str | None) -> str:
        folder, first = self._root(), dict[str, FileChange]()
        for change in list_standing(await self.changes.list_changes()):
            if change.folder == str(folder.root):
                for file in change.files:
                    first.setdefault(file.path, file)
        if path is not None:
            place = await asyncio.to_thread(folder.place_of, path)
            first = {each: file for each, file in first.items() if each == place}
        shown, room = [], MAX_SHOWN_DIFF
        for each in sorted(first):
            if room <= 0:
                shown.append("[cut: there are more files; name one]\n")
                break
            diff = await self._diff_since(folder, each, first[each].before, room)
            room -= len(diff)
            shown += [diff] if diff else []
        return "".join(shown) or "Nothing was changed."

    async def _diff_since(self, folder: Folder, place: str, was: FileState | None, limit: int) -> str:
        before = await self.changes.read_content(was.digest) if was and was.kept and was.digest else None
        try:
            now = await asyncio.to_thread(folder.read, place)
        except (OSError, ValueError):  # A folder, a link, or a large file.
            now = None
        return make_diff(place, before, now.data if now else None, limit=limit)

    # -- changing -----------------------------------------------------------------------------------------------------

    async def _change(self, name: str, given: Mapping[str, Any]) -> str:
        """Work out, confirm, record and make a change.

        Only one is made at a time, so that concurrent calls find what those before them left.
        """
        prepare, log, call = self._prepares[name], self.changes, current_call()
        if call is not None and is_repeated_call():
            done = [each for each in list_standing(await log.list_changes()) if each.call == call and each.tool == name]
            if done and await finish(self._root(), log, done[-1]):
                return _report(name, given, done[-1])
        async with lock_place(self._place):  # A question ends the call, and so does not keep the others waiting.
            writes = await asyncio.to_thread(prepare, **given)
            self._refuse_interpreter(writes)
            if all(each.before == each.after for each in writes):
                names = ", ".join(show_name(each.path) for each in writes)
                return f"{names}: that is what it holds already; nothing was changed."
            await self._confirm(writes)
            writes = [*await asyncio.to_thread(self._missing_folders, writes), *writes]
            change = await commit(self._root(), log, writes, tool=name, call=call)
        return _report(name, given, change)

    async def _confirm(self, writes: Sequence[Write]) -> None:
        """Have the human confirm the deletion of files that the run did not make, and what would run later.

        Changing a file is the purpose of these tools: it is visible, and can be undone.
        """
        folder = self._root()
        own = OwnFiles.of_changes(await self.changes.list_changes(), folder.root)
        change = await asyncio.to_thread(ProposedChange.of_writes, folder.root, writes, own)
        change = change.without(FileEffect.OVERWRITE)
        paths = {each.path for each in change.findings}
        diff = "".join(describe(each) for each in writes if each.path in paths)
        self.consent.request_changes(change, "", diff)

    def _missing_folders(self, writes: Sequence[Write]) -> list[Write]:
        """List the folders to create for new files."""
        folder, missing = self._root(), dict[str, Write]()
        for each in writes:
            parts = each.path.split("/") if each.after is not None else []
            for depth in range(1, len(parts)):
                place = "/".join(parts[:depth])
                if place not in missing and folder.state(place) is None:
                    missing[place] = Write(place, None, FileState(kind="folder"))
        return list(missing.values())

    def _write_file(self, path: str, content: str) -> list[Write]:
        place, before = self._look_up(path, to_write=True)
        after = Content(_encode(content, "'content'"), before.mode if before else 0)
        return [Write.of_contents(place, before, after)]

    def _edit_file(self, path: str, old: str, new: str, all: bool | None) -> list[Write]:
        place, before = self._look_up(path)
        if before is None:
            raise self._no_file(path)
        text = replace_text(_decode(before, path), old, new, everywhere=bool(all), name=path)
        return [Write.of_contents(place, before, Content(_encode(text, "'new'"), before.mode))]

    def _delete_file(self, path: str) -> list[Write]:
        if self._root().is_link(path):
            raise ValueError(f"{path!r} is a link; name the file that it leads to.")
        place, before = self._look_up(path)
        if before is None:
            raise self._no_file(path)
        return [Write.of_contents(place, before, None)]

    def _apply_patch(self, patch: str) -> list[Write]:
        writes: dict[str, Write] = {}

        def add(place: str, before: Content | None, after: Content | None) -> None:
            if place in writes:
                raise ValueError(f"The patch has several parts for {place!r}; put the hunks of a file together.")
            writes[place] = Write.of_contents(place, before, after)

        for each in read_patch(patch):
            old_place, before = self._look_up(each.source) if each.source else ("", None)
            if each.source and before is None:
                raise self._no_file(each.source)
            text = each.apply(_decode(before, each.path) if before else "")
            after = None if each.target is None else Content(_encode(text, "'patch'"), before.mode if before else 0)
            if each.target is None:
                if text:
                    raise ValueError(f"The patch deletes {each.path!r}, which has more lines than it names.")
                add(old_place, before, None)
            elif each.source == each.target:
                add(old_place, before, after)
            else:
                place, there = self._look_up(each.target, to_write=True)
                if there is not None:
                    raise ValueError(f"The patch makes {each.target!r}, which is there already.")
                add(place, None, after)
                if each.source:
                    add(old_place, before, None)
        return list(writes.values())

    def _look_up(self, path: str, *, to_write: bool = False) -> tuple[str, Content | None]:
        """Resolve a path, and read what is there now."""
        folder = self._root()
        place = folder.place_of(path)
        try:
            if not place:
                raise IsADirectoryError
            return place, folder.read(place)
        except IsADirectoryError:
            if to_write:
                raise ValueError(f"{path!r} is a folder; name a file.") from None
            raise self._no_file(path) from None

    def _refuse_interpreter(self, writes: Sequence[Write]) -> None:
        """Refuse to change the Python that runs upcall, in a ``.venv`` of the workspace."""
        for each in writes:
            if is_interpreter(self._root().root, each.path):
                raise OutsideWorkspace(f"{each.path!r} belongs to the Python that runs this; it is not changed here.")

    def _no_file(self, path: str) -> ValueError:
        listed = _list(self._files(), MAX_LISTED_WITH_ERROR)
        return ValueError(f"There is no file {path!r}. Files:\n{listed or 'none'}")

    def _to_config(self) -> WorkspaceConfig:
        return WorkspaceConfig(folder=str(self.folder))

    @classmethod
    def _from_config(cls, config: WorkspaceConfig) -> Self:
        return cls(config.folder)


@cache
def _schemas() -> tuple[ToolSchema, ...]:
    return tuple(tool.schema(name) for name, tool in TOOLS.items())


def _report(name: str, given: Mapping[str, Any], change: Change) -> str:
    """Inform the model that made a change what it did."""
    if name == "write_file":
        return f"Wrote {given['path']} ({len(given['content'])} characters).{_describe_lost(change.files[-1])}"
    if name == "delete_file":
        return f"Deleted {given['path']}."
    changed = [each for each in change.files if each.after is None or each.after.kind == "file"]
    files = [
        f"{show_on_line(each.path)} ({'deleted' if each.after is None else count_lines(each.diff)})" for each in changed
    ]
    if name == "edit_file":
        diff = change.files[0].diff
        return f"Edited {files[0]}:\n{diff}" if len(diff) <= MAX_ECHO else f"Edited {files[0]}."
    return f"Applied to {', '.join(files)}."


def _describe_lost(file: FileChange) -> str:
    """Return the lines lost from an overwritten file: a model that meant to add to it can restore them."""
    lost = [line[1:] for line in file.diff.splitlines()[2:] if line.startswith("-")] if file.before else []
    shown = lost[:MAX_LOST_LINES]
    more = [f"[and {len(lost) - len(shown)} more lines]"] if len(lost) > len(shown) else []
    return "\n".join([" These lines were in it and are gone:", *shown, *more]) if lost else ""


def _decode(content: Content, path: str) -> str:
    """Read the text of a file. Bytes that are not UTF-8 are preserved, so that the rest of it can be changed."""
    if b"\0" in content.data:
        raise ValueError(f"{path!r} is not a text file.")
    return content.data.decode("utf-8", "surrogateescape")


def _encode(text: str, what: str) -> bytes:
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(f"{what} holds half a character (a lone surrogate), which cannot be written.") from None
    if len(data) > MAX_BYTES:
        raise ValueError(f"{what} makes a file larger than {MAX_BYTES // 1_000_000} MB, which is not written here.")
    return data


def _list(found: Sequence[str], most: int) -> str:
    more = [f"... and {len(found) - most} more files"] if len(found) > most else []
    return "\n".join([*map(show_on_line, found[:most]), *more])
