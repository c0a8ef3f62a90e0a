"""The web: search by Tavily, Brave or ddgs, and pages read as text."""

from __future__ import annotations

import asyncio
import importlib.util
import json
from collections.abc import Sequence
from typing import Any, Protocol

from upcall.addresses import Resolve
from upcall.research.sources.base import Hit, Passage, SourceUnavailable
from upcall.research.sources.http import HttpReply, explain_missing, fetch, guard_url
from upcall.research.sources.isolated import IsolatedReader
from upcall.research.sources.passages import take_passage
from upcall.research.sources.readers import INSTALL, NotReadable, Text
from upcall.text import first_line

WEB = "web"

MAX_QUERY_CHARS = 400
MAX_HITS = 20
PAGE_TIMEOUT_S = 30.0
"""How long separating a page's text from the parts around it may take."""

KEPT_PAGES = 32


class SearchEngine(Protocol):
    """A way to search the web."""

    def problem(self) -> str | None:
        """Say why it cannot be used, with the remedy."""
        ...

    async def search(self, query: str, limit: int) -> list[tuple[str, str, str]]:
        """Find pages: address, title and a few words of each, best first."""
        ...


class Tavily:
    """https://docs.tavily.com/documentation/api-reference/endpoint/search"""

    def __init__(self, key: str | None, base_url: str = "https://api.tavily.com") -> None:
        self._key, self._base = key, base_url.rstrip("/")

    def problem(self) -> str | None:
        """Report a missing key."""
        return explain_missing() or (None if self._key else "needs a key: set TAVILY_API_KEY")

    async def search(self, query: str, limit: int) -> list[tuple[str, str, str]]:
        """Find at most 20 pages."""
        reply = await fetch(
            "Tavily",
            f"{self._base}/search",
            method="POST",
            redirects=0,
            headers={"Authorization": f"Bearer {self._key}"},
            json={"query": query, "max_results": limit},
        )
        found = read_entries("Tavily", reply, "results")
        return [(read_text(each, "url"), read_text(each, "title"), read_text(each, "content")) for each in found]


class Brave:
    """https://api-dashboard.search.brave.com/app/documentation/web-search/get-started"""

    def __init__(self, key: str | None, base_url: str = "https://api.search.brave.com") -> None:
        self._key, self._base = key, base_url.rstrip("/")

    def problem(self) -> str | None:
        """Report a missing key."""
        return explain_missing() or (None if self._key else "needs a key: set BRAVE_API_KEY")

    async def search(self, query: str, limit: int) -> list[tuple[str, str, str]]:
        """Find at most 20 pages."""
        reply = await fetch(
            "Brave",
            f"{self._base}/res/v1/web/search",
            redirects=0,  # They would pass on the key in its header.
            headers={"X-Subscription-Token": self._key or "", "Accept": "application/json"},
            params={"q": query, "count": limit, "text_decorations": "false"},
        )
        found = read_entries("Brave", reply, "web", "results")
        return [(read_text(each, "url"), read_text(each, "title"), read_text(each, "description")) for each in found]


class Ddgs:
    """The package ddgs, which queries search engines that need no key."""

    def __init__(self, proxy: str | None = None) -> None:
        self._proxy = proxy

    def problem(self) -> str | None:
        """Report a missing package."""
        return explain_missing() or (None if importlib.util.find_spec("ddgs") else INSTALL)

    async def search(self, query: str, limit: int) -> list[tuple[str, str, str]]:
        """Return the results of the first engine to answer."""
        found = await asyncio.to_thread(self._search, query, limit)
        return [(read_text(each, "href"), read_text(each, "title"), read_text(each, "body")) for each in found]

    def _search(self, query: str, limit: int) -> list[dict[str, Any]]:
        from ddgs import DDGS
        from ddgs.exceptions import DDGSException

        try:
            return DDGS(proxy=self._proxy, timeout=10).text(query, max_results=limit)
        except DDGSException as error:
            if "No results" in str(error):
                return []
            raise SourceUnavailable(f"Web search (ddgs) cannot be reached: {first_line(error)}.") from error


class Web:
    """Search by an engine; a page is read as its main text, in lines.

    `private_hosts` are hosts with private addresses that may be read; `resolve` returns the addresses of a host, by
    default as the system does.
    """

    id = WEB
    description = "the web"

    def __init__(
        self, engine: SearchEngine, *, private_hosts: Sequence[str] = (), resolve: Resolve | None = None
    ) -> None:
        self._engine = engine
        self._private_hosts, self._resolve = tuple(private_hosts), resolve
        self._pages: dict[str, Text] = {}

    def problem(self) -> str | None:
        """Say why the engine cannot be used."""
        return self._engine.problem()

    async def search(self, query: str, limit: int = 10) -> Sequence[Hit]:
        """Find pages, with a few words of each."""
        found = await self._engine.search(bound_query(query), max(1, min(limit, MAX_HITS)))
        return [
            Hit(source=WEB, ref=url, title=title, text=words, score=-float(rank))
            for rank, (url, title, words) in enumerate(found)
            if url.startswith(("http://", "https://"))
        ]

    async def read(self, ref: str, start: int = 1) -> Passage:
        """Read a page or a PDF on the web from a line or page on. It stays cached for a while."""
        if ref not in self._pages:
            reply = await fetch(
                "The page", ref, transport=guard_url(self._private_hosts, self._resolve), seconds=PAGE_TIMEOUT_S
            )
            page = await asyncio.to_thread(read_page, reply)
            if len(self._pages) >= KEPT_PAGES:
                del self._pages[next(iter(self._pages))]
            self._pages[ref] = page
        return take_passage(WEB, ref, self._pages[ref], start)


def bound_query(query: str) -> str:
    """Return a query that can be sent.

    Raises:
        ValueError: it is empty.
    """
    words = " ".join(query.split())[:MAX_QUERY_CHARS]
    if not words:
        raise ValueError("Give at least one word to look for.")
    return words


def read_page(reply: HttpReply) -> Text:
    """Return a server's reply as text, by its type.

    Raises:
        ValueError: it is not text.
    """
    suffix = _SUFFIXES.get(reply.content_type)
    if suffix is None:
        kind = reply.content_type or "something without a type"
        raise ValueError(f"The page is {kind}, which cannot be read as text.")
    with IsolatedReader(PAGE_TIMEOUT_S) as reader:
        try:
            return reader.read_data(suffix, reply.data)
        except NotReadable as problem:
            raise ValueError(f"The page cannot be read: it {problem}.") from problem


_SUFFIXES = {
    "text/html": ".html",
    "application/xhtml+xml": ".html",
    "application/pdf": ".pdf",
    "text/plain": ".txt",
    "text/markdown": ".md",
    "text/csv": ".csv",
    "application/json": ".json",
    "text/xml": ".xml",
    "application/xml": ".xml",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": ".docx",
}


def read_entries(who: str, reply: HttpReply, *path: str) -> list[dict[str, Any]]:
    """Return the list of objects at a path in a JSON reply; empty if the path does not exist.

    Raises:
        SourceUnavailable: the reply is not JSON.
    """
    try:
        value = json.loads(reply.data)
    except ValueError as error:
        raise SourceUnavailable(f"{who} sent something that is not JSON.") from error
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


def read_text(entry: dict[str, Any], name: str) -> str:
    """Read a field as text, empty if it is not text."""
    value = entry.get(name)
    return value if isinstance(value, str) else ""
