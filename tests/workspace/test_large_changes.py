"""What a command leaves that nobody can judge: it is refused in one line, and stops no later command."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

import pytest
from deep_trees import make_deep
from sandboxed import needs_bubblewrap, skip_without_overlay

from upcall.errors import UserInputRequired
from upcall.sandboxes import Bubblewrap
from upcall.sandboxes.views import ViewName
from upcall.workspace import changes, stages
from upcall.workspace.commands import ExecutionWorkbench
from upcall.workspace.stages import Stage, open_stages

pytestmark = needs_bubblewrap

DEEP = "python3 -c \"import os\nfor _ in range(1500): os.mkdir('d'); os.chdir('d')\""
LONG = "python3 -c \"import os\nfor _ in range(20): os.mkdir('n' * 240); os.chdir('n' * 240)\""


@pytest.fixture(params=["kernel", "fuse", "copy"])
def overlay(request: pytest.FixtureRequest, tmp_path: Path) -> ViewName:
    skip_without_overlay(request.param, tmp_path)
    return request.param  # type: ignore[no-any-return]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "work").mkdir()
    return tmp_path / "work"


async def run(folder: Path, command: str, overlay: ViewName = "auto") -> str:
    bench = ExecutionWorkbench(folder, Bubblewrap(), overlay=overlay)
    return (await bench.call_tool("run_command", {"command": command})).to_text()


@pytest.mark.parametrize("command", [pytest.param(DEEP, marks=pytest.mark.slow), LONG])
async def test_change_too_deep_to_judge_is_refused(folder: Path, overlay: ViewName, command: str) -> None:
    emitted = await run(folder, f"touch a; {command}", overlay)
    assert "[Nothing of what it changed was kept: " in emitted
    assert os.listdir(folder) == os.listdir(open_stages(folder)) == []
    assert "alive" in await run(folder, "echo alive", overlay)


async def test_change_of_too_many_names_is_refused(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "MAX_NAMES", 20)
    emitted = await run(folder, "touch $(seq 30)")
    assert "it changes more than 20 files and folders]" in emitted
    assert os.listdir(folder) == []


async def test_removal_of_a_tree_too_deep_is_refused(folder: Path, overlay: ViewName) -> None:
    (folder / "old").mkdir()
    make_deep(folder / "old", 120)
    emitted = await run(folder, "rm -r old", overlay)
    assert "deep in one another" in emitted
    assert (folder / "old").exists()


async def test_folder_without_permissions_keeps_its_contents(folder: Path, overlay: ViewName) -> None:
    await run(folder, "mkdir -p out/in; echo x > out/in/x; chmod 0 out/in; chmod 0 out", overlay)
    assert (folder / "out" / "in" / "x").read_text() == "x\n"
    assert (folder / "out" / "in").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ("mkfifo p; touch x", ["x"]),
        ("python3 -c \"import socket; socket.socket(socket.AF_UNIX).bind('s')\"; touch x", ["x"]),
        ("ln -s loop loop; ln -s . here; touch x", ["here", "loop", "x"]),
        (f"touch {'n' * 240}", ["n" * 240]),
        ("touch $(printf 'a\\377b') x", []),
    ],
)
async def test_odd_names_stop_no_command(folder: Path, overlay: ViewName, command: str, left: list[str]) -> None:
    await run(folder, command, overlay)
    assert sorted(os.listdir(folder)) == left
    assert "alive" in await run(folder, "echo alive", overlay)


@pytest.mark.slow
async def test_stage_of_any_depth_stops_no_later_command(folder: Path) -> None:
    old = open_stages(folder) / "old"
    old.mkdir()
    make_deep(old, 1_500)
    os.utime(old, (time.time() - 8 * 86_400,) * 2)
    assert "alive" in await run(folder, "echo alive")
    assert not old.exists()


async def test_stage_that_cannot_be_removed_stops_no_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (folder / "a").write_text("a")
    old = open_stages(folder) / "old"
    old.mkdir()
    os.utime(old, (time.time() - 8 * 86_400,) * 2)
    monkeypatch.setattr(stages, "remove_tree", lambda path: not path.exists())
    for _ in range(2):
        with pytest.raises(UserInputRequired):
            await run(folder, "rm a")
        assert "alive" in await run(folder, "echo alive")
    assert f"The folder {old} cannot be removed" in caplog.records[0].message
    assert len([each for each in caplog.records if str(old) in each.message]) == 1


def test_stage_that_cannot_be_removed_is_moved_aside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stages, "remove_tree", lambda path: not path.exists())
    logging.disable()
    stage = Stage(tmp_path / "one")
    stage.open(1)
    stage.open()
    logging.disable(logging.NOTSET)
    assert stage.count_begun() == 0
    assert len(list(tmp_path.iterdir())) == 2
