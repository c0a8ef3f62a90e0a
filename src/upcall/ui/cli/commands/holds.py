"""Commands that keep runs from being worked on, and let them continue: hold, release, holds."""

from __future__ import annotations

from typing import Annotated

import typer

from upcall import signals
from upcall.ui.cli.help import SERVICE
from upcall.ui.cli.run_command import RunCommand, run_options

app = typer.Typer()

_Kind = Annotated[str, typer.Argument(metavar="KIND", help="What: user, team, model, or queue, which is all runs.")]
_Name = Annotated[
    str, typer.Argument(metavar="[NAME]", help="The user, the team (MODULE:FUNCTION, or root) or the model.")
]


@app.command(rich_help_panel=SERVICE, epilog='Example: upcall hold user alice --reason "The budget is spent."')
@run_options
def hold(
    command: RunCommand,
    kind: _Kind,
    name: _Name = "",
    reason: Annotated[str, typer.Option(help="Why; whoever waits is shown it.")] = "",
) -> None:
    """Hold runs: no work on them begins until they are released. What is at work continues to its next pause."""
    with command:
        placed = signals.run(command.reader.holds.place(kind, name, reason=reason))
        command.print(placed.as_json(), lambda: [f"{placed.as_line()}"])
        if not command.as_json:
            command.screen.note("Release it with:")
            command.screen.note(command.program.command("release", *filter(None, (placed.kind.value, placed.name))))


@app.command(rich_help_panel=SERVICE, epilog="Example: upcall release user alice")
@run_options
def release(command: RunCommand, kind: _Kind, name: _Name = "") -> None:
    """Release what is held: the runs that waited continue."""
    with command:
        released = signals.run(command.reader.holds.release(kind, name))
        command.print(released.as_json(), lambda: [f"Released: {released.subject}."])
        if not command.as_json and command.reader.store.file is not None:
            command.screen.note(
                "Runs that wait in a process that stands by continue there. Others that are queued continue with: "
                "upcall resume RUN"
            )


@app.command(rich_help_panel=SERVICE, epilog="Example: upcall holds")
@run_options
def holds(command: RunCommand) -> None:
    """List what is held: since when, by whom and why."""
    with command:
        found = signals.run(command.reader.holds.list())
        command.print([each.as_json() for each in found], lambda: [each.as_line() for each in found])
        if not found and not command.as_json:
            command.note_empty("Nothing is held")
