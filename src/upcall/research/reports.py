"""What the agents with tools end their work with: a report, held against the calls that they made."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from posixpath import normpath
from typing import Annotated, Any, Self

from pydantic import Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from upcall.questions.question import VisibleText
from upcall.research.citations import Checked, CitedSource, Counts, Library, ReadText, check, replace_numbers
from upcall.research.markdown import Claimed, markers, split_source_list
from upcall.research.sources.fences import parse_fenced
from upcall.runs.outputs import Reply, _also
from upcall.text import one_line

_NOT_READ = frozenset(
    {
        *("list_files", "read_file", "search_files", "write_file", "edit_file", "apply_patch", "delete_file"),
        *("show_diff", "run_command", "run_python"),
    }
)
"""Tools of ours whose results are no source of a research report."""


@dataclass(frozen=True)
class MadeCall:
    """A tool call that an agent made, with the text it gave back. ``of_source``: the tool is one of a
    `SourcesWorkbench`, so that its result names the sources itself; a text from elsewhere that looks so names none."""

    name: str
    arguments: Mapping[str, Any]
    result: str
    of_source: bool = False


def extract_read_texts(call: MadeCall) -> Iterator[ReadText]:
    """What a call gave its agent to read.

    The result of a tool that is none of ours is a source by the name of the tool.
    """
    if call.of_source:
        for shown in parse_fenced(call.result):
            yield ReadText(shown.ref, shown.text, shown.place)
    elif call.name not in _NOT_READ:
        yield ReadText(call.name, call.result)


class Report(Reply):
    """What an agent with tools ends its work with. The text is what the reader gets; the lists say what it rests on."""

    summary: Annotated[str, Field(min_length=1, description="The result for the reader, in markdown.")]
    assumptions: tuple[str, ...] = Field(default=(), description="What was assumed because nobody said it.")
    left_open: tuple[str, ...] = Field(default=(), description="What was not done or not found.")

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The fallback where a model will not answer in JSON: its words are the summary."""
        return cls(summary=text)

    def verify_against(self, made: Sequence[MadeCall]) -> Report:
        """The report without the claims that `made`, all calls of its agent that did not fail, does not bear out; what
        falls away is listed as left open."""
        return self

    def to_text(self) -> str:
        """The report as its reader sees it."""
        return "\n".join([self.summary, *self._lists()])

    def _without(self, field: str, missing: Sequence[str], why: str) -> Self:
        if not missing:
            return self
        kept = tuple(entry for entry in getattr(self, field) if entry not in missing)
        left_open = (*self.left_open, *(f"{entry} {why}." for entry in missing))
        return self.model_copy(update={field: kept, "left_open": left_open})

    def _lists(self) -> list[str]:
        return [*_listed("Assumed", self.assumptions), *_listed("Left open", self.left_open)]


class CodingReport(Report):
    """The coder's report, with the files it wrote and the commands it ran."""

    files: tuple[str, ...] = Field(default=(), description="The files written or changed, as paths in the workspace.")
    commands: tuple[str, ...] = Field(default=(), description="The shell commands that mattered, exactly as run.")
    tests: tuple[str, ...] = Field(default=(), description="The shell commands that ran tests, exactly as run.")

    def verify_against(self, made: Sequence[MadeCall]) -> Self:
        """A file counts if it was changed by a tool, a command if ``run_command`` ran it. To a test command the outcome
        of its last run is added, which is not the model's to say."""
        written = {normpath(path) for call in made for path in _changed_by(call)}
        missing = [file for file in self.files if normpath(file) not in written]
        report = self._without("files", missing, "was not written: no call that changes files succeeded for it")
        return report._with_outcomes(made) if self.commands or self.tests else report

    def _with_outcomes(self, made: Sequence[MadeCall]) -> Self:
        ran = {
            one_line(str(call.arguments.get("command"))): at
            for at, call in enumerate(made)
            if call.name == "run_command"
        }
        report = self
        for field in ("commands", "tests"):
            missing = [each for each in getattr(self, field) if one_line(each) not in ran]
            report = report._without(field, missing, "was not run")
        tests = tuple(_outcome(each, made, ran[one_line(each)]) for each in report.tests)
        return report.model_copy(update={"tests": tests})

    def _lists(self) -> list[str]:
        lists = [*_listed("Files", self.files), *_listed("Commands", self.commands), *_listed("Tests", self.tests)]
        return [*lists, *super()._lists()]


