"""The coder's report, checked against the calls of its agent (see `upcall.runs.reports`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from posixpath import isabs, normpath, splitext

from pydantic.json_schema import SkipJsonSchema

from upcall.lazy_pattern import LazyPattern
from upcall.questions.approval import is_refusal
from upcall.runs.reports import MadeCall, Report, WorkDone, head_list
from upcall.text import one_line, show_name, show_on_line
from upcall.workspace.command_results import read_changed

_WRITING = frozenset({"apply_patch", "delete_file", "edit_file", "write_file"})
_RUNNING = frozenset({"run_command", "run_python"})

_TO_RUN = frozenset({".py", ".sh"})
"""The extensions of files that all our sandboxes can run, and that show only then whether they work."""

_READING_COMMANDS = frozenset(
    {"cat", "cd", "echo", "find", "git", "grep", "head", "ls", "pwd", "rg", "tail", "tree", "wc"}
)
"""The commands that run no code of the workspace."""

_PATCHED = LazyPattern(r"^(?:--- (?:a/)?|\+\+\+ (?:b/)?)")

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

    def leaves_work(self) -> bool:
        """Return whether it changed a file."""
        return bool(self.files)

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
