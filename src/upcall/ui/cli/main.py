"""The command line. AutoGen and the model client are loaded only when a command needs them, so help is instant."""

from __future__ import annotations

import itertools
import os
import sys
from typing import Annotated

import typer

from upcall import signals
from upcall.ui.cli.added_commands import CommandsOnUse, list_sources
from upcall.ui.cli.command import WRONG_USE, Command, describe_refusal
from upcall.ui.cli.commands import ask, edit, holds, inspect, memory, run, store, trust

OWN = list_sources(run.app, ask.app, inspect.app, edit.app, holds.app, trust.app, memory=memory.app, store=store.app)
"""What the core's commands are made of, by name."""


class _Commands(CommandsOnUse):
    own = OWN


app = typer.Typer(
    name="upcall",
    cls=_Commands,
    help="Run a team of agents that can ask you in the middle of their work, now or next week.",
    epilog='To get started: upcall run "Build me a user authentication system"',
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)


@app.callback(invoke_without_command=True)
def _options(
    version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Print the traceback of an error.")] = False,
) -> None:
    Command.debugs_all = debug
    if version:
        import upcall

        sys.stdout.write(f"upcall {upcall.__version__}\n")
        raise typer.Exit


def main(arguments: list[str] | None = None) -> None:
    """Run the command line. Wrong usage ends with one line and status 2."""
    given = sys.argv[1:] if arguments is None else arguments
    _open_closed_streams()
    signals.exit_on_stop()
    try:
        status = app(args=given or ["--help"], prog_name="upcall", standalone_mode=False)
    except typer.TyperException as error:
        problem = _explain(error)
        sys.stderr.write(f"error: {problem}\n")
        if "--json" in itertools.takewhile(lambda each: each != "--", given):
            Command(as_json=True).print_json(describe_refusal(problem))
        status = WRONG_USE
    except (typer.Abort, KeyboardInterrupt, EOFError):
        status = signals.INTERRUPTED
    finally:
        signals.exit_on_stop()
    if status == signals.INTERRUPTED:
        signals.ignore_stops()
    sys.exit(status if isinstance(status, int) else 0)


def _open_closed_streams() -> None:
    """Open nothing in place of a standard stream that the caller closed (``<&-``): the next file that is opened, such
    as the store, would take its number."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, encoding="utf-8"))  # noqa: SIM115


def _explain(error: typer.TyperException) -> str:
    """Describe a usage error in one line that points to the help."""
    message = " ".join(error.format_message().split())
    command = context.command_path if (context := getattr(error, "ctx", None)) else "upcall"
    advice = _advise(message)
    end = "" if message.endswith("?") else "."
    return f"{message.rstrip('.')}{advice or end} See: {command} --help"


def _advise(message: str) -> str:
    if "No such option" in message:
        return ". Put a text that begins with a dash after -- (upcall answer RUN -- -x)."
    return ". Put the text in quotes." if "unexpected extra argument" in message else ""


if __name__ == "__main__":
    main()
