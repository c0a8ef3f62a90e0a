"""Experiments that were run before, as pages: from the settings, and in the service, for those who may read them."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from lab import CHROMIUM, chromium
from looks import look
from playwright.async_api import expect

from upcall import Settings
from upcall.errors import ConfigurationError
from upcall.experiments import Experiment
from upcall.experiments.folder import hold_folder
from upcall.experiments.stored import StoredExperiments, make_pages
from upcall.extensions import find_added

FILE = """
tasks: [{id: small, task: Write it in Rust, expect: "Written: Rust, MIT"}, {id: other, task: Write a <b>game</b>}]
teams: {solo: "trial_world:make_team"}
policies: [never, always]
models: {script: {replies: "trial_world:reply"}}
"""


async def store(name: str, *, limit: int | None = None) -> Path:
    """Run an experiment, or the first trials of it; its file."""
    path = Path(f"{name}.yaml")
    path.write_text(FILE)
    await Experiment.read(path).run(limit=limit)
    return path


def pages_of(*files: Path) -> StoredExperiments:
    made = make_pages(Settings.read(None, experiments={"files": [*files]}))
    assert made is not None
    return made


async def render(pages: StoredExperiments, name: str, **query: str) -> str:
    page = await pages.render(name, "/added/experiments", query)
    assert page is not None
    return page.html


def test_settings_without_files_make_no_pages() -> None:
    assert make_pages(Settings.read(None)) is None
    assert "experiments" in find_added("pages")


def test_files_of_the_same_name_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="have the same name"):
        pages_of(Path("one/study.yaml"), Path("two/study.yaml"))


async def test_list_says_what_each_experiment_is_about() -> None:
    path = await store("first")
    Path("never_run.yaml").write_text(FILE)
    listed = await pages_of(path, Path("never_run.yaml"), Path("gone.yaml")).list()
    assert [each.name for each in listed] == ["first", "never_run", "gone"]
    assert listed[0].about == "2 tasks, 1 team, 2 policies, 1 model: 4 trials"
    assert "There are no results of never_run" in listed[1].about
    assert "gone.yaml" in listed[2].about


async def test_page_has_samples_and_links_to_others() -> None:
    pages = pages_of(await store("first"), await store("second"))
    page = await render(pages, "first")
    assert page.count('<article class="sample"') == 4
    assert '<a href="/added/experiments">All experiments</a>' in page
    assert '<a href="/added/experiments/first?beside=second">Beside second</a>' in page
    assert [each for each in ("<b>game</b>", "upcall transcript", "runs.db") if each in page] == []
    beside = await render(pages, "first", beside="second")
    assert beside.count('<section aria-label="second">') == 4


async def test_stored_results_are_shown_without_their_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    beside = Path("study").absolute()
    beside.mkdir()
    module, path = beside / "gone_world.py", beside / "first.yaml"
    module.write_text("from trial_world import make_team, reply")
    path.write_text(FILE.replace("trial_world", "gone_world"))
    with monkeypatch.context() as inside:
        inside.chdir(beside)
        await Experiment.read(path).run()
    module.unlink()
    monkeypatch.delitem(sys.modules, "gone_world")
    pages = pages_of(path)
    assert (await pages.list())[0].about == "2 tasks, 1 team, 2 policies, 1 model: 4 trials"
    assert (await render(pages, "first")).count('<article class="sample"') == 4


@pytest.mark.parametrize(("name", "query"), [("none", {}), ("first", {"beside": "none"}), ("../first", {})])
async def test_page_of_an_unlisted_experiment_is_missing(name: str, query: dict[str, str]) -> None:
    Path("first.yaml").write_text(FILE)
    assert await pages_of(Path("first.yaml")).render(name, "/added/experiments", query) is None


async def test_page_says_that_the_experiment_is_under_way() -> None:
    path = await store("first", limit=1)
    pages = pages_of(path)
    before = await render(pages, "first")
    with hold_folder(Experiment.read(path).home):
        while_held = await render(pages, "first")
    assert ("Under way" in before, "Under way" in while_held) == (False, True)
    assert "1 of 4 trials" in while_held


async def test_page_is_rendered_again_when_trials_ended() -> None:
    path = await store("first", limit=1)
    pages = pages_of(path)
    first, again = await render(pages, "first"), await render(pages, "first")
    await Experiment.read(path).run()
    assert (first is again, "4 of 4 trials" in await render(pages, "first")) == (True, True)


async def test_looking_keeps_no_start_from_its_folder() -> None:
    path = await store("first", limit=1)
    pages, looking = pages_of(path), True

    async def look_on() -> None:
        while looking:
            await render(pages, "first")

    others = asyncio.create_task(look_on())
    results = [await Experiment.read(path).run(limit=number) for number in (2, 3, 4)]
    looking = False
    await others
    assert [len(each.records) for each in results] == [2, 3, 4]


@pytest.fixture
def services() -> Any:
    """Return what serves, where the guest that does is here."""
    pytest.importorskip("upcall.server")
    return pytest.importorskip("services")


async def test_service_shows_experiments_to_its_operator_alone(services: Any) -> None:
    files = [await store("first")]
    async with services.serving(experiments={"files": files}) as site, await site.caller() as operator:
        listed = await operator.get("/added/experiments")
        shown = await operator.get("/added/experiments/first")
        async with await site.browser("bob") as bob:
            hidden = [await bob.get(f"/added/experiments{each}") for each in ("", "/first")]
            navigation = (await bob.get("/runs")).text
        missing = await operator.get("/added/experiments/none")
    assert ([each.status_code for each in hidden], missing.status_code) == ([404, 404], 404)
    assert ("/added/experiments/first" in listed.text, "/added" in navigation) == (True, False)
    [in_page] = re.findall(r'http-equiv="Content-Security-Policy" content="([^"]+)"', shown.text)
    policy = shown.headers["Content-Security-Policy"]
    assert policy.partition("; form-action")[0] == in_page.replace("&#39;", "'")


async def test_service_without_experiments_has_no_such_page(services: Any) -> None:
    async with services.serving() as site, await site.caller() as operator:
        assert (await operator.get("/added/experiments")).status_code == 404
        assert "Experiments" not in (await operator.get("/runs")).text


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
async def test_person_reads_an_experiment_in_the_service(services: Any) -> None:
    files = [await store("first"), await store("second")]
    async with chromium() as browser, services.serving(experiments={"files": files}) as site:
        page, refused = await browser.new_page(), list[str]()
        page.on("console", lambda message: refused.append(message.text))
        await page.goto(f"{site.url}/login?token={services.OPERATOR}")
        await page.get_by_role("navigation").get_by_role("link", name="Experiments").click()
        await look(page, "experiments")
        await page.get_by_role("link", name="first").click()
        await look(page, "experiment-served")
        await page.get_by_label("Policy").select_option("always")
        await expect(page.get_by_role("status")).to_have_text("2 of 4 samples")
        await page.get_by_role("link", name="Beside second").click()
        await page.locator("#sample-table a").first.click()
        await expect(page.locator(".sample:target section", has_text="Conversation")).to_have_count(2)
        await page.get_by_role("link", name="All samples").click()
        await page.get_by_role("link", name="All experiments").click()
        await expect(page.get_by_role("heading", name="Experiments")).to_be_visible()
        assert refused == []
