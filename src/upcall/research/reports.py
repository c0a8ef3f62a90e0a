"""The result of agents with tools: a report, made and checked by code against their calls.

The model writes the words; code states what was done. Prose is a report too: its text is the summary.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from posixpath import isabs, normpath, splitext
from typing import Annotated, Any, Self

from pydantic import AliasChoices, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from upcall.questions.approval import is_refusal
from upcall.questions.question import VisibleText
from upcall.research.cited import CheckedCitation, CitedSource, Counts, ReadText
from upcall.research.sources.fences import parse_fenced
from upcall.runs.outputs import Reply
from upcall.runs.shown_text import SHOWN
from upcall.text import one_line, show_name, show_on_line
from upcall.workspace.command_results import read_changed

_WRITING = frozenset({"apply_patch", "delete_file", "edit_file", "write_file"})
_RUNNING = frozenset({"run_command", "run_python"})
_NOT_READ = _WRITING | _RUNNING | {"list_files", "read_file", "search_files", "show_diff"}
"""Our own tools whose results are not a source of a research report."""

_TO_RUN = frozenset({".py", ".sh"})
"""The extensions of files that all our sandboxes can run, and that show only then whether they work."""

_READING_COMMANDS = frozenset(
    {"cat", "cd", "echo", "find", "git", "grep", "head", "ls", "pwd", "rg", "tail", "tree", "wc"}
)
"""The commands that run no code of the workspace."""

_PATCHED = re.compile(r"^(?:--- (?:a/)?|\+\+\+ (?:b/)?)")

MAX_COMMANDS = 10
"""How many commands a report lists, the latest ones."""


@dataclass(frozen=True)
class MadeCall:
    """A successful tool call of an agent, with the text it returned.

    ``of_source``: the tool belongs to a `SourcesWorkbench`, so its result names the sources itself; a similar-looking
    text from elsewhere names none.
    """

    name: str
    arguments: Mapping[str, Any]
    result: str
    of_source: bool = False

    def changed_files(self) -> list[str]:
        """Return the files that the call changed, as it named them; none if it named none, and so failed."""
        if self.name == "apply_patch":
            lines = str(self.arguments.get("patch")).splitlines()
            named = [_PATCHED.sub("", line.split("\t")[0]) for line in lines if _PATCHED.match(line)]
            return [normpath(name) for name in named if name != "/dev/null"]
        path = self.arguments.get("path") if self.name in _WRITING else None
        return [normpath(path)] if isinstance(path, str) else []

    def files_of_command(self) -> Sequence[str]:
        """Return the files that its command was seen to change."""
        return read_changed(self.result) if self.name in _RUNNING else ()

    @property
    def command(self) -> str:
        """The command that it ran, in one line; empty if it ran none."""
        return one_line(str(self.arguments.get("command") or "a Python script")) if self.name in _RUNNING else ""

    @property
    def outcome(self) -> str:
        """How its command ended: ``exit status 0, after 0.1 s``."""
        return self.result.strip().split("\n")[0].strip("[]") or "no result"

    @property
    def runs_code(self) -> bool:
        """Whether its command may have run code of the workspace, not only looked at it."""
        return bool(self.command) and self.command.split()[0] not in _READING_COMMANDS

    @property
    def succeeded(self) -> bool:
        """Whether its command ended with status 0."""
        return bool(re.match(r"exit status 0\b", self.outcome))


@dataclass(frozen=True)
class WorkDone:
    """The calls an agent made in its turn, and the names of the tools it could call.

    ``failed`` are its failed calls.
    """

    made: Sequence[MadeCall]
    tools: frozenset[str] = frozenset()
    source_tools: frozenset[str] = frozenset()
    failed: Sequence[MadeCall] = ()

    def unchanged_files(self) -> list[str]:
        """Return the files that it tried to change but no call changed."""
        tried = (path for call in self.failed for path in call.changed_files())
        changed = [path for call in self.made for path in (*call.changed_files(), *call.files_of_command())]
        return [each for each in dict.fromkeys(tried) if not any(_is_same(each, path) for path in changed)]

    def was_refused(self, path: str) -> bool:
        """Return whether the user did not agree to one of its attempts to change a file."""
        tried = (call for call in self.failed if path in call.changed_files())
        return any(is_refusal(call.result) for call in tried)


def extract_read_texts(call: MadeCall) -> Iterator[ReadText]:
    """Yield the texts that a call returned to its agent.

    The result of a foreign tool is a source named after the tool.
    """
    if call.of_source:
        for shown in parse_fenced(call.result):
            yield ReadText(shown.ref, shown.text, shown.place)
    elif call.name not in _NOT_READ:
        yield ReadText(call.name, call.result)


class Report(Reply):
    """What an agent with tools ends its work with. ``warnings`` are said by code: where the work does not bear out
    what a reader would take for granted."""

    summary: Annotated[str, SHOWN, Field(min_length=1, description="The result for the reader, in markdown.")]
    assumptions: tuple[str, ...] = Field(default=(), description="What was assumed because nobody said it.")
    left_open: tuple[str, ...] = Field(default=(), description="What was not done or not found.")
    warnings: SkipJsonSchema[tuple[str, ...]] = ()

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Make a report of prose: its words are the summary."""
        return cls(summary=text)

    def verify_against(self, work: WorkDone) -> Report:
        """Return the report as the work supports it; dropped parts are listed as left open, or warned about."""
        return self.with_warnings(["it called none of its tools"] if work.tools and not work.made else [])

    def objections(self) -> tuple[str, ...]:
        """Return the warnings that the model gets once, before its report is accepted."""
        return ()

    def with_warnings(self, more: Iterable[str]) -> Self:
        """Return the report with more warnings."""
        return self.model_copy(update={"warnings": tuple(dict.fromkeys((*self.warnings, *more)))})

    def to_text(self) -> str:
        """Return the report as its reader sees it."""
        return "\n".join([self.summary, *self._lists()])

    def _lists(self) -> list[str]:
        return [*_head_list("Assumed", self.assumptions), *_head_list("Left open", self.left_open)]


