"""The page of a run as the server sends it: the conversation, the plan's fields, and what comes after the end."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest
from places import ROOT
from scenario import TASK
from services import Site, one_agent, serving, settle, start
from stores import FIRST

from upcall import Run, Settings, identity
from upcall.errors import WorkspaceMissing
from upcall.questions.question import ClarificationType, Question
from upcall.questions.record import QuestionRecords
from upcall.runs.config import RootTeamConfig, RunConfig
from upcall.runs.states import RunStatus
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.server.page_words import name_page_actions
from upcall.server.problems import describe
from upcall.server.server_folders import hide_folders, name_folders
from upcall.server.service import Caller
from upcall.server.views import MAX_ENTRIES
from upcall.storage.transcripts import write_transcript

STATIC = ROOT / "src" / "upcall" / "server" / "static"


async def show(client: httpx.AsyncClient, path: str) -> str:
    response = await client.get(path)
    assert response.status_code == 200, response.text
    return response.text


async def send(client: httpx.AsyncClient, path: str, fields: Mapping[str, str], page: str) -> httpx.Response:
    """Send a form with the token of the page on which it is."""
    found = re.search(r'name="csrf" value="([0-9a-f]{64})"', page)
    assert found is not None
    return await client.post(path, data={"csrf": found[1], **fields})


async def store_entries(site: Site, user: str, *entries: TranscriptEntry) -> str:
    run = Run(task="Look", user=user, status=RunStatus.COMPLETED, result="Done.")
    await site.service.store.create(run, FIRST)
    await site.service.store.database.write(write_transcript(run.id, 0, entries))
    return run.id


def message(text: str, number: int = 1) -> TranscriptEntry:
    return TranscriptEntry(EntryKind.MESSAGE, ("lead",), identity.now(), text, number=number)


def works_in(folder: Path) -> RunConfig:
    return RunConfig(team=RootTeamConfig(workspace=folder))


@asynccontextmanager
async def reviewing() -> AsyncIterator[tuple[httpx.AsyncClient, str, str]]:
    """Yield a browser's client, the address of a run whose plan is under review, and the question's id."""
    async with (
        serving(models={"model": "demo"}, planning={"enable_plan_approval": True}) as site,
        await site.caller("alice") as me,
        await site.browser("alice") as alice,
    ):
        run = await start(me, TASK)
        yield alice, f"/runs/{run['run_id']}", run["questions"][0]["id"]


async def send_review(
    client: httpx.AsyncClient, address: str, question: str, fields: Mapping[str, str]
) -> httpx.Response:
    """Fill in the form of a plan under review."""
    page = await show(client, address)
    return await send(client, f"{address}/plan", {"question": question, **fields}, page)


async def wait_for_question(client: httpx.AsyncClient, address: str, before: str) -> dict[str, str]:
    """Wait for a run's next question; its id and its text."""
    while True:
        run = await settle(client, address.rpartition("/")[2])
        if run["questions"] and run["questions"][0]["id"] != before:
            return run["questions"][0]  # type: ignore[no-any-return]


@pytest.mark.slow
@pytest.mark.parametrize("button", [{"choice": "Approve"}, {"act": "change"}], ids=["approve", "change"])
async def test_changed_step_is_shown_again_before_work(button: dict[str, str]) -> None:
    async with reviewing() as (alice, address, question):
        fields = {"step-1": "Write it small", "added": "Test it", **button}
        assert (await send_review(alice, address, question, fields)).status_code == 303
        following = await wait_for_question(alice, address, question)
        page = await show(alice, address)
    assert "Write it small" in following["question"]
    assert "Test it" in following["question"]
    assert page.count('name="step-') == 2


@pytest.mark.slow
async def test_unchanged_plan_is_approved_by_its_button() -> None:
    async with reviewing() as (alice, address, question):
        steps = dict(re.findall(r'name="(step-\d+)" rows="2">\n([^<]*)<', await show(alice, address)))
        await send_review(alice, address, question, {**steps, "choice": "Approve"})
        following = await wait_for_question(alice, address, question)
    assert following["question"] == "Which framework?"


@pytest.mark.slow
async def test_plan_is_not_approved_over_own_words() -> None:
    async with reviewing() as (alice, address, question):
        await send_review(alice, address, question, {"own": "Leave the sessions out", "choice": "Approve"})
        await wait_for_question(alice, address, question)
        run = (await alice.get(f"/api{address}")).json()
    assert run["plan"]["history"][-1]["feedback"] == "Leave the sessions out"


