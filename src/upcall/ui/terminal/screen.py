"""The one place that prints to a terminal or a pipe: results to standard output, everything else to standard error.

Text of models and users is data: its control characters are shown, not sent, and it is never read as markup.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING

from rich.console import Console
from rich.text import Text

from upcall.questions.question import Question
from upcall.text import escape_controls, one_line
from upcall.ui.columns import wrap_lines
from upcall.ui.tool_calls import coloured_diff, style_of_diff_line

if TYPE_CHECKING:
    from upcall.autogen.messages import Event
    from upcall.questions.matching import AnswerValue
    from upcall.runs.call_timings import ActiveCall
    from upcall.runs.file_changes import Change
    from upcall.runs.run import Run
    from upcall.ui.event_tree import EventTree
    from upcall.ui.terminal.live_region import LiveRegion

DIFF_LINES = 16
"""How many lines of a changed file are shown at once; `upcall log RUN --diff` shows all."""


class Screen:
    """Prints for a reader.

    If standard error is a terminal that can be drawn on, events are a tree, the last lines show work in progress, and
    questions are lists. Otherwise, and if the user wants `plain` output, everything is printed line by line.

    Args:
        complete: completes the commands that a note or an error names.
    """

    def __init__(self, complete: Callable[[str], str] = str) -> None:
        self._complete = complete
        self.out = Console(highlight=False, soft_wrap=True)
        self.err = Console(stderr=True, highlight=False, soft_wrap=True)
        self.plain = False

    @property
    def live(self) -> bool:
        """Whether standard error can be drawn on."""
        plain = self.plain or bool(os.environ.get("NO_COLOR")) or os.environ.get("TERM", "") in ("", "dumb", "unknown")
        return not plain and self.err.is_terminal and sys.stdin.isatty()

    def use_plain(self) -> None:
        """Print only lines from here on."""
        self.settle()
        self.plain = True
        for name in ("region", "events"):
            self.__dict__.pop(name, None)

    @cached_property
    def events(self) -> EventTree:
        """Where events are printed."""
        from upcall.ui.event_tree import EventTree

        return EventTree(self.err, self.region)

    @cached_property
    def region(self) -> LiveRegion | None:
        """Work in progress, on a terminal that can be drawn on."""
        from upcall.ui.terminal.live_region import LiveRegion

        return LiveRegion(self.err) if self.live else None

    def show_activity(self, active_calls: Callable[[], Sequence[ActiveCall]] = tuple) -> None:
        """Show work in progress in the last lines, until `settle` erases them."""
        if self.region is not None:
            self.region.active_calls = active_calls
            self.region.show()

    def settle(self) -> None:
        """Erase work in progress, and keep the parts that should stay."""
        made = self.__dict__  # By their names they would be made here, with AutoGen behind them.
        if (region := made.get("region")) is not None:
            region.hide()
        if (events := made.get("events")) is not None:
            events.settle()

    def note(self, text: str, style: str = "dim") -> None:
        """Print a line about the run, above work in progress."""
        self._print(self.err, self._complete(text), style)

    def error(self, text: str) -> None:
        """Print the one line that says what went wrong."""
        self.settle()
        self.err.print(Text.assemble(("error: ", "bold red"), escape_controls(one_line(self._complete(text)))))

    def result(self, text: str) -> None:
        """Print what the user asked for."""
        self.settle()
        self._print(self.out, text)

    def markdown(self, text: str) -> None:
        """Print a model's Markdown, which the user asked for: rendered on a terminal, elsewhere as it is."""
        if self.report_width is None or self.out.is_dumb_terminal:
            self.result(text)
            return
        from upcall.ui.terminal.rendered_markdown import RenderedMarkdown

        self.settle()
        self.out.print(RenderedMarkdown(text), width=self.report_width, soft_wrap=False)

    def print_whole(self, text: str, style: str = "", console: Console | None = None) -> None:
        """Print lines without wrapping, such as commands to copy."""
        (console or self.err).print(Text(escape_controls(text), style=style))

    def diff(self, lines: Sequence[str]) -> None:
        """Print the lines of a diff that the user asked for, in the usual colours."""
        for line in lines:
            self.out.print(Text(f"  {escape_controls(line)}", style=style_of_diff_line(line)))

    def changes(self, changes: Iterable[Change]) -> None:
        """Print the first lines of each changed file, below the call that changed it."""
        lines = [Text("    ").append_text(line) for change in changes for line in coloured_diff(change, DIFF_LINES)]
        if lines:
            self.err.print(Text("\n").join(lines), no_wrap=True, overflow="ellipsis", soft_wrap=False)

    def prompt(self, text: str) -> None:
        """Print the prompt for an answer, and stay on that line."""
        self.settle()
        self.err.print(text, end="")
        self.err.file.flush()

    def event(self, event: Event) -> None:
        """Print an event in one line, unless it is of no interest to a reader."""
        self.events.show(event)

    def question(
        self, question: Question, mark: str = "", also: Sequence[Question] = (), console: Console | None = None
    ) -> None:
        """Print a question with its asker, its reason, the numbered options, and who `also` waits for its answer."""
        from upcall.ui.terminal.question_block import render_question

        self.settle()
        console = console or self.err
        width = console.width - 1 if self.live and console.is_terminal else None
        console.print()
        for line in render_question(question, mark, also, width):
            console.print(line)

    async def ask(self, run: Run) -> Mapping[str, AnswerValue]:
        """Ask each open question of a run until it accepts an answer.

        Raises:
            EOFError, KeyboardInterrupt: the user stopped; no answer of this round counts then.
        """
        from upcall.ui.terminal.asking import LineAsker, ListAsker, ask_questions

        self.settle()
        with self.events.pause_clock():
            return await ask_questions(run, ListAsker(self) if self.live else LineAsker(self))

    def show_log(self, *, verbose: bool, clean_traceback: Callable[[str], str] | None = None) -> None:
        """Print the library's log: warnings, with `verbose` the model's replies, with `clean_traceback`, which takes
        secrets out, also tracebacks."""
        logger = logging.getLogger("upcall")
        lines = _LogLines(self, logging.INFO if verbose else logging.WARNING, clean_traceback)
        logger.setLevel(lines.level if clean_traceback is None else logging.DEBUG)
        logger.addHandler(lines)
        logger.propagate = False

    @property
    def report_width(self) -> int | None:
        """The number of columns for text; None if lines are not wrapped."""
        return min(self.out.width, 100) if self.out.is_terminal and not self.plain else None

    def _print(self, console: Console, text: str, style: str = "") -> None:
        """Wrap lines on a terminal, except commands and code, which are indented."""
        for line in escape_controls(text).split("\n"):
            whole = line.startswith("  ") or not (self.live and console.is_terminal)
            for part in [line] if whole else wrap_lines(line, console.width - 1):
                console.print(Text(part, style=style))


class _LogLines(logging.Handler):
    """Prints log records as lines of a screen; records below its level only for their tracebacks."""

    def __init__(self, screen: Screen, least: int, clean: Callable[[str], str] | None) -> None:
        super().__init__(least if clean is None else logging.DEBUG)
        self._screen, self._least, self._clean = screen, least, clean

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= self._least or record.exc_info:
            text = self.format(record)
            self._screen.note(text if self._clean is None else self._clean(text))
