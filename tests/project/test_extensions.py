"""What other packages add to upcall: found by their entry points, and never in the way of the core."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from made_guests import MadeGuests, guests
from places import ROOT

from upcall import Run, RunStatus, RunStore, Settings, Upcall
from upcall.errors import ConfigurationError, StoreUnavailable
from upcall.extensions import find_added
from upcall.run_reader import RunReader
from upcall.runs.checkpoint import Checkpoint
from upcall.sections import load_section
from upcall.storage.connection import Connection
from upcall.storage.maintenance import stats
from upcall.storage.store import delete_run
from upcall.ui.cli.main import main
from upcall.ui.diagrams.team import read_team

__all__ = ["guests"]

SRC = ROOT / "src/upcall"

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
    status, text = call(capsys, "greetinks", "Ada")
    assert (status, "Did you mean 'greetings'?" in text) == (2, True)


def test_command_of_the_core_is_never_replaced(guests: MadeGuests, capsys: pytest.CaptureFixture[str]) -> None:
    guests.add("rude", "commands", GREET, list="greet")
    assert "Hello" not in call(capsys, "list", "--store", "none.db")[1]


@pytest.mark.parametrize("code", ["import nothing_like_it", "raise ValueError('no')", "other = 1"])
def test_command_that_cannot_load_says_so(code: str, guests: MadeGuests, capsys: pytest.CaptureFixture[str]) -> None:
    guests.add("broken", "commands", code, greet="greet")
    status, text = call(capsys, "greet", "Ada", "--loud")
    assert (status, text.count("\n")) == (2, 1)
    assert "broken adds 'greet' to upcall's commands, but broken:greet cannot be loaded" in text
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


def test_core_names_no_command_of_a_guest() -> None:
    """Where a guest is not installed, its command is none: the guest itself names what it offers."""
    entries = [each for each in distribution("upcall").entry_points if each.group.startswith("upcall.")]
    guests = tuple(str(SRC / each.module.split(".")[1]) for each in entries)
    added = "|".join(each.name for each in entries if each.group == "upcall.commands") or r"(?!)"
    named = re.compile(rf"\bupcall ({added})\b")
    folders = [SRC, *(SRC / each for each in ("agents", "teams", "prompts"))]  # Links, into which a search does not go.
    files = [each for folder in folders for each in folder.rglob("*") if each.suffix in (".py", ".j2")]
    core = [each for each in files if not str(each).startswith(guests)]
    assert len(core) > 200
    assert {str(each): found for each in core if (found := named.findall(each.read_text()))} == {}


DISPLAY = """
def show_loud(run):
    return {"text/loud": run.task.upper()}
"""


def test_display_of_a_guest_stands_beside_the_text(guests: MadeGuests) -> None:
    guests.add("loud", "displays", DISPLAY, **{"Run.loud": "show_loud"})
    run = Run(id="a-run", task="do it")
    shown = run._repr_mimebundle_()
    assert (shown["text/loud"], shown["text/plain"]) == ("DO IT", str(run))


async def test_display_of_runs_serves_what_an_application_returns(guests: MadeGuests) -> None:
    guests.add("loud", "displays", DISPLAY, **{"Run.loud": "show_loud"})
    run = await Upcall(store="runs.db", settings=Settings.read(models={"model": "demo"})).start("do it")
    assert type(run) is not Run
    assert run._repr_mimebundle_()["text/loud"] == "DO IT"


def test_display_that_cannot_load_leaves_the_text(guests: MadeGuests) -> None:
    guests.add("broken", "displays", "import nothing_like_it", **{"Run.broken": "show"})
    shown = Run(id="a-run", task="do it")._repr_mimebundle_()["text/plain"]
    assert "do it" in shown
    assert shown.endswith(
        "broken adds 'Run.broken' to upcall's displays, but broken:show cannot be loaded "
        "(ModuleNotFoundError: No module named 'nothing_like_it'). Install it again, or uninstall it."
    )


def test_form_without_its_guest_says_how_to_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.app.find_added", lambda point: {})
    with pytest.raises(ConfigurationError, match=r"Answer with await app\.answer"):
        Upcall().form("a-run")


LISTEN = """
from upcall.storage.schema import Table
HEARD = Table("heard", {"run_id": "NAME", "status": "TEXT NOT NULL"}, "run_id, status")
INSERT = "INSERT INTO heard (run_id, status) VALUES (:run_id, :status)"
def make(settings):
    return lambda run, events: lambda connection: connection.execute(
        INSERT, {"run_id": run.id, "status": f"{settings.users.user} {run.status}"})
