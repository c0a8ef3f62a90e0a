"""Harmful command lines, held by what they did: nothing that was there is gone, and nothing runs later, unasked."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from attacks import list_attacks
from places import TEST_DATA
from sandboxed import needs_bubblewrap, read_tree

from upcall.errors import UserInputRequired
from upcall.sandboxes import Bubblewrap
from upcall.sandboxes.limits import Limits
from upcall.sandboxes.views import ViewName
from upcall.workspace.commands import ExecutionWorkbench

pytestmark = needs_bubblewrap

FILES = {"a.txt": "a\n", "b.txt": "b\n", "sub/x.txt": "x\n", "sub/deep/y.txt": "y\n", ".hidden": "h\n", "-rf": "f\n"}
FILES |= {"with space.txt": "s\n", "ro.txt": "r\n", "numbers.txt": "1\n2\n3\n", "tool.sh": "#!/bin/sh\nrm a.txt\n"}
GIT = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org"]


@pytest.fixture(scope="module")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with all kinds of files in it, which its own tests never change."""
    folder = tmp_path_factory.mktemp("pristine")
    for name, text in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    with closing(sqlite3.connect(folder / "data.db")) as database, database:
        database.execute("CREATE TABLE t (x)")
    (folder / "ro.txt").chmod(0o444)
    (folder / "tool.sh").chmod(0o755)
    (folder / "empty").mkdir()
    (folder / "l").symlink_to("a.txt")
    environment = {"PATH": os.environ["PATH"], "HOME": str(folder), "GIT_TEMPLATE_DIR": ""}
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-qm", "1"], ["commit", "-qm", "2", "--allow-empty"]):
        subprocess.run([*GIT, *command], cwd=folder, check=True, env=environment)
    return folder


@pytest.fixture
def work(pristine: Path, tmp_path: Path) -> Path:
    """Return a copy of it, beside something that is not to be touched."""
    folder = shutil.copytree(pristine, tmp_path / "beside" / "work", symlinks=True)
    (folder.parent / "outside.txt").write_text("outside")
    return folder


@pytest.fixture(params=["auto", pytest.param("copy", marks=pytest.mark.slow)])
def overlay(request: pytest.FixtureRequest) -> ViewName:
    """Return the way to view the workspace: the best of this machine, and that of one without overlayfs."""
    return request.param  # type: ignore[no-any-return]


async def attack(line: str, work: Path, overlay: ViewName) -> str:
    """Return what became of a line: the question that it led to, or what the model was given."""
    for name, path in (("outside", work.parent / "outside.txt"), ("canary", work.parent / "canary")):
        line = line.replace(f"{{{name}}}", str(path))
    before = read_tree(work.parent)
    try:
        bench = ExecutionWorkbench(work, Bubblewrap(), limits=Limits(seconds=10), overlay=overlay)
        emitted = await bench.call_tool("run_command", {"command": line})
    except UserInputRequired as asked:
        assert read_tree(work.parent) == before
        return f"{asked.question}\n{asked.context}"
    after = read_tree(work.parent)
    assert {name: after.get(name) for name in before} == before
    if "not found" in emitted.to_text() or "No such file or directory: b'" in emitted.to_text():
        pytest.skip(emitted.to_text())
    return emitted.to_text()


@pytest.mark.parametrize("line", list_attacks("destroys"))
async def test_nothing_is_destroyed_unasked(line: str, work: Path, overlay: ViewName) -> None:
    assert "what this run did not make" in await attack(line, work, overlay)


@pytest.mark.parametrize("line", list_attacks("runs later"))
async def test_nothing_goes_in_unasked_that_runs_later(line: str, work: Path, overlay: ViewName) -> None:
    """A line that moves the repository's own folder is asked about as well."""
    assert "outside of the sandbox" in await attack(line, work, overlay)


@pytest.mark.parametrize("line", list_attacks("links"))
async def test_no_link_goes_in_that_leads_out(line: str, work: Path, overlay: ViewName) -> None:
    assert "leads out of the workspace" in await attack(line, work, overlay)
    assert not os.path.lexists(work / "new")


def test_table_has_hundreds_of_lines() -> None:
    lines = (TEST_DATA / "attacks.txt").read_text().splitlines()
    assert len({line for line in lines if line and not line.startswith(("[", "# "))}) >= 400
