"""How to call this program again: its name, and the options that select the same runs."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from upcall.questions.question import Question
    from upcall.runs.run import Run


@dataclass(frozen=True)
class Program:
    """The beginning and the end of a command that the user can copy."""

    name: str
    options: str = ""

    @classmethod
    def for_call(cls, **options: object) -> Program:
        """Return the program as it was called, with the options that were given."""
        given = [f" --{name.replace('_', '-')} {shlex.quote(str(value))}" for name, value in options.items() if value]
        return cls(_find_name(), "".join(given))

    def command(self, verb: str, *arguments: str) -> str:
        """Write a command on its own line."""
        return f"  {self.name} {' '.join([verb, *arguments])}{self.options}"

    def answer_commands(self, run: Run) -> list[str]:
        """Write an answer command for each open question."""
        several = len(run.questions) > 1
        return [self._answer_command(run.id, question, several=several) for question in run.questions]

    def _answer_command(self, run_id: str, question: Question, *, several: bool) -> str:
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


def _find_name() -> str:
    """Return what to type to call this program again: its name if the shell finds it, otherwise its path."""
    called = Path(sys.argv[0])
    found = shutil.which("upcall")
    if called.stem != "upcall" or (found and called.exists() and os.path.samefile(found, called)):
        return "upcall"
    return shlex.quote(str(called))