@pytest.mark.slow
async def test_rejected_plan_ends_the_run_without_its_changes() -> None:
    async with reviewing() as (alice, address, question):
        await send_review(alice, address, question, {"step-1": "Something else", "decision": "Reject"})
        run = await settle(alice, address.rpartition("/")[2])
    assert (run["plan"]["status"], run["plan"]["version"]) == ("rejected", 1)


@pytest.mark.slow
async def test_finished_run_is_continued_from_its_page() -> None:
    async with serving(one_agent("One.", "Two.")) as site, await site.browser("alice") as alice:
        run = await store_entries(site, "alice", message("Done."))
        page = await show(alice, f"/runs/{run}")
        fields = {"task": "And now?", "key": identity.new_id()}
        sent = [await send(alice, f"/runs/{run}/follow-up", fields, page) for _ in range(2)]
        following = await settle(alice, sent[0].headers["Location"].rpartition("/")[2])
    assert sent[0].headers["Location"] == sent[1].headers["Location"]
    assert (following["follows"], following["result"]) == (run, "One.")


@pytest.mark.slow
async def test_conversation_renders_markdown_and_colours_code() -> None:
    text = "See **this**:\n\n```python\ndef run() -> None: ...\n```\n\n<b>raw</b>"
    async with serving(one_agent()) as site, await site.browser("alice") as alice:
        page = await show(alice, f"/runs/{await store_entries(site, 'alice', message(text))}")
    assert "<strong>this</strong>" in page
    assert '<span class="h-k">def</span>' in page
    assert "&lt;b&gt;raw&lt;/b&gt;" in page


@pytest.mark.slow
async def test_tool_call_is_one_line_with_its_result() -> None:
    call = TranscriptEntry(EntryKind.CALL, ("lead",), identity.now(), '{"path": "a.py", "text": "1\\n2"}', "write_file")
    result = TranscriptEntry(EntryKind.RESULT, ("lead",), identity.now(), "Wrote a.py.", "write_file")
    async with serving(one_agent()) as site, await site.browser("alice") as alice:
        page = await show(alice, f"/runs/{await store_entries(site, 'alice', call, result)}")
    summary = re.search(r"<summary>.*write_file.*a\.py.*Wrote a\.py\..*</summary>", page)
    assert summary is not None
    assert "<pre>1\n2</pre>" in page


@pytest.mark.slow
async def test_long_conversation_is_shown_by_its_end_first() -> None:
    entries = [message(f"Number {number}.", number) for number in range(1, MAX_ENTRIES + 11)]
    async with serving(one_agent()) as site, await site.browser("alice") as alice:
        run = await store_entries(site, "alice", *entries)
        end, before = [await show(alice, f"/runs/{run}{query}") for query in ("", "?before=10")]
    assert ("Number 10." in end, "Number 11." in end, f'href="/runs/{run}?before=10"' in end) == (False, True, True)
    assert ("Number 10." in before, "Number 11." in before, "data-events" in before) == (True, False, False)


@pytest.mark.slow
async def test_result_is_not_repeated_as_the_last_message() -> None:
    async with serving(one_agent()) as site, await site.browser("alice") as alice:
        page = await show(alice, f"/runs/{await store_entries(site, 'alice', message('Done.'))}")
    assert page.count("Done.") == 1


@pytest.mark.slow
async def test_page_gives_the_limit_that_ended_a_run() -> None:
    async with serving(one_agent()) as site, await site.browser("alice") as alice:
        run = Run(task="Look", user="alice", status=RunStatus.COMPLETED, result="Half.", stop_reason="repeats")
        await site.service.store.create(run, FIRST)
        page = await show(alice, f"/runs/{run.id}")
    assert "Not finished: an agent went in circles; another model may do better." in page


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("There is none. See the stored runs with: upcall list", "See the stored runs with: the page “Runs”"),
        ("It failed. Continue with: upcall resume 0123456789ab", "Continue with: “Resume” on the run's page"),
        ("It failed. Continue with: upcall resume nightly", "Continue with: “Resume” on the run's page"),
        ("For another: upcall fork nightly 0f3a ANSWER", ": “What if it were answered differently?” on the run's page"),
        ("For another: upcall fork nightly 0f3a -", ": “What if it were answered differently?” on the run's page"),
        ("See what else is: upcall store check. Start", "the command line (ask whoever runs this service). Start"),
        ("upcall is a word", "upcall is a word"),
    ],
)
def test_hint_names_page_actions_instead_of_commands(text: str, shown: str) -> None:
    assert name_page_actions(text).endswith(shown)


