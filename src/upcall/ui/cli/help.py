"""How help reads: commands in groups by what they are about, whole sentences, types in words, an example for each.

The group of a command is typer's `rich_help_panel`, its example the epilog.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, get_args, get_origin

from typer.core import TyperCommand, TyperGroup

RUNS, QUESTIONS, FILES, SERVICE, STORE = "Runs", "Questions", "Files", "Service", "Store and settings"
OTHERS = "More"
"""The group of commands that name none."""

_FIRST, _LAST = (RUNS, QUESTIONS, FILES, SERVICE), (STORE, OTHERS)
_WORDS: dict[Any, str] = {str: "TEXT", int: "NUMBER", float: "NUMBER", Path: "PATH"}


class HelpCommand(TyperCommand):
    """A command whose help names types in words."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        """See `TyperCommand`."""
        arguments = [each for each in self.get_params(ctx) if each.param_type_name == "argument"]
        return ["[OPTIONS]", *map(_usage_of, arguments)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """See `TyperCommand`."""
        write_parameters(self, ctx, formatter)


class CommandGroup(TyperGroup):
    """A group whose help has a whole sentence for each command."""

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """See `TyperGroup`."""
        write_parameters(self, ctx, formatter)
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """See `TyperGroup`."""
        commands = [self.get_command(ctx, name) for name in self.list_commands(ctx)]
        _write_commands("Commands", [each for each in commands if each and not each.hidden], formatter)


def write_parameters(command: Any, ctx: Any, formatter: Any) -> None:
    """Write a command's arguments and options, with their types in words."""
    rows: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
    for parameter in command.get_params(ctx):
        if (record := parameter.get_help_record(ctx)) is not None:
            rows[parameter.param_type_name].append((_name_type(record[0], parameter, ctx), record[1]))
    for title, found in (("Arguments", rows["argument"]), ("Options", rows["option"])):
        if found:
            with formatter.section(title):
                formatter.write_dl(found)


def write_groups(commands: Iterable[Any], formatter: Any) -> None:
    """Write commands by their groups; those that packages add stand before the last ones."""
    groups: dict[str, list[Any]] = {}
    listed = [each for each in commands if not each.hidden]
    width = max((len(each.name) for each in listed), default=0)
    for command in listed:
        groups.setdefault(command.rich_help_panel or OTHERS, []).append(command)
    added = sorted(groups.keys() - {*_FIRST, *_LAST})
    for name in (*_FIRST, *added, *_LAST):
        if name in groups:
            _write_commands(name, groups[name], formatter, width)


def _write_commands(title: str, commands: Sequence[Any], formatter: Any, width: int = 0) -> None:
    """Write what each command does, the first sentence of its help, beside its name in a column of `width`."""
    rows = [(each.name.ljust(width), _first_sentence(each.short_help or each.help or "")) for each in commands]
    if rows:
        with formatter.section(title):
            formatter.write_dl(rows)


def _usage_of(argument: Any) -> str:
    """Return how an argument is given: what may be left out in brackets."""
    name: str = argument.display_name_raw
    if name.startswith("["):
        return name
    shown = name if argument.required else f"[{name}]"
    return shown if argument.nargs == 1 else f"{shown}..."


def _first_sentence(text: str) -> str:
    return " ".join(text.split()).partition(". ")[0].removesuffix(".") + "."


def _name_type(shown: str, parameter: Any, ctx: Any) -> str:
    """Return the name of a parameter as the help shows it, with a word for its type."""
    kind = parameter.display_type_rich(ctx)
    if not kind or not shown.endswith(kind) or not kind.startswith("<"):
        return shown
    bare = shown.removesuffix(kind).rstrip()
    if parameter.param_type_name == "argument":  # Its name says what it is.
        return bare
    annotation = parameter.type_descriptor.annotation
    if get_origin(annotation) is list:
        (annotation,) = get_args(annotation)
    return f"{bare} {_WORDS.get(annotation, kind)}"
