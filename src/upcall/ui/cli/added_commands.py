"""The commands of the program, its own and those that other packages add. Each is made when it is called: its options
are those of settings, which take longer to import than all else that the help needs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, TypeAlias

import typer
from typer.core import TyperCommand
from typer.main import get_command_from_info, get_command_name, solve_typer_info_help
from typer.models import CommandInfo, TyperInfo

from upcall.errors import ConfigurationError
from upcall.extensions import find_added, load_added
from upcall.ui.cli.command import Command
from upcall.ui.cli.help import CommandGroup, HelpCommand, write_groups

CommandSource: TypeAlias = CommandInfo | typer.Typer
"""What a command is made of, or a group of commands."""

_TAKES_ALL = {"allow_extra_args": True, "ignore_unknown_options": True}


class CommandsOnUse(CommandGroup):
    """The commands of the core, and behind them those of other packages. None of these can replace one of the core.

    Attributes:
        own: what the core's commands are made of, by their names, in the order of the help.
    """

    own: ClassVar[Mapping[str, CommandSource]] = {}

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """Return a command; where the name is unknown all are made, so that one of them can be suggested."""
        added = find_added("commands") if cmd_name not in self.own else {}
        is_known = cmd_name in self.own or cmd_name in added
        for name in [cmd_name] if is_known else self._list_names():
            if name not in self.commands:
                self.add_command(_make_command(name, self._find(name)), name)
        return super().get_command(ctx, cmd_name)

    def list_commands(self, ctx: Any) -> list[str]:
        """Name all commands, in the order of the help."""
        return self._list_names()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the names of all commands and what they are for, in groups, without making them."""
        write_groups([_summarize(name, self._find(name)) for name in self._list_names()], formatter)

    def _list_names(self) -> list[str]:
        return [*self.own, *(name for name in sorted(find_added("commands")) if name not in self.own)]

    def _find(self, name: str) -> CommandSource | ConfigurationError:
        if name in self.own:
            return self.own[name]
        try:
            given = load_added("commands", name)
        except ConfigurationError as problem:
            return problem
        if not isinstance(given, typer.Typer):
            return CommandInfo(name, callback=given)
        is_group = given.registered_callback or given.registered_groups or len(given.registered_commands) != 1
        return given if is_group else given.registered_commands[0]


def list_sources(*modules: typer.Typer, **groups: typer.Typer) -> Mapping[str, CommandSource]:
    """Return what the commands in `modules` are made of, by name, and behind them `groups` of commands."""
    commands = [info for module in modules for info in module.registered_commands]
    return {_name_command(info): info for info in commands} | groups


def _name_command(info: CommandInfo) -> str:
    assert info.callback is not None
    return info.name or get_command_name(info.callback.__name__)


def _make_command(name: str, source: CommandSource | ConfigurationError) -> Any:
    """Make a command; one that cannot be loaded says so where it is called."""
    if isinstance(source, CommandInfo):
        _explain_types(source)
        return get_command_from_info(source, pretty_exceptions_short=False, rich_markup_mode=None)
    if isinstance(source, typer.Typer):
        source._add_completion = False
        for each in source.registered_commands:
            _explain_types(each)
        return typer.main.get_command(source)

    def fail() -> None:
        with Command():
            raise source

    return TyperCommand(name, callback=fail, help=_summarize(name, source).help, context_settings=_TAKES_ALL)


def _explain_types(source: CommandInfo) -> None:
    """Let a command's help name types in words, unless it has a class of its own."""
    if source.cls in (None, TyperCommand):
        source.cls = HelpCommand


def _summarize(name: str, source: CommandSource | ConfigurationError) -> TyperCommand:
    """Return a command without options and what it does, for a list of commands."""
    if isinstance(source, ConfigurationError):
        return TyperCommand(name, help="This command cannot be loaded.")
    panel = source.rich_help_panel if isinstance(source.rich_help_panel, str) else None
    if isinstance(source, typer.Typer):
        return TyperCommand(name, help=solve_typer_info_help(TyperInfo(source)), rich_help_panel=panel)
    text = source.help or getattr(source.callback, "__doc__", None) or ""
    return TyperCommand(name, help=text, short_help=source.short_help, hidden=source.hidden, rich_help_panel=panel)
