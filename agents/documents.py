"""The researcher's tools: search and read the documents the user named."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from autogen_core import CancellationToken, Component
from autogen_core.tools import ToolResult, ToolSchema, Workbench
from pydantic import BaseModel

from upcall.agents.workspace import _result, _schema
from upcall.errors import ConfigurationError
from upcall.prompts.contexts import Document

SUFFIXES = frozenset({".md", ".txt", ".rst", ".csv", ".json", ".yaml", ".yml", ".html", ".py"})
"""What is read as text. Anything else in a folder is passed over; a file named by itself is refused."""

MAX_HITS = 20
LINES_A_READ = 200
_WORD = re.compile(r"\w+")


class DocumentsConfig(BaseModel):
    """The declarative form of a `DocumentsWorkbench`."""

    paths: list[str]


class DocumentsWorkbench(Workbench, Component[DocumentsConfig]):
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
        name = {"type": "string", "description": "A document's name, as the search gives it."}
        first = {"type": "integer", "description": "The first line to read, from 1."}
        words = {"type": "string", "description": "Words to look for."}
        return [
            _schema("search_documents", "Find lines in the user's documents, best first.", {"words": words}),
            _schema("read_document", f"Read {LINES_A_READ} lines.", {"name": name, "first_line": first}),
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
                return _result(name, await asyncio.to_thread(self._search, str(given["words"])))
            if name == "read_document":
                first = int(given.get("first_line", 1))
                return _result(name, await asyncio.to_thread(self._read, str(given["name"]), first))
        except KeyError as error:
            return _result(name, f"{name} needs {error}.", is_error=True)
        except (OSError, ValueError, TypeError) as error:
            return _result(name, f"{error}", is_error=True)
        return _result(name, f"There is no tool {name!r}.", is_error=True)

    def _search(self, words: str) -> str:
        wanted = {word.casefold() for word in _WORD.findall(words)}
        if not wanted:
            raise ValueError("Give at least one word to look for.")
        hits = [
            (len(wanted & {word.casefold() for word in _WORD.findall(line)}), name, number, line.strip())
            for name, path in self._files.items()
            for number, line in enumerate(_lines(path), start=1)
        ]
        best = sorted((hit for hit in hits if hit[0]), key=lambda hit: (-hit[0], hit[1], hit[2]))[:MAX_HITS]
        if not best:
            return f"Nothing found for {words!r} in {len(self._files)} documents."
        return "\n".join(f"{name}:{number}: {line[:300]}" for _, name, number, line in best)

    def _read(self, name: str, first: int) -> str:
        if name not in self._files:
            raise ValueError(f"There is no document {name!r}. Documents: {', '.join(self._files) or 'none'}.")
        lines = _lines(self._files[name])
        start = max(first, 1) - 1
        shown = lines[start : start + LINES_A_READ]
        if not shown:
            return f"{name} has {len(lines)} lines."
        more = len(lines) - start - len(shown)
        tail = [f"[{more} more lines; go on from line {start + len(shown) + 1}]"] if more else []
        return "\n".join([f"{number}: {line}" for number, line in enumerate(shown, start=start + 1)] + tail)

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    async def reset(self) -> None:
        """No state to reset."""

    async def save_state(self) -> Mapping[str, Any]:
        """No state."""
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """No state."""

    def _to_config(self) -> DocumentsConfig:
        return DocumentsConfig(paths=[str(path) for path in self._paths])

    @classmethod
    def _from_config(cls, config: DocumentsConfig) -> Self:
        return cls(config.paths)


def _found(paths: Sequence[Path]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    for path in paths:
        if path.is_dir():
            inside = [Path(folder, name) for folder, _, names in os.walk(path) for name in names]
            for file in sorted(file for file in inside if file.suffix.lower() in SUFFIXES):
                found[_free_name(file.relative_to(path).as_posix(), path, found)] = file
        elif path.is_file() and path.suffix.lower() in SUFFIXES:
            found[_free_name(path.name, path.parent, found)] = path
        elif path.is_file():
            readable = ", ".join(sorted(SUFFIXES))
            raise ConfigurationError(f"Document {path} cannot be read as text. Readable: {readable}.")
        else:
            raise ConfigurationError(f"Document {path} does not exist. Name files or folders that do.")
    return found


def _free_name(name: str, folder: Path, taken: Mapping[str, Path]) -> str:
    return name if name not in taken else f"{folder.name}/{name}"


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


def _first_line(path: Path, limit: int = 120) -> str:
    with path.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            if line.strip(" #\t\r\n"):
                return line.strip(" #\t\r\n")[:limit]
    return ""
