"""A team of one's own on the command line, by its name, and questions of a program's own run on its terminal."""

from __future__ import annotations

import sys
from pathlib import Path

import pexpect
import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import ChatCompletionClient
from scenario import upcall

from upcall import PausableAgent, Settings, Upcall
from upcall.errors import ConfigurationError
from upcall.execution.named_teams import import_function
from upcall.testing import ScriptedModelClient

MODULE = """
from autogen_agentchat.teams import RoundRobinGroupChat
from upcall import PausableAgent
from upcall.testing import Call, ScriptedModelClient
from upcall.testing.script import Script

def reply(request):
    if request.messages[-1]["role"] == "tool":
        return "Tested on " + request.messages[-1]["content"]
    return Call("ask_user", {"question": "Which Python?", "options": ["3.11", "3.12"]})

def make_team():
    tester = PausableAgent("tester", ScriptedModelClient(Script(reply)), system_message="You test.")
    return RoundRobinGroupChat([tester], max_turns=1)
"""

PROGRAM = """
import asyncio
from shop import make_team
from upcall import Upcall, ask_on_terminal

async def main():
    app = Upcall(store="own.db", team=make_team)
    run = await ask_on_terminal(app, await app.start("Test it"))
    print("RESULT", run.result)

asyncio.run(main())
"""


@pytest.fixture(autouse=True)
def shop() -> None:
    """Make a module in the current folder."""
    Path("shop.py").write_text(MODULE)


@pytest.mark.slow
def test_team_of_a_run_is_remembered_by_other_processes() -> None:
    run = upcall("run", "Test it", "--team", "shop:make_team", "--json").json
    ended = upcall("answer", run["run_id"], "3.12", "--json")
    assert ended.json["result"] == "Tested on 3.12"


@pytest.mark.slow
def test_wait_on_the_command_line_comes_before_the_tool() -> None:
    tool = """
from upcall import ask

def paint() -> str:
    "Paint it."
    return ask("Which color?", ["red", "blue"], on_ask="assume").text

def make_team():
    model = ScriptedModelClient([Call("paint"), "Painted."])
    return RoundRobinGroupChat([PausableAgent("painter", model, tools=[paint])], max_turns=1)
"""
    Path("paints.py").write_text(MODULE + tool)
    called = ("run", "Paint it", "--team", "paints:make_team", "--json")
    assert upcall(*called).json["result"] == "Painted."
    assert upcall(*called, "--on-ask", "wait").json["questions"]


def test_team_loads_its_neighbours_but_shadows_no_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    Path("mailbox.py").write_text("raise SystemExit('loaded in the place of a library')")
    Path("own_team.py").write_text("import mailbox, own_parts\nmake_team = own_parts.make_team")
    Path("own_parts.py").write_text("def make_team(): return 1")
    assert import_function("own_team:make_team", "The team", "x:y")() == 1


@pytest.mark.parametrize("name", ["sched", "teams.inner"])
@pytest.mark.slow
def test_team_module_in_the_folder_wins_over_installed_ones(name: str) -> None:
    path = Path(name.replace(".", "/")).with_suffix(".py")
    path.parent.mkdir(exist_ok=True)
    path.write_text(MODULE)
    assert upcall("run", "Test it", "--team", f"{name}:make_team", "--json").json["questions"]


def test_team_module_that_fails_is_not_left_half_loaded() -> None:
    Path("broken.py").write_text("make_team = dict\n1 / 0")
    for _ in range(2):
        with pytest.raises(ConfigurationError, match="ZeroDivisionError"):
            import_function("broken:make_team", "The team", "x:y")


@pytest.mark.slow
def test_branch_has_the_team_of_its_run() -> None:
    run = upcall("run", "Test it", "--team", "shop:make_team", "--json").json
    branch = upcall("fork", run["run_id"], run["questions"][0]["id"], "3.11", "--json")
    assert branch.json["result"] == "Tested on 3.11"


def test_team_of_ones_own_announces_no_demo() -> None:
    assert "Demo" not in upcall("run", "Test it", "--team", "shop:make_team").err


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("shop", "is not a MODULE:FUNCTION"),
        ("shops:make_team", "No module named 'shops'"),
        ("shop:make", "no attribute 'make'"),
        ("shop:MODULE.x", "no attribute 'MODULE'"),
        ("shop:__name__", "is not a function"),
    ],
)
def test_team_that_cannot_be_imported_is_one_line(name: str, problem: str) -> None:
    ended = upcall("run", "Test it", "--team", name)
    assert (ended.status, problem in ended.error) == (2, True)
    assert not Path("upcall.db").exists()


@pytest.mark.slow
def test_team_that_is_gone_is_named_at_the_answer() -> None:
    run_id = upcall("run", "Test it", "--team", "shop:make_team", "--json").json["run_id"]
    Path("shop.py").unlink()
    assert "The team 'shop:make_team' cannot be imported" in upcall("answer", run_id, "3.12").error