def make_none(settings):
    return None
"""
COUNT = "SELECT status FROM heard"


def read_received(connection: Connection) -> list[str]:
    return [status for (status,) in connection.execute(COUNT).fetchall()]


@pytest.fixture
def listening(guests: MadeGuests, location: str) -> RunStore:
    """Return the store of an application whose changes a guest writes into a table of its own."""
    code = LISTEN
    guests.add("ears", "listeners", code, all="make", none="make_none")
    guests.add("eared", "tables", code, received="HEARD")
    return RunReader(Settings.read(users={"user": "ada"}), location).store


async def test_listener_writes_with_the_change(listening: RunStore) -> None:
    stored = await listening.create(Run(id="a-run", task="do it"), Checkpoint())
    await listening.save(stored, stored.run.model_copy(update={"status": RunStatus.CANCELLED}))
    assert await listening.database.read(read_received) == ["ada initializing", "ada cancelled"]


async def test_listener_that_fails_refuses_the_change(listening: RunStore) -> None:
    run = Run(id="a-run", task="do it")
    stored = await listening.create(run, Checkpoint())
    with pytest.raises(StoreUnavailable):  # The row is there.
        await listening.save(stored, run)
    assert (await listening.load("a-run")).version == 1


async def test_table_of_a_guest_loses_rows_with_the_run(listening: RunStore) -> None:
    await listening.create(Run(id="a-run", task="do it"), Checkpoint())
    assert (await stats(listening)).rows["heard"] == 1
    await listening.database.write(lambda connection: delete_run(connection, "a-run"))
    assert await listening.database.read(read_received) == []


async def test_table_of_a_guest_comes_into_an_older_store(guests: MadeGuests, location: str) -> None:
    stored = await RunStore(location).create(Run(task="do it"), Checkpoint())
    guests.add("eared", "tables", LISTEN, received="HEARD")
    later = RunStore(location)
    assert (await later.load(stored.run.id)).version == 1
    await later.save(stored, stored.run)
    assert await later.database.read(read_received) == []


async def test_table_of_the_store_is_never_replaced(guests: MadeGuests) -> None:
    guests.add("rude", "tables", LISTEN.replace('"heard"', '"upcall_runs"'), received="HEARD")
    with pytest.raises(ConfigurationError, match="adds the table upcall_runs"):
        await RunStore("runs.db").create(Run(task="do it"), Checkpoint())


SECTION = """
from typing import Annotated
from upcall.setting_types import About, Section

class Stars(Section):
    symbol: Annotated[str, About("what a star is drawn with")] = "*"

class Needs(Section):
    symbol: str

