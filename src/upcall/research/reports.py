"""The reports of coding and of research, each checked against the calls of its agent (see `upcall.runs.reports`)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from posixpath import isabs, normpath, splitext
from typing import Any, Self

from pydantic import AliasChoices, Field, field_validator, model_validator
from pydantic.json_schema import SkipJsonSchema

from upcall.autogen.messages import CHECKED
from upcall.questions.approval import is_refusal
from upcall.questions.question import VisibleText
from upcall.research.cited import CheckedCitation, CitedSource, Counts, ReadText
from upcall.research.sources.fences import parse_fenced
from upcall.runs.outputs import StructuredReply
from upcall.runs.reports import MadeCall, Report, WorkDone, head_list
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


def changed_files(call: MadeCall) -> list[str]:
    """Return the files that a call changed, as it named them; none if it named none, and so failed."""
    if call.name == "apply_patch":
        lines = str(call.arguments.get("patch")).splitlines()
        named = [_PATCHED.sub("", line.split("\t")[0]) for line in lines if _PATCHED.match(line)]
        return [normpath(name) for name in named if name != "/dev/null"]
    path = call.arguments.get("path") if call.name in _WRITING else None
    return [normpath(path)] if isinstance(path, str) else []


def _files_of_command(call: MadeCall) -> Sequence[str]:
    """Return the files that a call's command was seen to change."""
    return read_changed(call.result) if call.name in _RUNNING else ()


def _command_of(call: MadeCall) -> str:
    """Return the command that a call ran, in one line; empty if it ran none."""
    return one_line(str(call.arguments.get("command") or "a Python script")) if call.name in _RUNNING else ""


def _outcome_of(call: MadeCall) -> str:
    """Return how a call's command ended: ``exit status 0, after 0.1 s``."""
    return call.result.strip().split("\n")[0].strip("[]") or "no result"


def _runs_code(call: MadeCall) -> bool:
    """Return whether a call's command may have run code of the workspace, not only looked at it."""
    return bool(command := _command_of(call)) and command.split()[0] not in _READING_COMMANDS


def _is_success(call: MadeCall) -> bool:
    """Return whether a call's command ended with status 0."""
    return bool(re.match(r"exit status 0\b", _outcome_of(call)))


def _unchanged_files(work: WorkDone) -> list[str]:
    """Return the files that an agent tried to change but no call changed."""
    tried = (path for call in work.failed for path in changed_files(call))
    changed = [path for call in work.made for path in (*changed_files(call), *_files_of_command(call))]
    return [each for each in dict.fromkeys(tried) if not any(_is_same(each, path) for path in changed)]


def _was_refused(work: WorkDone, path: str) -> bool:
    """Return whether the user did not agree to one of an agent's attempts to change a file."""
    return any(is_refusal(call.result) for call in work.failed if path in changed_files(call))


def extract_read_texts(call: MadeCall) -> Iterator[ReadText]:
    """Yield the texts that a call returned to its agent.

    The result of a foreign tool is a source named after the tool.
    """
    if call.of_source:
        for shown in parse_fenced(call.result):
            yield ReadText(shown.ref, shown.text, shown.place)
    elif call.name not in _NOT_READ:
        yield ReadText(call.name, call.result)


class CodingReport(Report):
    """The coder's report, with the files it changed, the commands it ran, and how its tests ended: all from its
    calls."""

    files: SkipJsonSchema[tuple[str, ...]] = ()
    commands: SkipJsonSchema[tuple[str, ...]] = ()
    tests: SkipJsonSchema[tuple[str, ...]] = ()

    def verify_against(self, work: WorkDone) -> Report:
        """Return the report with what the calls did, and with warnings about claims beyond that."""
        runs = {_command_of(call): place for place, call in enumerate(work.made) if _command_of(call)}
        tests = [command for command in runs if "test" in command]
        files = tuple(dict.fromkeys(path for call in work.made for path in changed_files(call)))
        by_command = [path for call in work.made for path in _files_of_command(call)]
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
            *head_list("Files", tuple(map(show_on_line, self.files))),
            *head_list("Commands", self.commands),
            *head_list("Tests", self.tests),
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
    runs = [place for place, call in enumerate(work.made) if _command_of(call)]
    changes = [place for place, call in enumerate(work.made) if changed_files(call)]
    if not runs and not changes:
        return ["it changed no file and ran no command"]
    if unchanged := _unchanged_files(work):
        refused = [each for each in unchanged if _was_refused(work, each)]
        failed = [each for each in unchanged if each not in refused]
        no = [f"the user did not agree to change {_name_all(refused)}: nothing was changed there"] if refused else []
        return no + ([f"each change of {_name_all(failed)} failed"] if failed else [])
    if runs and not _is_success(work.made[runs[-1]]):
        last = work.made[runs[-1]]
        return [f"the last command failed: {_command_of(last)} ({_outcome_of(last)})"]
    if not work.tools & _RUNNING:
        return []
    ran = max((place for place in runs if _runs_code(work.made[place]) and _is_success(work.made[place])), default=-1)
    later = [path for place in changes if place > ran for path in changed_files(work.made[place])]
    not_run = [path for path in dict.fromkeys(later) if splitext(path)[1] in _TO_RUN]
    return [f"nothing was run after the last change of {', '.join(not_run)}"] if not_run else []


def _describe_run(made: Sequence[MadeCall], place: int) -> str:
    """Return a command with how it last ended, and whether files were changed after that."""
    lines = made[place].result.strip().splitlines()
    last = f": {lines[-1].strip()}" if len(lines) > 1 else ""
    later = any(changed_files(call) for call in made[place + 1 :])
    ran = f"{_command_of(made[place])} ({_outcome_of(made[place])}){last}"
    return f"{ran} (files were changed after that)" if later else ran


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

    def renumber(self, numbers: Mapping[str, int]) -> Self:
        """Return the same report with the numbers of its sources in another list, by ref."""
        from upcall.research.citations import replace_numbers

        cited = tuple(each.model_copy(update={"number": numbers[each.ref]}) for each in self.cited)
        held = {before.number: after for before, after in zip(self.cited, cited, strict=True)}
        return self.model_copy(update={"cited": cited, "summary": replace_numbers(self.summary, held)})

    def metadata(self) -> dict[str, str]:
        """Return what became of the citations."""
        return {CHECKED: self.counts.model_dump_json()}

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
