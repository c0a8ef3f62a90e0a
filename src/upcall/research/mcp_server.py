"""The address of an MCP server, and how to reach it."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, SecretStr, model_validator

from upcall.setting_types import Seconds


class McpServer(BaseModel, extra="forbid", defer_build=True):
    """An MCP server: a ``command`` to start, or the ``url`` of a running one (streamable HTTP).

    ``timeout`` is in seconds, for its start and for each call. ``env`` and ``headers`` may contain keys.
    ``idempotent``: whether its tools may be called again if a process died during a call.
    """

    command: str | None = None
    args: list[str] = []
    env: dict[str, SecretStr] = {}
    url: str | None = None
    headers: dict[str, SecretStr] = {}
    timeout: Seconds = 30
    description: str = ""
    idempotent: bool = False

    @model_validator(mode="after")
    def _is_one_of_two(self) -> Self:
        if (self.command is None) == (self.url is None):
            raise ValueError("give it a command or a url")
        return self
