"""Many questions answered in one form of the inbox: each answer holds or is refused by itself."""

from __future__ import annotations

import re
from collections.abc import Mapping

import httpx
import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from lab import CHROMIUM, chromium
from looks import look
from playwright.async_api import expect
from services import ASK, one_agent, serving, settle, start
from test_inbox_page import ask, read
from test_overruling_page import ASSUME, FRAMEWORK
from test_web_browser import log_in
from test_web_security import find_csrf

from upcall import PausableAgent
from upcall.testing import Call, Calls, Reply, Request, ScriptedModelClient

COLORS = {"question": "Which colors?", "options": ["red", "green", "blue"], "multi_select": True}


def key(run: Mapping[str, object], at: int = 0) -> str:
    """Name a question of a run as the form does."""
    return f"{run['run_id']}/{run['questions'][at]['id']}"  # type: ignore[index]


async def send(client: httpx.AsyncClient, fields: Mapping[str, object]) -> httpx.Response:
    """Send the form for many questions, with a question for each field."""
    keys = [each.partition("-")[2] for each in fields]
    page = await read(client, "/?several=1")
    return await client.post("/answers?several=1&text=", data={"csrf": find_csrf(page), "question": keys, **fields})


def read_hidden(page: str, run_id: str) -> dict[str, list[str]]:
    """Return what the first form that begins a branch of a run sends."""
    (form, *_) = re.findall(rf'<form method="post" action="/runs/{run_id}/fork">(.*?)</form>', page, re.DOTALL)
    found: dict[str, list[str]] = {}
    for name, value in re.findall(r'<input type="hidden" name="([^"]+)" value="([^"]*)">', form):
        found.setdefault(name, []).append(value)
    return found


async def answers(client: httpx.AsyncClient, run: Mapping[str, object]) -> list[str]:
    run_id = str(run["run_id"])
    await settle(client, run_id)
    return re.findall(r'<p class="pre"><strong>(.*?)</strong>', await read(client, f"/runs/{run_id}"))


async def begin(client: httpx.AsyncClient) -> tuple[Mapping[str, object], Mapping[str, object]]:
    return await start(client, "First"), await start(client, "Second")


async def test_answers_of_several_runs_hold_from_one_form() -> None:
    async with serving(one_agent(ASK, ASK, "Done.", "Done.")) as site, await site.browser("bob") as bob:
        async with await site.caller("bob") as api:
            first, second = await begin(api)
        sent = await send(bob, {f"choice-{key(first)}": "Express", f"own-{key(second)}": "Django"})
        assert (sent.status_code, sent.headers["Location"]) == (303, "/?answered=2")
        assert "2 answers are sent." in await read(bob, sent.headers["Location"])
        assert [await answers(bob, each) for each in (first, second)] == [["Express"], ["Django"]]


async def test_refused_answer_is_named_and_the_others_hold() -> None:
    async with serving(one_agent(ASK, ASK, "Done.")) as site, await site.browser("bob") as bob:
        async with await site.caller("bob") as api:
            first, second = await begin(api)
        fields = {f"choice-{key(first)}": ["Express", "FastAPI"], f"choice-{key(second)}": "FastAPI"}
        sent = await send(bob, fields)
        assert sent.status_code == 422
        assert re.findall(r"<li>“(.*?)”: ", sent.text) == ["Which framework?"]
        assert "1 answer is sent." in sent.text
        assert 'value="Express" checked> <span>Express' in sent.text
        assert [await answers(bob, each) for each in (first, second)] == [[], ["FastAPI"]]


async def test_questions_of_one_run_are_answered_together() -> None:
    both = Calls([ASK, Call("ask_user", COLORS)])
    async with serving(one_agent(both, "Done.")) as site, await site.browser("bob") as bob:
        async with await site.caller("bob") as api:
            run = await start(api)
        names = [key(run, at) for at, _ in enumerate(run["questions"])]
        fields: dict[str, object] = {f"choice-{names[0]}": "Express"} | {f"choice-{each}": "red" for each in names[1:]}
        assert (await send(bob, fields)).status_code == 303
        assert (await answers(bob, run))[0] == "Express"


