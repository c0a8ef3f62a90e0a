"""The coder's tools: look at, search and change the files of one folder that it cannot leave."""

from __future__ import annotations

import asyncio
import io
import os
import stat
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Protocol, Self
from weakref import WeakValueDictionary

from autogen_core import CancellationToken, Component
from autogen_core.tools import ToolResult, ToolSchema
from pydantic import BaseModel

from upcall.autogen.concurrency import Locks, run_to_completion
from upcall.autogen.journal import idempotency_key, is_repeated_call
from upcall.autogen.scope import current_scope
from upcall.autogen.workbenches import MAX_READ_CHARS, FileWorkbench, tool_result, tool_schema
from upcall.runs.file_changes import (
    Change,
    ChangeLog,
    FileChange,
    MemoryChanges,
    count_lines,
    list_standing,
    make_diff,
)
from upcall.text import shorten
from upcall.workspace.consent import Consent
from upcall.workspace.folder import MAX_BYTES, Content, Folder, Write
from upcall.workspace.patch_matching import replace_text
from upcall.workspace.patches import read_patch
from upcall.workspace.paths import OutsideWorkspace
from upcall.workspace.searching import MAX_HITS, search, visible_files
from upcall.workspace.staging import commit, finish

MAX_LISTED = 500
"""More files than this are not listed, and the result says so."""

MAX_LISTED_WITH_ERROR = 50
MAX_SHOWN_DIFF = 30_000
MAX_ECHO = 3_000
"""So many characters of the diff of a change are given back to the model that made it."""

MAX_OBSERVED_FILES = 5_000
MAX_OBSERVED_BYTES = 50_000_000


class Confirm(Protocol):
    """Lets the human decide of what is risky, before it is done. It returns where that is allowed, and raises where it
    is not: a `ValueError` is told to the model, anything else goes on to whoever runs the tool."""

    def __call__(self, kind: str, subject: str, detail: str) -> Awaitable[None]:
        """`kind` is ``delete``, `subject` the path, `detail` the diff."""


