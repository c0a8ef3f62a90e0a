"""Commands in the sandbox: what they did decides what becomes of it, in each way to view the workspace."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import command_process
import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from sandboxed import needs_bubblewrap, read_tree, skip_without_overlay

from upcall import RunStatus, Settings, Upcall
from upcall.agents import PausableAgent
from upcall.errors import UserInputRequired
from upcall.sandboxes import Bubblewrap
from upcall.sandboxes.views import ViewName
from upcall.testing import Call, ScriptedModelClient
from upcall.workspace.command_results import read_changed
from upcall.workspace.commands import ExecutionWorkbench
from upcall.workspace.consent import Consent

pytestmark = needs_bubblewrap


@pytest.fixture(params=["kernel", "fuse", "copy"])
def overlay(request: pytest.FixtureRequest, tmp_path: Path) -> ViewName:
    skip_without_overlay(request.param, tmp_path)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    (work / "sub" / "deep").mkdir(parents=True)
    for name, text in (("a.txt", "a\n"), ("b.txt", "b\n"), ("sub/x.txt", "x\n"), ("sub/deep/y.txt", "y\n")):
        (work / name).write_text(text)
    return work


def app_of(folder: Path, commands: Sequence[str], *, store: str = "runs.db", overlay: ViewName = "auto") -> Upcall:
    """Return a driver, as a new process would make it, of one agent that runs these commands one after the other."""
    calls = [Call("run_command", {"command": each}) for each in commands]

    def make() -> Team:
        model = ScriptedModelClient(lambda request: [*calls, "Done."][len(request.tool_results)])
        bench = ExecutionWorkbench(folder, Bubblewrap(), overlay=overlay)
        return RoundRobinGroupChat([PausableAgent("coder", model, workbench=bench, system_message="x")], max_turns=1)

    return Upcall(store=store, team=make, settings=Settings.read(None))


async def run(bench: ExecutionWorkbench, command: str, **more: Any) -> str:
    return (await bench.call_tool("run_command", {"command": command, **more})).to_text()


# -- by effect --------------------------------------------------------------------------------------------------------


async def test_what_is_new_goes_in_at_once(folder: Path, overlay: ViewName) -> None:
    bench = ExecutionWorkbench(folder, Bubblewrap(), overlay=overlay)
    text = await run(bench, "mkdir -p new/er; echo n > new/n; ln -s ../a.txt new/l; chmod 750 new/n; cat a.txt")
    assert text.endswith("; wrote new/l, new/n]\na\n")
    assert (folder / "new" / "n").read_text() == "n\n"
    assert (folder / "new" / "n").stat().st_mode & 0o777 == 0o750
    assert os.readlink(folder / "new" / "l") == "../a.txt"
    assert (folder / "new" / "er").is_dir()


@pytest.mark.parametrize("command", ["true", "cat a.txt", "touch a.txt", "cp a.txt c; mv c a.txt", "ls -R; false"])
async def test_nothing_is_asked_for_what_changes_nothing(folder: Path, overlay: ViewName, command: str) -> None:
    before = read_tree(folder)
    await run(ExecutionWorkbench(folder, Bubblewrap(), overlay=overlay), command)
    assert read_tree(folder) == before


@pytest.mark.parametrize(
    "command",
    [
        *(
            "rm a.txt",
            "echo > a.txt",
            "rm -r sub",
            "mv sub other",
            "chmod 600 b.txt",
            "find . -delete",
            ": > sub/x.txt",
        ),
        *("rm -r sub; mkdir sub; echo z > sub/z", "rm a.txt; mkdir a.txt; echo > a.txt/x", "ln -sf b.txt a.txt"),
        *(
            "rm -r sub; echo > sub",
            "sed -i s/a/b/ *.txt",
            "tar cf t *.txt --remove-files",
            "rm -r sub/deep; mkdir sub/deep",
        ),
        *("python3 -c \"import os; os.truncate('a.txt', 0)\"", 'eval "$(echo cm0gYS50eHQ= | base64 -d)"'),
    ],
)
async def test_effect_on_foreign_files_is_asked_about_first(folder: Path, overlay: ViewName, command: str) -> None:
    before = read_tree(folder)
    with pytest.raises(UserInputRequired, match=r"Delete|Overwrite|Replace|permissions"):
        await run(ExecutionWorkbench(folder, Bubblewrap(), overlay=overlay), command)
    assert read_tree(folder) == before


@pytest.mark.slow
async def test_effect_on_own_files_needs_no_question(folder: Path, overlay: ViewName) -> None:
    bench = ExecutionWorkbench(folder, Bubblewrap(), overlay=overlay)
    before = read_tree(folder)
    for command in ("mkdir d; echo 1 > d/x", "echo 2 > d/x; echo 3 > d/y", "mv d e", "rm -r e"):
        assert "exit status 0" in await run(bench, command)
    assert read_tree(folder) == before


@pytest.mark.parametrize(
    "command", ["rm a.txt; mkdir a.txt; echo > a.txt/x", "rm -r sub; echo > sub", "ln -sf b.txt a.txt"]
)
async def test_effect_that_replaces_a_kind_is_undone(folder: Path, overlay: ViewName, command: str) -> None:
    before = read_tree(folder)
    first = await app_of(folder, [command], overlay=overlay).start("x")
    app = app_of(folder, [command], overlay=overlay)
    done = await app.answer(first.id, "yes")
    assert (done.status, done.error) == (RunStatus.COMPLETED, None)
    assert read_tree(folder).keys() != before.keys() or os.path.islink(folder / "a.txt")
    await app.changes.undo(done.id)
    assert read_tree(folder) == before


async def test_what_somebody_else_changed_since_is_theirs(folder: Path) -> None:
    bench = ExecutionWorkbench(folder, Bubblewrap())
    await run(bench, "echo 1 > own")
    (folder / "own").write_text("by hand")
    with pytest.raises(UserInputRequired):
        await run(bench, "rm own")


@pytest.mark.parametrize("link", ["/etc/passwd", "../../x", "sub/../../x", "/", "..", "/proc/self/root", "/usr/bin"])
async def test_link_that_leads_out_is_refused(folder: Path, overlay: ViewName, link: str) -> None:
    before = read_tree(folder)
    text = await run(ExecutionWorkbench(folder, Bubblewrap(), overlay=overlay), f"ln -s {link} l; echo > new")
    assert "Nothing of what it changed was kept: the link l leads out" in text
    assert read_tree(folder) == before


async def test_effect_of_a_command_is_readable_from_events(folder: Path) -> None:
    names = ["plain", "two words", "a, b", "c; wrote d", 'q"q', "e]", "new\nline"]
    emitted = await run(ExecutionWorkbench(folder, Bubblewrap()), f"touch {shlex.join(names)}; echo ']; wrote lie'")
    assert sorted(read_changed(emitted)) == sorted(names)


async def test_bits_that_give_rights_are_taken_off(folder: Path, overlay: ViewName) -> None:
    await run(
        ExecutionWorkbench(folder, Bubblewrap(), overlay=overlay), "cp /bin/true t; chmod 6755 t; mkdir d; chmod 3777 d"
    )
    assert (folder / "t").stat().st_mode & 0o7777 == 0o755
    assert (folder / "d").stat().st_mode & 0o7777 == 0o777


async def test_pipe_and_a_socket_are_left_out(folder: Path, overlay: ViewName) -> None:
    code = "import os, socket; os.mkfifo('p'); socket.socket(socket.AF_UNIX).bind('s'); open('f', 'w')"
    await ExecutionWorkbench(folder, Bubblewrap(), overlay=overlay).call_tool("run_python", {"code": code})
    assert (folder / "f").exists()
    assert not (folder / "p").exists()
    assert not (folder / "s").exists()


async def test_socket_in_the_workspace_leads_to_nobody(folder: Path, overlay: ViewName) -> None:
    code = "import socket; socket.socket(socket.AF_UNIX).connect('daemon')"
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.bind(os.path.relpath(folder / "daemon"))  # A whole path may be too long.
        daemon.listen()
        daemon.setblocking(False)
        await ExecutionWorkbench(folder, Bubblewrap(), overlay=overlay).call_tool("run_python", {"code": code})
        with pytest.raises(BlockingIOError):
            daemon.accept()


async def test_name_that_is_no_text_is_refused(folder: Path) -> None:
    text = await run(ExecutionWorkbench(folder, Bubblewrap()), "echo > $(printf '\\377')")
    assert "is not UTF-8" in text
    assert not [each for each in os.listdir(os.fsencode(folder)) if each == b"\xff"]


async def test_file_that_somebody_changed_meanwhile_is_not_overwritten(folder: Path, tmp_path: Path) -> None:
    """The command is run again, on what is there then."""
    bench = ExecutionWorkbench(folder, Bubblewrap(), consent=Consent(allow_changes=["overwrite"]))
    execute, count = Bubblewrap.run, 0

    async def meddling(self: Bubblewrap, *given: Any, **more: Any) -> Any:
        nonlocal count
        done = await execute(self, *given, **more)
        count += 1
        if count == 1:
            (folder / "a.txt").write_text("by hand\n")
        return done

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Bubblewrap, "run", meddling)
        await run(bench, "echo more >> a.txt")
    assert (count, (folder / "a.txt").read_text()) == (2, "by hand\nmore\n")


# -- over several processes -------------------------------------------------------------------------------------------

DESTROY = "date +%N > stamp; rm -r sub; echo > a.txt"
"""It comes out otherwise each time that it is run."""


async def test_effect_is_kept_as_shown_without_another_run(folder: Path, overlay: ViewName, location: str) -> None:
    before = read_tree(folder)
    first = await app_of(folder, [DESTROY], store=location, overlay=overlay).start("x")
    assert first.status is RunStatus.AWAITING_CLARIFICATION
    assert read_tree(folder) == before
    app = app_of(folder, [DESTROY], store=location, overlay=overlay)
    done = await app.answer(first.id, "yes")
    assert done.status is RunStatus.COMPLETED
    assert sorted(read_tree(folder)) == ["a.txt", "b.txt", "stamp"]
    (undone,) = await app.changes.undo(done.id)
    assert read_tree(folder) == before
    assert "too large" not in "".join(file.diff for file in undone.files)


async def test_thrown_away_nothing_happened_and_the_model_is_informed(folder: Path) -> None:
    before = read_tree(folder)
    first = await app_of(folder, [DESTROY]).start("x")
    app = app_of(folder, [DESTROY])
    done = await app.answer(first.id, "no")
    assert done.status is RunStatus.COMPLETED
    assert read_tree(folder) == before
    assert list(await app.changes.list(done.id)) == []


async def test_consent_for_the_run_covers_its_path_and_act(folder: Path) -> None:
    commands = ["rm a.txt", "touch a.txt; rm b.txt"]
    first = await app_of(folder, commands).start("x")
    (question,) = first.questions
    assert question.options[1].label == "Yes, and don't ask again about deleting a.txt in this run"
    second = await app_of(folder, commands).answer(first.id, "2")
    assert not (folder / "a.txt").exists()
    assert [each.question for each in second.questions] == ["Delete b.txt?\n| touch a.txt; rm b.txt"]


async def test_undo_works_for_ignored_files_and_git_too(folder: Path) -> None:
    """S4-52: what a turn did before or after its pause is undone."""
    (folder / ".gitignore").write_text("*.log\n")
    (folder / "x.log").write_text("log\n")
    (folder / ".git" / "refs").mkdir(parents=True)
    (folder / ".git" / "refs" / "main").write_text("1\n")
    before = read_tree(folder)
    commands = ["rm x.log; echo 2 > .git/refs/main; ln -s b.txt l; mkdir empty; chmod 700 sub"]
    first = await app_of(folder, commands).start("x")
    app = app_of(folder, commands)
    await app.answer(first.id, "yes")
    assert len(read_tree(folder)) == len(before) + 1
    await app.changes.undo(first.id)
    assert read_tree(folder) == before


# -- killed -----------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("point", command_process.POINTS)
async def test_killed_at_any_point_it_is_all_or_nothing(folder: Path, point: str, location: str) -> None:
    before = read_tree(folder)
    process = [sys.executable, command_process.__file__, str(folder), location, point]
    assert subprocess.run(process, check=False, timeout=100).returncode == -signal.SIGKILL
    if point not in ("first file", "half", "made"):
        assert read_tree(folder) == before
    app = command_process.app_of(folder, location)
    (stopped,) = await app.list()
    done = await app.resume(stopped.id)
    assert done.status is RunStatus.COMPLETED, done.error
    assert sorted(read_tree(folder)) == ["a.txt", "b.txt", "stamp"]
    assert len(await app.changes.list(done.id)) == 1
    await app.changes.undo(done.id)
    assert read_tree(folder) == before