async def test_good_answer_holds_beside_a_refused_one() -> None:
    async with serving(one_agent(ASK, "Done.")) as site, await site.browser("bob") as bob:
        async with await site.caller("bob") as api:
            run = await start(api)
        fields = {f"choice-{key(run)}": "Express", f"own-{run['run_id']}/unknown": "yes"}
        sent = await send(bob, fields)
        assert (sent.status_code, "“unknown”" in sent.text, "1 answer is sent." in sent.text) == (422, True, True)
        assert await answers(bob, run) == ["Express"]


async def test_form_sent_twice_answers_once() -> None:
    async with serving(one_agent(ASK, "Done.")) as site, await site.browser("bob") as bob:
        async with await site.caller("bob") as api:
            run = await start(api)
        fields = {f"choice-{key(run)}": "Express"}
        assert [(await send(bob, fields)).status_code for _ in range(2)] == [303, 303]
        other = await send(bob, {f"choice-{key(run)}": "FastAPI"})
        assert (other.status_code, "Which framework?" in other.text) == (422, True)
        assert await answers(bob, run) == ["Express"]


async def test_question_of_somebody_else_is_refused_and_not_shown() -> None:
    async with serving(one_agent(ASK)) as site, await site.browser("mallory") as mallory:
        run_id = await ask(site, "Which secret port?", user="alice")
        question = (await site.service.store.load_run(run_id)).questions[0].id
        sent = await send(mallory, {f"own-{run_id}/{question}": "80"})
        assert (sent.status_code, "secret port" in sent.text) == (422, False)
        assert (await site.service.store.load(run_id)).version == 1


async def test_form_with_thousands_of_fields_is_read() -> None:
    async with serving(one_agent(ASK, "Done.")) as site, await site.browser("bob") as bob:
        async with await site.caller("bob") as api:
            run = await start(api)
        fields = {f"own-{run['run_id']}/{number}": "" for number in range(2_000)}
        sent = await send(bob, {**fields, f"choice-{key(run)}": "Express"})
        assert (sent.status_code, sent.headers["Location"]) == (303, "/?answered=1")


async def test_empty_form_for_many_changes_nothing() -> None:
    async with serving() as site, await site.browser("bob") as bob:
        run_id = await ask(site, "Which port?")
        sent = await send(bob, {f"own-{run_id}/x": "  "})
        assert (sent.status_code, sent.headers["Location"]) == (303, "/?several=1&answered=0")


def reply_to_both(request: Request) -> Reply:
    """Ask two questions at once, and name what they were answered."""
    results = [*request.tool_results.values()]
    return " and ".join(results) or Calls([Call("ask_user", FRAMEWORK, "a"), Call("ask_user", COLORS, "b")])


def asking_twice() -> Team:
    return RoundRobinGroupChat([PausableAgent("agent", ScriptedModelClient(reply_to_both))], max_turns=1)


async def list_assumed(client: httpx.AsyncClient) -> dict[str, list[str]]:
    """Return the open questions by their runs, each as the form names it."""
    found: dict[str, list[str]] = {}
    for each in (await client.get("/api/questions")).json()["questions"]:
        found.setdefault(each["run_id"], []).append(f"{each['run_id']}/{each['id']}")
    return found