@pytest.mark.slow
async def test_page_of_an_unknown_run_names_no_command() -> None:
    async with serving(one_agent()) as site, await site.browser("alice") as alice:
        page = (await alice.get("/runs/0123456789ab")).text
    assert "Unknown run" in page
    assert "upcall list" not in page


@pytest.mark.slow
async def test_page_of_a_run_names_no_folder() -> None:
    async with serving(models={"model": "demo"}) as site, await site.browser("alice") as alice:
        async with await site.caller("alice") as me:
            made = await start(me, TASK)
        run = await site.service.app_for(Caller(None)).get(made["run_id"])
        failed = run.update(
            id=identity.new_id(), error=f"{run.workspace} is missing.", warnings=(f"See {run.workspace}",)
        )
        await site.service.store.create(failed, FIRST)
        pages = [await show(alice, f"/runs/{each.id}") for each in (run, failed)]
    assert [str(run.workspace) in page for page in pages] == [False, False]
    assert "(the run&#39;s folder) is missing." in pages[1]


async def test_pages_show_words_of_agents_and_people_exactly(tmp_path: Path) -> None:
    command = f"rm -rf {tmp_path}/data {Path.home()}/data"
    asked = Question(
        question=f"May I run {command}?", path=("lead",), clarification_type=ClarificationType.RISK_CONFIRMATION
    )
    run = Run(
        task=command,
        user="alice",
        status=RunStatus.AWAITING_CLARIFICATION,
        records=QuestionRecords.build([asked]),
        config=works_in(tmp_path / "data"),
    )
    async with serving() as site, await site.browser("alice") as alice:
        await site.service.store.create(run, FIRST)
        result = TranscriptEntry(EntryKind.RESULT, ("lead",), identity.now(), f"Done: {command}", number=2)
        await site.service.store.database.write(write_transcript(run.id, 0, [message(command), result]))
        pages = [await show(alice, path) for path in ("/", "/runs", f"/runs/{run.id}")]
    assert [(command in page, "folder)" in page) for page in pages] == [(True, False)] * 3
    assert (f"May I run {command}?" in pages[0], f"Done: {command}" in pages[2]) == (True, True)


async def test_errors_of_runs_name_folders_to_the_operator(tmp_path: Path) -> None:
    run = Run(task="Look", user="alice", status=RunStatus.FAILED, error=f"{tmp_path}/upcall.db is missing.")
    async with serving() as site, await site.browser("alice") as alice, await site.caller() as operator:
        await site.service.store.create(run, FIRST)
        pages = [await show(each, f"/runs/{run.id}") for each in (alice, operator)]
    assert [str(tmp_path) in page for page in pages] == [False, True]


def test_problem_of_a_missing_workspace_names_no_folder() -> None:
    detail = describe(WorkspaceMissing("abc", Path("/data/shop"))).detail
    assert ("in its workspace (the run's folder): it does not exist" in detail, "/data" in detail) == (True, False)


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("/srv/site/a, '/srv/site'. /srv/site/b.py", "(an inner one), '(the folder site)'. (the folder site)/b.py"),
        ("/srv/site: it is gone; `/srv/site/a.`", "(the folder site): it is gone; `(an inner one).`"),
        ("/srv/sites /srv/site-2 /srv/site.old", None),
        ("https://example.org/srv/site/x file:///srv/site backup:/srv/site", None),
        ("/backup/srv/site ~/srv/site ../srv/site $HOME/srv/site", None),
        ("route /app of https://example.org/app", None),
    ],
)
def test_errors_hide_whole_folders_only(text: str, hidden: str | None) -> None:
    folders = {Path("/srv/site"): "(the folder site)", Path("/srv/site/a"): "(an inner one)"}
    assert hide_folders(text, folders, Run(task="Look", config=works_in(Path("/app")))) == (hidden or text)


def test_folders_of_a_service_have_names_of_their_own(tmp_path: Path) -> None:
    folders = name_folders(Settings.read(None), tmp_path / "store" / "upcall.db", {"site": Path("/srv/site")})
    assert {"(the home folder)", "(the service's folder)", "(the store's folder)", "(the folder site)"} <= {
        *folders.values()
    }
    assert len({*folders.values()}) == len(folders)


def test_scripts_and_styles_stay_below_60_kilobytes() -> None:
    assert sum(each.stat().st_size for each in STATIC.iterdir()) < 60_000
