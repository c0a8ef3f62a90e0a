"""The results so far, while an experiment runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from trial_world import experiment, reply

from upcall.errors import ConfigurationError, StoreUnavailable
from upcall.experiments import live
from upcall.experiments.budget import Cost
from upcall.experiments.progress import ExperimentProgress
from upcall.experiments.results import Results
from upcall.testing import ScriptedModelClient


class PatientModel(ScriptedModelClient):
    """Waits before its call `number` until somebody has seen that a trial is done."""

    def __init__(self, number: int) -> None:
        super().__init__(reply)
        self.seen, self._left = asyncio.Event(), number

    async def create(self, *args: Any, **options: Any) -> Any:
        self._left -= 1
        if self._left == 0:
            await self.seen.wait()
        return await super().create(*args, **options)


def results_of(done: int) -> Results:
    """Return the results of an experiment under way."""
    cost = Cost(tokens=done)
    return Results("trial", 4, [], cost=cost, progress=ExperimentProgress(done, 4, 0, cost, None))


def load_each(*loaded: Results | Exception) -> Callable[[], Awaitable[Results]]:
    """Return a function that returns or raises what is given, in turn."""
    left = [*loaded]

    async def load() -> Results:
        found = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(found, Exception):
            raise found
        return found

    return load


async def test_results_so_far_are_shown_while_trials_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SHOW_INTERVAL_S", 0.01)
    model, loop, seen = PatientModel(4), asyncio.get_running_loop(), list[Results]()

    def watch(results: Results) -> None:
        seen.append(results)
        if results.records:
            loop.call_soon_threadsafe(model.seen.set)

    tried = experiment(4, policies=["never"], models={"patient": model}, parallel=1)
    done = await tried.run(watcher=watch)
    assert (seen[0].records, len(done.records), done.progress) == ([], 4, None)
    under_way = next(each for each in seen if each.records)
    assert under_way.progress is not None
    assert 0 < under_way.progress.done == len(under_way.samples) < under_way.progress.total


async def test_page_under_way_shows_how_far_it_is(tmp_path: Path) -> None:
    page, pages = tmp_path / "report.html", list[str]()

    def watch(results: Results) -> None:
        results.write(page)
        pages.append(page.read_text())

    done = await experiment(2, policies=["never"]).run(watcher=watch)
    assert "0 of 2 trials; 0 tokens" in pages[0]
    assert "No trial is done yet." in pages[0]
    done.write(page)
    assert "Under way" not in page.read_text()
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith(".")] == []


async def test_page_that_cannot_be_written_stops_before_paying(tmp_path: Path) -> None:
    model = ScriptedModelClient(reply)
    (tmp_path / "taken").write_text("a file, no folder")
    with pytest.raises(ConfigurationError, match="cannot be written"):
        await experiment(2, models={"counted": model}).run(
            watcher=lambda results: results.write(tmp_path / "taken" / "report.html")
        )
    assert model.requests == []


async def test_results_are_shown_after_an_error_of_the_store(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(live, "SHOW_INTERVAL_S", 0.001)
    monkeypatch.setattr(live, "WAIT_RATIO", 0)
    loop, is_shown, seen = asyncio.get_running_loop(), asyncio.Event(), list[Results]()

    def watch(results: Results) -> None:
        seen.append(results)
        if len(seen) == 2:
            loop.call_soon_threadsafe(is_shown.set)

    load = load_each(results_of(0), StoreUnavailable("The store is gone."), results_of(1))
    async with live.show_results(load, watch):
        await asyncio.wait_for(is_shown.wait(), 30)
    assert [each.progress.done for each in seen if each.progress] == [0, 1]
    assert "The results so far cannot be shown: The store is gone." in caplog.text


async def test_interrupted_experiment_is_no_longer_shown_as_under_way() -> None:
    model, seen = PatientModel(2), list[Results]()
    tried = experiment(4, policies=["never"], models={"patient": model}, parallel=1)
    running = asyncio.create_task(tried.run(watcher=seen.append))
    while len(model.requests) < 1:
        await asyncio.sleep(0.01)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert seen[0].progress is not None
    assert (seen[-1].progress, seen[-1].stopped) == (None, live.INTERRUPTED)


async def test_results_loaded_last_are_shown_if_the_store_interrupts() -> None:
    gone, seen = StoreUnavailable("The store is gone."), list[Results]()
    with pytest.raises(StoreUnavailable):
        async with live.show_results(load_each(results_of(0), gone), seen.append):
            raise gone
    assert seen == [results_of(0), replace(results_of(0), progress=None, stopped=live.INTERRUPTED)]


async def test_results_wait_as_long_as_the_first_took(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "SHOW_INTERVAL_S", 0.001)
    monkeypatch.setattr(live, "WAIT_RATIO", 10**9)
    seen = list[Results]()
    async with live.show_results(load_each(results_of(0), results_of(1)), seen.append):
        await asyncio.sleep(0.1)
    assert seen == [results_of(0)]
