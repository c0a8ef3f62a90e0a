"""The coder at work, end to end: a code base with a failing test is fixed in the sandbox, over several processes."""

from __future__ import annotations

import asyncio
import secrets
import subprocess
import sys
from pathlib import Path

import pytest
from sandboxed import alive, needs_bubblewrap
from scenario import upcall

from upcall import RunStore, Settings, Upcall
from upcall.errors import ConfigurationError
from upcall.sandboxes import Local
from upcall.storage.export import export_run, import_run
from upcall.testing import Call, LoopbackServer, Request, Say, ScriptedModelClient
from upcall.workspace.coder import CommandExecution, coder
from upcall.workspace.settings import WorkspaceSettings

SHALLOW = '{"intent": "coding", "research_depth": "shallow"}'
BROKEN = "def total(prices):\n    return round(sum(prices))\n"
FIXED = "def total(prices):\n    return round(sum(prices), 2)\n"
TEST = "from shop import total\n\n\ndef test_total():\n    assert total([0.1, 0.25]) == 0.35\n"
DONE = Say({"summary": "Done."})
RUN_TESTS = {"command": "python3 -m pytest -q -p no:cacheprovider test_shop.py"}
ASK = {"question": "How many decimals?", "options": ["0", "2"]}
REPORT = Say("The total is rounded to 2 decimals now.")


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    folder.mkdir()
    (folder / "shop.py").write_text(BROKEN)
    (folder / "test_shop.py").write_text(TEST)
    (folder / "old.txt").write_text("old")
    return folder


def results(request: Request) -> list[str]:
    return list(request.tool_results.values())


@pytest.mark.slow
@needs_bubblewrap
def test_coder_fixes_a_test_over_questions_and_three_processes(shop: Path) -> None:
    coding = [
        Call("list_files"),
        Call("run_command", RUN_TESTS),
        Call("read_file", {"path": "shop.py"}),
        Call("ask_user", ASK),
        Call("write_file", {"path": "shop.py", "content": FIXED}),
        Call("run_command", RUN_TESTS),
        Call("run_command", {"command": "rm old.txt"}),
        REPORT,
    ]
    with LoopbackServer({"You are the coder ": coding, "You are the classifier ": [SHALLOW]}) as server:
        model = ("--model", "scripted", "--base-url", server.base_url)
        first = upcall("run", "Make the tests pass", "--workspace", str(shop), "--json", *model)
        (asked,) = first.json["questions"]
        assert asked["question"] == "How many decimals?"
        assert (shop / "shop.py").read_text() == BROKEN
        second = upcall("answer", first.json["run_id"], "2", "--json", *model)
        (risk,) = second.json["questions"]
        assert risk["question"] == "Delete old.txt?\n| rm old.txt"
        assert risk["context"].startswith("It deletes what this run did not make: old.txt.\n| --- a/old.txt\n")
        assert (shop / "old.txt").exists()
        third = upcall("answer", first.json["run_id"], "Yes, delete it", *model)
    assert third.status == 0, third.err
    assert not (shop / "old.txt").exists()
    assert (shop / "shop.py").read_text() == FIXED
    seen = results(server.requests[-1])
    assert "1 failed" in seen[1]
    assert seen[1].startswith("[exit status 1, ")
    assert "1 passed" in seen[5]
    assert "Tests:\n- python3 -m pytest -q -p no:cacheprovider test_shop.py (exit status 0, after " in third.out
    assert "1 passed in " in third.out
    assert "Files:\n- shop.py" in third.out
    assert "Commands:\n- rm old.txt" in third.out
    assert "Warnings:" not in third.out
    assert "commands run in bubblewrap: no network" in first.err + third.err


