"""The inbox and the list of runs as pages: searched and filtered by their address, with names for runs."""

from __future__ import annotations

import asyncio
import re
from datetime import timedelta

import httpx
import pytest
from services import ASK, Site, one_agent, serving, start
from stores import FIRST
from test_web_security import find_csrf

from upcall import Run, Upcall, identity
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.run_filter import RunFilter
from upcall.runs.states import RunStatus
from upcall.server.inbox import MAX_LOOKED_AT
from upcall.server.run_names import MAX_NAME_CHARS, read_names, rename_run, widen_to_names
from upcall.server.views import format_distance
from upcall.storage.store import RunStore


async def ask(site: Site, text: str, *, days: int = 0, asker: str = "coder", user: str = "bob", **more: str) -> str:
    """Store a run that waits for the answer to one question; the id of the run."""
    at = identity.now() - timedelta(days=days)
    question = Question(id=more.get("id") or identity.new_id(), question=text, path=("lead", asker), asked_at=at)
    run = Run(
        task=more.get("task", "Build it"),
        user=user,
        status=RunStatus.AWAITING_CLARIFICATION,
        records=QuestionRecords.build([question]),
    )
    await site.service.store.create(run, FIRST)
    return run.id


async def read(client: httpx.AsyncClient, path: str) -> str:
    page = await client.get(path, headers={"Accept": "text/html"})
    assert page.status_code == 200, page.text
    return page.text


async def test_inbox_shows_the_questions_that_fit_its_address() -> None:
    wanted = {
        "": ["port", "color"],
        "text=WHICH++port": ["port"],
        "text=palette": ["color"],
        "asker=researcher": ["color"],
        "owner=alice": ["color"],
        "owner=alice&text=port": [],
        "newer_than=1d": ["color"],
        "older_than=1d": ["port"],
    }
    async with serving() as site, await site.caller() as me:
        await ask(site, "Which port?", days=7, task="Serve it")
        await ask(site, "Which color?", asker="researcher", user="alice", task="Choose a palette")
        found = {query: re.findall(r"Which (\w+)\?</h2>", await read(me, f"/?{query}")) for query in wanted}
    assert found == wanted


async def test_inbox_search_finds_a_run_by_id_and_name() -> None:
    async with serving() as site, await site.browser("bob") as bob:
        run_id = await ask(site, "Which port?")
        await ask(site, "Which color?")
        await bob.post(f"/runs/{run_id}/name", data={"csrf": find_csrf(await read(bob, "/")), "name": "The  Falcon"})
        found = [
            re.findall(r"Which (\w+)\?</h2>", await read(bob, f"/?text={text}")) for text in (run_id[:6], "falcon")
        ]
    assert found == [["port"], ["port"]]


async def test_inbox_search_ends_early_and_names_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.server.inbox.RUNS_AT_ONCE", MAX_LOOKED_AT // 2)
    async with serving() as site, await site.caller() as me:
        for number in range(3):
            await ask(site, f"Number {number}?", days=3 - number)
        monkeypatch.setattr("upcall.server.inbox.RUNS_AT_ONCE", 1)
        monkeypatch.setattr("upcall.server.inbox.MAX_LOOKED_AT", 2)
        first = await read(me, "/?text=number+2")
        (following,) = re.findall(r'href="(/\?[^"]+)">More', first)
        second = await read(me, following.replace("&amp;", "&"))
    assert ("Number 2?" in first, "Number 2?" in second) == (False, True)


async def test_answer_from_a_filtered_inbox_returns_to_the_filter() -> None:
    async with serving(one_agent(ASK, "Done.")) as site, await site.browser("bob") as bob:
        await ask(site, "Which port?")
        page = await read(bob, "/?text=port")
        fields = {"csrf": find_csrf(page), "own": "Express", "back": "?text=port&evil=1"}
        run_id, question = re.search(r'href="/runs/(\w+)#question-(\w+)"', page).groups()  # type: ignore[union-attr]
        wrong = await bob.post(f"/runs/{run_id}/answers", data={**fields, "question": "unknown"})
        async with await site.caller("bob") as me:
            run = await start(me)
        question = run["questions"][0]["id"]
        sent = await bob.post(f"/runs/{run['run_id']}/answers", data={**fields, "question": question})
    assert (wrong.status_code, "Which port?" in wrong.text) == (422, True)
    assert (sent.status_code, sent.headers["Location"]) == (303, "/?text=port&answered=1")


async def test_inbox_with_an_age_that_is_none_says_so() -> None:
    async with serving() as site, await site.browser("bob") as bob:
        await ask(site, "Which port?")
        page = await bob.get("/?older_than=soon")
    assert (page.status_code, "is not an age" in page.text) == (400, True)


async def test_wrong_age_in_an_empty_inbox_is_refused() -> None:
    async with serving() as site, await site.browser("bob") as bob:
        assert (await bob.get("/?newer_than=soon")).status_code == 400


@pytest.mark.parametrize("query", ["", "several=1"])
async def test_question_in_two_branches_has_two_fields(query: str) -> None:
    async with serving() as site, await site.browser("bob") as bob:
        for _ in range(2):
            await ask(site, "Which port?", id="same")
        page = await read(bob, f"/?{query}")
    ids = re.findall(r'id="([^"]*same)"', page)
    assert (len(ids), len(set(ids))) == (6, 6)


