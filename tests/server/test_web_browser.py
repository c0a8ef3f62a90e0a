"""The pages in Chromium, on a real server: the whole journey, without scripts too, at two widths, light and dark."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from lab import CHROMIUM, chromium, looking
from looks import look
from playwright.async_api import Browser, Page, expect
from scenario import TASK, upcall
from services import serve_apart, serving, settle, start
from stores import FIRST
from worlds import at_once, model_of, team_of

from upcall import Run, identity
from upcall.questions.question import Option, Question
from upcall.questions.record import QuestionRecords
from upcall.runs.states import RunStatus
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.server.tokens import create_token
from upcall.server.views import MAX_ENTRIES
from upcall.storage.transcripts import write_transcript
from upcall.testing import Call

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]

REVIEWED = {"enable_plan_approval": True}


async def log_in(browser: Browser, address: str) -> Page:
    page = await (await browser.new_context()).new_page()
    await page.goto(address)
    await expect(page.get_by_role("heading", name="Inbox")).to_be_visible()
    return page


async def test_task_is_started_answered_killed_resumed_and_forked(tmp_path: Path) -> None:
    secret = upcall("token", "create", "alice", "--json").json["secret"]
    async with chromium() as browser:
        with serve_apart("--model", "demo", UPCALL_PLANNING__ENABLE_PLAN_APPROVAL="true") as process:
            async with looking(browser) as (page, elsewhere):
                await page.goto(process.url)
                await look(page, "login")
                await page.get_by_label("Your token").fill(secret)
                await page.keyboard.press("Enter")
                await expect(page.get_by_text("You have no open questions.")).to_be_visible()
                await page.get_by_role("navigation").get_by_role("link", name="Start a task").click()
                await look(page, "start")
                await page.get_by_label("What is to be done?").fill(TASK)
                await page.get_by_role("button", name="Start").click()
                await expect(page.get_by_role("status")).to_have_text("awaiting clarification")
                await look(page, "plan-review")
                address = page.url.replace(process.url, "")
                other = await log_in(browser, process.link)
                await expect(other.get_by_text(TASK)).to_be_visible()
                await look(other, "inbox")
                await page.get_by_role("button", name="Approve").first.click()
                await expect(page.get_by_role("heading", name="Which framework?")).to_be_visible()
                await expect(other.get_by_role("heading", name="Which framework?")).to_be_visible()
                assert elsewhere == []
            process.stop(signal.SIGKILL)
        with serve_apart("--model", "demo") as process:
            page = await log_in(browser, process.link)
            await page.goto(process.url + address)
            await page.get_by_role("button", name="Express").click()
            await expect(page.get_by_role("status")).to_have_text("completed")
            await expect(page.locator("#files h3", has_text="server.js")).to_be_visible()
            await expect(page.locator("#transcript summary", has_text="Wrote server.js")).to_be_visible()
            await look(page, "completed")
            framework = page.locator("section", has=page.get_by_role("heading", name="Which framework?"))
            await framework.get_by_text("What if it were answered differently?").click()
            await expect(framework.get_by_role("button", name="Express")).to_have_count(0)
            await framework.get_by_role("button", name="FastAPI").click()
            await look(page, "bill")
            await page.get_by_role("button", name="Start a branch").click()
            await expect(page.get_by_role("status")).to_have_text("completed")
            branches = page.locator("#branches li")
            await expect(page.locator("#branches [aria-current]")).to_contain_text("FastAPI")
            await look(page, "branch")
            first = branches.filter(has_text="The first run").get_by_role("link")
            await first.first.click()
            await expect(page.locator("#branches [aria-current]")).to_contain_text("The first run")
            await branches.filter(has_text="FastAPI").get_by_role("link", name="side by side").click()
            await expect(page.get_by_role("heading", name="Two runs side by side")).to_be_visible()
            await look(page, "compare")


async def test_answering_works_without_scripts_and_by_keys_alone() -> None:
    async with chromium() as browser, serving(models={"model": "demo"}) as site:
        context = await browser.new_context(java_script_enabled=False, accept_downloads=False)
        page = await context.new_page()
        await page.goto(f"{site.url}/login?token=the-operator")
        await page.goto(f"{site.url}/start")
        await page.get_by_label("What is to be done?").fill(TASK)
        async with page.expect_navigation():
            await page.get_by_role("button", name="Start").press("Enter")
        while not await page.get_by_role("button", name="Express").count():
            await page.reload()
        await page.get_by_label("Or in your own words").fill("Django")
        await page.keyboard.press("Tab")
        async with page.expect_navigation():
            await page.keyboard.press("Enter")
        while await page.get_by_role("status").inner_text() != "completed":
            await page.reload()
        await expect(page.locator("#transcript .mine strong")).to_have_text("Django")


async def test_plan_is_changed_in_its_fields_by_keys_alone() -> None:
    async with chromium() as browser, serving(models={"model": "demo"}, planning=REVIEWED) as site:
        page = await log_in(browser, f"{site.url}/login?token=the-operator")
        async with await site.caller() as me:
            run = await start(me, TASK)
        await page.goto(f"{site.url}/runs/{run['run_id']}")
        await page.get_by_label("Step 1").focus()
        await page.keyboard.press("Control+a")
        await page.keyboard.type("Write it small")
        for field in ("One more step", "Or what is to be different", "Approve"):
            await page.keyboard.press("Tab")
            await expect(page.locator(":focus")).to_have_accessible_name(re.compile(field))
        await page.keyboard.press("Enter")
        await expect(page.locator("#plan")).to_contain_text("version 2")
        await expect(page.get_by_label("Step 1")).to_have_value("Write it small")
        await page.get_by_role("button", name="Approve").press("Enter")
        await expect(page.get_by_role("button", name="Express")).to_be_visible()


async def test_plan_is_changed_and_run_continued_without_scripts() -> None:
    async with chromium() as browser, serving(models={"model": "demo"}, planning=REVIEWED) as site:
        page = await (await browser.new_context(java_script_enabled=False)).new_page()
        await page.goto(f"{site.url}/login?token=the-operator")
        async with await site.caller() as me:
            run = await start(me, TASK)
            await page.goto(f"{site.url}/runs/{run['run_id']}")
            await page.get_by_label("One more step").fill("Test it")
            await page.get_by_role("button", name="Change the plan").click()
            while not await page.get_by_label("Step 2").count():
                await page.reload()
            await page.get_by_role("button", name="Reject").click()
            await settle(me, run["run_id"])
        await page.reload()
        await page.get_by_label("What next?").fill("What is CUDA?")
        await page.get_by_role("button", name="Continue").click()
        await expect(page.get_by_text("It follows")).to_be_visible()


async def test_conversation_grows_and_stays_as_the_reader_folds_it() -> None:
    """Agents say who waits for whom; a part that was folded stays folded while the run continues."""
    async with chromium() as browser, serving(models={"model": "demo"}) as site:
        page = await log_in(browser, f"{site.url}/login?token=the-operator")
        async with await site.caller() as me:
            run = await start(me, TASK)
        await page.goto(f"{site.url}/runs/{run['run_id']}")
        agents, coder = page.locator("#agents"), page.locator("#transcript .nested > details")
        await expect(agents.get_by_role("listitem").filter(has_text="lead")).to_contain_text("waits for coder")
        await expect(agents.get_by_role("listitem").filter(has_text="coder").last).to_contain_text("waits for you")
        await expect(coder.locator("summary", has_text="The workspace is empty.")).to_be_visible()
        await coder.locator("summary").first.click()
        await expect(coder.locator("summary", has_text="The workspace is empty.")).to_be_hidden()
        await page.get_by_role("link", name="1 question waits for you").click()
        async with await site.caller() as me:
            answers = {run["questions"][0]["id"]: "Express"}
            await me.post(f"/api/runs/{run['run_id']}/answers", json={"answers": answers})
        await expect(page.get_by_role("heading", name="Result")).to_be_visible()
        await expect(coder.locator("summary").first).to_contain_text("done")
        await expect(coder.locator("summary", has_text="The workspace is empty.")).to_be_hidden()
        await expect(page.locator("#files .diff .add").first).to_be_visible()
        await expect(agents.get_by_text("waits")).to_have_count(0)
        await expect(page.get_by_role("link", name="Runs")).to_have_attribute("aria-current", "page")


async def test_long_run_is_read_page_by_page() -> None:
    code = "```python\ndef part() -> int:\n    return 1  # one\n```"
    text = f"Part {{}}:\n\n{code}\n\n| a | b |\n|---|---|\n| 1 | 2 |\n\n> So."
    entries = [
        TranscriptEntry(EntryKind.MESSAGE, ("lead",), identity.now(), text.format(number), number=number)
        for number in range(1, 2 * MAX_ENTRIES)
    ]
    run = Run(task="A long run", status=RunStatus.COMPLETED)
    async with chromium() as browser, serving(models={"model": "demo"}) as site:
        page = await log_in(browser, f"{site.url}/login?token=the-operator")
        await site.service.store.create(run, FIRST)
        await site.service.store.database.write(write_transcript(run.id, 0, entries))
        await page.goto(f"{site.url}/runs/{run.id}")
        await expect(page.locator("#transcript > li")).to_have_count(MAX_ENTRIES)
        await page.get_by_role("link", name="earlier entries").click()
        await expect(page.locator("#transcript > li")).to_have_count(MAX_ENTRIES - 1)
        await look(page, "long")
        await page.get_by_role("link", name="Later entries").click()
        await expect(page.locator("#transcript > li")).to_have_count(MAX_ENTRIES)


@pytest.mark.parametrize("scripts", [True, False])
async def test_irreversible_action_takes_a_second_click_that_names_it(scripts: bool) -> None:
    async with chromium() as browser, serving(models={"model": "demo"}) as site:
        page = await (await browser.new_context(java_script_enabled=scripts)).new_page()
        await page.goto(f"{site.url}/login?token=the-operator")
        async with await site.caller() as me:
            run = await start(me, TASK, open=True)
            await page.goto(f"{site.url}/runs/{run['run_id']}")
            await expect(page.get_by_role("button", name="Yes, cancel this run")).to_be_hidden()
            await page.get_by_text("Cancel the run").click()
            await expect(page.get_by_text(f"Cancel this run, “{TASK}”? It ends for good")).to_be_visible()
            assert (await settle(me, run["run_id"]))["status"] == "awaiting_clarification"
            if scripts:
                await look(page, "cancel")
            await page.get_by_role("button", name="Yes, cancel this run").click()
            await expect(page.get_by_role("status")).to_have_text("cancelled")
            run = await start(me, TASK)
            await me.post(
                f"/api/runs/{run['run_id']}/answers", json={"answers": {run["questions"][0]["id"]: "Express"}}
            )
            await settle(me, run["run_id"])
            await page.goto(f"{site.url}/runs/{run['run_id']}")
            await expect(page.get_by_role("button", name="Yes, undo")).to_have_count(0)
            await page.locator("#files summary", has_text="Undo").first.click()
            await expect(
                page.get_by_text("and the 1 after it? These files become what they were before")
            ).to_be_visible()
            assert (await me.get(f"/api/runs/{run['run_id']}/changes")).json()["changes"][-1]["undoes"] == []
            if scripts:
                await look(page, "undo")
            await page.get_by_role("button", name="Yes, undo these changes").click()
            await expect(page.get_by_role("heading", name="put back").first).to_be_visible()


async def test_every_kind_of_question_has_its_fields() -> None:
    """Several as boxes, a secret unseen, a risk marked; what somebody fills in stays while others answer."""
    asked = [
        Question(question="Which of these?", options=tuple(Option(label=each) for each in "abc"), multi_select=True),
        Question(question="Which key?", secret=True),
        Question(question="Delete all?", clarification_type="risk_confirmation", options=(Option(label="Yes"),)),  # type: ignore[arg-type]
        Question(question="A name?", required=False, context="To call it by.\nLater.", path=("lead", "coder")),
    ]
    records = QuestionRecords.build(asked)
    async with chromium() as browser, serving(models={"model": "demo"}) as site:
        run = Run(task="Ask", status=RunStatus.AWAITING_CLARIFICATION, records=records)
        await site.service.store.create(run, FIRST)
        page = await log_in(browser, f"{site.url}/login?token=the-operator")
        await look(page, "kinds")
        await expect(page.get_by_role("checkbox")).to_have_count(3)
        await expect(page.get_by_label("Secret")).to_have_attribute("type", "password")
        await expect(page.get_by_text("for your decision")).to_be_visible()
        await expect(page.get_by_role("button", name="Skip")).to_have_count(1)
        await page.get_by_label("Your answer").fill("half a na")
        other = Run(task="Ask too", status=RunStatus.AWAITING_CLARIFICATION)
        late = QuestionRecords.build([Question(question="And this?")])
        await site.service.store.create(other.model_copy(update={"records": late}), FIRST)
        await expect(page.get_by_role("heading", name="And this?")).to_be_visible()
        await expect(page.get_by_label("Your answer").first).to_have_value("half a na")


async def test_two_askers_at_once_are_answered_by_two_users() -> None:
    asks = {
        name: [Call("ask_user", {"question": f"What does the {name} need?", "options": ["Tea", "Time"]}), "Done."]
        for name in ("coder", "writer")
    }
    team = team_of(model_of(lead=[at_once("coder", "writer"), "Both are served."], **asks), "coder", "writer")
    async with chromium() as browser, serving(team, questions={"assign": [{"to": "bob", "agent": "writer"}]}) as site:
        pages = []
        for user in ("alice", "bob"):
            secret = (await create_token(site.service.store, user))[1]
            pages.append(await log_in(browser, f"{site.url}/login?token={secret}"))
        alice, bob = pages
        await alice.goto(f"{site.url}/start")
        await alice.get_by_label("What is to be done?").fill("Serve both")
        await alice.get_by_role("button", name="Start").click()
        for name in ("coder", "writer"):
            await expect(alice.get_by_role("heading", name=f"What does the {name} need?")).to_be_visible()
        await expect(bob.get_by_role("heading", name="What does the writer need?")).to_be_visible()
        await look(alice, "two-askers")
        await look(bob, "assigned")
        assert await bob.get_by_text("Serve both").count() == 0
        await expect(alice.get_by_role("button", name="Tea")).to_have_count(1)
        await bob.get_by_role("button", name="Time").click()
        await expect(bob.get_by_text("You have no open questions.")).to_be_visible()
        await expect(alice.locator("#transcript .mine strong")).to_have_text("Time")
        await alice.get_by_role("button", name="Tea").click()
        await expect(alice.get_by_role("status")).to_have_text("completed")
        await expect(alice.locator("#result")).to_contain_text("Both are served.")
        await look(alice, "two-answered")
