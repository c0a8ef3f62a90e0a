"""A model's Markdown as HTML."""

from __future__ import annotations

from page_tags import Tags

from upcall.ui.markdown_html import markdown_html


def test_markdown_loads_nothing_and_links_to_the_web_only() -> None:
    page = markdown_html(
        "# Report\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n[good](https://example.com) [bad](javascript:alert(1)) "
        "[odd](//evil.example) [file](file:///etc/passwd) [data](data:image/png;base64,AA) ![shot](https://x.example/y)"
        '\n\n`<b>` <b onclick="x">raw</b>'
    )
    seen = Tags(page)
    assert seen.tags == {"h1", "p", "a", "table", "thead", "tbody", "tr", "th", "td", "code"}
    assert {value for name, value in seen.attributes if name == "href"} == {
        "https://example.com",
        "https://x.example/y",
    }
    assert ("rel", "noopener noreferrer") in seen.attributes
