"""The results so far, while an experiment runs."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from trial_world import experiment, reply

from upcall.errors import ConfigurationError
from upcall.experiments import live
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
