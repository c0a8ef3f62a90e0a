"""Wikipedia, by the Action API of MediaWiki: https://www.mediawiki.org/wiki/API:Main_page"""

from __future__ import annotations

import html
from collections.abc import Sequence

from upcall.lazy_pattern import LazyPattern
from upcall.research.sources.base import Hit, Passage
from upcall.research.sources.http import explain_missing, fetch
from upcall.research.sources.passages import take_passage
from upcall.research.sources.readers import Text
from upcall.research.sources.web import bound_query, read_entries, read_text

WIKIPEDIA = "wikipedia"
_TAG = LazyPattern(r"<[^>]*>")


class Wikipedia:
    """Articles in one language; `base_url` is the address of its ``api.php``, by default Wikipedia's."""

    id = WIKIPEDIA
    description = "Wikipedia"

    def __init__(self, language: str = "en", base_url: str | None = None) -> None:
        self._api = base_url or f"https://{language}.wikipedia.org/w/api.php"

    def problem(self) -> str | None:
        """Return the missing package, if one is; no key is needed."""
        return explain_missing()

    async def search(self, query: str, limit: int = 10) -> Sequence[Hit]:
        """Find articles, each with the words around the match."""
        reply = await fetch(
            "Wikipedia",
            self._api,
            params={
                "action": "query",
                "list": "search",
                "srsearch": bound_query(query),
                "srlimit": str(max(1, min(limit, 20))),
                "format": "json",
                "formatversion": "2",
            },
        )
        found = read_entries("Wikipedia", reply, "query", "search")
        return [
            Hit(
                source=WIKIPEDIA,
                ref=read_text(each, "title"),
                title=read_text(each, "title"),
                text=html.unescape(_TAG.sub("", read_text(each, "snippet"))),
                score=-float(rank),
            )
            for rank, each in enumerate(found)
            if read_text(each, "title")
        ]

    async def read(self, ref: str, start: int = 1) -> Passage:
        """Read an article's text from a line on; a redirect is followed."""
        title = bound_query(ref)
        reply = await fetch(
            "Wikipedia",
            self._api,
            params={
                "action": "query",
                "prop": "extracts",
                "explaintext": "1",
                "redirects": "1",
                "titles": title,
                "format": "json",
                "formatversion": "2",
            },
        )
        pages = [page for page in read_entries("Wikipedia", reply, "query", "pages") if read_text(page, "extract")]
        if not pages:
            raise ValueError(f"There is no article {title!r}. Search for it first.")
        article = Text("line", read_text(pages[0], "extract").splitlines(), read_text(pages[0], "title"))
        return take_passage(WIKIPEDIA, ref, article, start)
