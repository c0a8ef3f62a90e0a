"""A question with several fields at the doors of the service: HTTP, AG-UI, and the command line beside it."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
import trips
from autogen_agentchat.base import Team
from lab import CHROMIUM, chromium, looking
from looks import look
from playwright.async_api import expect
from scenario import upcall
from services import OPERATOR, serving, settle, start
from test_inbox_page import read
from test_web_browser import log_in
from test_web_security import find_csrf
from trips import BAD_VALUES, BOOKED, BOOKED_AS_CLEARED, TRIP, Trip, make_team
from worlds import pausing

from upcall import PausableAgent, ask
from upcall.testing import Call, ScriptedModelClient


def flatten(values: dict[str, Any]) -> dict[str, Any]:
    """Return a trip with the address in fields of its own."""
    rest = {name: value for name, value in values.items() if name != "address"}
    return {**rest, **{f"address.{name}": value for name, value in values["address"].items()}}


@pytest.fixture
def own_team() -> None:
    """Put the team into a module of the current folder, where each process finds it."""
    Path("own_trips.py").write_text(Path(trips.__file__).read_text())


@pytest.mark.slow
async def test_typed_answer_over_http_is_refused_by_field() -> None:
    async with serving(make_team) as site, await site.caller("alice") as alice:
        asked = await start(alice)
        (question,) = asked["questions"]
        assert question["answer_schema"] == Trip.model_json_schema()
        path = f"/api/runs/{asked['run_id']}/answers"
        for name, value, message in BAD_VALUES:
            given = {"answers": {question["id"]: {**TRIP, name: value}}}
            refused = await alice.post(path, json=given)
            assert (refused.status_code, refused.json()["fields"]) == (422, {name: message})
        given = {"outcome": "answered", "fields": {**TRIP, "remark": ""}}
        assert (await alice.post(path, json={"answers": {question["id"]: given}})).status_code == 200
        assert (await settle(alice, asked["run_id"]))["result"] == BOOKED_AS_CLEARED


def ask_outcome() -> str:
    """Ask how it went."""
    rule = {"type": "string"}
    return repr(ask("How did it go?", schema={"properties": {"outcome": rule, "text": rule}, "required": ["outcome"]}))


@pytest.mark.slow
async def test_fields_named_like_an_outcome_are_answered_over_http() -> None:
    def team() -> Team:
        return pausing(PausableAgent("solo", ScriptedModelClient([Call("ask_outcome"), "Done."]), tools=[ask_outcome]))

    async with serving(team) as site, await site.caller("alice") as alice:
        asked = await start(alice)
        path, name = f"/api/runs/{asked['run_id']}/answers", asked["questions"][0]["id"]
        fields = {"outcome": "skipped", "text": "nobody came"}
        refused = await alice.post(path, json={"answers": {name: {"outcome": "answered", "text": "good"}}})
        assert refused.status_code == 422
        assert "outcome is skipped or declined; to fill in fields of these names" in refused.json()["detail"]
        envelope = {"outcome": "answered", "fields": fields}
        assert (await alice.post(path, json={"answers": {name: envelope}})).status_code == 200
        await settle(alice, asked["run_id"])
        stored = (await site.service.store.load(asked["run_id"])).run
        assert json.loads(stored.answers[0].text) == fields


def paint() -> str:
    """Paint it."""
    return ask("Which color?", ["red", "blue"], on_ask="assume").text


@pytest.mark.slow
async def test_wait_asked_for_over_http_comes_before_the_tool() -> None:
    def team() -> Team:
        return pausing(PausableAgent("solo", ScriptedModelClient([Call("paint"), "Done."]), tools=[paint]))

    async with serving(team) as site, await site.caller("alice") as alice:
        asked, assumed = await start(alice, on_ask="wait"), await start(alice)
        assert [each["question"] for each in asked["questions"]] == ["Which color?"]
        assert assumed["status"] == "completed"


async def post(me: httpx.AsyncClient, run: str, **more: Any) -> dict[str, Any]:
    """Make one run of AG-UI; its last event."""
    body = {"threadId": "thread", "runId": run, "messages": [], **more}
    response = await me.post("/agui", json=body)
    last: dict[str, Any] = [json.loads(each[6:]) for each in response.text.splitlines() if each.startswith("data: ")][
        -1
    ]
    return last


@pytest.mark.slow
async def test_typed_question_is_an_interrupt_with_its_schema() -> None:
    async with serving(make_team) as site, await site.caller() as me:
        asked = await post(me, "1", messages=[{"id": "m", "role": "user", "content": "Book it"}])
        (interrupt,) = asked["outcome"]["interrupts"]
        assert interrupt["responseSchema"] == Trip.model_json_schema()
        answer = {"interruptId": interrupt["id"], "status": "resolved"}
        for name, value, message in [*BAD_VALUES, ("", 5, "is not an answer: send an object of its fields")]:
            payload = {**TRIP, name: value} if name else value
            refused = await post(me, "2", resume=[{**answer, "payload": payload}])
            assert refused["code"] == ("fields-refused" if name else "answer-refused")
            assert message in refused["message"]
        done = await post(me, "3", resume=[{**answer, "payload": TRIP}])
        assert done["result"] == BOOKED


@pytest.mark.slow
def test_typed_answer_is_json_on_the_command_line(own_team: None) -> None:
    asked = upcall("run", "Book it", "--team", "own_trips:make_team", "--store", "runs.db", "--json").json
    run_id, (question,) = asked["run_id"], asked["questions"]
    assert question["answer_schema"]["required"] == ["traveller", "start", "address"]
    for given in ('{"start": "soon"}', "soon"):
        refused = upcall("answer", run_id, given, "--store", "runs.db", "--json")
        assert refused.status == 2
        assert "address" in refused.err
    by_id = upcall("answer", run_id, f"{question['id']}={json.dumps(TRIP)}", "--store", "runs.db", "--json")
    assert by_id.json["result"] == BOOKED


@pytest.mark.slow
def test_typed_answer_is_read_from_standard_input(own_team: None) -> None:
    run_id = upcall("run", "Book it", "--team", "own_trips:make_team", "--store", "runs.db", "--json").json["run_id"]
    given = json.dumps(flatten(TRIP), indent=1)
    assert upcall("answer", run_id, "-", "--store", "runs.db", "--json", given=given).json["result"] == BOOKED


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("place", ["run", "inbox"])
async def test_page_draws_fields_and_keeps_what_was_entered(place: str) -> None:
    async with serving(make_team) as site, chromium() as browser, looking(browser, width=360) as (page, _):
        async with await site.caller() as me:
            asked = await start(me)
        await page.goto(f"{site.url}/login")
        await page.get_by_label("Your token").fill(OPERATOR)
        await page.keyboard.press("Enter")
        await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
        if place == "run":
            await page.goto(f"{site.url}/runs/{asked['run_id']}")
        await expect(page.get_by_label("Number of nights")).to_have_value("2")
        await look(page, f"typed-{place}")
        wrong = {"Number of nights": "many", "Price": "cheap", "Address: City": "O", "Address: Zip": "12"}
        for label, text in wrong.items():
            await page.get_by_label(label).fill(text)
        await page.get_by_label("Seat").select_option("aisle")
        await page.get_by_label("bag").check()
        await page.get_by_label("Remark").fill("")
        await page.get_by_label("Flexible").select_option("")
        await page.get_by_role("button", name="Answer").click()
        await expect(page.get_by_role("alert")).to_contain_text("start: Field required")
        for label, text in wrong.items():
            await expect(page.get_by_label(label)).to_have_value(text)
            await expect(page.get_by_label(label)).to_have_attribute("aria-invalid", "true")
        await expect(page.get_by_label("Seat")).to_have_value("aisle")
        await expect(page.get_by_label("bag")).to_be_checked()
        await expect(page.get_by_label("Remark")).to_have_value("")
        await expect(page.get_by_label("Flexible")).to_have_value("")
        await expect(page.get_by_text("String should have at least 2 characters", exact=True)).to_be_visible()
        await look(page, f"typed-{place}-wrong")
        right = {
            "Traveller": "Ada Byron",
            "Number of nights": "2",
            "Start": "2026-03-01",
            "Price": "",
            "Address: Zip": "",
        }
        for label, text in {**right, "Address: City": "Oslo"}.items():
            await page.get_by_label(label).fill(text)
        await page.get_by_label("Seat").select_option("window")
        await page.get_by_label("Flexible").select_option("No")
        await page.get_by_role("button", name="Answer").click()
        async with await site.caller() as me:
            await expect(page.get_by_label("Traveller")).to_have_count(0)
            assert (await settle(me, asked["run_id"]))["result"] == BOOKED_AS_CLEARED


def read_form(page: str) -> dict[str, Any]:
    """Return what a browser sends of the form for many answers, as it stands: texts, dates and what is selected."""
    fields: dict[str, Any] = {"csrf": find_csrf(page)}
    for name in ("question", "typed"):
        fields[name] = re.findall(rf'<input type="hidden" name="{name}" value="([^"]+)">', page)
    texts = re.findall(r'<input id="[^"]+" type="\w+"[^>]*? value="([^"]*)" name="([^"]+)"', page)
    for at, chosen in re.findall(
        r'<select id="[^"]+" name="([^"]+)".*?<option value="([^"]*)" selected', page, re.DOTALL
    ):
        fields[at] = chosen
    longer = re.findall(r'<textarea id="[^"]+" rows="\d+" name="([^"]+)"[^>]*>\n?(.*?)</textarea>', page, re.DOTALL)
    fields |= {name: re.sub(r"\r\n|\r|\n", "\r\n", unescape(value)) for name, value in longer}
    return fields | {name: re.sub(r"[\r\n]", "", unescape(value)) for value, name in texts}


async def test_typed_question_among_many_is_answered_by_its_fields() -> None:
    async with serving(make_team) as site, await site.browser("alice") as alice, await site.caller("alice") as api:
        first, second = await start(api, "First"), await start(api, "Second")
        sent = read_form(await read(alice, "/?several=1"))
        at = f"field-{first['run_id']}/{first['questions'][0]['id']}"
        assert (sent[f"{at}-nights"], sent[f"{at}-remark"]) == ("2", "No smoking")
        sent |= {f"{at}-traveller": "Ada Byron", f"{at}-start": "2026-03-01", f"{at}-address.city": "Oslo"}
        done = await alice.post("/answers?several=1", data=sent)
        assert (done.status_code, done.headers["Location"]) == (303, "/?answered=1")
        assert (await settle(api, first["run_id"]))["result"] == BOOKED
        assert (await api.get(f"/api/runs/{second['run_id']}")).json()["status"] == "awaiting_clarification"


async def test_refused_fields_among_many_keep_what_was_entered() -> None:
    async with serving(make_team) as site, await site.browser("alice") as alice, await site.caller("alice") as api:
        run = await start(api)
        sent = read_form(await read(alice, "/?several=1"))
        at = f"{run['run_id']}/{run['questions'][0]['id']}"
        refused = await alice.post("/answers?several=1", data={**sent, f"field-{at}-nights": "many"})
        assert (refused.status_code, 'value="many"' in refused.text) == (422, True)
        assert "Input should be a valid integer, unable to parse string as an integer</p>" in refused.text
        assert f'name="as-it-stands-{at}" value="yes">' in refused.text
        as_it_stands = await alice.post("/answers?several=1", data={**sent, f"as-it-stands-{at}": "yes"})
        assert (as_it_stands.status_code, "start: Field required" in as_it_stands.text) == (422, True)
        assert f'name="as-it-stands-{at}" value="yes" checked>' in as_it_stands.text
        assert (await alice.post("/answers?several=1", data=sent)).headers["Location"] == "/?several=1&answered=0"


async def test_untouched_fields_of_missing_runs_are_left_out() -> None:
    async with serving(make_team) as site, await site.browser("alice") as alice, await site.caller("alice") as api:
        run = await start(api)
        sent = read_form(await read(alice, "/?several=1"))
        for at in (f"gone/{run['questions'][0]['id']}", f"{run['run_id']}/gone"):
            fields = {**sent, "question": at, "typed": at}
            untouched = await alice.post("/answers?several=1", data=fields)
            assert untouched.headers["Location"] == "/?several=1&answered=0"
            ticked = await alice.post("/answers?several=1", data={**fields, f"as-it-stands-{at}": "yes"})
            assert (ticked.status_code, "1 answer did not hold" in ticked.text) == (422, True)


def ask_to_send() -> str:
    """Ask whether a mail is sent."""
    mail = {"type": "string", "default": "Dear Ada,\r\nall is well."}
    sign = {"type": "string", "default": "Yours\rBob"}
    send = {"type": "boolean", "default": True}
    return repr(ask("Send it?", schema={"properties": {"mail": mail, "sign": sign, "send": send}}))


def mailing() -> Team:
    return pausing(PausableAgent("solo", ScriptedModelClient([Call("ask_to_send"), "Done."]), tools=[ask_to_send]))


async def test_untouched_fields_with_line_breaks_leave_question_open() -> None:
    async with serving(mailing) as site, await site.browser("alice") as alice, await site.caller("alice") as api:
        run = await start(api)
        sent = read_form(await read(alice, "/?several=1"))
        at = f"field-{run['run_id']}/{run['questions'][0]['id']}"
        assert (sent[f"{at}-mail"], sent[f"{at}-send"]) == ("Dear Ada,\r\nall is well.", "Yes")
        assert sent[f"{at}-sign"] == "Yours\r\nBob"
        untouched = await alice.post("/answers?several=1", data=sent)
        assert untouched.headers["Location"] == "/?several=1&answered=0"
        assert (await api.get(f"/api/runs/{run['run_id']}")).json()["status"] == "awaiting_clarification"
        changed = await alice.post("/answers?several=1", data={**sent, f"{at}-send": "No"})
        assert changed.headers["Location"] == "/?answered=1"


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
async def test_typed_question_among_many_is_filled_in_a_browser() -> None:
    async with serving(make_team) as site, chromium() as browser, await site.caller() as me:
        asked, _ = await start(me, "First"), await start(me, "Second")
        page = await log_in(browser, f"{site.url}/login?token={OPERATOR}")
        await page.goto(f"{site.url}/?several=1")
        await look(page, "typed-several")
        (question,) = asked["questions"]
        card = page.locator(f"[id='question-{asked['run_id']}-{question['id']}']")
        for label, text in {"Traveller": "Ada Byron", "Start": "2026-03-01", "Address: City": "Oslo"}.items():
            await card.get_by_label(label).fill(text)
        await page.get_by_role("button", name="Send all answers").click()
        await expect(page.get_by_role("status")).to_have_text("1 answer is sent.")
        await expect(page.locator("article")).to_have_count(1)
        assert (await settle(me, asked["run_id"]))["result"] == BOOKED
