"""The files of a run on another machine: its own folder is made there, one that somebody named has to be there."""

from __future__ import annotations

import asyncio
import os
import platform
import shutil
import signal
import sys
from pathlib import Path

import pytest
from forked import run_code
from postgres import Server
from sandboxed import needs_bubblewrap
from worker_process import wait_for_entry, wait_for_status

from upcall import RunStatus, Settings, Upcall
from upcall.errors import WorkspaceMissing
from upcall.runs.events import FolderMissing
from upcall.runs.file_changes import Change, FileChange, FileState
from upcall.storage.change_log import StoredChanges
from upcall.storage.export import export_run, import_run
from upcall.testing import Call, Reply, Request, Say, ScriptedModelClient
from upcall.workers.worker import Worker

pytestmark = pytest.mark.needs("workspace")

SHALLOW = '{"intent": "coding", "research_depth": "shallow"}'
WORK: list[Reply] = [
    Call("write_file", {"path": "shop/a.txt", "content": "one\n"}),
    Call("write_file", {"path": "b.txt", "content": "b\n"}),
    Call("ask_user", {"question": "Which?"}),
    Call("edit_file", {"path": "shop/a.txt", "old": "one", "new": "two", "all": None}),
    Call("ask_user", {"question": "And then?"}),
    Call("edit_file", {"path": "shop/a.txt", "old": "two", "new": "three", "all": None}),
    Say({"summary": "Done."}),
]


class Coder:
    """The root team with a scripted coder, which continues behind what it has said, in whatever process."""

    def __init__(self, *work: Reply, store: str = "runs.db") -> None:
        self.work = work or WORK
        settings = Settings.read(None, workspace={"executor": "auto" if work else "none"})
        self.app = Upcall(ScriptedModelClient(self._reply), store=store, settings=settings)

    def _reply(self, request: Request) -> Reply:
        if "You are the classifier " in str(request.messages[0]["content"]):
            return SHALLOW
        return self.work[sum(each["role"] == "assistant" for each in request.messages)]


async def started(app: Upcall, workspace: Path | None = None) -> tuple[str, Path]:
    run = await app.start("Do it", workspace=workspace)
    assert run.status is RunStatus.AWAITING_CLARIFICATION, run.error
    assert run.workspace
    return run.id, run.workspace


def files(folder: Path) -> dict[str, str]:
    return {str(each.relative_to(folder)): each.read_text() for each in sorted(folder.rglob("*")) if each.is_file()}


def move_elsewhere(monkeypatch: pytest.MonkeyPatch, name: str = "elsewhere") -> None:
    monkeypatch.setattr("platform.node", lambda: name)


# -- a run's own folder -----------------------------------------------------------------------------------------------


async def test_workspace_of_a_run_is_made_where_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    run_id, folder = await started(Coder().app)
    shutil.rmtree(folder)
    move_elsewhere(monkeypatch)
    run = await Coder().app.answer(run_id, "This")
    assert (files(folder), run.error) == ({"b.txt": "b\n", "shop/a.txt": "two\n"}, None)
    assert [each.name for each in folder.parent.iterdir()] == [run_id]


