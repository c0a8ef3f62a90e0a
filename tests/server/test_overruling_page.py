"""Another answer on the pages and over HTTP: what it costs is shown before, and the human decides."""

from __future__ import annotations

import re
from typing import Any

import httpx
import pytest
from autogen_agentchat.teams import RoundRobinGroupChat
from lab import CHROMIUM, chromium
from looks import look
from playwright.async_api import expect
from services import OPERATOR, serving, settle, start
from stores import FIRST
from test_web_browser import log_in

from upcall import Run, RunStatus, reversible
from upcall.agents import PausableAgent
from upcall.agents.toolset import Tool
from upcall.execution.team_factory import MakeTeam
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.runs.plan import PlanStep, ReviewedPlan
from upcall.testing import Call, Reply, Request, ScriptedModelClient

ASSUME: dict[str, Any] = {"questions": {"on_ask": "assume"}}
FRAMEWORK = {"question": "Which framework?", "options": ["Express", "FastAPI"], "allow_free_text": True}


def booking(booked: list[str], *, can_cancel: bool = True) -> MakeTeam:
    """Return a team whose agent asks, and books what it was answered."""

    def reply(request: Request) -> Reply:
        results = list(request.tool_results.values())
        if len(results) == 2:
            return f"Built with {results[0]}."
        return Call("book", {"name": results[0]}, "b") if results else Call("ask_user", FRAMEWORK, "a")

    async def book(name: str) -> str:
        """Book."""
        booked.append(name)
        return f"booked {name}"

    def cancel(name: str) -> None:
        booked.remove(name)

    tool: Tool = reversible(undo=cancel)(book) if can_cancel else book
    model = ScriptedModelClient(reply)
    return lambda: RoundRobinGroupChat([PausableAgent("agent", model, tools=[tool])], max_turns=1)


TOWNS = {
    "question": "Which towns?",
    "options": ["Paris, Texas", "Paris", "Texas"],
    "multi_select": True,
    "allow_free_text": True,
}


def travelling() -> MakeTeam:
    """Return a team whose agent asks for towns, and names what it was answered."""

    def reply(request: Request) -> Reply:
        return f"To {results[0]}" if (results := [*request.tool_results.values()]) else Call("ask_user", TOWNS, "a")

    model = ScriptedModelClient(reply)
    return lambda: RoundRobinGroupChat([PausableAgent("agent", model)], max_turns=1)


async def begin(client: httpx.AsyncClient) -> tuple[str, dict[str, str]]:
    """Let a run continue under an assumption; return where it is, and the form of another answer."""
    run = await start(client)
    (entry,) = (await client.get("/api/questions")).json()["questions"]
    return f"/runs/{run['run_id']}", {"question": entry["id"], "own": "FastAPI"}


def read_forms(page: str) -> list[dict[str, str]]:
    """Return the hidden fields of each form that begins a branch."""
    forms = re.findall(r'<form method="post" action="/runs/\w+/fork">(.*?)</form>', page, re.DOTALL)
    return [dict(re.findall(r'<input type="hidden" name="(\w+)" value="([^"]*)">', form)) for form in forms]


