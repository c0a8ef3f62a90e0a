"""The report of research: what was looked up, and what was not found."""

from __future__ import annotations

from upcall.research.reports import CheckedReport, ResearchReport
from upcall.research.sources.fences import fence
from upcall.runs.reports import MadeCall, WorkDone


def test_answer_without_a_lookup_is_warned_of_with_sources() -> None:
    sources = frozenset({"search_documents"})
    report = ResearchReport.from_text("It is 28.").verify_against(WorkDone([], sources, sources))
    assert report.warnings == ("it looked nothing up in its sources",)
    assert ResearchReport.from_text("It is 28.").verify_against(WorkDone([])).warnings == ()


def test_research_report_says_what_it_did_not_find() -> None:
    report = ResearchReport(summary="So.", not_found=("Spain",), left_open=("X",))
    assert report.to_text() == "So.\n\nNot found:\n- Spain\n\nLeft open:\n- X"


def test_document_that_was_not_seen_is_no_source() -> None:
    made = [
        MadeCall("search_documents", {"words": "CUDA"}, "Nothing found for 'CUDA' in 2 documents."),
        MadeCall(
            "search_documents", {"words": "wind"}, fence("documents", "wind.md", "line 3", "more wind"), of_source=True
        ),
        MadeCall("read_document", {"name": "sun.md"}, fence("documents", "sun.md", "line 1", "sun"), of_source=True),
    ]
    report = ResearchReport.model_validate({"summary": "Done.", "sources": ["wind.md", "sun.md", "CUDA"]})
    backed = report.verify_against(WorkDone(made))
    assert isinstance(backed, CheckedReport)
    assert [each.ref for each in backed.cited] == ["wind.md", "sun.md"]
    assert backed.left_open == ("CUDA was cited, and was not read.",)
