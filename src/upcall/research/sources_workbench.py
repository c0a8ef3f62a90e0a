"""The researcher's tools: search the available sources, and read what was found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from upcall.autogen.api import CancellationToken, FunctionCall, ToolResult, ToolSchema
from upcall.autogen.workbenches import FileWorkbench, tool_result, tool_schema
from upcall.research.sources.base import Source, SourceUnavailable
from upcall.research.sources.documents import Documents
from upcall.research.sources.fences import parse_fenced, quote, write_hits, write_passage

MAX_HITS = 10


@dataclass(frozen=True)
class _ToolNames:
    """The names of a source's tools, and a description of its references."""

    search: str
    read: str
    ref: str
    is_what: str
    unit: str = "line"


_KNOWN = {
    "documents": _ToolNames(
        "search_documents", "read_document", "name", "A document's name, as the search gives it.", "line, page or row"
    ),
    "web": _ToolNames("search_web", "read_page", "address", "The address of a page, with https://."),
    "arxiv": _ToolNames("search_arxiv", "read_paper", "id", "A paper's id, as the search gives it.", "page"),
    "wikipedia": _ToolNames("search_wikipedia", "read_article", "title", "An article's title, as the search gives it."),
}


def _name_tools(source: Source) -> _ToolNames:
    return _KNOWN.get(source.id) or _ToolNames(
        f"search_{source.id}", f"read_{source.id}", "ref", "What to read, as the search gives it."
    )


def _list_tools(sources: Sequence[Source]) -> frozenset[str]:
    words = [_name_tools(source) for source in sources]
    return frozenset(name for each in words for name in (each.search, each.read))


class SourcesWorkbench(FileWorkbench):
    """Two tools for each source, one to search it and one to read. They change nothing.

    Their results are fenced: the origin is in a line of its own, and the text between markers that it cannot contain
    (`upcall.research.sources.fences`). A source with a `problem` has no tools; the others work without it.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._sources = list(sources)
        usable = [source for source in self._sources if source.problem() is None]
        self._searched = {_name_tools(source).search: source for source in usable}
        self._read = {_name_tools(source).read: source for source in usable}

    @property
    def source_tools(self) -> frozenset[str]:
        """The names of the tools of all sources, including those unavailable now."""
        return _list_tools(self._sources)

    @property
    def local_tools(self) -> frozenset[str]:
        """The names of the tools of the user's own documents."""
        return _list_tools([each for each in self._sources if isinstance(each, Documents)])

    def look_up(self, task: str) -> Sequence[FunctionCall]:
        """Search the user's own documents for the words of a task; nothing leaves the machine unasked."""
        return [
            FunctionCall(id="", name=tool, arguments=json.dumps({"words": task}, ensure_ascii=False))
            for tool, source in self._searched.items()
            if isinstance(source, Documents)
        ]

    def holds_text(self, result: str) -> bool:
        """Return whether a search or a reader found something."""
        return any(shown.text for shown in parse_fenced(result))

    @property
    def problems(self) -> tuple[str, ...]:
        """Why some sources cannot be used, one line each."""
        return tuple(f"{source.id} {why}" for source in self._sources if (why := source.problem()) is not None)

    async def list_tools(self) -> list[ToolSchema]:
        """List the schemas of the tools."""
        return self.schemas()

    def schemas(self) -> list[ToolSchema]:
        """List the schemas of the tools for callers that cannot wait."""
        return [schema for source in self._searched.values() for schema in _schemas(source)]

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        cancellation_token: CancellationToken | None = None,
        call_id: str | None = None,
    ) -> ToolResult:
        """Make one call. Mistakes of the model, and what a source cannot deliver now, are returned as error results."""
        given = dict(arguments or {})
        try:
            if source := self._searched.get(name):
                return tool_result(name, await _search(source, _text(given, "words")))
            if source := self._read.get(name):
                start = _number(given.get("start", given.get("first_line", 1)))
                passage = await source.read(_text(given, _name_tools(source).ref), start)
                return tool_result(name, write_passage(passage))
        except OSError as error:
            return tool_result(name, f"{name} failed: {error.strerror or type(error).__name__}.", is_error=True)
        except SourceUnavailable as error:
            return tool_result(name, f"{error} Go on without it, and say so.", is_error=True)
        except ValueError as error:
            return tool_result(name, str(error), is_error=True)
        return tool_result(name, f"There is no tool {name!r}.", is_error=True)


async def _search(source: Source, words: str) -> str:
    hits = await source.search(words, MAX_HITS)
    remarks = await source.remarks() if isinstance(source, Documents) else ""
    if not hits:
        return f"Nothing found for {quote(words)} in {source.description}. {remarks}".rstrip()
    return write_hits(hits) + (f"\n\n{remarks}" if "Not readable" in remarks else "")


def _schemas(source: Source) -> list[ToolSchema]:
    words = _name_tools(source)
    searched = {"words": {"type": "string", "description": "Words to look for, or a question."}}
    read = {
        words.ref: {"type": "string", "description": words.is_what},
        "start": {"type": "integer", "description": f"The {words.unit} to read from, 1 for the beginning."},
    }
    return [
        tool_schema(words.search, f"Find passages in {source.description}, best first.", searched),
        tool_schema(words.read, f"Read from {source.description}, a part at a time.", read),
    ]


def _text(given: Mapping[str, Any], argument: str) -> str:
    value = given.get(argument)
    if not isinstance(value, str):
        raise ValueError(f"{argument!r} is needed, as text.")
    return value


def _number(value: object) -> int:
    """Read an integer, also from text or with a decimal point, as some models write it."""
    try:
        return int(value)  # type: ignore[call-overload,no-any-return]  # int()'s refusal is caught
    except (ValueError, TypeError, OverflowError) as error:
        raise ValueError("'start' must be a whole number.") from error
