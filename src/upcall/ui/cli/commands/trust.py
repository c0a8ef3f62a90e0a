"""``upcall trust``: agree to the settings files of a folder."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from upcall.errors import CallerError
from upcall.ui.cli.command import Command
from upcall.ui.cli.help import STORE
from upcall.ui.cli.options import DEBUG, with_options

if TYPE_CHECKING:
    from upcall.agreements import TrustDecision
    from upcall.settings_files import SettingsFile

app = typer.Typer()


@app.command(rich_help_panel=STORE, epilog="Example: upcall trust upcall.yaml")
@with_options(Command, DEBUG)
def trust(
    command: Command,
    files: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[FILE...]", help="An .env or upcall.yaml, or a folder with them [the current one]."),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Agree without being asked.")] = False,
    ignore: Annotated[bool, typer.Option("--ignore", help="Leave the files out from now on, as they are.")] = False,
) -> None:
    """Show what settings files in a folder set, and agree to them or leave them out. An agreement is to a file's
    present content."""
    with command:
        if yes and ignore:
            raise CallerError("--yes agrees to the files and --ignore leaves them out; give one of them.")
        found = [file for path in files or [Path()] for file in find_named(path)]
        if not found:
            command.screen.note("Neither .env nor upcall.yaml in the folder sets anything for upcall.")
        for file in found:
            decide(command, file, "trust" if yes else "ignore" if ignore else None)


def decide(command: Command, file: SettingsFile, given: TrustDecision | None) -> None:
    """Store what is decided about a file: `given` on the command line, or asked for on the terminal.

    Raises:
        CallerError: it is neither.
    """
    from upcall.agreements import find_agreement, show_path, store_agreement
    from upcall.ui.cli.agreeing import ask_about, describe_decision, show_file

    if given is None and command.is_interactive:
        given = ask_about(command.screen, file)
    else:
        show_file(command.screen, file)
        if given is None:
            raise CallerError("There is no terminal to ask you on: add --yes to agree, or --ignore.")
    path = show_path(file.path)
    if given is None:
        decided = (earlier := find_agreement(file.path)) is not None and earlier.covers(file)
        command.screen.note(f"{path} {'stays as you decided' if decided else 'is not used: you did not agree'}.")
        return
    store_agreement(file, given)
    command.screen.note(f"{path} is {describe_decision(given)}.")


def find_named(path: Path) -> Sequence[SettingsFile]:
    """Read a file that is found by itself in its folder, or those of a folder.

    Raises:
        CallerError: it is none, or sets nothing for upcall.
    """
    from upcall.agreements import show_path
    from upcall.settings import find_files
    from upcall.settings_files import NAMES

    if path.name not in NAMES and path.is_dir():
        return find_files(path)
    if path.name not in NAMES:
        raise CallerError(
            f"{show_path(path)} is not found by itself; only {' and '.join(NAMES)} are. Name it with --config."
        )
    if found := [file for file in find_files(path.parent) if file.path.name == path.name]:
        return found
    raise CallerError(f"{show_path(path)} does not exist, or sets nothing for upcall.")
