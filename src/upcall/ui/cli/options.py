"""What all commands of the command line share: their options, how they print, and the one place where they end."""

from __future__ import annotations

import asyncio
import functools
import inspect
import io
import json
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn, Self

import typer

from upcall import signals as interrupts
from upcall.errors import AnswerError, CallerError, TeamMismatch, UpcallError
from upcall.text import CONTROLS

if TYPE_CHECKING:
    from upcall.ui.terminal.session import Screen

FAILED, WRONG_USE = 1, 2

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its first characters.")]


class SharedOption(NamedTuple):
    """An option that several commands have: the name of its parameter, what it takes, and what it is if not given."""

    name: str
    kind: Any
    default: Any = None


MODEL = SharedOption("model", Annotated[str | None, typer.Option(help="Model name, or 'demo' for scripted replies.")])
BASE_URL = SharedOption(
    "base_url", Annotated[str | None, typer.Option(help="Address of any OpenAI-compatible server, ending in /v1.")]
)
STORE = SharedOption(
    "store", Annotated[str | None, typer.Option(help="SQLite file or PostgreSQL URL that holds the runs [upcall.db].")]
)
CONFIG = SharedOption(
    "config", Annotated[Path | None, typer.Option(help="YAML file with settings [upcall.yaml if it is there].")]
)
USER = SharedOption("user", Annotated[str | None, typer.Option(help="Who you are: kept with runs and answers.")])
PLAIN = SharedOption(
    "plain",
    Annotated[bool, typer.Option("--plain", help="Only lines, for screen readers: no lists, no redrawing.")],
    False,
)
AS_JSON = SharedOption(
    "as_json",
    Annotated[bool, typer.Option("--json", help="Print one JSON object and nothing else on standard output.")],
    False,
)
DEBUG = SharedOption("debug", Annotated[bool, typer.Option(help="Print the traceback of an error.")], False)


def with_options(
    kind: Callable[..., Any], *shared: SharedOption
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a function shared options after its own. It is called with a `kind` of command, made from them, first."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()

        @functools.wraps(function)
        def called(**given: Any) -> None:
            command = kind(**{each.name: given.pop(each.name) for each in shared})
            function(command, **given)

        added = [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.kind)
            for each in shared
        ]
        called.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        return called

    return decorate


class Command:
    """One call of the command line: how it prints, and where its errors and a stop of it end."""

    screen: Screen

    def __init__(self, *, as_json: bool = False, debug: bool = False) -> None:
        self.as_json, self.debug = as_json, debug

    def opened(self) -> None:
        """Read the settings, and get ready for the work.

        Raises:
            UpcallError: a setting is wrong.
        """

    def stopped(self) -> None:
        """Say what there is to go on with after Ctrl-C."""
        self.screen.note("Stopped.", "default")

    def failed(self, error: Exception) -> dict[str, Any]:
        """What ``--json`` prints of an error."""
        return {"error": str(error)}

    def without_secrets(self, text: str) -> str:
        """A traceback as it may be shown."""
        return text

    def print_json(self, value: object) -> None:
        """The one object on standard output."""
        readable = sys.stdout.encoding.lower().replace("-", "") == "utf8"
        text = json.dumps(value, ensure_ascii=not readable)
        # JSON leaves C1 controls and direction marks as they are, and a terminal acts on them.
        sys.stdout.write(CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text) + "\n")
        sys.stdout.flush()

    def __enter__(self) -> Self:
        from upcall.ui.terminal.session import Screen

        if isinstance(sys.stdout, io.TextIOWrapper):  # What its encoding lacks is written out, as on standard error.
            sys.stdout.reconfigure(errors="backslashreplace")
        self.screen = Screen()
        try:
            self.opened()
        except UpcallError as error:
            self._fail(error)
        interrupts.raise_on_stop()
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if isinstance(error, KeyboardInterrupt | EOFError | asyncio.CancelledError):
            self.stopped()
            raise typer.Exit(interrupts.INTERRUPTED) from error
        if isinstance(error, BrokenPipeError):
            return  # Whoever reads has seen enough, as `head`; Typer ends the program without a word.
        if isinstance(error, Exception) and not isinstance(error, typer.Exit | typer.Abort | typer.TyperException):
            self._fail(error)

    def _fail(self, error: Exception) -> NoReturn:
        if self.debug:
            sys.stderr.write(self.without_secrets("".join(traceback.format_exception(error))))
        if self.as_json:
            self.print_json(self.failed(error))
        if isinstance(error, TeamMismatch):
            summary, *lines = str(error).splitlines()
            self.screen.error(summary)
            for line in lines:
                self.screen.note(f"  {line}", "default")
        elif isinstance(error, UpcallError):
            self.screen.error(str(error))
        else:
            self.screen.error(f"{type(error).__name__}: {error}. This is a fault in upcall; --debug shows where.")
        raise typer.Exit(WRONG_USE if isinstance(error, CallerError | AnswerError) else FAILED) from error