@pytest.mark.parametrize("how", ["replace", pytest.param("beside", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("chosen", "own", "selected"),
    [(["Paris", "Texas"], "", ("Paris", "Texas")), (["Paris"], "Texas, by bus", ("Paris",))],
)
async def test_several_choices_of_another_answer_stay_apart(
    chosen: list[str], own: str, selected: tuple[str, ...], how: str
) -> None:
    async with serving(travelling(), **ASSUME) as site, await site.caller() as client:
        at, other = await begin(client)
        client.headers["Accept"] = "text/html"
        bill = (await client.post(f"{at}/answers", data={**other, "choice": chosen, "own": own})).text
        first = bill.partition('/fork">')[2].partition("</form>")[0]
        parts = re.findall(r'name="answer" value="([^"]*)"', first)
        begun = await client.post(f"{at}/fork", data={**read_forms(bill)[how == "beside"], "answer": parts})
        branch = begun.headers["Location"].rpartition("/")[2]
        await settle(client, branch)
        (answer,) = (await site.service.store.load(branch)).run.answers
        assert (answer.selected, own in answer.text) == (selected, True)


async def test_other_answer_shows_its_bill_before_anything_is_done() -> None:
    booked: list[str] = []
    async with serving(booking(booked), **ASSUME) as site, await site.caller() as client:
        at, other = await begin(client)
        client.headers["Accept"] = "text/html"
        bill = await client.post(f"{at}/answers", data=other)
        assert (bill.status_code, booked) == (200, ["Express"])
        assert "Taken back before" in bill.text
        assert "agent: book({&#34;name&#34;: &#34;Express&#34;})" in bill.text
        replace, beside = read_forms(bill.text)
        assert [each["how"] for each in (replace, beside)] == ["replace", "beside"]
        begun = await client.post(f"{at}/fork", data=replace)
        assert begun.status_code == 303
        branch = await settle(client, begun.headers["Location"].rpartition("/")[2])
        assert (branch["result"], booked) == ("Built with FastAPI.", ["FastAPI"])
        assert (await client.get(f"/api{at}")).json()["replaced_by"] == branch["run_id"]
        assert "Continued with another answer as" in (await client.get(at)).text
        again = await client.post(f"{at}/fork", data={**beside, "how": ""})
        assert [each["how"] for each in read_forms(again.text)] == ["beside"]


async def test_effect_that_remains_is_allowed_by_a_tick_alone() -> None:
    booked: list[str] = []
    async with serving(booking(booked, can_cancel=False), **ASSUME) as site, await site.caller() as client:
        at, other = await begin(client)
        client.headers["Accept"] = "text/html"
        bill = (await client.post(f"{at}/answers", data=other)).text
        assert "Cannot be taken back" in bill
        assert '<input type="checkbox" name="keep" value="yes" required>' in bill
        refused = await client.post(f"{at}/fork", data=read_forms(bill)[0])
        assert (refused.status_code, booked) == (400, ["Express"])
        assert "1 effect that depended on the earlier answer cannot be taken back" in refused.text
        other_bill = {**read_forms(refused.text)[0], "keep": "yes", "seen": "of another bill"}
        assert ((await client.post(f"{at}/fork", data=other_bill)).status_code, booked) == (400, ["Express"])
        begun = await client.post(f"{at}/fork", data={**read_forms(refused.text)[0], "keep": "yes"})
        branch = await settle(client, begun.headers["Location"].rpartition("/")[2])
        assert (branch["result"], booked) == ("Built with FastAPI.", ["Express", "FastAPI"])


async def test_bill_of_a_branch_over_http() -> None:
    async with serving(booking([]), **ASSUME) as site, await site.caller() as client:
        at, other = await begin(client)
        asked = {"question": other["question"], "replace": "true"}
        plan = (await client.get(f"/api{at}/fork", params=asked)).json()
        assert plan["taken_back"] == ['agent: book({"name": "Express"})']
        assert plan["again"]["model_calls"] == {"agent": 2}
        unknown = await client.get(f"/api{at}/fork", params={"question": "none"})
        assert (unknown.status_code, "has no question" in unknown.text) == (400, True)


async def test_effects_are_kept_over_http_by_their_bill() -> None:
    booked: list[str] = []
    async with serving(booking(booked, can_cancel=False), **ASSUME) as site, await site.caller() as client:
        at, other = await begin(client)
        plan = (await client.get(f"/api{at}/fork", params={"question": other["question"], "replace": "true"})).json()
        wanted = {"question": other["question"], "answer": "FastAPI", "replace": True}
        for kept, status in ((False, 400), ("another bill", 400), (True, 422)):
            refused = await client.post(f"/api{at}/fork", json={**wanted, "keep_effects": kept})
            assert (refused.status_code, booked) == (status, ["Express"])
        begun = (await client.post(f"/api{at}/fork", json={**wanted, "keep_effects": plan["bill"]})).json()
        assert (await settle(client, begun["run_id"]))["result"] == "Built with FastAPI."
        assert booked == ["Express", "FastAPI"]


async def test_assumed_question_is_not_declined_afterwards() -> None:
    async with serving(booking([]), **ASSUME) as site, await site.caller() as client:
        at, other = await begin(client)
        client.headers["Accept"] = "text/html"
        refused = await client.post(f"{at}/answers", data={"question": other["question"], "act": "declined"})
        assert (refused.status_code, "&#39;Express&#39; was assumed" in refused.text) == (422, True)


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
@pytest.mark.parametrize("can_cancel", [True, False])
async def test_person_overrules_an_assumption_in_the_inbox(can_cancel: bool) -> None:
    booked: list[str] = []
    async with chromium() as browser, serving(booking(booked, can_cancel=can_cancel), **ASSUME) as site:
        async with await site.caller() as client:
            await begin(client)
        page = await log_in(browser, f"{site.url}/login?token={OPERATOR}")
        await expect(page.get_by_text("The run has continued with Express for now.")).to_be_visible()
        await look(page, "inbox-assumed")
        await page.get_by_role("button", name="FastAPI").click()
        await expect(page.get_by_role("heading", name="Another answer")).to_be_visible()
        await look(page, f"bill-{can_cancel}")
        if not can_cancel:
            await page.get_by_label("It may stay").check()
        await page.get_by_role("button", name="Do it again").click()
        await expect(page.get_by_role("status")).to_have_text("completed")
        await expect(page.get_by_text("Built with FastAPI.")).to_be_visible()
    assert booked == (["FastAPI"] if can_cancel else ["Express", "FastAPI"])


async def test_steps_of_a_plan_name_what_they_rest_on() -> None:
    question = Question(question="Which port?", path=("lead", "coder"))
    records = QuestionRecords((QuestionRecord(question=question, step="1").publish(),))
    step = PlanStep(step_id="1", description="Write it", name="coder")
    plan = ReviewedPlan(title="It", sections=["One"], steps=[step])
    async with serving() as site, await site.caller() as client:
        run = Run(task="T", plan=plan, records=records, status=RunStatus.AWAITING_CLARIFICATION)
        await site.service.store.create(run, FIRST)
        shown = (await client.get(f"/api/runs/{run.id}")).json()
        assert [each["rests_on"] for each in shown["plan"]["steps"]] == [[{"question": question.id, "state": "open"}]]
        page = (await client.get(f"/runs/{run.id}", headers={"Accept": "text/html"})).text
        assert f'<a href="#question-{question.id}">waits for: Which port?</a>' in page
