"""What goes wrong around workers in the middle of runs: they wait and continue, nothing is lost and nothing done
twice."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cut_line import line_to
from fleet import make_team
from postgres import Server, ordinary_user
from worker_process import (
    answer,
    finish,
    kill,
    notes,
    open_app,
    running,
    start,
    wait_for,
    wait_for_call,
    wait_for_pause,
)

from upcall import RunStatus, Settings, Upcall

pytestmark = pytest.mark.slow


def assert_noted_once(runs: int) -> None:
    assert sorted(notes().split()[1::4]) == ["first"] * runs + ["second"] * runs


@pytest.mark.parametrize("silently", [False, True], ids=["refused", "silent"])
async def test_worker_whose_connection_breaks_loses_runs_and_returns(silently: bool, postgres: Server) -> None:
    location = postgres.new_database()
    app = open_app(location)
    async with line_to(postgres.port) as line:
        with running(location.replace(f":{postgres.port}/", f":{line.port}/"), FLEET_TIMEOUT_S="1") as workers:
            runs = [await app.submit("Build it") for _ in range(3)]
            for each in runs:
                await answer(app, each.id)
            await wait_for_call(app, runs[0].id)
            line.cut(silently=silently)
            workers.append(start(location))
            done = [await finish(app, each.id) for each in runs]
            line.mend()
            kill(workers[1])
            done.append(await finish(app, (await app.submit("Build it")).id))
    assert [each.status for each in done] == [RunStatus.COMPLETED] * 4
    assert_noted_once(4)


class SmallDisk:
    """A disk of some megabytes that can be filled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def fill(self) -> None:
        with suppress(OSError), (self.folder / "filler").open("ab", buffering=0) as file:
            while file.write(bytes(4096)):
                pass

    def free(self) -> None:
        (self.folder / "filler").unlink()


@pytest.fixture
def small_disk() -> Iterator[SmallDisk]:
    folder = Path(tempfile.mkdtemp())  # PostgreSQL does not get into the folder of the tests.
    folder.chmod(0o755)
    command = ["mount", "-t", "tmpfs", "-o", "size=24m", "tmpfs", str(folder)]
    try:
        if subprocess.run(command, capture_output=True, check=False).returncode:
            pytest.skip("a file system cannot be mounted here")
        yield SmallDisk(folder)
    finally:
        subprocess.run(["umount", "-l", folder], check=False, capture_output=True)
        folder.rmdir()


@contextmanager
def database_on(disk: SmallDisk, postgres: Server) -> Iterator[str]:
    """Yield an empty database whose tables are on a disk."""
    data = disk.folder / "data"
    data.mkdir()
    owner = ordinary_user()
    if owner:
        shutil.chown(data, owner["user"], owner["group"])
    postgres.run(f"CREATE TABLESPACE small LOCATION '{data}'")
    location = postgres.new_database()
    name = location.rpartition("/")[2]
    try:
        postgres.run(f"ALTER DATABASE {name} SET TABLESPACE small")
        yield location
    finally:
        postgres.run(f"DROP DATABASE {name} WITH (FORCE)")
        postgres.run("DROP TABLESPACE small")


async def test_workers_wait_for_a_disk_that_is_full(small_disk: SmallDisk, postgres: Server) -> None:
    with database_on(small_disk, postgres) as location:
        app = open_app(location)
        runs = [await app.submit("Build it") for _ in range(12)]
        with running(location, 2):
            for each in runs:
                await wait_for_pause(app, each.id)
        for each in runs:
            await app.answer(each.id, "Express", wait=False)
        with running(location, 2, FLEET_TIMEOUT_S="1"):
            await wait_for_call(app, runs[0].id)
            small_disk.fill()
            await wait_for(lambda: "No space left" in Path("worker.log").read_text())
            small_disk.free()
            done = [await finish(app, each.id) for each in runs]
    assert [(each.status, each.error) for each in done] == [(RunStatus.COMPLETED, None)] * 12
    assert_noted_once(12)


async def test_process_waits_for_a_disk_that_is_full(
    small_disk: SmallDisk, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("FLEET_MODEL_DELAY_S", "0.1")
    app = Upcall(store=small_disk.folder / "runs.db", team=make_team, settings=Settings(queue={"concurrency": 2}))
    runs = [await app.submit("Build it") for _ in range(6)]
    small_disk.fill()
    await wait_for(lambda: "is full" in caplog.text)
    small_disk.free()
    await app.drain()
    done = [await finish(app, each.id) for each in runs]
    assert [(each.status, each.error) for each in done] == [(RunStatus.COMPLETED, None)] * 6
    assert_noted_once(6)
