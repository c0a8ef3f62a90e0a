"""A model's Markdown as HTML, for a page or a notebook: only what cannot load or run anything is rendered."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from html import escape
from typing import Any, TypeAlias

from markdown_it import MarkdownIt
from markdown_it.token import Token

from upcall.lazy_pattern import LazyPattern
from upcall.text import escape_controls, one_line

_CITED = LazyPattern(r"\[(\d{1,3})\]")
_SOURCE_LINE = LazyPattern(r"^(?:[-*] )?\[(\d{1,3})\] (.+)$", re.MULTILINE)
"""A line of the source list at the end of a report; for each number the last one counts."""
_SAFE_LINK = LazyPattern(r"(?:https?://|mailto:)", re.IGNORECASE)

HighlightCode: TypeAlias = Callable[[str, str, str], str]
"""Takes code, its language and what else stands behind that in the fence; returns HTML, or an empty text for code that
is to be escaped as it is."""


def markdown_html(text: str, highlight: HighlightCode | None = None) -> str:
    """Return a model's Markdown as HTML. Raw HTML is shown as text, images are omitted (their server would learn that
    somebody is looking), links lead only to the web or to mail, and citations have tooltips. Code in fences is
    highlighted by `highlight`."""
    text = escape_controls(text.replace("\r\n", "\n"))
    sources = {number: one_line(line, 400) for number, line in _SOURCE_LINE.findall(text)}
    rendered: str = _markdown(highlight).render(text, {"sources": sources})
    return rendered


class _Markdown(MarkdownIt):
    def validateLink(self, url: str) -> bool:
        """Whether a link stays a link."""
        return bool(_SAFE_LINK.match(url.strip()))


@cache
def _markdown(highlight: HighlightCode | None) -> MarkdownIt:
    made = _Markdown("commonmark", {"html": False, "breaks": True, "highlight": highlight})
    made.enable(["table", "strikethrough"]).disable("image")
    made.add_render_rule("text", _text_with_citations)
    made.add_render_rule("link_open", _link_to_elsewhere)
    return made


def _text_with_citations(renderer: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    def cite(found: re.Match[str]) -> str:
        source = env["sources"].get(found[1])
        return f'<sup title="{escape(source)}">{found[0]}</sup>' if source else found[0]

    return _CITED.sub(cite, escape(tokens[at].content))


def _link_to_elsewhere(renderer: Any, tokens: Sequence[Token], at: int, options: Any, env: Any) -> str:
    tokens[at].attrs |= {"target": "_blank", "rel": "noopener noreferrer"}
    opened: str = renderer.renderToken(tokens, at, options, env)
    return opened
