"""The researcher's tools: search and read the documents the user named."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, count
from pathlib import Path
from typing import Any, Self

from autogen_core import CancellationToken, Component
from autogen_core.tools import ToolResult, ToolSchema
from pydantic import BaseModel

from upcall.agents.files import MAX_READ_CHARS, FileWorkbench, files_in, tool_result, tool_schema
from upcall.errors import ConfigurationError
from upcall.prompts.contexts import Document
from upcall.questions import sendable

SUFFIXES = frozenset({".md", ".txt", ".rst", ".csv", ".json", ".yaml", ".yml", ".html", ".py"})
"""What is read as text. Anything else in a folder is passed over, and so are hidden folders and links that lead out of
the folder; a file named by itself is refused."""

MAX_HITS = 20
LINES_A_READ = 200
_BREAKS = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]+")
_WORD = re.compile(r"\w+")


class DocumentsConfig(BaseModel):
    """The declarative form of a `DocumentsWorkbench`."""

    paths: list[str]


class DocumentsWorkbench(FileWorkbench, Component[DocumentsConfig]):
    """Two tools on the named files and folders: ``search_documents`` and ``read_document``. They only read.

    Raises:
        ConfigurationError: a path does not exist, or names a file that cannot be read as text.
    """

    component_config_schema = DocumentsConfig
    component_provider_override = "upcall.agents.DocumentsWorkbench"

    def __init__(self, paths: Sequence[str | Path]) -> None:
        self._paths = [Path(path).expanduser().absolute() for path in paths]
        self._files = _found(self._paths)

    @property
    def available(self) -> tuple[Document, ...]:
        """The documents, each with its first line as summary."""
        return tuple(Document(name, _first_line(path)) for name, path in self._files.items())

    async def list_tools(self) -> list[ToolSchema]:
        """The schemas of the two tools."""
        return self.schemas()

    def schemas(self) -> list[ToolSchema]:
        """The same, for whoever cannot wait."""
        name = {"type": "string", "description": "A document's name, as the search gives it."}
        first = {"type": "integer", "description": "The first line to read, from 1."}
        words = {"type": "string", "description": "Words to look for."}
        return [
            tool_schema("search_documents", "Find lines in the user's documents, best first.", {"words": words}),
            tool_schema("read_document", f"Read {LINES_A_READ} lines.", {"name": name, "first_line": first}),
        ]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Make one call. What the model did wrong comes back as an error result, never as an exception."""
        given = dict(arguments or {})
        try:
            if name == "search_documents":
                return tool_result(name, await asyncio.to_thread(self._search, _text(given, "words")))
            if name == "read_document":
                document, first = _text(given, "name"), _line_number(given.get("first_line", 1))
                return tool_result(name, await asyncio.to_thread(self._read, document, first))
        except OSError as error:
            return tool_result(name, f"{name} failed: {error.strerror or type(error).__name__}.", is_error=True)
        except ValueError as error:
            return tool_result(name, str(error), is_error=True)
        return tool_result(name, f"There is no tool {name!r}.", is_error=True)

    def _search(self, words: str) -> str:
        wanted = {word.casefold() for word in _WORD.findall(words)}
        if not wanted:
            raise ValueError("Give at least one word to look for.")
        hits = (
            (len(wanted & {word.casefold() for word in _WORD.findall(line)}), name, number, line.strip())
            for name, path in self._files.items()
            for number, line in enumerate(_lines_if_any(path), start=1)
        )
        best = sorted((hit for hit in hits if hit[0]), key=lambda hit: (-hit[0], hit[1], hit[2]))[:MAX_HITS]
        if not best:
            return f"Nothing found for {words!r} in {len(self._files)} documents."
        return "\n".join(f"{name}:{number}: {line[:300]}" for _, name, number, line in best)

    def _read(self, name: str, first: int) -> str:
        if name not in self._files:
            raise ValueError(f"There is no document {name!r}. Documents: {', '.join(self._files) or 'none'}.")
        lines = _lines(self._files[name])
        start = max(first, 1) - 1
        shown = list(_fitting(f"{number}: {line}" for number, line in enumerate(lines[start:], start=start + 1)))
        if not shown:
            return f"{name} has {len(lines)} lines."
        more = len(lines) - start - len(shown)
        tail = [f"[{more} more lines; go on from line {start + len(shown) + 1}]"] if more else []
        return "\n".join(shown + tail)

    def _to_config(self) -> DocumentsConfig:
        return DocumentsConfig(paths=[str(path) for path in self._paths])

    @classmethod
    def _from_config(cls, config: DocumentsConfig) -> Self:
        return cls(config.paths)


def _text(given: Mapping[str, Any], argument: str) -> str:
    value = given.get(argument)
    if not isinstance(value, str):
        raise ValueError(f"{argument!r} is needed, as text.")
    return value


def _line_number(value: object) -> int:
    """A whole number; also as text or with a decimal point, as some models write it."""
    try:
        return int(value)  # type: ignore[call-overload,no-any-return]  # what int() refuses is caught
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError("'first_line' must be a whole number.") from error


def _found(paths: Sequence[Path]) -> dict[str, Path]:
    """The documents by name. A file that is named twice, or by itself and within a folder, is one document."""
    found: dict[str, Path] = {}
    real: set[str] = set()
    for path in paths:
        for name, file in _named(path):
            if os.path.realpath(file) not in real:
                real.add(os.path.realpath(file))
                found[_free_name(in_one_line(sendable(name)), path if path.is_dir() else path.parent, found)] = file
    return found


def _named(path: Path) -> Iterator[tuple[str, Path]]:
    """The documents that one path names, each with its name."""
    if path.is_dir():
        root = Path(os.path.realpath(path))
        for file in sorted(files_in(root)):
            inside = root in Path(os.path.realpath(file)).parents
            if inside and file.suffix.lower() in SUFFIXES and file.is_file() and os.access(file, os.R_OK):
                yield file.relative_to(root).as_posix(), file
    elif not path.is_file():
        raise ConfigurationError(f"Document {path} does not exist. Name files or folders that do.")
    elif path.suffix.lower() not in SUFFIXES:
        readable = ", ".join(sorted(SUFFIXES))
        raise ConfigurationError(f"Document {path} cannot be read as text. Readable: {readable}.")
    elif not os.access(path, os.R_OK):
        raise ConfigurationError(f"Document {path} cannot be read: permission denied.")
    else:
        yield path.name, path


def in_one_line(name: str) -> str:
    """A file's name without line breaks and control characters: a second line could pass for another document, for a
    hit of a search, or for a line of the prompt."""
    return _BREAKS.sub(" ", name)


def _free_name(name: str, folder: Path, taken: Mapping[str, Path]) -> str:
    names = chain((name, f"{folder.name}/{name}"), (f"{name} ({number})" for number in count(2)))
    return next(each for each in names if each not in taken)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def _lines_if_any(path: Path) -> list[str]:
    """No lines where the document was deleted since: the others can still be searched."""
    try:
        return _lines(path)
    except OSError:
        return []


def _fitting(lines: Iterator[str]) -> Iterator[str]:
    """As many lines as one read gives. A first line that is too long by itself is cut."""
    room = MAX_READ_CHARS
    for number, line in enumerate(lines):
        if number == LINES_A_READ or (number and len(line) > room):
            return
        yield line if len(line) <= room else f"{line[:room]} [cut: {len(line) - room} more characters]"
        room -= len(line)


def _first_line(path: Path, limit: int = 120) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = (line.strip(" #\t") for line in file.read(4_096).splitlines())
        return next((line[:limit] for line in lines if line), "")
