"""Files of a run whose assumption is overruled: what depended on it is put back before its branch begins."""

from __future__ import annotations

from pathlib import Path

import pytest

from upcall import Outcome, Run, Settings, Upcall
from upcall.errors import EffectsRemain

TASK = "Build me a user authentication system"


@pytest.fixture
def app(tmp_path: Path) -> Upcall:
    settings = Settings.read(None, models={"model": "demo"}, questions={"on_ask": "assume"})
    return Upcall(store=tmp_path / "runs.db", settings=settings)


async def start(app: Upcall, **options: object) -> tuple[Run, Path, str]:
    """Return a run of the demo that has assumed Express, its folder, and its question."""
    run = await app.start(TASK, **options)  # type: ignore[arg-type]
    assert run.workspace is not None
    (entry,) = await app.inbox()
    return run, run.workspace, entry.question.id


def names(folder: Path) -> set[str]:
    return {each.name for each in folder.iterdir()}


async def test_files_of_the_assumption_are_put_back(app: Upcall, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "package.json").write_text("mine")
    (folder / "notes.txt").write_text("mine")
    run, _, question = await start(app, workspace=folder)
    assert names(folder) == {"notes.txt", "package.json", "server.js"}
    plan = await app.forks.plan(run.id, question, replace=True)
    assert (plan.effects, sorted(plan.taken_back or ())) == ((), ["package.json", "server.js"])
    branch = await app.fork(run.id, question, "FastAPI", replace=True)
    assert branch.status == "completed"
    assert "server.js" not in names(folder)
    assert {(folder / name).read_text() for name in ("package.json", "notes.txt")} == {"mine"}
    await app.changes.undo(branch.id)


async def test_branch_has_its_own_folder_and_history(app: Upcall) -> None:
    run, _, question = await start(app)
    branch = await app.fork(run.id, question, "FastAPI", replace=True)
    assert branch.workspace is not None
    assert branch.workspace.name == branch.id
    assert "server.js" not in names(branch.workspace)
    changed = await app.changes.list(branch.id)
    assert {each.folder for each in changed} == {str(branch.workspace)}
    again = await app.fork(branch.id, question, "Django", replace=True)
    assert again.status == "completed"
    assert await app.inbox() == []


async def test_file_changed_by_somebody_else_remains(app: Upcall) -> None:
    run, folder, question = await start(app)
    (folder / "server.js").write_text("theirs")
    with pytest.raises(EffectsRemain, match=r"server\.js: somebody has changed it since"):
        await app.fork(run.id, question, "FastAPI", replace=True)
    assert (folder / "server.js").read_text() == "theirs"
    branch = await app.fork(run.id, question, "FastAPI", replace=True, keep_effects=True)
    assert branch.workspace is not None
    assert (branch.workspace / "server.js").read_text() == "theirs"


async def test_steps_show_what_they_rest_on(app: Upcall) -> None:
    run = await app.start(TASK)
    assert "    rests on: Which framework? Express (assumed for now)" in str(run).splitlines()
    (asked,) = [each for each, answer in run.assumptions if answer.outcome is Outcome.ASSUMED]
    branch = await app.fork(run.id, asked.id, "FastAPI", replace=True)
    assert "    rests on: Which framework? FastAPI" in str(branch).splitlines()
    waiting = await app.start(TASK, on_ask="wait")
    while waiting.questions[0].asker != "coder":
        waiting = await app.answer(waiting.id, "Approve")
    assert "    waits for: Which framework?" in str(waiting).splitlines()