@dataclass(frozen=True)
class _Tool:
    """A tool as the model is told of it. ``arguments`` are name, kind (text, integer, flag) and description."""

    description: str
    arguments: tuple[tuple[str, str, str], ...] = ()
    optional: frozenset[str] = frozenset()

    def schema(self, name: str) -> ToolSchema:
        properties = {each: {"type": _JSON[kind], "description": told} for each, kind, told in self.arguments}
        return tool_schema(name, self.description, properties, self.optional)

    def read(self, name: str, given: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments; what was left out is None.

        Raises:
            ValueError: one is missing, of another kind, or not known.
        """
        kinds = {each: kind for each, kind, _ in self.arguments}
        try:
            if set(given) - set(kinds):
                raise ValueError
            return {
                each: None if given.get(each) is None and each in self.optional else _READ[kind](given[each])
                for each, kind in kinds.items()
            }
        except (ValueError, TypeError, KeyError, OverflowError):
            raise ValueError(f"{name} takes {self._takes()}.") from None

    def _takes(self) -> str:
        told = [
            f"{each} ({kind}{', may be left out' if each in self.optional else ''})" for each, kind, _ in self.arguments
        ]
        return ", ".join(told) or "no arguments"


def _as_text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _as_integer(value: Any) -> int:
    """Also as text or with a decimal point, as some models write it."""
    if isinstance(value, bool) or int(value) != float(value):
        raise TypeError
    return int(value)


def _as_flag(value: Any) -> bool:
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if not isinstance(value, bool):
        raise TypeError
    return value


_JSON = {"text": "string", "integer": "integer", "flag": "boolean"}
_READ: Mapping[str, Callable[[Any], Any]] = {"text": _as_text, "integer": _as_integer, "flag": _as_flag}

_PATH = ("path", "text", "A path relative to the workspace.")
_GLOB = ("glob", "text", "Only files like this: *.py, src/**/*.ts.")

TOOLS: Mapping[str, _Tool] = {
    "list_files": _Tool(
        "List the files in the workspace.",
        (("folder", "text", "Only those in this folder."), _GLOB),
        frozenset({"folder", "glob"}),
    ),
    "read_file": _Tool(
        "Read a text file. With a range its lines come with their numbers and a tab before each, which are not in the "
        "file.",
        (
            _PATH,
            ("first_line", "integer", "The first line to read, from 1."),
            ("last_line", "integer", "The last line to read."),
        ),
        frozenset({"first_line", "last_line"}),
    ),
    "search_files": _Tool(
        "Find the lines in the workspace's files that match a regular expression.",
        (("pattern", "text", "The regular expression; (?i) at its beginning ignores case."), _GLOB),
        frozenset({"glob"}),
    ),
    "write_file": _Tool(
        "Write a text file, making its folders; an existing file is replaced.",
        (_PATH, ("content", "text", "The whole new content.")),
    ),
    "edit_file": _Tool(
        "Replace a piece of text in a file by another. Give enough of the text around it that it occurs once.",
        (
            _PATH,
            ("old", "text", "The text to replace, exactly as it stands in the file."),
            ("new", "text", "What is to stand there instead."),
            ("all", "flag", "Replace it wherever it occurs."),
        ),
        frozenset({"all"}),
    ),
    "apply_patch": _Tool(
        "Change several files at once by a unified diff (--- a/PATH, +++ b/PATH, @@ -1,2 +1,3 @@), all of it or "
        "nothing. The lines that it removes or keeps must be in the files exactly.",
        (("patch", "text", "The unified diff; /dev/null stands for no file."),),
    ),
    "delete_file": _Tool("Delete a file.", (_PATH,)),
    "show_diff": _Tool(
        "Show what was changed in the workspace since the work began, as a unified diff.",
        (("path", "text", "Only of this file."),),
        frozenset({"path"}),
    ),
}


class _Place:
    """A folder that several workbenches may be on, those of agents that work at the same time."""


_places: WeakValueDictionary[str, _Place] = WeakValueDictionary()
_locks: Locks[_Place] = Locks()


class WorkspaceConfig(BaseModel):
    """The declarative form of a `WorkspaceWorkbench`."""

    folder: str


class WorkspaceWorkbench(FileWorkbench, Component[WorkspaceConfig]):
    """The tools of `TOOLS` on one folder.

    The folder is made when the first file is written. What a path names is opened step by step and never through a link
    that leads out (see upcall/agents/folder.py). Each change is recorded before it is made, in the run's log where the
    driver runs the team, and can be undone with `Upcall.undo`.

    Args:
        folder: the workspace.
        confirm: asked before a file is deleted; by default that is put to the user.
    """

    component_config_schema = WorkspaceConfig
    component_provider_override = "upcall.agents.WorkspaceWorkbench"

    def __init__(self, folder: str | Path, *, confirm: Confirm | None = None) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self.confirm = confirm or Consent(self.folder, isolated=True).confirm
        self._own = MemoryChanges()
        self._place = _places.setdefault(os.path.realpath(self.folder), _Place())
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
        """The schemas of the tools."""
        return [tool.schema(name) for name, tool in TOOLS.items()]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Make one call. What the model did wrong comes back as an error result, never as an exception."""
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
        """Where changes are kept: in the run's log, or in this object where no driver runs the team."""
        return current_scope().changes or self._own

    def _root(self) -> Folder:
        return Folder(self.folder)

    # -- looking ------------------------------------------------------------------------------------------------------

    def _list_files(self, folder: str | None, glob: str | None) -> str:
        found = self._files(folder, glob)
        if not found:
            what = f" like {glob!r}" if glob else ""
            return f"There are no files{what} in {folder!r}." if folder or glob else "The workspace is empty."
        return _listed(found, MAX_LISTED)

    def _files(self, folder: str | None = None, glob: str | None = None) -> list[str]:
        try:
            return visible_files(self._root(), folder or "", glob)
        except (FileNotFoundError, NotADirectoryError):
            if not folder:
                return []
            raise ValueError(f"There is no folder {folder!r}.") from None

    def _read_file(self, path: str, first_line: int | None, last_line: int | None) -> str:
        try:
            with self._root().open(path) as file:
                if first_line is None and last_line is None:
                    return _whole(file, path)
                return _range(file, path, max(first_line or 1, 1), last_line)
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError):
            listed = _listed(self._files(), MAX_LISTED_WITH_ERROR)
            raise ValueError(f"There is no file {path!r}. Files:\n{listed or 'none'}") from None

    def _search_files(self, pattern: str, glob: str | None) -> str:
        paths = self._files(glob=glob)
        found = search(self._root(), pattern, paths)
        large = [f"[{found.too_large} large files were not searched]"] if found.too_large else []
        if not found.hits:
            return "\n".join([f"Nothing found for {pattern!r} in {len(paths)} files.", *large])
        more = [f"[only the first {MAX_HITS} are shown; say it narrower]"] if found.more else []
        return "\n".join([*found.hits, *more, *large])

    async def _show_diff(self, path: str | None) -> str:
        first: dict[str, FileChange] = {}
        folder = self._root()
        for change in list_standing(await self.changes.made()):
            if change.folder == str(folder.root):
                for file in change.files:
                    first.setdefault(file.path, file)
        if path is not None:
            place = await asyncio.to_thread(folder.place_of, path)
            first = {each: file for each, file in first.items() if each == place}
        shown, room = [], MAX_SHOWN_DIFF
        for each in sorted(first):
            digest = first[each].before
            before = None if digest is None else await self.changes.content(digest)
            now = await asyncio.to_thread(folder.read, each)
            diff = make_diff(each, before, now.data if now else None, limit=max(room, 0))
            room -= len(diff)
            shown += [diff] if diff else []
        return "".join(shown) or "Nothing was changed."

    # -- changing -----------------------------------------------------------------------------------------------------

    async def _change(self, name: str, given: Mapping[str, Any]) -> str:
        """Work out, have confirmed, record and make a change; one at a time, so that calls at the same time find what
        those before them left."""
        prepare, log, call = self._prepares[name], self.changes, _call()
        if call is not None and is_repeated_call():
            done = [each for each in list_standing(await log.made()) if each.call == call and each.tool == name]
            if done and await finish(self._root(), log, done[-1]):
                return _told(name, given, done[-1])
        confirmed = {}
        for write in await asyncio.to_thread(prepare, **given):
            if write.after is None:
                confirmed[write.path] = write
                await self.confirm("delete", write.path, _diff(write))
        async with _locks.of(self._place):
            writes = await asyncio.to_thread(prepare, **given)
            self._refuse_interpreter(writes)
            if any(each.after is None and confirmed.get(each.path) != each for each in writes):
                raise ValueError("A file that is to be deleted was changed meanwhile. Look at it again.")
            if all(each.before == each.after for each in writes):
                return f"{', '.join(each.path for each in writes)}: that is what it holds already; nothing was changed."
            change = await commit(self._root(), log, writes, tool=name, call=call)
        return _told(name, given, change)

    def _write_file(self, path: str, content: str) -> list[Write]:
        place, before = self._there(path, to_write=True)
        return [Write(place, before, Content(_encoded(content, "'content'"), before.mode if before else 0))]

    def _edit_file(self, path: str, old: str, new: str, all: bool | None) -> list[Write]:
        place, before = self._there(path)
        if before is None:
            raise self._no_file(path)
        text, _ = replace_text(_decoded(before, path), old, new, everywhere=bool(all), name=path)
        return [Write(place, before, Content(_encoded(text, "'new'"), before.mode))]

    def _delete_file(self, path: str) -> list[Write]:
        if self._root().is_link(path):
            raise ValueError(f"{path!r} is a link; name the file that it leads to.")
        place, before = self._there(path)
        if before is None:
            raise self._no_file(path)
        return [Write(place, before, None)]

    def _apply_patch(self, patch: str) -> list[Write]:
        writes: dict[str, Write] = {}

        def add(place: str, before: Content | None, after: Content | None) -> None:
            if place in writes:
                raise ValueError(f"The patch has several parts for {place!r}; put the hunks of a file together.")
            writes[place] = Write(place, before, after)

        for each in read_patch(patch):
            old_place, before = self._there(each.source) if each.source else ("", None)
            if each.source and before is None:
                raise self._no_file(each.source)
            text = each.applied(_decoded(before, each.path) if before else "")
            after = None if each.target is None else Content(_encoded(text, "'patch'"), before.mode if before else 0)
            if each.target is None:
                if text:
                    raise ValueError(f"The patch deletes {each.path!r}, which has more lines than it names.")
                add(old_place, before, None)
            elif each.source == each.target:
                add(old_place, before, after)
            else:
                place, there = self._there(each.target, to_write=True)
                if there is not None:
                    raise ValueError(f"The patch makes {each.target!r}, which is there already.")
                add(place, None, after)
                if each.source:
                    add(old_place, before, None)
        return list(writes.values())

    def _there(self, path: str, *, to_write: bool = False) -> tuple[str, Content | None]:
        """The path without links, and what is there now."""
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
        """What stands in the Python that runs upcall, a ``.venv`` of the workspace, upcall itself would run."""
        root = self._root().root
        within = [each for each in _interpreter() if root in each.parents]
        for each in writes:
            if any(prefix in (root / each.path).parents for prefix in within):
                raise OutsideWorkspace(f"{each.path!r} belongs to the Python that runs this; it is not changed here.")

    def _no_file(self, path: str) -> ValueError:
        listed = _listed(self._files(), MAX_LISTED_WITH_ERROR)
        return ValueError(f"There is no file {path!r}. Files:\n{listed or 'none'}")

    # -- what others change -------------------------------------------------------------------------------------------

    @asynccontextmanager
    async def observed(self, tool: str) -> AsyncIterator[None]:
        """Record what is changed inside as a change of `tool`: a command changes files without these tools. Files that
        are passed over (hidden folders, what a ``.gitignore`` names) are not looked at, nor any beyond
        `MAX_OBSERVED_FILES` and `MAX_OBSERVED_BYTES`. Other changes to the folder wait until then: whose they were
        could not be told."""
        log, folder = self.changes, self._root()
        async with _locks.of(self._place):
            before = await asyncio.to_thread(_snapshot, folder, {})
            try:
                yield
            finally:
                await run_to_completion(_note(folder, log, before, tool))

    def _to_config(self) -> WorkspaceConfig:
        return WorkspaceConfig(folder=str(self.folder))

    @classmethod
    def _from_config(cls, config: WorkspaceConfig) -> Self:
        return cls(config.folder)


