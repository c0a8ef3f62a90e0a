"""The page that starts a task: its fields, what the service has fixed, and the demo that says that it is one."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest
from lab import CHROMIUM, chromium
from looks import look
from services import one_agent, serving, settle, start
from test_inbox_page import read
from test_web_browser import log_in
from test_web_security import find_csrf

from upcall.execution.demo import TASKS

DEMO = {"model": "demo"}
BANNER = "Demo: the replies of the model are scripted"


async def begin(client: httpx.AsyncClient, **fields: str) -> httpx.Response:
    """Send the form of the page."""
    return await client.post("/start", data={"csrf": find_csrf(await read(client, "/start")), **fields})


async def begin_run(browser: httpx.AsyncClient, api: httpx.AsyncClient, **fields: str) -> dict[str, object]:
    """Send the form of the page, and wait until its run is pausing; the run."""
    begun = await begin(browser, **fields)
    assert begun.status_code == 303, begun.text
    return dict(await settle(api, begun.headers["Location"].rpartition("/")[2]))


async def test_demo_says_so_on_every_page() -> None:
    pages = ["/", "/runs", "/start", "/docs", "/login", "/no-such-page"]
    async with serving(models=DEMO) as site, await site.browser("bob") as bob:
        assert [page for page in pages if BANNER in (await bob.get(page)).text] == pages
    async with serving(one_agent()) as site, await site.browser("bob") as bob:
        assert [page for page in pages if BANNER in (await bob.get(page)).text] == []


@pytest.mark.parametrize("task", TASKS)
async def test_demo_task_is_a_button_that_starts_it(task: str) -> None:
    async with serving(models=DEMO) as site, await site.browser("bob") as bob, await site.caller("bob") as api:
        assert f'<button class="choice" name="task" value="{task}">' in await read(bob, "/start")
        run = await begin_run(bob, api, task=task)
    assert (run["task"], run["error"]) == (task, None)


@pytest.mark.parametrize("task", [TASKS[2], "Bake bread"])
async def test_demo_names_no_shell_command_on_a_page(task: str) -> None:
    async with serving(models=DEMO) as site, await site.browser("bob") as bob, await site.caller("bob") as api:
        run = await begin_run(bob, api, task=task)
        page = await read(bob, f"/runs/{run['run_id']}")
    assert TASKS[0] in page
    assert [each for each in ("upcall run", "--model", "OPENAI_API_KEY") if each in page] == []


async def test_plan_is_reviewed_where_the_start_asks_for_it() -> None:
    async with serving(models=DEMO) as site, await site.browser("bob") as bob, await site.caller("bob") as api:
        reviewed = await begin_run(bob, api, task=TASKS[0], review_plan="yes")
        other = await begin_run(bob, api, task=TASKS[0])
        by_api = await start(api, TASKS[0], review_plan=True)
    shown = [run["questions"][0]["question"] for run in (reviewed, other, by_api)]  # type: ignore[index]
    assert ["plan" in each for each in shown] == [True, False, True]


async def test_plan_review_of_the_service_is_not_switched_off() -> None:
    reviewing = {"enable_plan_approval": True}
    async with serving(models=DEMO, planning=reviewing) as site, await site.browser("bob") as bob:
        page = await read(bob, "/start")
        async with await site.caller("bob") as api:
            run = await start(api, TASKS[0], review_plan=False)
    assert "plan" in run["questions"][0]["question"]
    assert ("you are shown it before work begins" in page, 'name="review_plan"' in page) == (True, False)


async def test_expiry_of_the_form_is_that_of_the_run() -> None:
    async with serving(models=DEMO) as site, await site.browser("bob") as bob, await site.caller("bob") as api:
        run = await begin_run(bob, api, task=TASKS[0], expires_after="2h", on_expiry="cancel")
        config = (await site.service.store.load_run(str(run["run_id"]))).config
    assert (config.expires_after, config.on_expiry) == (7200.0, "cancel")


async def test_budget_of_the_form_pauses_the_run() -> None:
    async with serving(models=DEMO) as site, await site.browser("bob") as bob, await site.caller("bob") as api:
        run = await begin_run(bob, api, task=TASKS[0], budget="3 calls")
        page = await read(bob, f"/runs/{run['run_id']}")
    assert "This run has reached its budget (3 calls)" in page
    assert "Budget: 3 of 3 calls" in page


async def test_budget_is_extended_over_the_api() -> None:
    async with serving(models=DEMO) as site, await site.caller("bob") as api:
        run = await start(api, TASKS[0], budget={"calls": 3})
        path = f"/api/runs/{run['run_id']}/answers"
        wrong = await api.post(path, json={"answers": {run["questions"][0]["id"]: "perhaps"}})
        run = (await api.post(path, json={"answers": {run["questions"][0]["id"]: "20 calls"}})).json()
        run = await settle(api, run["run_id"])
    assert (wrong.status_code, run["budget"]["limits"]) == (422, {"calls": 23})
    assert run["questions"][0]["question"] == "Which framework?"


async def test_refused_start_keeps_what_was_written() -> None:
    async with serving(models=DEMO) as site, await site.browser("bob") as bob, await site.caller("bob") as api:
        for wrong in ({"expires_after": "soon"}, {"budget": "much"}, {"task": " "}):
            fields = {"task": "Build it well", "on_expiry": "fail", "open": "yes", "key": str(wrong)} | wrong
            refused = await begin(bob, **fields)
            assert (refused.status_code, wrong) == (400, wrong)
            kept = [f"\n{fields['task']}</textarea>", '"fail" selected', 'name="open" value="yes" checked']
            assert [each for each in kept if each not in refused.text] == []
        assert (await api.get("/api/runs")).json()["runs"] == []


async def test_start_with_an_unknown_choice_is_refused() -> None:
    async with serving(models=DEMO) as site, await site.browser("bob") as bob:
        refused = await begin(bob, task="Build it", on_expiry="explode")
    assert (refused.status_code, "on_expiry" in refused.text) == (400, True)


async def test_start_page_names_model_and_no_folder(tmp_path: Path) -> None:
    models = {"model": "gpt-4o", "kinds": {"coding": "gpt-4.1"}, "base_url": "http://models.internal/v1"}
    async with serving(models=models, workspace={"path": tmp_path}) as site, await site.browser("bob") as bob:
        page = await read(bob, "/start")
    async with serving(one_agent()) as site, await site.browser("bob") as bob:
        own = await read(bob, "/start")
    assert "<dd>gpt-4o; gpt-4.1 (coder)</dd>" in page
    assert "<dd>the folder of this service</dd>" in page
    assert (str(tmp_path) in page, "models.internal" in page) == (False, False)
    assert "<dd>one of this service&#39;s own, with its models</dd>" in own


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
async def test_person_extends_a_budget_in_a_browser() -> None:
    async with chromium() as browser, serving(models=DEMO) as site:
        page = await log_in(browser, f"{site.url}/login?token=the-operator")
        await page.goto(f"{site.url}/start")
        await page.get_by_label("What is to be done?").fill(TASKS[0])
        await page.get_by_label("Ask before the run uses more than").fill("3 calls")
        await page.get_by_role("button", name="Start", exact=True).click()
        await page.get_by_text("This run has reached its budget").first.wait_for()
        await look(page, "budget")
        await page.get_by_role("button", name="Continue with as much again").first.click()
        await page.get_by_text("Budget: 6 of 6 calls").first.wait_for()
