"""The page of an experiment in Chromium, from a file: its samples filtered, sorted, opened, and without scripts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from lab import CHROMIUM, chromium
from looks import look
from playwright.async_api import Page, expect
from trial_world import experiment

from upcall.experiments.progress import ExperimentProgress
from upcall.experiments.results import Results

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]


@asynccontextmanager
async def opened(path: Path, *, scripts: bool = True) -> AsyncIterator[tuple[Page, list[str]]]:
    """Yield a page that was opened from its file, and what it asked for beside itself."""
    asked: list[str] = []
    async with chromium() as browser:
        context = await browser.new_context(java_script_enabled=scripts)
        page = await context.new_page()
        page.on("request", lambda request: asked.append(request.url))
        await page.goto(path.as_uri())
        yield page, asked


async def write(results: Results, path: Path, compared: Results | None = None) -> Path:
    results.write(path / "report.html", compared=compared)
    return path / "report.html"


async def test_samples_are_filtered_sorted_and_opened(tmp_path: Path) -> None:
    path = await write(await experiment(8).run(), tmp_path)
    async with opened(path) as (page, asked):
        rows = page.locator("#sample-table tbody tr:visible")
        await expect(page.get_by_role("status")).to_have_text("32 of 32 samples")
        await page.get_by_label("Policy").select_option("always")
        await page.get_by_label("Text, in messages too").fill("written: rust, gpl")
        await expect(rows).to_have_count(0)
        await page.get_by_label("Text, in messages too").fill("written: rust, mit")
        await expect(page.get_by_role("status")).to_have_text("4 of 32 samples")
        await page.get_by_role("button", name="task").click()
        await expect(rows.locator("td:first-child")).to_have_text(["task-1", "task-3", "task-5", "task-7"])
        await page.get_by_role("button", name="task").click()
        await rows.get_by_role("link", name="task-5").click()
        await expect(page.get_by_role("heading", name="task-5, always")).to_be_visible()
        await expect(page.locator(".sample:target .question").first).to_contain_text("Which language? (Python, Rust)")
        await page.get_by_role("link", name="Next").click()
        await expect(page.get_by_role("heading", name="task-3, always")).to_be_visible()
        await page.reload()
        await page.get_by_role("link", name="All samples").click()
        await expect(rows).to_have_count(4)
        assert {*asked} == {path.as_uri()}  # It was loaded again.


async def test_page_without_scripts_shows_every_sample(tmp_path: Path) -> None:
    results = await experiment(2).run()
    path = await write(results, tmp_path)
    async with opened(path, scripts=False) as (page, _):
        await expect(page.locator("#filter")).to_be_hidden()
        for record in results.records:
            await page.locator(f'#sample-table a[href="#s-{record.trial}"]').click()
            await expect(page.get_by_role("heading", name=f"{record.task}, {record.policy}")).to_be_visible()
            await expect(page.locator("#overview")).to_be_hidden()
            await page.get_by_role("link", name="All samples").click()


async def test_page_of_experiment_looks_right(tmp_path: Path) -> None:
    results = await experiment(8, pages="http://127.0.0.1:8000").run(what_if=True)
    other = await experiment(8, name="other", policies=["always", "never"], user={"unknown": 0.7}).run()
    async with opened(await write(results, tmp_path)) as (page, _):
        await look(page, "report")
        await page.locator("#sample-table a").first.click()
        await look(page, "sample")
    async with opened(await write(results, tmp_path, other)) as (page, _):
        await look(page, "compared")
        await page.locator("#sample-table a").first.click()
        await look(page, "compared-sample")


async def test_page_under_way_loads_itself_again(tmp_path: Path) -> None:
    results = await experiment(4).run()
    first = replace(results, records=results.records[:3], samples=results.samples[:3])
    under_way = ExperimentProgress(3, 16, 0, results.cost, None)
    path = await write(replace(first, progress=under_way), tmp_path)
    async with opened(path) as (page, _):
        await page.clock.install()
        await page.reload()
        await expect(page.get_by_text("Under way")).to_be_visible()
        again = page.get_by_label("load it again by itself")
        await again.uncheck()
        await look(page, "under-way")
        await again.check()
        await page.get_by_role("searchbox", name="Task").fill("task-0")
        await page.get_by_role("heading", name="Experiment trial").click()
        await write(replace(results, progress=under_way), tmp_path)
        await page.clock.fast_forward(6_000)
        await expect(page.get_by_role("status")).to_have_text("4 of 16 samples")
        await page.locator("#sample-table tr:visible a").first.click()
        await write(results, tmp_path)
        await page.clock.fast_forward(60_000)
        await expect(page.get_by_text("Under way")).to_have_count(1)
        await page.get_by_role("link", name="All samples").click()
        await page.clock.fast_forward(6_000)
        await expect(page.get_by_text("Under way")).to_have_count(0)