async def test_workspace_that_is_behind_is_brought_up_to_date(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What somebody has changed in it meanwhile stays."""
    run_id, folder = await started(Coder().app)
    behind = shutil.copytree(folder, tmp_path / "behind")
    move_elsewhere(monkeypatch)
    await Coder().app.answer(run_id, "This")
    shutil.rmtree(folder)
    behind.rename(folder)
    (folder / "b.txt").write_text("mine\n")
    move_elsewhere(monkeypatch, "back")
    run = await Coder().app.answer(run_id, "That")
    assert (files(folder), run.status) == ({"b.txt": "mine\n", "shop/a.txt": "three\n"}, RunStatus.COMPLETED)


async def test_where_the_run_worked_last_nothing_is_put_back() -> None:
    run_id, folder = await started(Coder().app)
    (folder / "b.txt").unlink()
    await Coder().app.answer(run_id, "This")
    assert files(folder) == {"shop/a.txt": "two\n"}


@needs_bubblewrap
@pytest.mark.slow
async def test_what_a_command_wrote_travels_too() -> None:
    build = Call("run_command", {"command": "echo made > made.txt && chmod +x made.txt && ln -s made.txt link"})
    work: list[Reply] = [build, Call("ask_user", {"question": "Which?"}), Say({"summary": "Done."})]
    run_id, folder = await started(Coder(*work).app)
    shutil.rmtree(folder)
    assert (await Coder(*work).app.answer(run_id, "This")).status is RunStatus.COMPLETED
    assert files(folder) == {"link": "made\n", "made.txt": "made\n"}
    assert os.access(folder / "made.txt", os.X_OK)
    assert (folder / "link").is_symlink()


async def test_workspace_too_large_keeps_the_run_on_its_machine() -> None:
    app = Coder().app
    run_id, folder = await started(app)
    log = StoredChanges(app.store, run_id)
    large = FileChange(path="large", after=FileState(digest="0", kept=False))
    await log.record(Change(tool="run_command", folder=str(folder), files=(large,)), {})
    shutil.rmtree(folder)
    with pytest.raises(WorkspaceMissing, match="large was too large to be kept in the store"):
        await app.answer(run_id, "This")
    assert not folder.exists()


async def test_workspace_of_an_imported_run_can_be_undone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    theirs = Coder().app
    run_id, folder = await started(theirs)
    content = await export_run(theirs.store, run_id)
    monkeypatch.chdir(tmp_path)
    mine = Coder(store="mine.db").app
    run = await import_run(mine.store, content, as_new=True)
    await mine.answer(run.id, "This")
    assert files(tmp_path / "upcall-work" / run.id) == {"b.txt": "b\n", "shop/a.txt": "two\n"}
    await mine.changes.undo(run.id)
    both = [files(each)["shop/a.txt"] for each in (folder, tmp_path / "upcall-work" / run.id)]
    assert both == ["one\n", "one\n"]


async def test_workspace_of_a_fork_has_the_runs_files() -> None:
    app = Coder().app
    run_id, folder = await started(app)
    shutil.rmtree(folder)
    branch = await app.fork(run_id, (await app.get(run_id)).questions[0].id, "That")
    assert files(branch.workspace or Path()) == {"b.txt": "b\n", "shop/a.txt": "two\n"}
    shutil.rmtree(branch.workspace or "")
    with pytest.raises(WorkspaceMissing, match="contained files before the run"):
        await app.answer(branch.id, "This")


# -- one that somebody named ------------------------------------------------------------------------------------------


async def test_named_folder_has_to_be_there(tmp_path: Path) -> None:
    app = Coder().app
    run_id, folder = await started(app, tmp_path / "shop")
    away = folder.rename(tmp_path / "away")
    with pytest.raises(WorkspaceMissing, match=f"on {platform.node()} in its workspace {folder}: it does not exist"):
        await app.answer(run_id, "This")
    assert (folder.exists(), (await app.get(run_id)).status) == (False, RunStatus.AWAITING_CLARIFICATION)
    away.rename(folder)
    assert (await app.answer(run_id, "This")).error is None


@pytest.mark.slow
async def test_workspace_survives_a_kill_before_the_first_file(tmp_path: Path) -> None:
    """The change was recorded then, and not made."""
    killed = run_code(
        f"import asyncio, os, signal, sys; sys.path[:0] = {sys.path!r}\n"
        "from pathlib import Path; from test_travelling_workspaces import Coder\n"
        "from upcall.workspace.folder import Folder\n"
        "Folder.write = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
        "asyncio.run(Coder().app.start('Do it', workspace=Path(sys.argv[1])))",
        str(tmp_path / "shop"),
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    app = Coder().app
    (stopped,) = await app.list()
    run = await app.resume(stopped.id)
    assert (files(tmp_path / "shop"), run.error) == ({"b.txt": "b\n", "shop/a.txt": "one\n"}, None)


async def test_workspace_no_worker_can_take_fails_with_the_reason(tmp_path: Path) -> None:
    app = Coder().app
    run_id, folder = await started(app, tmp_path / "shop")
    away = folder.rename(tmp_path / "away")
    await app.answer(run_id, "This", wait=False)
    await app.drain()
    failed = await app.get(run_id)
    assert (failed.status, str(folder) in (failed.error or "")) == (RunStatus.FAILED, True)
    away.rename(folder)
    assert (await app.resume(run_id)).status is RunStatus.AWAITING_CLARIFICATION


@pytest.mark.slow
async def test_workspace_missing_on_workers_leaves_the_run_queued(postgres: Server, tmp_path: Path) -> None:
    app = Coder(store=postgres.new_database()).app
    run_id, folder = await started(app, tmp_path / "shop")
    away = folder.rename(tmp_path / "away")
    await app.answer(run_id, "This", wait=False)
    working = asyncio.create_task(Worker(app, grace=0).run())
    await wait_for_entry(app, run_id, FolderMissing)
    assert (await app.get(run_id)).status is RunStatus.QUEUED
    away.rename(folder)
    await wait_for_status(app, run_id, RunStatus.AWAITING_CLARIFICATION)
    working.cancel()
    await asyncio.wait([working])
    assert files(folder)["shop/a.txt"] == "two\n"