@dataclass(frozen=True)
class _Seen:
    """A file as it was seen: what tells whether it was written since, and what it holds, None if that was not read."""

    stamp: tuple[int, int, int, int]
    content: Content | None


_NOT_READ = _Seen((0, 0, 0, 0), None)


def _snapshot(folder: Folder, known: Mapping[str, _Seen]) -> dict[str, _Seen]:
    """What the visible files hold; one that is as it is `known` is not read again."""
    found: dict[str, _Seen] = {}
    room = MAX_OBSERVED_BYTES
    try:
        paths = visible_files(folder)
    except FileNotFoundError:
        return {}
    for number, path in enumerate(paths):
        if number >= MAX_OBSERVED_FILES and (path not in known or known[path].content is None):
            found[path] = _NOT_READ
            continue
        with suppress(OSError, ValueError), folder.open_itself(path) as file:
            is_ = os.fstat(file.fileno())
            stamp = (is_.st_mtime_ns, is_.st_ctime_ns, is_.st_size, is_.st_ino)
            if path in known and known[path].stamp == stamp:
                found[path] = known[path]
            elif is_.st_size <= min(MAX_BYTES, room):
                found[path] = _Seen(stamp, Content(file.read(MAX_BYTES), stat.S_IMODE(is_.st_mode)))
            else:
                found[path] = _Seen(stamp, None)
            content = found[path].content
            room -= len(content.data) if content else 0
    return found


