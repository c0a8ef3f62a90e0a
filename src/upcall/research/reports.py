"""The report of research, its citations checked against the calls of its agent (see `upcall.runs.reports`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Self

from pydantic import AliasChoices, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from upcall.autogen.messages import CHECKED, FRUITLESS
from upcall.questions.question import VisibleText
from upcall.research.cited import CheckedCitation, CitedSource, Counts, ReadText
from upcall.research.sources.fences import parse_fenced
from upcall.runs.outputs import StructuredReply
from upcall.runs.reports import MadeCall, Report, WorkDone, head_list

NOT_READ = frozenset(
    {"apply_patch", "delete_file", "edit_file", "list_files", "read_file"}
    | {"run_command", "run_python", "search_files", "show_diff", "write_file"}
)
"""Tools that work on a folder: what they return is not a source of a research report."""


def extract_read_texts(call: MadeCall) -> Iterator[ReadText]:
    """Yield the texts that a call returned to its agent.

    The result of a foreign tool is a source named after the tool.
    """
    if call.of_source:
        for shown in parse_fenced(call.result):
            yield ReadText(shown.ref, shown.text, shown.place)
    elif call.name not in NOT_READ:
        yield ReadText(call.name, call.result)


class Citation(StructuredReply):
    """A place that a report cites: the source's name as the tools give it, where in it, and its words."""

    ref: VisibleText = Field(
        default="",
        description="the source's name, as your tools gave it",
        validation_alias=AliasChoices("ref", "source", "document", "file", "name", "title", "url"),
    )
    place: VisibleText = Field(
        default="",
        description="page or lines",
        validation_alias=AliasChoices("place", "page", "pages", "line", "lines", "section"),
    )
    quote: VisibleText = Field(
        default="",
        description="its own words, copied",
        validation_alias=AliasChoices("quote", "text", "excerpt", "passage", "content"),
    )
    number: SkipJsonSchema[int | None] = Field(default=None, validation_alias=AliasChoices("number", "id", "n"))

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"ref": value} if isinstance(value, str) else value

    @field_validator("number", mode="before")
    @classmethod
    def _any_number(cls, value: object) -> object:
        """Drop values that are not numbers: without one, a citation counts by its position in the list."""
        digits = re.search(r"\d{1,4}", str(value))
        return int(digits[0]) if digits else None


class ResearchReport(Report):
    """The researcher's report: its numbers in brackets stand for the citations, counted from 1."""

    citations: tuple[Citation, ...] = Field(
        default=(), description="What each [n] of the summary rests on, in the order of the numbers."
    )
    not_found: tuple[str, ...] = Field(default=(), description="What was looked for and not found.")
    left_open: SkipJsonSchema[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _sources_are_citations(cls, value: Any) -> Any:
        """Accept the list under other names that models prefer too, and a single entry in place of a list."""
        if not isinstance(value, dict):
            return value
        named = value.get("citations") or value.get("sources") or value.get("references") or ()
        listed = list(named) if isinstance(named, list | tuple) else [named]
        return {**value, "citations": [each for each in listed if isinstance(each, str | dict | Citation)]}

    def verify_against(self, work: WorkDone) -> Report:
        """Return the report with each citation looked up in the texts that the calls returned.

        A report without citations or claims stays unchanged.
        """
        from upcall.research.citations import Library, check  # Slow to import, and only for research.
        from upcall.research.markdown import list_numbers
        from upcall.research.written_sources import Claimed, number_names, split_sources

        library = Library(read for call in work.made for read in extract_read_texts(call))
        summary, listed = split_sources(self.summary, library.has)
        claimed = [
            Claimed(each.number or number, each.ref, each.place, each.quote)
            for number, each in enumerate(self.citations, start=1)
        ] or listed
        summary, named = number_names(summary, library.has, claimed)
        claimed = [*claimed, *named]
        if not (claimed or list_numbers(summary) or any(call.of_source for call in work.made)):
            return self.with_warnings(["it looked nothing up in its sources"] if work.source_tools else [])
        checked = CheckedReport.of(self, check(summary, claimed, library), not_found=self.not_found)
        return checked if checked.counts.held else checked.with_warnings(["no statement was checked against a source"])

    def objections(self) -> tuple[str, ...]:
        """Return the warning that nothing was looked up."""
        return self.warnings

    def _lists(self) -> list[str]:
        return [*head_list("Not found", self.not_found), *super()._lists()]


class CheckedReport(Report):
    """A report whose citations code has checked: no model writes one. ``cited`` is its source list."""

    cited: tuple[CitedSource, ...] = ()
    counts: Counts = Counts()
    not_found: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: Report, checked: CheckedCitation, *, not_found: Sequence[str] = ()) -> Self:
        """Make the report of the checked text; dropped citations are listed as left open."""
        return cls(
            summary=checked.text,
            assumptions=report.assumptions,
            left_open=(*report.left_open, *checked.problems),
            cited=checked.cited,
            counts=checked.counts,
            not_found=tuple(not_found),
            warnings=report.warnings,
        )

    def is_better_than(self, later: Report | None) -> bool:
        """Return whether a quote of it was found, and none of the later one."""
        return self.counts.held > 0 and not (isinstance(later, CheckedReport) and later.counts.held)

    def renumber(self, numbers: Mapping[str, int]) -> Self:
        """Return the same report with the numbers of its sources in another list, by ref."""
        from upcall.research.citations import replace_numbers

        cited = tuple(each.model_copy(update={"number": numbers[each.ref]}) for each in self.cited)
        held = {before.number: after for before, after in zip(self.cited, cited, strict=True)}
        return self.model_copy(update={"cited": cited, "summary": replace_numbers(self.summary, held)})

    def metadata(self) -> dict[str, str]:
        """Return what became of the citations, and whether none is left."""
        marks = {} if self.cited else {FRUITLESS: "true"}
        return {CHECKED: self.counts.model_dump_json(), **marks}

    def outcome(self) -> str:
        """Return what it says about its work, without its quotes."""
        return "\n".join([self.summary, *head_list("Not found", self.not_found), *super()._lists()])

    def _lists(self) -> list[str]:
        return [
            *head_list("Sources", tuple(each.as_text() for each in self.cited)),
            *head_list("Not found", self.not_found),
            *super()._lists(),
            f"\n{self.counts.as_text()}",
        ]
