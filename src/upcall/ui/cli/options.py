"""The options that several commands share, and how they are added to a command."""

from __future__ import annotations

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple, TypeAlias

import typer

from upcall.setting_paths import about as about_setting
from upcall.setting_paths import plain_type, type_at
from upcall.settings import settings_root

RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="The run's id, or its first characters.")]
Detach = Annotated[bool, typer.Option(help="Stop at the next question instead of asking it here.")]
Submit = Annotated[bool, typer.Option("--submit", help="Return at once and leave the work to a worker (PostgreSQL).")]


Given: TypeAlias = Mapping[str, dict[str, Any]]
"""What the command line sets: by section, the settings by name."""


class SharedOption(NamedTuple):
    """An option of several commands: its parameter's name, what it takes, its default, and the setting that it sets."""

    name: str
    kind: Any
    default: Any = None
    place: tuple[str, str] | None = None


def _text(name: str, help_text: str) -> SharedOption:
    return SharedOption(name, Annotated[str | None, typer.Option(help=help_text)])


def _flag(name: str, flag: str, help_text: str) -> SharedOption:
    return SharedOption(name, Annotated[bool, typer.Option(flag, help=help_text)], False)


def setting_option(
    section: str,
    name: str,
    *flags: str,
    metavar: str | None = None,
    minimum: int | None = None,
    maximum: int | None = None,
    sections: Mapping[str, Any] | None = None,
) -> SharedOption:
    """Make the option of a setting from its declaration: its type, and its help.

    One that is yes or no can only be turned on, if `flags` do not say otherwise; a list is given by repeating it.
    `sections` are the types of sections by name, by default those of the settings: what packages add would be loaded
    for the help of every command.
    """
    place, root = (section, name), sections or settings_root()
    taken, about = plain_type(type_at(place, root)), about_setting(place, root)
    assert about is not None, f"{section}.{name} says nothing of itself"
    flags = flags or (f"--{name.replace('_', '-')}",)
    kind = typer.Option(*flags, help=about.help, metavar=metavar, min=minimum, max=maximum)
    if taken is bool and "/" not in flags[0]:
        return SharedOption(name, Annotated[bool, kind], False, place)
    return SharedOption(name, Annotated[taken | None, kind], None, place)


MODEL = setting_option("models", "model")
TEAM = _text("team", "MODULE:FUNCTION that builds your own team [the run's, or the built-in one].")
BASE_URL = setting_option("models", "base_url")
STORE = setting_option("store", "path", "--store")
USER = setting_option("users", "user")
CONFIG = SharedOption(
    "config", Annotated[Path | None, typer.Option(help="YAML file with settings [upcall.yaml, once you trust it].")]
)
PLAIN = setting_option("terminal", "plain")
STREAM = setting_option("team", "stream", "--stream/--no-stream")
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
    """Append shared options to those of a function; `make` turns them into the command, its first argument: those
    that are settings together, as ``settings``, by section."""

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(function, eval_str=True).parameters.values()

        @functools.wraps(function)
        def call(**arguments: Any) -> None:
            given, settings = dict[str, Any](), dict[str, dict[str, Any]]()
            for each in shared:
                value = arguments.pop(each.name)
                if each.place is None:
                    given[each.name] = value
                elif value != each.default and value != []:
                    settings.setdefault(each.place[0], {})[each.place[1]] = value
            if any(each.place for each in shared):
                given["settings"] = settings
            function(make(**given), **arguments)

        added = [
            inspect.Parameter(each.name, inspect.Parameter.KEYWORD_ONLY, default=each.default, annotation=each.kind)
            for each in shared
        ]
        call.__signature__ = inspect.Signature([*own, *added])  # type: ignore[attr-defined]
        return call

    return decorate
