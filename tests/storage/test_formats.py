"""Every released format: its kept stores are opened, answered and completed by this version and by a later one, and
what is stored keeps its shape as long as the format keeps its number."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import golden_stores
import made_up_format
import pytest
from golden_runs import RUNS, finish
from golden_stores import NEWEST, in_folder_of_runs, list_formats, list_shapes, open_exports, read_shapes, read_used
from guests import list_guests

from upcall import RunStatus
from upcall.storage.maintenance import check
from upcall.storage.store import RunStore
from upcall.storage.upgrading import upgrade_store

pytestmark = pytest.mark.needs("research", "workspace")

FORMATS = list_formats()
STORED = [(number, name) for number in FORMATS for name in read_used(number)]


@pytest.fixture
def folder() -> Iterator[None]:
    with in_folder_of_runs():
        yield


async def end(number: int, name: str, location: str) -> None:
    """Take a kept run to its end, and look at the whole store."""
    run_id, used = read_used(number)[name]
    run = await finish(name, run_id, location, used)
    assert (run.status, run.error) == (RunStatus.COMPLETED, None)
    assert RUNS[name].result in str(run.result)
    assert (await check(RunStore(location))).problems == []


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("number", "name"), STORED)
async def test_run_of_each_format_is_completed(number: int, name: str) -> None:
    golden_stores.open_file(number, "runs.db")
    await end(number, name, "runs.db")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("number", "name"), STORED)
async def test_exported_run_of_each_format_is_completed(number: int, name: str) -> None:
    await open_exports(number, "runs.db")
    await end(number, name, "runs.db")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("number", "name"), STORED)
async def test_run_of_each_format_is_completed_on_a_server(postgres: Any, number: int, name: str) -> None:
    location = postgres.new_database()
    golden_stores.open_server(number, location)
    await end(number, name, location)


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("number", "name"), STORED)
async def test_run_of_each_format_is_completed_by_the_next(
    monkeypatch: pytest.MonkeyPatch, number: int, name: str
) -> None:
    """A changed table, a changed state of every agent, a new dictionary."""
    golden_stores.open_file(number, "runs.db")
    made_up_format.use(monkeypatch)
    await end(number, name, "runs.db")


@pytest.mark.slow
@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(("number", "name"), STORED)
async def test_run_of_each_format_completes_on_a_server(
    postgres: Any, monkeypatch: pytest.MonkeyPatch, number: int, name: str
) -> None:
    location = postgres.new_database()
    golden_stores.open_server(number, location)
    made_up_format.use(monkeypatch)
    await upgrade_store(RunStore(location), contract=True)
    await end(number, name, location)


def test_each_format_is_kept() -> None:
    assert [*range(1, NEWEST + 1)] == FORMATS
    assert {*read_used(NEWEST)} == {*RUNS}


def test_what_is_stored_keeps_its_shape() -> None:
    """For what to do where it does not, see docs/contributing/releasing.md."""
    kept, now = read_shapes(NEWEST), list_shapes()
    assert {name: digest for name, digest in now.items() if kept.get(name) != digest} == {}
    assert {*kept} == {*now} or list_guests(missing=True)