@pytest.mark.slow
def test_it_is_reported_which_executor_is_used(shop: Path) -> None:
    coding = [Call("run_command", {"command": "touch x"}), DONE]
    with LoopbackServer({"You are the coder ": coding, "You are the classifier ": [SHALLOW]}) as server:
        model = ("--model", "scripted", "--base-url", server.base_url)
        first = upcall("run", "Do it", "--workspace", str(shop), "--unsafe-local", *model)
        assert (
            "commands run on this machine without a sandbox (unsafe_local): commands can do all that you" in first.err
        )
        assert "It runs without a sandbox, with all your rights." in first.out + first.err
        assert not (shop / "x").exists()
        run_id = next(word for word in first.err.split() + first.out.split() if len(word) == 12 and word.isalnum())
        done = upcall("answer", run_id, "Yes, run it", *model)
        assert "without a sandbox" in done.err
    assert (shop / "x").exists()


@pytest.mark.slow
def test_coder_without_sandbox_or_consent_runs_nothing(shop: Path) -> None:
    coding = [Call("run_command", {"command": "touch x"}), Call("run_command", {"command": "rm old.txt"}), DONE, DONE]
    with LoopbackServer({"You are the coder ": coding, "You are the classifier ": [SHALLOW]}) as server:
        model = ("--model", "scripted", "--base-url", server.base_url)
        done = upcall("run", "Do it", "--workspace", str(shop), *model, PATH="/nowhere")
    assert "coder: it changed no file and ran no command" in done.out
    assert "commands cannot be run: bwrap and prlimit and chrt cannot be found. The user can install" in done.err
    assert ["Nothing can be run here: bwrap" in each for each in results(server.requests[-1])] == [True, True]
    assert not (shop / "x").exists()


@pytest.mark.slow
def test_with_executor_none_the_coder_has_no_such_tools(shop: Path) -> None:
    with LoopbackServer({"You are the coder ": [DONE, DONE], "You are the classifier ": [SHALLOW]}) as server:
        model = ("--model", "scripted", "--base-url", server.base_url)
        done = upcall("run", "Do it", "--workspace", str(shop), *model, UPCALL_WORKSPACE__EXECUTOR="none")
    assert "commands run" not in done.err
    tools = {tool["function"]["name"] for tool in server.requests[-1].body["tools"]}
    assert "write_file" in tools
    assert not tools & {"run_command", "run_python"}


@pytest.mark.slow
def test_settings_that_contradict_each_other_are_refused(shop: Path) -> None:
    done = upcall("run", "Do it", "--unsafe-local", UPCALL_WORKSPACE__EXECUTOR="docker")
    assert done.error == (
        "error: workspace.unsafe_local is true and workspace.executor is 'docker': leave out "
        "unsafe_local to use that, or executor to run commands without a sandbox."
    )
    wrong = upcall("run", "Do it", UPCALL_WORKSPACE__LIMITS__SECONDS="0")
    assert "limits.seconds" in wrong.error


async def test_coder_takes_an_executor_of_ones_own(shop: Path) -> None:
    with ScriptedModelClient([Call("run_command", {"command": "make x"}), "Done.", "Done."]) as model:
        agent = coder(model, shop, execution=CommandExecution(Local(), allow_commands=["make x"]))
        result = await agent.run(task="x")
    assert "Done." in result.messages[-1].to_text()  # type: ignore[union-attr]


@needs_bubblewrap
@pytest.mark.slow
async def test_command_of_a_killed_process_without_effect_runs_again(shop: Path) -> None:
    mark = str(secrets.randbelow(10**9) + 10**9)
    slow = Call("run_command", {"command": f"echo >> begun; test -e again || sleep {mark}"})
    with LoopbackServer({"You are the coder ": [slow, DONE], "You are the classifier ": [SHALLOW]}) as server:
        model = ("--model", "scripted", "--base-url", server.base_url)
        command = [sys.executable, "-m", "upcall", "run", "Do it", "--workspace", str(shop), "--json", *model]
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
            while not alive(mark):
                assert process.poll() is None
                await asyncio.sleep(0.05)
            process.kill()
        while alive(mark):
            await asyncio.sleep(0.02)
        assert not (shop / "begun").exists()
        (shop / "again").touch()
        run_id = upcall("list", "--json").out.split('"run_id": "')[1][:12]
        done = upcall("resume", run_id, "--json", *model)
    assert done.json["status"] == "completed"
    assert (shop / "begun").read_text() == "\n"


