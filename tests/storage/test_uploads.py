"""What came along for runs goes with them, and not before, on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest
from postgres import Server
from stores import FIRST, execute

from upcall.runs.config import RootTeamConfig, RunConfig
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.storage.maintenance import prune
from upcall.storage.store import RunStore
from upcall.storage.uploads import UploadsFull

LIMIT = 1_000


async def send(store: RunStore, run_id: str) -> Path:
    """Return the path of a document that was sent for a run."""
    folder = await store.uploads.reserve(run_id, 4, LIMIT)
    folder.mkdir(parents=True, exist_ok=True)
    document = folder / "a.txt"
    document.write_text("text")
    return document


async def add(store: RunStore, run_id: str, *documents: Path) -> Run:
    """Return a stored run that is over, and reads documents."""
    team = RootTeamConfig(workspace=Path("/work"), documents=[str(each) for each in documents])
    run = Run(id=run_id, task="read it", status=RunStatus.COMPLETED, config=RunConfig(team=team))
    return (await store.create(run, FIRST)).run


def make_old(location: str) -> None:
    execute(location, "update upcall_uploads set at = at - 90000")


def list_rows(location: str) -> list[str]:
    return [run_id for (run_id,) in execute(location, "select run_id from upcall_uploads order by run_id")]


async def test_documents_go_with_the_run_that_is_deleted(location: str) -> None:
    store = RunStore(location)
    gone, other = await send(store, "gone"), await send(store, "other")
    await add(store, "gone", gone)
    await add(store, "other", other)
    await store.delete("gone")
    assert (gone.parent.exists(), other.exists(), list_rows(location)) == (False, True, ["other"])


@pytest.mark.parametrize("is_folder", [False, True])
async def test_documents_stay_while_another_run_reads_them(location: str, is_folder: bool) -> None:
    """One that follows has them as they are; whoever starts one may name their folder."""
    store = RunStore(location)
    document = await send(store, "first")
    await add(store, "first", document)
    await add(store, "next", document.parent if is_folder else document)
    await store.delete("first")
    assert document.exists()
    make_old(location)
    await store.delete("next")
    assert (document.parent.exists(), list_rows(location)) == (False, [])


async def test_uploads_of_a_failed_start_expire_after_a_day(location: str) -> None:
    store = RunStore(location)
    old = await send(store, "old")
    make_old(location)
    starting = await send(store, "starting")  # Its run is stored after its documents.
    assert (await prune(store)).uploads == ["old"]
    assert (old.parent.exists(), starting.exists(), list_rows(location)) == (False, True, ["starting"])


async def test_documents_that_were_sent_again_meanwhile_stay(location: str) -> None:
    store = RunStore(location)
    document = await send(store, "again")
    make_old(location)
    unused = await store.uploads.find_unused()
    await send(store, "again")
    assert (len(unused), await store.uploads.remove(unused), document.exists()) == (1, [], True)


async def test_dry_run_says_which_documents_would_go(location: str) -> None:
    store = RunStore(location)
    document = await send(store, "over")
    await add(store, "over", document)
    planned = await prune(store, statuses=[RunStatus.COMPLETED], dry_run=True)
    assert (planned.runs, planned.uploads, document.exists()) == (["over"], ["over"], True)
    done = await prune(store, statuses=[RunStatus.COMPLETED])
    assert (done, document.parent.exists()) == (planned, False)


async def test_damaged_run_keeps_no_documents_of_others(location: str) -> None:
    store = RunStore(location)
    document = await send(store, "first")
    await add(store, "first", document)
    await add(store, "damaged")
    execute(location, "update upcall_runs set record = ? where id = 'damaged'", b"\xa5" * 40)
    await store.delete("first")
    assert not document.parent.exists()


async def test_documents_together_have_a_limit(location: str) -> None:
    store = RunStore(location)
    await store.uploads.reserve("one", 600, LIMIT)
    await store.uploads.reserve("one", 700, LIMIT)  # In the place of the first, as a request that is repeated.
    with pytest.raises(
        UploadsFull, match=r"have 700 bytes, with these 1,001, .* upcall store prune .* server\.uploads_limit"
    ):
        await store.uploads.reserve("two", 301, LIMIT)
    await store.uploads.reserve("two", 300, LIMIT)


async def test_what_cannot_be_removed_is_tried_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    location = str(tmp_path / "upcall.db")
    store = RunStore(location)
    document = await send(store, "kept")
    make_old(location)
    folder, away = store.uploads.folder, tmp_path / "away"
    folder.rename(away)
    folder.mkdir()
    (folder / "kept").symlink_to(away / "kept")  # shutil.rmtree follows no link.
    assert ((await prune(store)).uploads, list_rows(location)) == ([], ["kept"])
    assert "files of run kept cannot be removed" in caplog.text
    (folder / "kept").unlink()
    folder.rmdir()
    away.rename(folder)
    assert ((await prune(store)).uploads, document.parent.exists()) == (["kept"], False)


async def test_copy_of_a_store_owns_no_documents(tmp_path: Path) -> None:
    store = RunStore(tmp_path / "upcall.db")
    document = await send(store, "run")
    await add(store, "run", document)
    await store.close()
    (tmp_path / "copy.db").write_bytes((tmp_path / "upcall.db").read_bytes())
    await prune(RunStore(tmp_path / "copy.db"), statuses=[RunStatus.COMPLETED])
    assert document.exists()


@pytest.mark.slow
async def test_server_is_pruned_where_the_documents_are(
    postgres: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    postgres_url = postgres.new_database()
    store = RunStore(postgres_url)
    document = await send(store, "old")
    make_old(postgres_url)
    here = Path.cwd()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert ((await prune(store)).uploads, list_rows(postgres_url)) == ([], ["old"])
    assert "prune where the service runs" in caplog.text
    monkeypatch.chdir(here)
    assert ((await prune(store)).uploads, document.parent.exists()) == (["old"], False)