def _outcome(command: str, made: Sequence[MadeCall], at: int) -> str:
    """A command with how it ended the last time, and whether files were written after that."""
    lines = made[at].result.strip().splitlines()
    ended = lines[0].strip("[]") if lines else "no result"
    last = f": {lines[-1].strip()}" if len(lines) > 1 else ""
    later = any(call.name in _WRITING for call in made[at + 1 :])
    return f"{command} ({ended}){last}" + (" (files were changed after that)" if later else "")


_WRITING = ("apply_patch", "delete_file", "edit_file", "write_file")
"""The tools that change files."""


def _changed_by(call: MadeCall) -> list[str]:
    """The files that a call changed, as it named them."""
    if call.name == "apply_patch":
        patch = str(call.arguments.get("patch"))
        return [name for line in patch.splitlines() if (name := _PATCHED.sub("", line.split("\t")[0])) != line]
    return [str(call.arguments.get("path"))] if call.name in ("write_file", "edit_file", "delete_file") else []


_PATCHED = re.compile(r"^(?:--- (?:a/)?|\+\+\+ (?:b/)?)")


class Citation(Reply):
    """A place that a report cites: the source's name as the tools give it, where in it, and its words."""

    ref: VisibleText = Field(
        default="",
        description="the source's name, as your tools gave it",
        validation_alias=_also("ref", "source", "document", "file", "name", "title", "url"),
    )
    place: VisibleText = Field(
        default="",
        description="page or lines",
        validation_alias=_also("place", "page", "pages", "line", "lines", "section"),
    )
    quote: VisibleText = Field(
        default="",
        description="its own words, copied",
        validation_alias=_also("quote", "text", "excerpt", "passage", "content"),
    )
    number: SkipJsonSchema[int | None] = Field(default=None, validation_alias=_also("number", "id", "n"))

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"ref": value} if isinstance(value, str) else value

    @field_validator("number", mode="before")
    @classmethod
    def _any_number(cls, value: object) -> object:
        """What is none is left out: by default a citation has the number of its place in the list."""
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
        """A list of names, under the name that models like best, and one entry where a list should be."""
        if not isinstance(value, dict):
            return value
        named = value.get("citations") or value.get("sources") or value.get("references") or ()
        listed = list(named) if isinstance(named, list | tuple) else [named]
        return {**value, "citations": [each for each in listed if isinstance(each, str | dict | Citation)]}

    def verify_against(self, made: Sequence[MadeCall]) -> Report:
        """Each citation is looked up in what `made` gave the agent to read. A report that rests on nothing and claims
        nothing stays as it is."""
        summary, listed = split_source_list(self.summary)
        claimed = [
            Claimed(each.number or number, each.ref, each.place, each.quote)
            for number, each in enumerate(self.citations, start=1)
        ] or listed
        if not (claimed or markers(summary) or any(call.of_source for call in made)):
            return self
        library = Library(read for call in made for read in extract_read_texts(call))
        return CheckedReport.of(self, check(summary, claimed, library), not_found=self.not_found)

    def _lists(self) -> list[str]:
        return [*_listed("Not found", self.not_found), *super()._lists()]


class CheckedReport(Report):
    """A report whose citations code has checked: no model writes one. ``cited`` is its source list."""

    cited: tuple[CitedSource, ...] = ()
    counts: Counts = Counts()
    not_found: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: Report, checked: Checked, *, not_found: Sequence[str] = ()) -> Self:
        """The report with the text that was checked; what fell away is listed as left open."""
        return cls(
            summary=checked.text,
            assumptions=report.assumptions,
            left_open=(*report.left_open, *checked.problems),
            cited=checked.cited,
            counts=checked.counts,
            not_found=tuple(not_found),
        )

    def renumbered(self, numbers: Mapping[str, int]) -> Self:
        """The same report with the numbers that its sources have in another list, by ref."""
        cited = tuple(each.model_copy(update={"number": numbers[each.ref]}) for each in self.cited)
        held = {before.number: after for before, after in zip(self.cited, cited, strict=True)}
        return self.model_copy(update={"cited": cited, "summary": replace_numbers(self.summary, held)})

    def outcome(self) -> str:
        """What it says of its work, without what it quotes."""
        return "\n".join([self.summary, *_listed("Not found", self.not_found), *super()._lists()])

    def _lists(self) -> list[str]:
        return [
            *_listed("Sources", tuple(each.as_text() for each in self.cited)),
            *_listed("Not found", self.not_found),
            *super()._lists(),
            f"\n{self.counts.as_text()}",
        ]


def _listed(title: str, entries: tuple[str, ...]) -> list[str]:
    return ["", f"{title}:", *(f"- {entry}" for entry in entries)] if entries else []
