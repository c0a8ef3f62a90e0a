"""The options that several commands share, and how they are added to a command."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import typer

from upcall.ui.cli.help import OTHERS, CommandGroup

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its first characters.")]
Detach = Annotated[bool, typer.Option(help="Stop at the next question instead of asking it here.")]
Submit = Annotated[bool, typer.Option("--submit", help="Return at once and leave the work to a worker (PostgreSQL).")]


Given: TypeAlias = Mapping[str, dict[str, Any]]
"""What the command line sets: by section, the settings by name."""


@dataclass(frozen=True)
class SharedOption:
    """An option of several commands.

    Attributes:
        name: its parameter's.
        make: returns what it takes, as an annotation, and its default.
        place: the setting that it sets, if it does.
    """

    name: str
    make: Callable[[], tuple[Any, Any]]
    place: tuple[str, str] | None = None

    @cached_property
    def parameter(self) -> inspect.Parameter:
        """The parameter that typer reads."""
        kind, default = self.make()
        return inspect.Parameter(self.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=kind)


def _text(name: str, help_text: str) -> SharedOption:
    return SharedOption(name, lambda: (Annotated[str | None, typer.Option(help=help_text)], None))


def _flag(name: str, flag: str, help_text: str) -> SharedOption:
    return SharedOption(name, lambda: (Annotated[bool, typer.Option(flag, help=help_text)], False))


def setting_option(
    section: str,
    name: str,
    *flags: str,
    metavar: str | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
    sections: Callable[[], Mapping[str, Any]] | None = None,
) -> SharedOption:
    """Make the option of a setting: its type and its help are those of the setting's declaration.

    One that is yes or no can only be turned on, if `flags` do not say otherwise; a list is given by repeating it.
    `sections` returns the types of sections by name, by default those of the settings.
    """
    place = (section, name)

    def make() -> tuple[Any, Any]:
        from upcall.setting_paths import about, plain_type, type_at  # They take longer to import than all else here.
        from upcall.settings import settings_root

        root = sections() if sections else settings_root()
        taken, declared = plain_type(type_at(place, root)), about(place, root)
        assert declared is not None, f"{section}.{name} says nothing of itself"
        names = flags or (f"--{name.replace('_', '-')}",)
        option = typer.Option(*names, help=declared.help, metavar=metavar, min=minimum, max=maximum)
        if taken is bool and "/" not in names[0]:
            return Annotated[bool, option], False
        return Annotated[taken | None, option], None

    return SharedOption(name, make, place)


MODEL = setting_option("models", "model")
TEAM = _text("team", "MODULE:FUNCTION that builds your own team [the run's, or the built-in one].")
BASE_URL = setting_option("models", "base_url")
STORE = setting_option("store", "path", "--store")
USER = setting_option("users", "user")
CONFIG = SharedOption(
    "config",
    lambda: (
        Annotated[Path | None, typer.Option(help="YAML file with settings [upcall.yaml, once you trust it].")],
        None,
    ),
)
PLAIN = setting_option("terminal", "plain")
STREAM = setting_option("team", "stream", "--stream/--no-stream")
AS_JSON = _flag("as_json", "--json", "Print one JSON object and nothing else on standard output.")
DEBUG = _flag("debug", "--debug", "Print the traceback of an error.")


def command_group(help_text: str, panel: str = OTHERS) -> typer.Typer:
    """Make an empty group of commands, which prints its help if no command is given. `panel` is where the list of all
    commands has it."""
    group = typer.Typer(cls=CommandGroup, help=help_text, rich_help_panel=panel, rich_markup_mode=None)

    @group.callback(invoke_without_command=True)
    def print_help(context: typer.Context) -> None:
        if context.invoked_subcommand is None:
            sys.stdout.write(f"{context.get_help()}\n")

    return group


def single_command(panel: str, example: str) -> Callable[[Callable[..., None]], typer.Typer]:
    """Make a function a command that stands in the list of all commands under `panel`, and whose help ends with an
    example."""

    def make(function: Callable[..., None]) -> typer.Typer:
        alone = typer.Typer(rich_markup_mode=None)
        alone.command(rich_help_panel=panel, epilog=f"Example: {example}")(function)
        return alone

    return make


class WithOptions:
    """A function as a command with shared options behind its own; typer reads its signature when the command is called
    or explained.

    Args:
        make: turns the shared options into the command, the function's first argument: those that are settings
            together, as ``settings``, by section.
    """

    def __init__(self, function: Callable[..., None], make: Callable[..., Any], shared: Sequence[SharedOption]) -> None:
        functools.update_wrapper(self, function)
        self._function, self._make, self._shared = function, make, shared

    @cached_property
    def __signature__(self) -> inspect.Signature:
        _, *own = inspect.signature(self._function, eval_str=True).parameters.values()
        return inspect.Signature([*own, *(each.parameter for each in self._shared)])

    def __call__(self, **arguments: Any) -> None:
        """Run the command."""
        given, settings = dict[str, Any](), dict[str, dict[str, Any]]()
        for each in self._shared:
            value = arguments.pop(each.name)
            if each.place is None:
                given[each.name] = value
            elif value != each.parameter.default and value != []:
                settings.setdefault(each.place[0], {})[each.place[1]] = value
        if any(each.place for each in self._shared):
            given["settings"] = settings
        self._function(self._make(**given), **arguments)


def with_options(make: Callable[..., Any], *shared: SharedOption) -> Callable[[Callable[..., None]], WithOptions]:
    """Append shared options to those of a function; see `WithOptions`."""
    return lambda function: WithOptions(function, make, shared)
