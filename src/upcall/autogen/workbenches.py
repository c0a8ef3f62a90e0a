"""What workbenches share: no state of their own, plain schemas and results."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from autogen_core import FunctionCall
from autogen_core.tools import ParametersSchema, TextResultContent, ToolResult, ToolSchema, Workbench

from upcall.autogen.tool_calls import idempotent
from upcall.text import replace_surrogates

MAX_READ_CHARS = 60_000
"""A longer file is cut, with a note in the result: it would not fit most models' context."""

TEMPORARY = ".write-"
"""The prefix of the name of a file that is being written."""


class StatelessWorkbench(Workbench):
    """A workbench with nothing to start, stop or save; it does not own what it works on."""

    async def start(self) -> None:
        """Do nothing: there is nothing to start."""

    async def stop(self) -> None:
        """Do nothing: there is nothing to stop."""

    async def reset(self) -> None:
        """Keep what it works on."""

    async def save_state(self) -> Mapping[str, Any]:
        """Return an empty state."""
        return {}

    async def load_state(self, state: Mapping[str, Any]) -> None:
        """Do nothing: there is no state."""


@idempotent
class FileWorkbench(StatelessWorkbench):
    """A workbench whose only state is files, which it does not own."""

    @property
    def source_tools(self) -> frozenset[str]:
        """The names of its tools that search and read sources, including a source that is unavailable now."""
        return frozenset()

    @property
    def local_tools(self) -> frozenset[str]:
        """The names of those among `source_tools` that only look into files here: nothing is sent anywhere."""
        return frozenset()

    def look_up(self, task: str) -> Sequence[FunctionCall]:
        """Return the calls with which to begin a task that a model would do without looking anything up."""
        return ()

    def holds_text(self, result: str) -> bool:
        """Return whether a result of one of `source_tools` has a text of a source."""
        return False


def tool_schema(name: str, description: str, properties: dict[str, Any], optional: Collection[str] = ()) -> ToolSchema:
    """Return a tool whose schema a server may enforce: all its arguments are required then, an `optional` one may be
    null."""
    given = {each: _or_null(of) if each in optional else of for each, of in properties.items()}
    return ToolSchema(
        name=name,
        description=description,
        parameters=ParametersSchema(
            type="object", properties=given, required=list(properties), additionalProperties=False
        ),
        strict=True,
    )


def _or_null(of: dict[str, Any]) -> dict[str, Any]:
    rest = {key: value for key, value in of.items() if key != "type"}
    return {"anyOf": [{"type": of["type"]}, {"type": "null"}], **rest}


def tool_result(name: str, text: str, *, is_error: bool = False) -> ToolResult:
    """Return a tool result with a text."""
    return ToolResult(name=name, result=[TextResultContent(content=replace_surrogates(text))], is_error=is_error)