async def test_several_assumptions_are_overruled_from_one_form() -> None:
    async with (
        serving(asking_twice, **ASSUME) as site,
        await site.browser("bob") as bob,
        await site.caller("bob") as api,
    ):
        runs = [(await start(api, task))["run_id"] for task in ("First", "Second")]
        (framework, colors), (other, _) = map((await list_assumed(api)).__getitem__, runs)
        fields = {f"choice-{framework}": "FastAPI", f"choice-{colors}": ["green", "blue"], f"choice-{other}": "FastAPI"}
        sent = await send(bob, fields)
        assert (sent.status_code, "3 answers are other than what was assumed." in sent.text) == (200, True)
        assert "See the cost of 2 other answers: First" in sent.text
        assert "See the cost of 1 other answer: Second" in sent.text
        assert "did not hold" not in sent.text
        assert 'value="green" checked>' in sent.text
        bill = await bob.post(f"/runs/{runs[0]}/fork", data=read_hidden(sent.text, runs[0]))
        assert (bill.status_code, bill.text.count("Assumed for now: ")) == (200, 2)
        begun = await bob.post(f"/runs/{runs[0]}/fork", data=read_hidden(bill.text, runs[0]))
        branch = await settle(api, begun.headers["Location"].rpartition("/")[2])
        assert (branch["result"], branch["status"]) == ("FastAPI and green, blue", "completed")
        assert [*await list_assumed(api)] == [runs[1]]


async def test_assumptions_of_others_are_not_overruled() -> None:
    async with (
        serving(asking_twice, **ASSUME) as site,
        await site.browser("eve") as eve,
        await site.caller("bob") as api,
    ):
        await start(api, "Secret task")
        ((framework, colors),) = (await list_assumed(api)).values()
        sent = await send(eve, {f"choice-{framework}": "FastAPI", f"choice-{colors}": "blue"})
        assert (sent.status_code, "2 answers did not hold" in sent.text) == (422, True)
        assert ("/fork" in sent.text, "Secret task" in sent.text) == (False, False)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("scripts", [True, False])
async def test_many_answers_are_filled_in_by_keys_alone(scripts: bool) -> None:
    async with chromium() as browser, serving(one_agent(ASK, ASK, "Done.", "Done.")) as site:
        page = await (await browser.new_context(java_script_enabled=scripts)).new_page()
        await page.goto(f"{site.url}/login?token=the-operator")
        async with await site.caller() as api:
            first, second = await begin(api)
            await page.goto(site.url)
            await page.get_by_role("link", name="Answer several at once").press("Enter")
            if scripts:
                await look(page, "several")
            await page.get_by_label("Express").first.press("Space")
            await page.get_by_label("Or in your own words").last.fill("Django")
            await page.get_by_role("button", name="Send all answers").press("Enter")
            await expect(page.get_by_role("status")).to_have_text("2 answers are sent.")
            states = [(await settle(api, str(each["run_id"])))["status"] for each in (first, second)]
    assert states == ["completed", "completed"]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
async def test_refused_form_stays_live_with_what_is_filled_in() -> None:
    async with chromium() as browser, serving(one_agent(ASK, ASK)) as site, await site.caller() as api:
        page = await log_in(browser, f"{site.url}/login?token=the-operator")
        await start(api)
        await page.goto(f"{site.url}/?several=1")
        await page.get_by_label("Or in your own words").fill("7")
        await page.get_by_role("button", name="Send all answers").click()
        await expect(page.get_by_role("alert")).to_contain_text("1 answer did not hold")
        second = await start(api)
        await expect(page.locator("article")).to_have_count(2)
        await expect(page.get_by_label("Or in your own words").first).to_have_value("7")
        cancelled = await api.post(f"/api/runs/{second['run_id']}/cancel")
        assert cancelled.status_code == 200, cancelled.text
        await expect(page.locator("article")).to_have_count(1)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
async def test_empty_form_for_many_takes_a_question_that_comes() -> None:
    async with chromium() as browser, serving(one_agent(ASK, "Done.")) as site, await site.caller() as api:
        page = await log_in(browser, f"{site.url}/login?token=the-operator")
        await page.goto(f"{site.url}/?several=1")
        send_all = page.get_by_role("button", name="Send all answers")
        await expect(send_all).to_be_hidden()
        run = await start(api)
        await page.get_by_label("Express").check()
        await send_all.click()
        await expect(page.get_by_role("status")).to_have_text("1 answer is sent.")
        assert (await settle(api, str(run["run_id"])))["status"] == "completed"
