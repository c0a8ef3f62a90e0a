"""What the command line shows: events, questions and runs as text, and the questions asked in place.

Progress goes to standard error, results to standard output. Text of models and users is data: its control characters
are shown, not sent, and it is never read as markup.
"""

from __future__ import annotations

import logging
import os
import shlex
import sys
from collections.abc import Mapping, Sequence

from autogen_agentchat.messages import BaseAgentEvent, BaseChatMessage, ThoughtEvent
from rich.console import Console
from rich.text import Text

from upcall.autogen.messages import event_questions
from upcall.policy.deadlines import EXPIRED, EXPIRY, explain_lapsed
from upcall.policy.resolver import is_risk
from upcall.questions.matching import AnswerValue
from upcall.questions.question import Question, format_time
from upcall.runs.run import Run, RunStatus
from upcall.storage.store import LogEntry
from upcall.text import QUOTE_MARK, escape_controls, one_line
from upcall.ui.answer_input import DialogAsker, PlainAsker, ask_all, read_line
from upcall.ui.columns import LINE_CHARS, wrap_lines
from upcall.ui.event_tree import EventTree
from upcall.ui.run_report import Prices, assumptions, report


class Screen:
    """One place that prints: results to standard output, everything else to standard error.

    Where standard error is a terminal that can be drawn on, events are a tree, progress is one line, and questions are
    lists. Elsewhere, and where the user wants it `plain`, there are only lines, one after the other.
    """

    def __init__(self) -> None:
        self.out = Console(highlight=False, soft_wrap=True)
        self.err = Console(stderr=True, highlight=False, soft_wrap=True)
        self._events: EventTree | None = None
        self.plain = False

    @property
    def live(self) -> bool:
        """Whether standard error can be drawn on."""
        plain = self.plain or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "") in ("", "dumb", "unknown")
        return not plain and self.err.is_terminal and sys.stdin.isatty()

    @property
    def events(self) -> EventTree:
        """Where the events go."""
        if self._events is None:
            self._events = EventTree(self.err, live=self.live)
        return self._events

    def note(self, text: str, style: str = "dim") -> None:
        """A line about the run."""
        self.events.settle()
        self._print(self.err, text, style)

    def error(self, text: str) -> None:
        """The one line that says what went wrong."""
        self.events.settle()
        self.err.print(Text.assemble(("error: ", "bold red"), escape_controls(one_line(text))))

    def result(self, text: str) -> None:
        """What the user asked for."""
        self.events.settle()
        self._print(self.out, text)

    def _print(self, console: Console, text: str, style: str = "") -> None:
        """Broken between words where it is read on a terminal; commands and code, which are indented, never are."""
        for line in escape_controls(text).split("\n"):
            whole = line.startswith("  ") or not (self.live and console.is_terminal)
            for part in [line] if whole else wrap_lines(line, console.width - 1):
                console.print(Text(part, style=style))

    def prompt(self, text: str) -> None:
        """What stands before an answer, on whose line it is typed."""
        self.err.print(text, end="")
        self.err.file.flush()

    def line(self) -> str:
        """A line that the user types.

        Raises:
            EOFError: there is none.
        """
        return read_line()

    def assumed(self, run: Run) -> None:
        """What was assumed because nobody answered, if anything was."""
        if run.assumptions:
            self.result("\n".join(["", *assumptions(run)]))

    def event(self, event: BaseAgentEvent | BaseChatMessage) -> None:
        """One event in a line: who, and what; nothing for events that say nothing to a reader."""
        self.events.show(event)

    def question(
        self, question: Question, number: str = "", also: Sequence[Question] = (), console: Console | None = None
    ) -> None:
        """A question with who asks, why, the numbered options, and who `also` waits for its answer."""
        self.events.settle()
        console = console or self.err
        width = console.width - 1 if self.live and console.is_terminal else None
        console.print()
        head = f"{number}{question.asked_by()}: "
        asked = "bold red" if is_risk(question) else "bold yellow"
        lines = _broken(f"{head}{question.question}", width)
        first = Text(escape_controls(lines[0]), style=asked)
        first.stylize("not bold" if asked == "bold" else "bold default", 0, len(escape_controls(head)))
        console.print(first)
        for line in lines[1:]:
            console.print(_quoted(line, asked))
        for detail in [*question.details(), *(f"  {line}" for line in question.who_waits(also))]:
            for line in _broken(detail, width):
                console.print(_quoted(line))

    def ask(self, run: Run) -> Mapping[str, AnswerValue]:
        """Ask each open question of a run on the terminal until its answer is one it accepts.

        Raises:
            EOFError, KeyboardInterrupt: the user stopped; no answer of this round counts then.
        """
        return ask_all(run, DialogAsker(self) if self.live else PlainAsker(self))

    def whole(self, run: Run, log: Sequence[LogEntry] = (), prices: Prices | None = None) -> None:
        """All that is known of a run."""
        self.result("\n".join(report(run, log, prices or Prices(), min(self.out.width, 100) if self._wraps else None)))

    @property
    def _wraps(self) -> bool:
        return self.out.is_terminal and not self.plain

    def expiry(self, run_id: str, event: BaseAgentEvent | BaseChatMessage) -> None:
        """One line about a question that waited too long or long enough for a reminder; nothing for other events."""
        what = event.metadata.get(EXPIRY)
        for question in event_questions(event) if what else ():
            text = event.content if isinstance(event, ThoughtEvent) else question.question
            until = f", until {format_time(question.expires_at)}" if question.expires_at and what != EXPIRED else ""
            self.result(f"{run_id}  {what}{until}  {question.asker_for_whom()}: {one_line(text, LINE_CHARS)}")

    def show_log(self, *, verbose: bool) -> None:
        """Show what the library logs: warnings, and with `verbose` the model's replies."""
        logger = logging.getLogger("upcall")
        logger.setLevel(logging.INFO if verbose else logging.WARNING)
        logger.addHandler(_LogLines(self))
        logger.propagate = False

    def waiting(self, run: Run, program: str, options: str, console: Console | None = None) -> None:
        """The open questions and how to answer them later, by `program` with `options` at the end."""
        console = console or self.err
        for question in run.questions:
            self.question(question, also=run.list_also_waiting(question), console=console)
        for line in explain_lapsed(run):
            console.print(Text(escape_controls(f"\n{line}"), style="yellow"))
        if run.own_team:
            told = f"Run {run.id} waits for the answer. Give it in the program that started it: its team is its own."
            console.print(Text(escape_controls(f"\n{told}")))
            return
        several = len(run.questions) > 1
        secret = any(question.secret for question in run.questions)
        what = (
            f"{len(run.questions)} answers. Give one or more of them with:" if several else "the answer. Give it with:"
        )
        lines = ["", f"Run {run.id} waits for {what}"]
        for question in run.questions:
            example = question.options[0].label if question.options else "your answer"
            if is_risk(question):  # A line that is only copied agrees to none.
                example = "..."
            if question.secret:  # On the command line it would stay in the shell's history.
                example = "-"
            given = shlex.quote(f"{question.id}={example}" if several else example)
            # Behind -- it is no option of the command.
            behind = given.startswith(("-", "'-")) and example != "-"
            lines.append(f"  {program} answer {run.id}" + (f"{options} -- {given}" if behind else f" {given}{options}"))
        if secret:
            lines.append("For - the answer is read from standard input; on a terminal it is not shown.")
        console.print(Text(escape_controls("\n".join(lines))))


