"""The numbers of a checked report, where its Markdown is shown as HTML."""

from __future__ import annotations

from upcall.research.cited import CitedSource, Quotation
from upcall.research.reports import CheckedReport
from upcall.ui.markdown_html import markdown_html


def test_citation_number_names_its_source_and_code_stays_code() -> None:
    source = CitedSource(number=1, ref="notes.md", quotes=(Quotation(place="lines 3-9", quote="<it> is fast"),))
    report = CheckedReport(summary="It is fast [1], and `x[1]` is code; [7] is none.", cited=(source,)).to_text()
    page = markdown_html(report)
    assert 'fast <sup title="notes.md, lines 3-9: &quot;&lt;it&gt; is fast&quot;">[1]</sup>, and' in page
    assert "<code>x[1]</code>" in page
    assert "[7]" in page
    assert "<sup>[7]" not in page
