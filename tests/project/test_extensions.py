"""What other packages add to upcall: found by their entry points, and never in the way of the core."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import distribution

import pytest
from made_guests import MadeGuests, guests
from places import ROOT

from upcall.errors import ConfigurationError
from upcall.extensions import find_added
from upcall.ui.cli.main import main

__all__ = ["guests"]

GREET = """
from typing import Annotated
import typer
def greet(name: Annotated[str, typer.Argument()]) -> None:
    "Greet somebody."
    print("Hello", name)
many = typer.Typer(help="Many commands.")
many.command("one")(greet)
many.command("two")(greet)
"""


def call(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    """Return the status of a command and what it printed."""
    with pytest.raises(SystemExit) as end:
        main([*arguments])
    assert isinstance(end.value.code, int)
    printed = capsys.readouterr()
    return end.value.code, printed.out + printed.err


def test_command_of_a_guest_is_called(guests: MadeGuests, capsys: pytest.CaptureFixture[str]) -> None:
    guests.add("polite", "commands", GREET, greet="greet")
    assert call(capsys, "greet", "Ada") == (0, "Hello Ada\n")
    assert "greet" in call(capsys, "--help")[1]


def test_command_group_of_a_guest_is_called(guests: MadeGuests, capsys: pytest.CaptureFixture[str]) -> None:
    guests.add("polite", "commands", GREET, greets="many")
    assert call(capsys, "greets", "two", "Ada") == (0, "Hello Ada\n")
    assert "Many commands." in call(capsys, "--help")[1]


def test_command_that_is_mistyped_is_suggested(guests: MadeGuests, capsys: pytest.CaptureFixture[str]) -> None:
    guests.add("polite", "commands", GREET, greetings="greet")
    status, said = call(capsys, "greetinks", "Ada")
    assert (status, "Did you mean 'greetings'?" in said) == (2, True)


def test_command_of_the_core_is_never_replaced(guests: MadeGuests, capsys: pytest.CaptureFixture[str]) -> None:
    guests.add("rude", "commands", GREET, list="greet")
    assert "Hello" not in call(capsys, "list", "--store", "none.db")[1]


@pytest.mark.parametrize("code", ["import nothing_like_it", "raise ValueError('no')", "other = 1"])
def test_command_that_cannot_load_says_so(code: str, guests: MadeGuests, capsys: pytest.CaptureFixture[str]) -> None:
    guests.add("broken", "commands", code, greet="greet")
    status, said = call(capsys, "greet", "Ada", "--loud")
    assert (status, said.count("\n")) == (2, 1)
    assert "broken adds 'greet' to upcall's commands, but broken:greet cannot be loaded" in said
    assert "This command cannot be loaded." in call(capsys, "--help")[1]


def test_command_of_two_guests_is_refused(guests: MadeGuests) -> None:
    guests.add("polite", "commands", GREET, greet="greet")
    guests.add("rude", "commands", GREET, greet="greet")
    with pytest.raises(ConfigurationError, match=r"(polite and rude|rude and polite)\. Uninstall"):
        find_added("commands")


LOOK = """
import contextlib, sys
from upcall.extensions import find_added
from upcall.ui.cli.main import main
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(None):
    main(sys.argv[1:])
print(find_added.cache_info().misses)
"""


def test_commands_of_the_core_look_for_no_guest() -> None:
    """It would take as long as the rest of the command."""
    done = subprocess.run([sys.executable, "-c", LOOK, "list"], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_entry_points_installed_are_those_of_pyproject() -> None:
    """Where they differ, install the checkout again: make install."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    installed = {(each.group, each.name, each.value) for each in distribution("upcall").entry_points}
    assert {(group, *each) for group, entries in wanted.items() for each in entries.items()} == {
        each for each in installed if each[0] != "console_scripts"
    }