async def _note(folder: Folder, log: ChangeLog, before: Mapping[str, _Seen], tool: str) -> None:
    """Record what was changed since a snapshot."""
    after = await asyncio.to_thread(_snapshot, folder, before)
    if writes := await asyncio.to_thread(_between, folder, before, after):
        await commit(folder, log, writes, tool=tool, call=_call(), made=True)


def _between(folder: Folder, before: Mapping[str, _Seen], after: Mapping[str, _Seen]) -> list[Write]:
    """What was changed from one snapshot to the next, as far as both know it."""
    writes = []
    for path in sorted(before.keys() | after.keys()):
        was, is_ = before.get(path), after.get(path)
        if was == is_ or (was and was.content is None) or (is_ and is_.content is None):
            continue
        if is_ is None:
            with suppress(OSError, ValueError):
                if folder.read(path) is not None:  # It is only no longer visible.
                    continue
        old, new = was.content if was else None, is_.content if is_ else None
        if (old and old.data) != (new and new.data) or (old is None) != (new is None):
            writes.append(Write(path, old, new))
    return writes


@cache
def _interpreter() -> frozenset[Path]:
    return frozenset(Path(os.path.realpath(each)) for each in (sys.prefix, sys.base_prefix))


def _call() -> str | None:
    """The name of the tool call that runs, the same when it is made again; None without a driver."""
    try:
        return idempotency_key()
    except LookupError:
        return None