def _broken(text: str, width: int | None) -> list[str]:
    """In lines that fit, each as far to the right as it begins; as it is where there is no width."""
    if width is None:
        return text.split("\n")
    lines = []
    for line in text.split("\n"):
        indent = line[: len(line) - len(line.lstrip(" "))]
        lines += wrap_lines(line.lstrip(" "), width, indent, indent or "  ")
    return lines


def _quoted(line: str, style: str = "") -> Text:
    """A line below the question; what a diff in it adds and takes away is in the usual colours."""
    begins = line.lstrip().removeprefix(QUOTE_MARK)[:1] if line.lstrip().startswith(QUOTE_MARK) else ""
    return Text(escape_controls(line), style={"+": "green", "-": "red"}.get(begins, style))


class _LogLines(logging.Handler):
    """A log's records as lines of a screen."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.note(self.format(record))


def table(runs: Sequence[Run]) -> str:
    """One line a run: id, status, time, task."""
    wide = max(len(status) for status in RunStatus)
    return "\n".join(
        f"{run.id}  {run.status:<{wide}}  {run.updated_at:%Y-%m-%d %H:%M}  {one_line(run.task, LINE_CHARS)}"
        for run in runs
    )


def audit_table(entries: Sequence[LogEntry]) -> str:
    """One line an entry: number, time, run, who, what, and its details."""
    return "\n".join(
        f"{entry.id:>5}  {entry.at}  {entry.run_id or '-':<12}  {one_line(entry.user or '-', 40):<12}  "
        f"{entry.kind:<9}  "
        + " ".join(f"{name}={one_line(str(value), LINE_CHARS)}" for name, value in entry.detail.items())
        for entry in entries
    )