class CodingReport(Report):
    """The coder's report, with the files it changed, the commands it ran, and how its tests ended: all from its
    calls."""

    files: SkipJsonSchema[tuple[str, ...]] = ()
    commands: SkipJsonSchema[tuple[str, ...]] = ()
    tests: SkipJsonSchema[tuple[str, ...]] = ()

    def verify_against(self, work: WorkDone) -> Report:
        """Return the report with what the calls did, and with warnings about claims beyond that."""
        runs = {call.command: place for place, call in enumerate(work.made) if call.command}
        tests = [command for command in runs if "test" in command]
        files = tuple(dict.fromkeys(path for call in work.made for path in call.changed_files()))
        by_command = [path for call in work.made for path in call.files_of_command()]
        named = [normpath(path) for path in self.files]
        made_by_command = [each for each in dict.fromkeys(by_command) if any(_is_same(each, path) for path in named)]
        files = (*files, *(each for each in made_by_command if each not in files))
        claimed = [
            f"no call changed {show_name(path)}" for path in named if not any(_is_same(each, path) for each in files)
        ]
        claimed += [f"no call ran {each}" for each in (*self.commands, *self.tests) if one_line(each) not in runs]
        return self.model_copy(
            update={
                "files": files,
                "commands": tuple([each for each in runs if each not in tests][-MAX_COMMANDS:]),
                "tests": tuple(_describe_run(work.made, runs[each]) for each in tests),
            }
        ).with_warnings([*claimed, *_warn_of_work(work)])

    def objections(self) -> tuple[str, ...]:
        """Return all warnings: a call can resolve each of them."""
        return self.warnings

    def _lists(self) -> list[str]:
        lists = [
            *_head_list("Files", tuple(map(show_on_line, self.files))),
            *_head_list("Commands", self.commands),
            *_head_list("Tests", self.tests),
        ]
        return [*lists, *super()._lists()]


