"""A model's Markdown as HTML."""

from __future__ import annotations

from page_tags import Tags

from upcall.research.cited import CitedSource, Quotation
from upcall.research.reports import CheckedReport
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


def test_citation_number_names_its_source_and_code_stays_code() -> None:
    source = CitedSource(number=1, ref="notes.md", quotes=(Quotation(place="lines 3-9", quote="<it> is fast"),))
    report = CheckedReport(summary="It is fast [1], and `x[1]` is code; [7] is none.", cited=(source,)).to_text()
    page = markdown_html(report)
    assert 'fast <sup title="notes.md, lines 3-9: &quot;&lt;it&gt; is fast&quot;">[1]</sup>, and' in page
    assert "<code>x[1]</code>" in page
    assert "[7]" in page
    assert "<sup>[7]" not in page