def _told(name: str, given: Mapping[str, Any], change: Change) -> str:
    """What a change is told as to the model that made it."""
    if name == "write_file":
        return f"Wrote {given['path']} ({len(given['content'])} characters)."
    if name == "delete_file":
        return f"Deleted {given['path']}."
    files = [f"{each.path} ({'deleted' if each.after is None else count_lines(each.diff)})" for each in change.files]
    if name == "edit_file":
        diff = change.files[0].diff
        return f"Edited {files[0]}:\n{diff}" if len(diff) <= MAX_ECHO else f"Edited {files[0]}."
    return f"Applied to {', '.join(files)}."


def _diff(write: Write) -> str:
    return make_diff(write.path, *(each.data if each else None for each in (write.before, write.after)))


def _decoded(content: Content, path: str) -> str:
    """The text of a file. Bytes that are no UTF-8 are kept as they are, so that the rest of it can be changed."""
    if b"\0" in content.data:
        raise ValueError(f"{path!r} is not a text file.")
    return content.data.decode("utf-8", "surrogateescape")


def _encoded(text: str, what: str) -> bytes:
    try:
        data = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:
        raise ValueError(f"{what} holds half a character (a lone surrogate), which cannot be written.") from None
    if len(data) > MAX_BYTES:
        raise ValueError(f"{what} makes a file larger than {MAX_BYTES // 1_000_000} MB, which is not written here.")
    return data


def _listed(found: Sequence[str], most: int) -> str:
    more = [f"... and {len(found) - most} more files"] if len(found) > most else []
    return "\n".join([*found[:most], *more])


def _whole(file: BinaryIO, path: str) -> str:
    """The text of a file, cut where it is long."""
    reader = io.TextIOWrapper(file, encoding="utf-8", errors="replace", newline="")
    text, more = reader.read(MAX_READ_CHARS), reader.read(1)
    reader.detach()
    if "\0" in text:
        raise ValueError(f"{path!r} is not a text file.")
    if not more:
        return text
    on = f"; read on from first_line={text.count(chr(10)) + 1}" if "\n" in text else ""
    return f"{text}\n[cut: only the first {MAX_READ_CHARS} characters are shown{on}]"


def _range(file: BinaryIO, path: str, first: int, last: int | None) -> str:
    """Some lines, numbered, as many as one read gives."""
    shown: list[str] = []
    room, number = MAX_READ_CHARS, 0
    reader = iter(lambda: file.readline(4 * MAX_READ_CHARS), b"")
    for number, line in enumerate(reader, start=1):
        if b"\0" in line:
            raise ValueError(f"{path!r} is not a text file.")
        if number < first:
            continue
        if last is not None and number > last:
            break
        text = line.decode("utf-8", "replace").rstrip("\r\n")
        room -= len(text) + 8
        if room < 0 and shown:
            return "\n".join([*shown, f"[cut; read on from first_line={number}]"])
        shown.append(f"{number}\t{shorten(text, MAX_READ_CHARS, ' [cut]')}")
    return "\n".join(shown) if shown else f"{path} has {number} lines; there are none from {first} on."
