"""How to call this program again: its name, and the options that select the same runs."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from upcall.extensions import find_added
from upcall.lazy_pattern import LazyPattern

if TYPE_CHECKING:
    from upcall.questions.question import Question
    from upcall.runs.run import Run


_HINT = LazyPattern(r"(?<=: )upcall ([a-z][^;,)\n]*?)(?=[.;,)]?\s*$|[.;,)]\s)", re.MULTILINE)
"""A command that a message ends with, or has behind a colon."""

WITHOUT_STORE = ("trust", "team", "store copy")
"""The commands that take no ``--store``."""


@dataclass(frozen=True)
class Program:
    """The beginning and the end of a command that the user can copy.

    Attributes:
        name: what to type to call this program.
        options: those of the call that choose the same runs and the same user.
        place: those of them that choose the store.
    """

    name: str
    options: str = ""
    place: str = ""

    @classmethod
    def for_call(cls, store: object = None, config: object = None, user: object = None) -> Program:
        """Return the program as it was called, with the options that were given."""
        place = _write_options(store=store, config=config)
        return cls(_find_name(), place + _write_options(user=user), place)

    def complete(self, text: str) -> str:
        """Return a message with the store of this call in the commands that it names: the library that wrote it knows
        of no command line."""
        return _HINT.sub(self._complete_hint, text)

    def _complete_hint(self, found: re.Match[str]) -> str:
        from upcall.ui.cli.main import OWN  # It imports the commands, which have a program.

        hint = found[1]
        if hint.split()[0] not in {*OWN, *find_added("commands")}:
            return found[0]
        is_complete = " --store" in hint or hint.startswith(WITHOUT_STORE)
        return f"{self.name} {hint}{'' if is_complete else self.place}"

    def command(self, verb: str, *arguments: str) -> str:
        """Write a command on its own line."""
        return f"  {self.name} {' '.join([verb, *arguments])}{self.options}"

    def answer_commands(self, run: Run) -> list[str]:
        """Write an answer command for each open question."""
        several = len(run.questions) > 1
        return [self.answer_command(run.id, question, several=several) for question in run.questions]

    def answer_command(self, run_id: str, question: Question, *, several: bool = True) -> str:
        """Write the command that answers a question; of `several` open ones it is named."""
        example = question.options[0].label if question.options else "your answer"

        if question.is_risk:  # A line that is only copied agrees to none.
            example = "..."
        if question.secret:  # On the command line it would stay in the shell's history.
            example = "-"
        given = shlex.quote(f"{question.id}={example}" if several else example)
        if given.startswith(("-", "'-")) and example != "-":  # Behind -- it is not an option.
            return f"  {self.name} answer {run_id}{self.options} -- {given}"
        return self.command("answer", run_id, given)


def explain_pending(run: Run, program: Program) -> list[str]:
    """Explain how to answer the open questions of a run later."""
    if run.config.own_team and run.config.named_team is None:
        return [
            f"Run {run.id} waits for the answer. Give it in the program that started it, or name its team:",
            program.command("answer", run.id, "ANSWER", "--team", "MODULE:FUNCTION"),
        ]
    count = len(run.questions)
    what = f"{count} answers. Give one or more of them with:" if count > 1 else "the answer. Give it with:"
    lines = [f"Run {run.id} waits for {what}", *program.answer_commands(run)]
    if any(question.secret for question in run.questions):
        lines.append("With -, the answer is read from standard input; on a terminal it is not shown.")
    return lines


def _write_options(**options: object) -> str:
    return "".join(f" --{name} {shlex.quote(str(value))}" for name, value in options.items() if value)


def _find_name() -> str:
    """Return what to type to call this program again: its name if the shell finds it, otherwise its path."""
    called = Path(sys.argv[0])
    found = shutil.which("upcall")
    if called.stem != "upcall" or (found and called.exists() and os.path.samefile(found, called)):
        return "upcall"
    return shlex.quote(str(called))