def _is_same(one: str, other: str) -> bool:
    """Return whether two paths name the same file: one of them may be absolute."""
    short, long = sorted((one, other), key=len)
    return short == long or (isabs(long) and long.endswith(f"/{short}"))


def _name_all(paths: Sequence[str]) -> str:
    return ", ".join(map(show_name, paths))


def _warn_of_work(work: WorkDone) -> list[str]:
    """Warn of what nobody should take for done: no change, a change or a last command that failed, code that was not
    run."""
    runs = [place for place, call in enumerate(work.made) if call.command]
    changes = [place for place, call in enumerate(work.made) if call.changed_files()]
    if not runs and not changes:
        return ["it changed no file and ran no command"]
    if unchanged := work.unchanged_files():
        refused = [each for each in unchanged if work.was_refused(each)]
        failed = [each for each in unchanged if each not in refused]
        no = [f"the user did not agree to change {_name_all(refused)}: nothing was changed there"] if refused else []
        return no + ([f"each change of {_name_all(failed)} failed"] if failed else [])
    if runs and not work.made[runs[-1]].succeeded:
        last = work.made[runs[-1]]
        return [f"the last command failed: {last.command} ({last.outcome})"]
    if not work.tools & _RUNNING:
        return []
    ran = max((place for place in runs if work.made[place].runs_code and work.made[place].succeeded), default=-1)
    later = [path for place in changes if place > ran for path in work.made[place].changed_files()]
    not_run = [path for path in dict.fromkeys(later) if splitext(path)[1] in _TO_RUN]
    return [f"nothing was run after the last change of {', '.join(not_run)}"] if not_run else []


def _describe_run(made: Sequence[MadeCall], place: int) -> str:
    """Return a command with how it last ended, and whether files were changed after that."""
    lines = made[place].result.strip().splitlines()
    last = f": {lines[-1].strip()}" if len(lines) > 1 else ""
    later = any(call.changed_files() for call in made[place + 1 :])
    return f"{made[place].command} ({made[place].outcome}){last}" + (" (files were changed after that)" * later)


class Citation(Reply):
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
        from upcall.research.markdown import Claimed, list_numbers, split_source_list

        summary, listed = split_source_list(self.summary)
        claimed = [
            Claimed(each.number or number, each.ref, each.place, each.quote)
            for number, each in enumerate(self.citations, start=1)
        ] or listed
        if not (claimed or list_numbers(summary) or any(call.of_source for call in work.made)):
            return self.with_warnings(["it looked nothing up in its sources"] if work.source_tools else [])
        library = Library(read for call in work.made for read in extract_read_texts(call))
        checked = CheckedReport.of(self, check(summary, claimed, library), not_found=self.not_found)
        return checked if checked.counts.held else checked.with_warnings(["no statement was checked against a source"])

    def objections(self) -> tuple[str, ...]:
        """Return the warning that nothing was looked up."""
        return self.warnings

    def _lists(self) -> list[str]:
        return [*_head_list("Not found", self.not_found), *super()._lists()]


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

    def renumber(self, numbers: Mapping[str, int]) -> Self:
        """Return the same report with the numbers of its sources in another list, by ref."""
        from upcall.research.citations import replace_numbers

        cited = tuple(each.model_copy(update={"number": numbers[each.ref]}) for each in self.cited)
        held = {before.number: after for before, after in zip(self.cited, cited, strict=True)}
        return self.model_copy(update={"cited": cited, "summary": replace_numbers(self.summary, held)})

    def outcome(self) -> str:
        """Return what it says about its work, without its quotes."""
        return "\n".join([self.summary, *_head_list("Not found", self.not_found), *super()._lists()])

    def _lists(self) -> list[str]:
        return [
            *_head_list("Sources", tuple(each.as_text() for each in self.cited)),
            *_head_list("Not found", self.not_found),
            *super()._lists(),
            f"\n{self.counts.as_text()}",
        ]


def _head_list(title: str, entries: tuple[str, ...]) -> list[str]:
    return ["", f"{title}:", *(f"- {entry}" for entry in entries)] if entries else []
