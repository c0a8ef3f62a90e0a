"""One call of the command line: how it prints, and the one place that handles its errors and interruptions."""

from __future__ import annotations

import asyncio
import io
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn, Self

import typer

from upcall import signals
from upcall.errors import AnswerError, CallerError, TeamMismatch, UpcallError
from upcall.text import CONTROLS
from upcall.ui.cli.program import Program

if TYPE_CHECKING:
    from upcall.ui.terminal.screen import Screen

FAILED, WRONG_USE, STOPPED = 1, 2, 5
"""Exit statuses besides 0 and `signals.INTERRUPTED`: the run failed, nothing was done, a limit stopped it."""


def describe_refusal(message: str, run_id: str | None = None) -> dict[str, Any]:
    """Return the JSON object for an error, with the run's id if known."""
    empty: dict[str, Any] = {"status": None, "result": None, "questions": [], "assumptions": [], "warnings": []}
    return {"run_id": run_id, **empty, "error": message}


def quiet_autogen() -> None:
    """Keep AutoGen's log off the screen: whole prompts, and tracebacks of handled errors."""
    for name in ("autogen_core", "autogen_core.events", "autogen_agentchat"):
        logging.getLogger(name).setLevel(logging.CRITICAL)


class Command:
    """One call of the command line, open while its ``with`` block runs.

    Attributes:
        program: how to call this program again with the same store.
        is_interactive: whether questions are asked in place.
        debugs_all: whether the program was called with ``--debug`` before its command.
        ends_by_stop: whether it works until it is stopped, so that a stop is how it ends well: a service.
    """

    ends_by_stop = False

    screen: Screen
    debugs_all: ClassVar[bool] = False

    def __init__(self, *, as_json: bool = False, debug: bool = False, program: Program | None = None) -> None:
        self.as_json, self.debug = as_json, debug or Command.debugs_all
        self.program = program or Program.for_call()
        self.is_interactive = not as_json and all(
            each is not None and each.isatty() for each in (sys.stdin, sys.stderr)
        )

    def open(self) -> None:
        """Read the settings and prepare for the work.

        Raises:
            UpcallError: a setting is wrong.
        """

    def explain_stop(self) -> None:
        """Print how to continue after Ctrl-C."""
        self.screen.note("Stopped.", "default")

    def describe_error(self, error: Exception) -> dict[str, Any]:
        """Return the object that ``--json`` prints for an error."""
        return {"error": str(error)}

    def remove_secrets(self, text: str) -> str:
        """Remove secrets from a traceback."""
        return text

    def print(self, value: object, lines: Callable[[], Iterable[str]]) -> None:
        """Print a result: `value` with ``--json``, `lines` without."""
        if self.as_json:
            self.print_json(value)
        else:
            for line in lines():
                self.screen.result(line)

    def print_json(self, value: object) -> None:
        """Print the one object on standard output.

        C1 controls and direction marks are written as codes: JSON leaves them as they are, and a terminal acts on them.
        """
        has_unicode = sys.stdout.encoding.lower().replace("-", "") == "utf8"
        text = json.dumps(value, ensure_ascii=not has_unicode)
        sys.stdout.write(CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
        sys.stdout.flush()

    def __enter__(self) -> Self:
        from upcall.ui.terminal.screen import Screen

        if isinstance(sys.stdout, io.TextIOWrapper):  # What its encoding lacks is written as codes, as on stderr.
            sys.stdout.reconfigure(errors="backslashreplace")
        self.screen = Screen(self.program.complete)
        try:
            self.open()
        except UpcallError as error:
            self._fail(error)
        signals.raise_on_stop()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        is_stopped = isinstance(error, KeyboardInterrupt | EOFError | asyncio.CancelledError)
        try:
            self.screen.settle()
            if is_stopped:
                self.explain_stop()
        except KeyboardInterrupt:  # A second stop does not wait for how to continue.
            Command.explain_stop(self)
            is_stopped = True
        if is_stopped:
            raise typer.Exit(0 if self.ends_by_stop else signals.INTERRUPTED) from error
        if isinstance(error, BrokenPipeError):
            return  # The reader has seen enough, as `head` does; Typer ends the program without a word.
        if isinstance(error, Exception) and not isinstance(error, typer.Exit | typer.Abort | typer.TyperException):
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        if self.debug:
            sys.stderr.write(self.remove_secrets("".join(traceback.format_exception(error))))
        if self.as_json:
            self.print_json(self.describe_error(error))
        if isinstance(error, TeamMismatch):
            summary, *lines = str(error).splitlines()
            self.screen.error(summary)
            for line in lines:
                self.screen.note(f"  {line}", "default")
        elif isinstance(error, UpcallError):
            self.screen.error(str(error))
        else:
            self.screen.error(f"{type(error).__name__}: {error}. This is a bug in upcall; --debug shows where.")
        raise typer.Exit(WRONG_USE if isinstance(error, CallerError | AnswerError) else FAILED) from error
