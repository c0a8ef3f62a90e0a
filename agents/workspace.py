"""The coder's tools: list, read and write files in one folder that it cannot leave."""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Self

from autogen_core import CancellationToken, Component
from autogen_core.tools import ToolResult, ToolSchema
from pydantic import BaseModel

from upcall.agents.files import MAX_READ_CHARS, TEMPORARY, FileWorkbench, files_in, tool_result, tool_schema

MAX_LISTED = 500
"""More files than this are not listed, and the result says so."""


class OutsideWorkspace(ValueError):
    """A path that does not lie in the workspace."""


class WorkspaceConfig(BaseModel):
    """The declarative form of a `WorkspaceWorkbench`."""

    folder: str


class WorkspaceWorkbench(FileWorkbench, Component[WorkspaceConfig]):
    """Three tools on one folder: ``list_files``, ``read_file``, ``write_file``.

    The folder is made when the first file is written. A path is refused unless it still lies in the folder after every
    symbolic link in it is followed.
    """

    component_config_schema = WorkspaceConfig
    component_provider_override = "upcall.agents.WorkspaceWorkbench"

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).expanduser().absolute()
        self._calls: dict[str, Callable[..., str]] = {
            "list_files": self._list_files,
            "read_file": self._read_file,
            "write_file": self._write_file,
        }

    async def list_tools(self) -> list[ToolSchema]:
        """The schemas of the three tools."""
        path = {"type": "string", "description": "A path relative to the workspace."}
        return [
            tool_schema("list_files", "List all files in the workspace.", {}),
            tool_schema("read_file", "Read a text file.", {"path": path}),
            tool_schema(
                "write_file",
                "Write a text file, making its folders; an existing file is replaced.",
                {"path": path, "content": {"type": "string", "description": "The whole new content."}},
            ),
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
        schema = next((each for each in await self.list_tools() if each["name"] == name), None)
        if schema is None:
            return tool_result(name, f"There is no tool {name!r}.", is_error=True)
        wanted = list(schema["parameters"]["properties"])
        if set(given) != set(wanted) or not all(isinstance(value, str) for value in given.values()):
            takes = f"{' and '.join(wanted)}, as text" if wanted else "no arguments"
            return tool_result(name, f"{name} takes {takes}.", is_error=True)
        try:
            return tool_result(name, await asyncio.to_thread(self._calls[name], **given))
        except OSError as error:
            return tool_result(name, f"{name} failed: {error.strerror or type(error).__name__}.", is_error=True)
        except ValueError as error:
            return tool_result(name, str(error), is_error=True)

    def resolve(self, path: str) -> Path:
        """The real path that `path` names.

        Raises:
            OutsideWorkspace: it does not lie in the workspace, or is no path at all.
        """
        if "\0" in path or any("\ud800" <= character <= "\udfff" for character in path):
            raise OutsideWorkspace(f"{path!r} cannot be a path.")
        root = Path(os.path.realpath(self.folder))
        real = Path(os.path.realpath(root / path.replace("\\", "/")))
        if real != root and root not in real.parents:
            raise OutsideWorkspace(f"{path!r} is outside the workspace; use a path relative to it.")
        return real

    def _list_files(self) -> str:
        root = Path(os.path.realpath(self.folder))
        found = sorted(str(PurePosixPath(path.relative_to(root))) for path in files_in(root))
        if not found:
            return "The workspace is empty."
        more = [f"... and {len(found) - MAX_LISTED} more files"] if len(found) > MAX_LISTED else []
        return "\n".join(found[:MAX_LISTED] + more)

    def _read_file(self, path: str) -> str:
        real = self.resolve(path)
        if not real.is_file():
            raise ValueError(f"There is no file {path!r}. Files:\n{self._list_files()}")
        with real.open(encoding="utf-8", errors="replace", newline="") as file:
            text = file.read(MAX_READ_CHARS)
            more = bool(file.read(1))
        if "\0" in text:
            raise ValueError(f"{path!r} is not a text file.")
        return f"{text}\n[cut: only the first {MAX_READ_CHARS} characters are shown]" if more else text

    def _write_file(self, path: str, content: str) -> str:
        real = self.resolve(path)
        if real == Path(os.path.realpath(self.folder)) or real.is_dir():
            raise ValueError(f"{path!r} is a folder; name a file.")
        real.parent.mkdir(parents=True, exist_ok=True)
        real = self.resolve(path)
        _replace(real, content)
        return f"Wrote {path} ({len(content)} characters)."

    def _to_config(self) -> WorkspaceConfig:
        return WorkspaceConfig(folder=str(self.folder))

    @classmethod
    def _from_config(cls, config: WorkspaceConfig) -> Self:
        return cls(config.folder)


def _replace(path: Path, content: str) -> None:
    """Write whole or not at all: a full disk or a kill leaves the old file."""
    temporary = path.with_name(f"{TEMPORARY}{secrets.token_hex(8)}")
    try:
        with temporary.open("xb") as file:
            file.write(content.encode())
        if path.exists():
            shutil.copymode(path, temporary)
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