async def test_wrong_answer_is_shown_at_its_own_branch() -> None:
    async with serving(one_agent(ASK)) as site, await site.browser("bob") as bob, await site.caller("bob") as api:
        run = await start(api)
        question = run["questions"][0]["id"]
        other = await ask(site, "Which port?", days=1, id=question)
        fields = {"csrf": find_csrf(await read(bob, "/")), "question": question, "choice": ["Express", "FastAPI"]}
        page = (await bob.post(f"/runs/{run['run_id']}/answers", data={**fields, "back": "?"})).text
    before, after = page.split(f'id="question-{run["run_id"]}')
    assert (f'id="question-{other}' in before, before.count('role="alert"'), after.count('role="alert"')) == (
        True,
        0,
        1,
    )


async def test_run_is_renamed_and_found_by_its_name() -> None:
    async with serving(one_agent("Done.")) as site, await site.browser("bob") as bob, await site.caller("bob") as api:
        run = await start(api, "Build it\nwith care")
        path = f"/runs/{run['run_id']}"
        assert ">Build it with care</a>" in await read(bob, "/runs")
        await bob.post(f"{path}/name", data={"csrf": find_csrf(await read(bob, path)), "name": "Falcon"})
        pages = [await read(bob, each) for each in (path, "/runs?text=FALC", f"/runs?text={run['run_id'][:5]}")]
        listed = (await api.get("/api/runs?text=falcon")).json()["runs"]
        await bob.post(f"{path}/name", data={"csrf": find_csrf(pages[0]), "name": ""})
        assert ">Build it with care</a>" in await read(bob, "/runs")
    assert [each["run_id"] for each in listed] == [run["run_id"]]
    assert "Falcon</h1>" in pages[0]
    assert ">Falcon</a>" in pages[1]
    assert ">Falcon</a>" in pages[2]


async def test_search_finds_own_name_behind_those_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("upcall.server.run_names.MAX_FOUND", 1)
    async with serving() as site, await site.caller("bob") as bob:
        own = await ask(site, "Which port?", user="bob")
        other = await ask(site, "Which port?", user="alice")
        for run_id in (own, other):
            await rename_run(site.service.store, run_id, "Falcon")
        listed = (await bob.get("/api/runs?text=falcon")).json()["runs"]
        asked = (await bob.get("/api/runs?text=falcon&owner=alice")).json()["runs"]
        shown = (await bob.get(f"/api/runs/{own}")).json()
    assert ([(each["run_id"], each["name"]) for each in listed], asked) == ([(own, "Falcon")], [])
    assert shown["name"] == "Falcon"


async def test_names_given_at_once_do_not_collide(location: str) -> None:
    store, run = RunStore(location), Run(task="Build it", user="bob")
    await store.create(run, FIRST)
    stores = [RunStore(location) for _ in range(4)]
    for number in range(8):
        await asyncio.gather(*(rename_run(each, run.id, f"Falcon {number}") for each in stores))
    assert await read_names(store, [run.id]) == {run.id: "Falcon 7"}
    wanted = await widen_to_names(Upcall(store=store), "bob", RunFilter(owner="bob", text="falcon"))
    assert wanted.named == {run.id}
    for each in (store, *stores):
        await each.close()


async def test_open_run_is_found_by_its_name() -> None:
    async with (
        serving(one_agent("Done.")) as site,
        await site.caller("bob") as bob,
        await site.caller("alice") as alice,
    ):
        run_id = (await start(bob, open=True))["run_id"]
        await rename_run(site.service.store, run_id, "Falcon")
        await rename_run(site.service.store, run_id, "Kestrel")
        found = [(await alice.get(f"/api/runs?text={text}")).json()["runs"] for text in ("falcon", "kestrel")]
    assert [[each["run_id"] for each in some] for some in found] == [[], [run_id]]


async def test_name_of_a_run_is_its_owners_to_give() -> None:
    async with serving(one_agent("Done.")) as site, await site.browser("alice") as alice:
        async with await site.caller("bob") as bob:
            run = await start(bob, open=True)
        path = f"/runs/{run['run_id']}"
        page = await read(alice, path)
        refused = await alice.post(f"{path}/name", data={"csrf": find_csrf(page), "name": "Mine"})
    assert (refused.status_code, 'action="' + path + '/name"' in page) == (403, False)


@pytest.mark.slow
async def test_long_name_of_a_run_is_refused() -> None:
    async with serving(one_agent("Done.")) as site, await site.browser("bob") as bob, await site.caller("bob") as api:
        path = f"/runs/{(await start(api))['run_id']}"
        fields = {"csrf": find_csrf(await read(bob, path)), "name": "a" * (MAX_NAME_CHARS + 1)}
        refused = await bob.post(f"{path}/name", data=fields)
    assert (refused.status_code, "characters" in refused.text) == (400, True)


@pytest.mark.slow
async def test_deleted_run_takes_its_name_along() -> None:
    async with serving(one_agent("Done.")) as site, await site.browser("bob") as bob, await site.caller("bob") as api:
        run_id = (await start(api))["run_id"]
        await bob.post(f"/runs/{run_id}/name", data={"csrf": find_csrf(await read(bob, "/runs")), "name": "Falcon"})
        await site.service.store.delete(run_id)
        left = await site.service.store.database.read(
            lambda connection: connection.execute("SELECT count(*) FROM upcall_run_names").fetchone()[0]
        )
    assert left == 0


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0, "now"), (-61, "1 minute ago"), (7_200, "in 2 hours"), (-86_400 * 7, "7 days ago")],
)
def test_time_is_written_as_its_distance_from_now(seconds: int, text: str) -> None:
    now = identity.now()
    assert format_distance(now + timedelta(seconds=seconds), now) == text
