"""A model's Markdown on a terminal."""

from __future__ import annotations

from typing import ClassVar

from markdown_it import MarkdownIt
from rich.console import JustifyMethod
from rich.markdown import Heading, Markdown, MarkdownElement

from upcall.text import escape_controls


class _LeftHeading(Heading):
    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = dict.fromkeys(Heading.LEVEL_ALIGN, "left")


class RenderedMarkdown(Markdown):
    """Markdown of which nothing is lost: HTML is shown as text, lines end where they do, and links show where they
    lead."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {**Markdown.elements, "heading_open": _LeftHeading}

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False, code_theme="ansi_dark")
        self.markup = escape_controls(text)
        parser = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
        self.parsed = parser.parse(self.markup)
        for token in self.parsed:
            for inner in token.children or ():
                if inner.type == "softbreak":
                    inner.type = "hardbreak"
