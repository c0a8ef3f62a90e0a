"""The coder's tools: list, read and write files in one folder that it cannot leave."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Self

from autogen_core import CancellationToken, Component
from autogen_core.tools import ParametersSchema, TextResultContent, ToolResult, ToolSchema, Workbench
from pydantic import BaseModel

MAX_READ_CHARS = 60_000
"""A longer file is cut, and the result says so: it would not fit most models' context."""

MAX_LISTED = 500
"""More files than this are not listed, and the result says so."""


class OutsideWorkspace(ValueError):
    """A path that does not lie in the workspace."""


class WorkspaceConfig(BaseModel):
    """The declarative form of a `WorkspaceWorkbench`."""

    folder: str


class WorkspaceWorkbench(Workbench, Component[WorkspaceConfig]):
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
            _schema("list_files", "List all files in the workspace.", {}),
            _schema("read_file", "Read a text file.", {"path": path}),
            _schema(
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
            return _result(name, f"There is no tool {name!r}.", is_error=True)
        wanted = list(schema["parameters"]["properties"])
        if sorted(given) != sorted(wanted) or not all(isinstance(value, str) for value in given.values()):
            return _result(name, f"{name} takes {', '.join(wanted) or 'no arguments'}, as text.", is_error=True)
        try:
            return _result(name, await asyncio.to_thread(self._calls[name], **given))
        except (OSError, ValueError) as error:
            return _result(name, _without_folder(str(error), self.folder), is_error=True)

    def resolve(self, path: str) -> Path:
        """The real path that `path` names.

        Raises:
            OutsideWorkspace: it does not lie in the workspace.
        """
        if "\0" in path:
            raise OutsideWorkspace("A path cannot hold a null character.")
        root = Path(os.path.realpath(self.folder))
        real = Path(os.path.realpath(root / path.replace("\\", "/")))
        if real != root and root not in real.parents:
            raise OutsideWorkspace(f"{path!r} is outside the workspace; use a path relative to it.")
        return real

    def _list_files(self) -> str:
        root = Path(os.path.realpath(self.folder))
        found = sorted(str(PurePosixPath(path.relative_to(root))) for path in _files(root))
        if not found:
            return "The workspace is empty."
        more = [f"... and {len(found) - MAX_LISTED} more files"] if len(found) > MAX_LISTED else []
        return "\n".join(found[:MAX_LISTED] + more)

    def _read_file(self, path: str) -> str:
        real = self.resolve(path)
        if not real.is_file():
            raise ValueError(f"There is no file {path!r}. Files:\n{self._list_files()}")
        text = real.read_text(encoding="utf-8", errors="replace")
        if len(text) <= MAX_READ_CHARS:
            return text
        return f"{text[:MAX_READ_CHARS]}\n[cut: {len(text) - MAX_READ_CHARS} more characters]"

    def _write_file(self, path: str, content: str) -> str:
        real = self.resolve(path)
        if real.is_dir():
            raise ValueError(f"{path!r} is a folder; name a file.")
        real.parent.mkdir(parents=True, exist_ok=True)
        real = self.resolve(path)
        _replace(real, content)
        return f"Wrote {path} ({len(content)} characters)."

    async def start(self) -> None:
        """Nothing to start."""

    async def stop(self) -> None:
        """Nothing to stop."""

    async def reset(self) -> None:
        """The files are the state, and they stay."""

    async def save_state(self) -> Mapping[str, Any]:
        """No state besides the files."""
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """No state besides the files."""

    def _to_config(self) -> WorkspaceConfig:
        return WorkspaceConfig(folder=str(self.folder))

    @classmethod
    def _from_config(cls, config: WorkspaceConfig) -> Self:
        return cls(config.folder)


def _files(root: Path) -> list[Path]:
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        found += [Path(folder, name) for name in names]
    return found


def _replace(path: Path, content: str) -> None:
    """Write whole or not at all: a full disk or a kill leaves the old file."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".write-")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="") as file:
            file.write(content)
        umask = os.umask(0)
        os.umask(umask)
        os.chmod(temporary, path.stat().st_mode if path.exists() else 0o666 & ~umask)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _without_folder(message: str, folder: Path) -> str:
    return message.replace(f"{os.path.realpath(folder)}{os.sep}", "").replace(f"{folder}{os.sep}", "")


def _schema(name: str, description: str, properties: dict[str, Any]) -> ToolSchema:
    return ToolSchema(
        name=name,
        description=description,
        parameters=ParametersSchema(
            type="object", properties=properties, required=list(properties), additionalProperties=False
        ),
        strict=True,
    )


def _result(name: str, text: str, *, is_error: bool = False) -> ToolResult:
    return ToolResult(name=name, result=[TextResultContent(content=text)], is_error=is_error)
