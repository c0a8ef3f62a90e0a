"""The commands that other packages add: loaded when one is called, for the help, or when a name is unknown."""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

from upcall.errors import ConfigurationError
from upcall.extensions import find_added, load_added
from upcall.ui.cli.command import Command

_TAKES_ALL = {"allow_extra_args": True, "ignore_unknown_options": True}


class WithAdded(TyperGroup):
    """The commands of the core, and behind them those of other packages. None of these can replace one of the core."""

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; of those that are added only this one is loaded, and all where the name is unknown."""
        if cmd_name not in self.commands:
            added = find_added("commands")
            for name in [cmd_name] if cmd_name in added else added:
                self._add(name)
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Name all commands, in the order of the help."""
        for name in sorted(find_added("commands")):
            self._add(name)
        return super().list_commands(ctx)

    def _add(self, name: str) -> None:
        if name not in self.commands:
            self.add_command(_make_command(name), name)


def _make_command(name: str) -> Any:
    """Make the command that a package adds; one that cannot be loaded says so where it is called."""
    try:
        given = load_added("commands", name)
    except ConfigurationError as problem:
        return _explain(name, problem)
    if not isinstance(given, typer.Typer):
        function, given = given, typer.Typer(rich_markup_mode=None)
        given.command(name)(function)
    given._add_completion = False
    return typer.main.get_command(given)


def _explain(name: str, problem: ConfigurationError) -> Any:
    def fail() -> None:
        with Command():
            raise problem

    return TyperCommand(name, callback=fail, help="This command cannot be loaded.", context_settings=_TAKES_ALL)
