"""The options that several commands share, and how they are added to a command."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

RunId = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its first characters.")]
Detach = Annotated[bool, typer.Option(help="Stop at the next question instead of asking it here.")]
Submit = Annotated[
    bool, typer.Option("--submit", help="Return at once and leave the work to upcall worker (PostgreSQL).")
]


class SharedOption(NamedTuple):
    """An option of several commands: its parameter's name, what it takes, and its default."""

    name: str
    kind: Any
    default: Any = None


def _text(name: str, help_text: str) -> SharedOption:
    return SharedOption(name, Annotated[str | None, typer.Option(help=help_text)])


def _flag(name: str, flag: str, help_text: str) -> SharedOption:
    return SharedOption(name, Annotated[bool, typer.Option(flag, help=help_text)], False)


MODEL = _text("model", "Model name, or 'demo' for scripted replies.")
TEAM = _text("team", "MODULE:FUNCTION that builds your own team [the run's, or the built-in one].")
BASE_URL = _text("base_url", "URL of an OpenAI-compatible server, ending in /v1.")
STORE = _text("store", "SQLite file or PostgreSQL URL of the store [upcall.db].")
USER = _text("user", "Your user name; kept with runs and answers.")
CONFIG = SharedOption(
    "config", Annotated[Path | None, typer.Option(help="YAML file with settings [upcall.yaml, once you trust it].")]
)
PLAIN = _flag("plain", "--plain", "Print plain lines only, without lists or redrawing, for screen readers.")
STREAM = SharedOption(
    "stream",
    Annotated[
        bool | None,
        typer.Option("--stream/--no-stream", help="Show tokens as they arrive [if the terminal can be redrawn]."),
    ],
)
AS_JSON = _flag("as_json", "--json", "Print one JSON object and nothing else on standard output.")
DEBUG = _flag("debug", "--debug", "Print the traceback of an error.")


def command_group(help_text: str) -> typer.Typer:
    """Make an empty group of commands, which prints its help if no command is given."""
    group = typer.Typer(help=help_text, rich_markup_mode=None)

    @group.callback(invoke_without_command=True)
    def print_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            sys.stdout.write(f"{context.get_help()}\n")

    return group


def with_options(
    make: Callable[..., Any], *shared: SharedOption
) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Append shared options to those of a function; `make` turns them into the command, its first argument."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()

        @functools.wraps(function)
        def call(**arguments: Any) -> None:
            command = make(**{each.name: arguments.pop(each.name) for each in shared})
            function(command, **arguments)

        added = [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.kind)
            for each in shared
        ]
        call.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        return call

    return decorate