WORD = "no section"
"""


def test_section_of_a_guest_is_read(guests: MadeGuests, monkeypatch: pytest.MonkeyPatch) -> None:
    guests.add("stars", "settings", SECTION, stars="Stars")
    (section,) = (each for name, each in Settings.read().sections.items() if name == "stars")
    assert Settings.read().section(type(section)).model_dump() == {"symbol": "*"}
    monkeypatch.setenv("UPCALL_STARS__SYMBOL", "+")
    assert Settings.read().section(type(section)).model_dump() == {"symbol": "+"}


ASK_FOR_ONE = """
import sys
from upcall import Settings
from upcall.notifications.config import NotificationsSettings
Settings.read(None).section(NotificationsSettings)
print([name for name in sys.modules if name.startswith("upcall.") and name.endswith(".settings")])
"""


@pytest.mark.needs("notifications")
def test_section_that_is_asked_for_loads_no_other() -> None:
    done = subprocess.run([sys.executable, "-c", ASK_FOR_ONE], capture_output=True, text=True, check=True)
    assert done.stdout == "['upcall.settings']\n"


def test_section_by_another_name_of_its_class_is_found(guests: MadeGuests) -> None:
    guests.add("stars", "settings", f"{SECTION}\nSky = Stars", stars="Sky")
    kind = load_section("stars")
    assert (kind.__name__, Settings.read().section(kind).model_dump()) == ("Stars", {"symbol": "*"})


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"symbl": "x"}, r"unknown setting 'symbl' in stars; did you mean 'stars\.symbol'"),
        ({"symbol": 3}, r"stars\.symbol = 3 is wrong"),
    ],
)
def test_section_of_a_guest_refuses_what_is_wrong(guests: MadeGuests, given: Any, problem: str) -> None:
    guests.add("stars", "settings", SECTION, stars="Stars")
    with pytest.raises(ConfigurationError, match=problem):
        Settings.read(stars=given)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"stars": "Needs"}, "has no default for symbol"),
        ({"stars": "WORD"}, "is not a class derived from"),
        ({"stars": "Missing"}, "cannot be loaded"),
        ({"store": "Stars"}, "is upcall's own"),
    ],
)
def test_section_that_is_unusable_is_refused(guests: MadeGuests, entries: Any, problem: str) -> None:
    guests.add("stars", "settings", SECTION, **entries)
    with pytest.raises(ConfigurationError, match=problem):
        _ = Settings.read().sections


ROLE = """
from upcall import PausableAgent
from upcall.runs.outputs import Intent
from upcall.teams import Role

class Writer(Role):
    name = "writer"

    @classmethod
    def for_run(cls, setup):
        return cls()

    def build(self, client, tools, escalates_to, options):
        return PausableAgent("writer", client, tools=tools)

class Eager(Writer):
    name, intent = "eager", Intent.RESEARCH
"""


def test_role_of_a_guest_joins_the_team(guests: MadeGuests) -> None:
    guests.add("prose", "roles", ROLE, writer="Writer")
    team = read_team(Upcall(store="runs.db", settings=Settings.read(models={"model": "demo"})).team.build())
    (lead,) = (each for each in team.inside if each.name == "lead")
    assert "writer" in {each.name for each in team.inside} & {*lead.calls, *(each.name for each in lead.inside)}


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ({"author": "Writer"}, r"The role author \(prose:Writer\) is not a class derived from"),
        ({"writer": "PausableAgent"}, "is not a class derived from"),
        pytest.param(
            {"eager": "Eager"},
            "The roles eager and researcher both take small tasks of research",
            marks=pytest.mark.needs("research"),
        ),
    ],
)
def test_role_that_is_unusable_is_refused(guests: MadeGuests, entries: Any, problem: str) -> None:
    guests.add("prose", "roles", ROLE, **entries)
    with pytest.raises(ConfigurationError, match=problem):
        Upcall(store="runs.db", settings=Settings.read(models={"model": "demo"})).team.build()


@pytest.mark.slow
def test_guest_of_the_guide_is_installed_and_used(tmp_path: Path) -> None:
    site, copy = tmp_path / "site", tmp_path / "guest"
    shutil.copytree(ROOT / "examples/guest", copy)
    assert len((copy / "upcall_stars.py").read_text().splitlines()) <= 40
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    subprocess.run([*pip, "--target", site, copy], check=True)

    def upcall(*arguments: str) -> Any:
        environment = {**os.environ, "PYTHONPATH": str(site)}
        command = [sys.executable, "-m", "upcall", *arguments, "--json"]
        return json.loads(subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout)

    asked = upcall("run", "Build me a user authentication system", "--detach")
    assert upcall("stars") == {}
    done = upcall("answer", asked["run_id"], "Express")
    assert (done["status"], upcall("stars")) == ("completed", {asked["run_id"]: 1})


def test_entry_points_installed_are_those_of_pyproject() -> None:
    """Where they differ, install the checkout again: make install."""
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    installed = {(each.group, each.name, each.value) for each in distribution("upcall").entry_points}
    assert {(group, *each) for group, entries in wanted.items() for each in entries.items()} == {
        each for each in installed if each[0] != "console_scripts"
    }
