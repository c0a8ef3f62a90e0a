"""What tags and attributes a page has."""

from __future__ import annotations

from html.parser import HTMLParser


class Tags(HTMLParser):
    """The tags and attributes of a page; that it is well-formed is checked on the way."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: set[str] = set()
        self.attributes: set[tuple[str, str | None]] = set()
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self.attributes |= set(attrs)
        if tag not in {"br", "hr", "img"}:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag
