"""An overruling that was cut off, on the page: what state the run is in, and how it is completed."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import booking
import httpx
import pytest
from autogen_agentchat.base import Team
from cryptography.fernet import Fernet
from lab import CHROMIUM, chromium
from looks import look
from playwright.async_api import Page, expect
from services import Process, serve_apart, serving, settle, start
from test_overruling_page import ASSUME, begin, read_forms
from test_overruling_page import booking as make_team
from test_web_browser import log_in
from worlds import pausing

from upcall import PausableAgent, Settings, Upcall, ask, ask_secret
from upcall.testing import Call, ScriptedModelClient

DIES = """

def make_team():
    made = Booking(Path.cwd())
    if Path("dies").exists():
        made.on_step = lambda: os.kill(os.getpid(), signal.SIGKILL)
    return made._team()
"""


async def cut_off(client: httpx.AsyncClient, site: Any) -> tuple[str, dict[str, str]]:
    """Let a run be as an overruling leaves it that was killed; return where it is, and the form of its answer."""
    at, other = await begin(client)
    head = await site.service.store.load_head(at.rpartition("/")[2])
    await site.service.store.save_head(head, head.run.update(replacing=(other["question"],)))
    client.headers["Accept"] = "text/html"
    return at, other


async def test_page_says_that_an_overruling_was_cut_off() -> None:
    async with serving(make_team([]), **ASSUME) as site, await site.caller() as client:
        at, other = await cut_off(client, site)
        page = (await client.get(at)).text
        assert "Doing it again with another answer was cut off." in page
        assert "nothing continues this run" in page
        assert "Assumed for now: Express" in page
        given = await client.post(f"{at}/answers", data=other)
        assert "it can be completed on the run&#39;s page" in given.text
        assert "Complete what was cut off" in given.text


async def test_bill_comes_before_a_cut_off_overruling_is_completed() -> None:
    booked: list[str] = []
    async with serving(make_team(booked), **ASSUME) as site, await site.caller() as client:
        at, other = await cut_off(client, site)
        key = f"{at.rpartition('/')[2]}/{other['question']}"
        lacking = await client.post(f"{at}/completion", data={"question": key})
        assert (lacking.status_code, "No answer was given to question" in lacking.text) == (422, True)
        bill = await client.post(f"{at}/completion", data={"question": key, f"own-{key}": "FastAPI"})
        assert (bill.status_code, booked, "This was begun and cut off." in bill.text) == (200, ["Express"], True)
        (replace,) = read_forms(bill.text)
        begun = await client.post(f"{at}/fork", data=replace)
        branch = await settle(client, begun.headers["Location"].rpartition("/")[2])
        assert (branch["result"], booked) == ("Built with FastAPI.", ["FastAPI"])
        assert (await client.post(f"{at}/completion", data={})).headers["Location"] == at


async def test_other_overruling_leads_to_what_was_cut_off() -> None:
    async with serving(make_team([]), **ASSUME) as site, await site.caller() as client:
        at, other = await cut_off(client, site)
        wanted = {"question": "another", "answer": "FastAPI", "key": "k", "how": "replace"}
        for how in ("", "replace"):
            led = await client.post(f"{at}/fork", data={**wanted, "how": how})
            assert (led.status_code, led.headers["Location"]) == (303, f"{at}#replacing")
        beside = await client.post(
            f"{at}/fork", data={**wanted, "question": other["question"], "how": "beside", "key": "b"}
        )
        assert (beside.status_code, "is being done again" in beside.text) == (409, True)


async def test_plan_of_a_cut_off_run_is_not_answered() -> None:
    async with serving(make_team([]), **ASSUME) as site, await site.caller() as client:
        at, other = await cut_off(client, site)
        given = await client.post(f"{at}/plan", data={"question": other["question"], "choice": "FastAPI"})
        assert "it can be completed on the run&#39;s page" in given.text


async def cut_off_asking(client: httpx.AsyncClient, site: Any) -> tuple[str, list[str]]:
    """Let a run be as if all its questions got other answers; return where it is, and its questions."""
    run = await start(client)
    if len(run["questions"][0]["options"]) > 1:
        await client.post(
            f"/api/runs/{run['run_id']}/answers", json={"answers": {run["questions"][0]["id"]: "Express"}}
        )
        await settle(client, run["run_id"])
    names = [each.id for each in (await site.service.store.load_run(run["run_id"])).records]
    head = await site.service.store.load_head(run["run_id"])
    await site.service.store.save_head(head, head.run.update(replacing=tuple(names)))
    client.headers["Accept"] = "text/html"
    return f"/runs/{run['run_id']}", [f"{run['run_id']}/{each}" for each in names]


def ask_amount() -> str:
    """Ask how much."""
    amount = {"type": "integer", "default": 2}
    return repr(ask("How much?", schema={"properties": {"amount": amount, "note": {"type": "string"}}}))


def ask_both() -> Team:
    model = ScriptedModelClient([Call("ask_user", booking.FRAMEWORK), Call("ask_amount"), "Done."])
    return pausing(PausableAgent("solo", model, tools=[ask_amount]))


async def test_refused_completion_keeps_what_was_filled_in() -> None:
    async with serving(ask_both) as site, await site.caller() as client:
        at, (plain, typed) = await cut_off_asking(client, site)
        assert f'name="as-it-stands-{typed}" value="yes" required>' in (await client.get(at)).text
        sent = {"question": [plain, typed], "typed": typed, f"field-{typed}-amount": "many"}
        sent |= {f"field-{typed}-note": "In cash", f"choice-{plain}": "FastAPI"}
        page = (await client.post(f"{at}/completion", data=sent)).text
        assert 'value="FastAPI" checked>' in page
        assert ('value="many"' in page, 'value="In cash"' in page) == (True, True)
        assert f'name="as-it-stands-{typed}" value="yes" required>' in page
        sent |= {f"choice-{plain}": ["Express", "FastAPI"], f"as-it-stands-{typed}": "yes"}
        both = (await client.post(f"{at}/completion", data=sent)).text
        assert both.count('<p class="error">') == 2
        assert f'name="as-it-stands-{typed}" value="yes" checked required>' in both


def ask_key() -> str:
    """Ask for a key."""
    return f"{len(ask_secret('Your key?'))} characters"


def ask_for_key() -> Team:
    return pausing(PausableAgent("solo", ScriptedModelClient([Call("ask_key"), "Done."]), tools=[ask_key]))


async def test_completion_with_a_secret_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_SECRET_KEY", Fernet.generate_key().decode())
    async with serving(ask_for_key) as site, await site.caller() as client:
        at, (key,) = await cut_off_asking(client, site)
        words = "A secret is among the answers"
        assert words in (await client.get(at)).text
        refused = await client.post(f"{at}/completion", data={"question": key, f"own-{key}": "sk-1"})
        assert (refused.status_code, words in refused.text, "sk-1" in refused.text) == (400, True, False)


@pytest.mark.parametrize("how", ["", "replace"])
async def test_secret_sent_for_a_branch_is_drawn_nowhere(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_SECRET_KEY", Fernet.generate_key().decode())
    async with serving(ask_for_key) as site, await site.caller() as client:
        run = await start(client)
        at, key = f"/runs/{run['run_id']}", run["questions"][0]["id"]
        await client.post(f"/api{at}/answers", json={"answers": {key: "sk-1"}})
        await settle(client, run["run_id"])
        sent = {"question": key, "answer": "sk-2", "key": "one", "how": how, "also": key, f"also-{key}": "sk-3"}
        refused = await client.post(f"{at}/fork", data=sent, headers={"Accept": "text/html"})
        assert (refused.status_code, "sk-" in refused.text) == (422 if how else 400, False)
        assert ("given two answers" if how else "which no page shows") in refused.text


async def test_secret_that_was_declined_has_no_branch_form(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_SECRET_KEY", Fernet.generate_key().decode())
    async with serving(ask_for_key) as site, await site.caller() as client:
        run = await start(client)
        at, key = f"/runs/{run['run_id']}", run["questions"][0]["id"]
        await client.post(f"{at}/answers", data={"question": key, "act": "declined"})
        await settle(client, run["run_id"])
        page = (await client.get(at, headers={"Accept": "text/html"})).text
        assert ("Your key?" in page, "/fork" in page) == (True, False)


def serve() -> Any:
    return serve_apart("--team", "own_booking:make_team", "--store", "runs.db", UPCALL_QUESTIONS__ON_ASK="assume")


async def overrule_and_die(service: Process) -> str:
    """Let a run assume two answers, and the service die while both are overruled; return the run's id."""
    async with service.caller() as client:
        run_id: str = (await settle(client, (await start(client))["run_id"]))["run_id"]
        first, second = [each["id"] for each in (await client.get("/api/questions")).json()["questions"]]
        both = {"question": first, "answer": "blue", "also": {second: "FastAPI"}, "replace": True}
        with suppress(httpx.TransportError):
            await client.post(f"/api/runs/{run_id}/fork", json=both)
    return run_id


async def complete(page: Page, run_id: str, name: str) -> None:
    """Give both answers again, look at what that does, and let what is unknown stay."""
    await page.goto(f"{page.url.rstrip('/')}/runs/{run_id}")
    await expect(page.get_by_text("Doing it again with another answer was cut off.")).to_be_visible()
    await look(page, f"{name}-run")
    await page.get_by_label("FastAPI").check()
    await page.get_by_label("blue").check()
    await page.get_by_role("button", name="Show what it does").click()
    await expect(page.get_by_role("heading", name="Other answers")).to_be_visible()
    await expect(page.get_by_text("to take it back was begun and cut off")).to_be_visible()
    await look(page, f"{name}-bill")
    await page.get_by_label("It may stay").check()
    await page.get_by_role("button", name="Complete it").click()
    await expect(page.get_by_role("status")).to_have_text("completed")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
async def test_person_completes_an_overruling_that_was_killed() -> None:
    Path("own_booking.py").write_text(Path(booking.__file__).read_text().partition("\nif __name__")[0] + DIES)
    Path("dies").touch()
    with serve() as service:
        run_id = await overrule_and_die(service)
        assert service._process.wait(timeout=60) == -signal.SIGKILL
    os.remove("dies")
    with serve() as service:
        async with chromium() as browser:
            page = await log_in(browser, service.link)
            await complete(page, run_id, "cut-off")
            await expect(page.get_by_text("Built with FastAPI in blue.")).to_be_visible()
    assert Path("booked.txt").read_text() == "FastAPI"
    app = Upcall(team=None, store="runs.db", settings=Settings.read(None))
    assert (await app.get(run_id)).replaced_by is not None