async def test_consent_to_unsandboxed_commands_is_never_imported(shop: Path) -> None:
    model = ScriptedModelClient({"You are the classifier ": [SHALLOW], "You are the coder ": [Call("ask_user", ASK)]})
    app = Upcall(model, store="theirs.db", settings=Settings.read(None, workspace={"unsafe_local": True}))
    run = await app.start("Do it", workspace=shop)
    assert app.team.settings_of(run).section(WorkspaceSettings).unsafe_local is True
    brought = await import_run(RunStore("mine.db"), await export_run(app.store, run.id))
    mine = Upcall(model, store="mine.db", settings=Settings.read(None))
    assert mine.team.settings_of(brought).section(WorkspaceSettings).unsafe_local is False


async def test_unsandboxed_commands_never_run_for_another_persons_run(
    shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both use one store; the commands would have the rights of who continues."""
    script = {"You are the classifier ": [SHALLOW], "You are the coder ": [Call("ask_user", ASK), DONE]}
    app = Upcall(
        ScriptedModelClient(script), store="x.db", settings=Settings.read(None, workspace={"unsafe_local": True})
    )
    run = await app.start("Do it", workspace=shop)
    other = Upcall(ScriptedModelClient(script), store="x.db", settings=Settings.read(None))
    assert other.team.settings_of(run).section(WorkspaceSettings).unsafe_local is True
    monkeypatch.setattr("platform.node", lambda: "elsewhere")
    assert other.team.settings_of(run).section(WorkspaceSettings).unsafe_local is False
    assert app.team.settings_of(run).section(WorkspaceSettings).unsafe_local is True


@pytest.mark.parametrize("home", ["", "sub/home"])
async def test_workspace_holding_the_store_or_the_home_is_refused(
    home: str, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = ScriptedModelClient({})
    (shop / "sub").mkdir()
    (shop.parent / "link").symlink_to(shop)
    for folder, store in (
        (shop, shop / "sub" / "runs.db"),
        (shop.parent / "link", shop / "runs.db"),
        (Path("/"), "x.db"),
    ):
        app = Upcall(model, store=store, settings=Settings.read(None))
        with pytest.raises(ConfigurationError, match=r"The store .* is in the workspace .* Name a --store outside"):
            await app.start("Do it", workspace=folder)
        assert not Path(store).exists()
    monkeypatch.setenv("HOME", str(shop / home))
    with pytest.raises(ConfigurationError, match="contains your home folder"):
        await Upcall(model, store="x.db", settings=Settings.read(None)).start("Do it", workspace=shop)


@pytest.mark.parametrize("prompts", ["", "prompts", "../link"])
async def test_workspace_that_holds_the_prompts_is_refused(prompts: str, shop: Path) -> None:
    (shop / "prompts").mkdir()
    (shop.parent / "link").symlink_to(shop / "prompts")
    app = Upcall(ScriptedModelClient({}), store="x.db", settings=Settings.read(None, team={"prompts": shop / prompts}))
    with pytest.raises(ConfigurationError, match=r"The folder of prompts .* is in the workspace"):
        await app.start("Do it", workspace=shop)


@pytest.mark.parametrize("state", ["", "state", "state/upcall/.."])
async def test_workspace_that_holds_what_was_agreed_to_is_refused(
    state: str, shop: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(shop / state))
    app = Upcall(ScriptedModelClient({}), store="x.db", settings=Settings.read(None))
    with pytest.raises(ConfigurationError, match="holds what you agreed to"):
        await app.start("Do it", workspace=shop)
    with pytest.raises(ConfigurationError, match="holds what you agreed to"):
        await app.start("Do it", workspace=shop / state / "upcall" / "sub")