@pytest.mark.slow
def test_imported_run_imports_no_module_that_it_names() -> None:
    run_id = upcall("run", "Test it", "--team", "shop:make_team", "--json").json["run_id"]
    upcall("store", "export", run_id, "run.json")
    upcall("store", "import", "run.json", "--store", "other.db")
    ended = upcall("answer", run_id, "3.12", "--store", "other.db")
    assert "resume it in the program that started it" in ended.error
    assert upcall("answer", run_id, "3.12", "--store", "other.db", "--team", "shop:make_team").status == 0


@pytest.mark.slow
def test_program_asks_its_own_run_on_the_terminal() -> None:
    Path("program.py").write_text(PROGRAM)
    child = pexpect.spawn(sys.executable, ["program.py"], encoding="utf-8", timeout=60)
    child.expect("Which Python")
    child.expect("Ctrl-C to answer later")
    child.send("2\r")
    child.expect("RESULT Tested on 3.12")


@pytest.mark.slow
def test_chat_asks_for_tasks_that_follow_each_other() -> None:
    child = pexpect.spawn(
        sys.executable, ["-m", "upcall", "chat", "--team", "shop:make_team", "--plain"], encoding="utf-8", timeout=60
    )
    child.expect("Task")
    child.sendline("Test it")
    child.expect("Your answer: ")
    child.sendline("2")
    child.expect("Tested on 3.12")
    child.expect("Task")
    child.sendline("")
    child.expect(pexpect.EOF)
    child.close()
    assert child.exitstatus == 0
    assert len(upcall("list", "--json").json) == 1


@pytest.mark.slow
def test_chat_without_a_terminal_reads_tasks_from_a_pipe() -> None:
    done = upcall("chat", given="Hello! What can you do?\n" * 2)
    runs = upcall("list", "--json").json
    assert (done.status, [each["status"] for each in runs]) == (0, ["completed", "completed"])  # type: ignore[index]


OWN_CLIENT = """
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_ext.models.openai import OpenAIChatCompletionClient
from upcall import PausableAgent

class Counting(OpenAIChatCompletionClient):
    async def create(self, *given, **options):
        return self.calls + 1

def agents():
    client = Counting(model="gpt-4o", api_key="sk-0123456789abcdef", base_url="http://127.0.0.1:9")
    return PausableAgent("own", client), AssistantAgent("own", client)

def own(): return RoundRobinGroupChat([agents()[0]], max_turns=1)
def stock(): return RoundRobinGroupChat([agents()[1]], max_turns=1)
"""

WHERE = "Agent 'own': its model client Counting failed ({}/clients.py, line 9): AttributeError: "


@pytest.mark.parametrize("team", ["own", "stock"])
@pytest.mark.parametrize("before", [True, False], ids=["--debug run", "run --debug"])
@pytest.mark.slow
def test_debug_shows_the_traceback_of_a_clients_own_error(team: str, before: bool) -> None:
    Path("clients.py").write_text(OWN_CLIENT)
    call = ["run", "Go", "--team", f"clients:{team}"]
    plain, debugged = upcall(*call), upcall(*(["--debug", *call] if before else [*call, "--debug"]))
    where = WHERE.format(Path.cwd())
    assert (where in plain.err, "Traceback" in plain.err) == (True, False)
    assert (where in debugged.err, "return self.calls + 1" in debugged.err) == (True, True)
    assert debugged.err.count("Traceback") >= 1
    assert "sk-0123456789abcdef" not in debugged.err


def make_given(model: ChatCompletionClient) -> Team:
    return RoundRobinGroupChat([PausableAgent("tester", model)], max_turns=1)


async def test_team_function_may_take_the_model() -> None:
    settings = Settings.read(None, models={"model": "gpt-4o", "api_key": "none"})
    team = Upcall(team=make_given, settings=settings).team.build()
    assert isinstance(team, RoundRobinGroupChat)
    with pytest.raises(ConfigurationError, match="takes a model, and the settings name none"):
        Upcall(team=make_given, settings=Settings.read(None)).team.build()


async def test_team_function_keeps_its_own_defaults() -> None:
    own = ScriptedModelClient(["Done."])
    settings = Settings.read(None, models={"model": "gpt-4o", "api_key": "none"})
    app = Upcall(team=lambda model=own: make_given(model), settings=settings)
    assert (await app.start("Test it")).result == "Done."


async def test_team_that_cannot_be_built_names_its_line() -> None:
    def make_broken() -> Team:
        raise KeyError("no such agent")

    line = make_broken.__code__.co_firstlineno + 1
    with pytest.raises(ConfigurationError, match=rf"test_named_teams\.py, line {line}\)"):
        await Upcall(team=make_broken).start("Test it")
