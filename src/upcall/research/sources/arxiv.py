"""arXiv, by its Atom API (https://info.arxiv.org/help/api/user-manual.html) and the papers' PDF files."""

from __future__ import annotations

import asyncio
import importlib.util
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from upcall.lazy_pattern import LazyPattern
from upcall.research.sources.base import Hit, Passage, SourceUnavailable
from upcall.research.sources.http import HttpReply, explain_missing, fetch
from upcall.research.sources.passages import take_passage
from upcall.research.sources.readers import INSTALL, Text
from upcall.research.sources.web import bound_query, read_page
from upcall.words import SEARCH

ARXIV = "arxiv"
_ATOM = {"atom": "http://www.w3.org/2005/Atom"}
_ID = LazyPattern(r"(?:arxiv:)?((?:\d{4}\.\d{4,5}|[a-z-]+(?:\.[A-Z]{2})?/\d{7})(?:v\d+)?)", re.IGNORECASE)


class Arxiv:
    """Papers, by id (``2401.01234``); `api_url` and `pdf_url` are the addresses of the API and the papers.

    A paper is read page by page; if its PDF is unavailable, only its abstract is.
    """

    id = ARXIV
    description = "arXiv's papers"

    def __init__(
        self,
        api_url: str = "https://export.arxiv.org/api/query",
        pdf_url: str = "https://export.arxiv.org/pdf",
    ) -> None:
        self._api, self._pdf = api_url, pdf_url.rstrip("/")
        self._papers: dict[str, Text] = {}

    def problem(self) -> str | None:
        """Return the missing package, if one is; no key is needed."""
        return explain_missing() or (None if importlib.util.find_spec("defusedxml") else INSTALL)

    async def search(self, query: str, limit: int = 10) -> Sequence[Hit]:
        """Find papers, with title, authors, date and abstract."""
        words = SEARCH.cut(bound_query(query))
        if not words:
            raise ValueError("Give at least one word to look for.")
        search = " AND ".join(f"all:{word}" for word in words)
        params = {"search_query": search, "max_results": str(max(1, min(limit, 20))), "sortBy": "relevance"}
        found = _entries(await fetch("arXiv", self._api, params=params))
        return [replace(hit, score=-float(rank)) for rank, hit in enumerate(found)]

    async def read(self, ref: str, start: int = 1) -> Passage:
        """Read a paper from a page on, or its abstract if the PDF cannot be read."""
        found = _ID.fullmatch(ref.strip())
        if found is None:
            raise ValueError(f"{ref!r} is not an arXiv id. Give one as the search does, such as 2401.01234.")
        paper = found[1]
        if paper in self._papers:
            return take_passage(ARXIV, ref, self._papers[paper], start)
        try:
            reply = await fetch("arXiv", f"{self._pdf}/{paper}")
            self._papers[paper] = await asyncio.to_thread(read_page, replace(reply, content_type="application/pdf"))
        except (SourceUnavailable, ValueError) as error:
            return await self._abstract(ref, paper, str(error))
        return take_passage(ARXIV, ref, self._papers[paper], start)

    async def _abstract(self, ref: str, paper: str, why: str) -> Passage:
        hits = _entries(await fetch("arXiv", self._api, params={"id_list": paper, "max_results": "1"}))
        if not hits:
            raise ValueError(f"There is no paper {paper!r} on arXiv. Search for it first.")
        note = f"Only the abstract can be had. {why}"
        return Passage(source=ARXIV, ref=ref, title=hits[0].title, text=hits[0].text, place="abstract", note=note)


def _entries(reply: HttpReply) -> list[Hit]:
    """List the papers of a feed. For an error, arXiv sends an entry without a paper's id."""
    from defusedxml import DefusedXmlException
    from defusedxml.ElementTree import ParseError, fromstring

    try:
        feed = fromstring(reply.data)
    except (ParseError, DefusedXmlException, ValueError) as error:
        raise SourceUnavailable("arXiv sent something that is not a feed.") from error
    hits = []
    for entry in feed.iterfind("atom:entry", _ATOM):
        paper = _ID.search(_read(entry, "id").rpartition("/abs/")[2])
        if paper is not None:
            authors = ", ".join(_read(author, "name") for author in entry.iterfind("atom:author", _ATOM))
            about = f"{_read(entry, 'title')}\n{authors[:300]}, {_read(entry, 'published')[:10]}"
            abstract = f"{about}\n{_read(entry, 'summary')}"
            hits.append(Hit(source=ARXIV, ref=paper[1], title=_read(entry, "title"), text=abstract, place="abstract"))
    return hits


def _read(element: Any, name: str) -> str:
    return " ".join((element.findtext(f"atom:{name}", "", _ATOM) or "").split())
