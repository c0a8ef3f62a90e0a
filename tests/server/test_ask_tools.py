"""The MCP server for agents of other programs, called by the mcp package's own client: over standard input and output,
and over HTTP."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from asking_client import serve
from mcp import ClientSession
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import ElicitRequestParams, ElicitResult, TextContent
from places import SUPPORT
from scenario import upcall
from services import Site, serving
from test_web_security import find_csrf

from upcall import Settings, Upcall
from upcall.run_reader import RunReader
from upcall.server import ask_tools
from upcall.server.tokens import create_token

PORT = {"question": "Which port?", "path": ["lead", "coder"]}


def reader() -> RunReader:
    return RunReader(Settings.read(None, store={"path": "upcall.db"}))


def app() -> Upcall:
    return Upcall(store="upcall.db", settings=Settings.read(None))


@asynccontextmanager
async def on_stdio(run: str = "work", wait: str = "1m", human: Any = None) -> AsyncIterator[ClientSession]:
    async with (
        stdio_client(serve(run, wait)) as (read, write),
        ClientSession(read, write, elicitation_callback=human) as session,
    ):
        await session.initialize()
        yield session


@asynccontextmanager
async def over_http(site: Site, user: str = "alice", human: Any = None) -> AsyncIterator[ClientSession]:
    _, secret = await create_token(site.service.store, user)
    headers = {"Authorization": f"Bearer {secret}"}
    async with (
        httpx.AsyncClient(headers=headers, timeout=60) as client,
        streamable_http_client(f"{site.url}/mcp/ask", http_client=client) as (read, write, _),
        ClientSession(read, write, elicitation_callback=human) as session,
    ):
        await session.initialize()
        yield session


async def call(session: ClientSession, tool: str, **arguments: Any) -> Any:
    """Call a tool; what it gives, or its error as text."""
    result = await session.call_tool(tool, arguments)
    if result.isError:
        assert isinstance(result.content[0], TextContent)
        return result.content[0].text
    return result.structuredContent


async def open_question(run_id: str = "work", user: str | None = None) -> str:
    """Wait until a run has an open question; return its id."""
    async with asyncio.timeout(60):
        while not (found := [each for each in await reader().inbox(user) if each.run_id == run_id]):
            await asyncio.sleep(0.05)
    return found[0].question.id


async def answered_in(run_id: str, answer: str, user: str | None = None) -> None:
    await open_question(run_id, user)
    await app().answer(run_id, answer, user=user)


@pytest.mark.slow
async def test_answer_is_the_result_of_the_asking_call() -> None:
    async with on_stdio() as session:
        assert [each.name for each in (await session.list_tools()).tools] == [
            "ask_human",
            "get_answer",
            "assume",
            "notify",
        ]
        body, _ = await asyncio.gather(call(session, "ask_human", **PORT), answered_in("work", "80"))
    assert (body["status"], body["text"], body["by"]) == ("answered", "80", "human")
    assert [each.path for each in (await reader().get("work")).answered_questions] == [("lead", "coder")]


@pytest.mark.slow
async def test_ticket_of_a_call_outlives_client_and_server() -> None:
    async with on_stdio(wait="0.01s") as session:
        ticket = (await call(session, "ask_human", **PORT))["ticket"]
    await app().answer("work", "80")
    async with on_stdio(run="another", wait="0.01s") as session:
        assert (await call(session, "get_answer", ticket=ticket))["text"] == "80"


@pytest.mark.slow
async def test_waiting_call_reports_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ask_tools, "PROGRESS_INTERVAL_S", 0.01)
    reported: list[float] = []

    async def note(progress: float, _: float | None, __: str | None) -> None:
        reported.append(progress)

    async with serving() as site, over_http(site) as session:
        asking = session.call_tool("ask_human", {**PORT, "run": "work"}, progress_callback=note)
        asked = asyncio.create_task(asking)
        await open_question("work", "alice")
        while not reported:
            await asyncio.sleep(0.01)
        await app().answer("work", "80", user="alice")
        assert ((await asked).structuredContent or {})["text"] == "80"
    assert reported == sorted(reported)


@pytest.mark.slow
async def test_askers_over_http_share_a_question_by_meaning() -> None:
    async with serving() as site, over_http(site) as one, over_http(site) as other:
        same = {"question": "Please tell me: which port?", "path": ["lead", "tester"], "run": "work"}
        asked = asyncio.gather(call(one, "ask_human", **PORT, run="work"), call(other, "ask_human", **same))
        await open_question("work", "alice")
        while len((await reader().get("work")).open_questions) < 2:
            await asyncio.sleep(0.05)
        assert len(await reader().inbox("alice")) == 1
        await app().answer("work", "80", user="alice")
        assert [each["text"] for each in await asked] == ["80", "80"]


@pytest.mark.slow
async def test_sessions_without_a_run_share_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ask_tools.make_ask_mcp.__kwdefaults__, "wait", 0.01)
    async with (
        serving() as site,
        over_http(site) as session,
        over_http(site) as other,
        await site.caller("alice") as api,
    ):
        ticket = (await call(session, "ask_human", **PORT))["ticket"]
        await app().answer(ticket.partition("/")[0], "8080", user="alice")
        assert (await call(session, "ask_human", question="Which port?"))["text"] == "8080"
        assert (await call(other, "ask_human", question="Which port?", path=["website"]))["status"] == "waiting"
        assert (await call(other, "get_answer", ticket=ticket))["text"] == "8080"
        assert os.getcwd() not in (await api.get("/api/runs")).text


@pytest.mark.slow
async def test_client_in_the_home_folder_has_its_own_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", os.getcwd())
    tickets = []
    for _ in range(2):
        async with (
            stdio_client(serve("", "0.01s")) as (read, write),
            ClientSession(read, write) as session,
        ):
            await session.initialize()
            tickets.append((await call(session, "ask_human", **PORT))["ticket"])
    assert tickets[0] != tickets[1]


@pytest.mark.slow
async def test_ticket_of_a_call_gives_the_value_too() -> None:
    schema = {"type": "integer"}
    async with on_stdio(wait="0.01s") as session:
        body = await call(session, "ask_human", **PORT, schema=schema)
        assert "the same schema" in body["text"]
        await app().answer("work", "80")
        assert (await call(session, "get_answer", ticket=body["ticket"], schema=schema))["value"] == 80


@pytest.mark.slow
async def test_question_over_http_is_its_own_users() -> None:
    async with serving() as site:
        async with over_http(site, "alice") as session:
            asked = asyncio.create_task(call(session, "ask_human", **PORT, run="work"))
            question_id = await open_question("work", "alice")
            async with over_http(site, "bob") as other:
                assert "Unknown run" in await call(other, "get_answer", ticket=f"work/{question_id}")
                assert "somebody else" in await call(other, "ask_human", **PORT, run="work")
            async with await site.browser("alice") as browser:
                page = await browser.get("/runs/work")
                assert "Which port?" in page.text
            await app().answer("work", "80", user="alice")
            assert (await asked)["text"] == "80"
        async with httpx.AsyncClient(base_url=site.url) as nobody:
            assert (await nobody.post("/mcp/ask", json={})).status_code == 401


@pytest.mark.slow
async def test_answer_by_the_api_reaches_the_asker() -> None:
    async with serving() as site, over_http(site) as session, await site.caller("alice") as program:
        asked = asyncio.create_task(call(session, "ask_human", **PORT, run="work"))
        given = {"answers": {await open_question("work", "alice"): "80"}}
        assert (await program.post("/api/runs/work/answers", json=given)).json()["status"] == "completed"
        assert (await asked)["text"] == "80"


@pytest.mark.slow
async def test_answer_by_the_page_reaches_the_asker() -> None:
    async with serving() as site, over_http(site) as session, await site.browser("alice") as browser:
        asked = asyncio.create_task(call(session, "ask_human", **PORT, run="work"))
        question_id = await open_question("work", "alice")
        csrf = find_csrf((await browser.get("/runs/work")).text)
        form = {"csrf": csrf, "question": question_id, "own": "80"}
        assert (await browser.post("/runs/work/answers", data=form)).status_code == 303
        assert (await asked)["text"] == "80"
        page = (await browser.get("/runs/work")).text
    assert ("Which port?" in page, "What if it were answered" in page, "What next?" in page) == (True, False, False)


class User:
    """A user at a client that asks them."""

    def __init__(self, *replies: ElicitResult) -> None:
        self.asked: list[ElicitRequestParams] = []
        self._replies = [*replies]

    async def __call__(self, _: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params)
        return self._replies.pop(0)


@pytest.mark.slow
async def test_user_of_the_client_is_asked_for_a_choice() -> None:
    human = User(
        ElicitResult(action="accept", content={"chosen": "Maybe"}),
        ElicitResult(action="accept", content={"chosen": "Yes"}),
    )
    async with serving() as site, over_http(site, human=human) as session:
        body = await call(session, "ask_human", question="Ship it?", schema={"type": "boolean"}, run="work")
    assert (body["text"], body["value"]) == ("Yes", True)
    assert "not an option" in human.asked[1].message


@pytest.mark.slow
async def test_user_of_the_client_can_leave_it_to_others() -> None:
    human = User(ElicitResult(action="cancel"))
    async with serving() as site, over_http(site, human=human) as session:
        asked = asyncio.create_task(call(session, "ask_human", **PORT, run="work"))
        await answered_in("work", "80", "alice")
        assert (await asked)["text"] == "80"


class SlowUser(User):
    """A user who replies when they are let."""

    def __init__(self, *replies: ElicitResult) -> None:
        super().__init__(*replies)
        self.let = asyncio.Event()

    async def __call__(self, _: Any, params: ElicitRequestParams) -> ElicitResult:
        reply = await super().__call__(_, params)
        await self.let.wait()
        return reply


class OpenCalls:
    """Calls of a service in this process that hardly wait; it counts those that end without an answer. The client of
    the package takes no result while its user is asked."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        monkeypatch.setitem(ask_tools.make_ask_mcp.__kwdefaults__, "wait", 0.01)
        make = ask_tools.AnswerBody.of

        def note(ticket: Any, answer: Any, form: Any = None) -> ask_tools.AnswerBody:
            self.count += answer is None
            return make(ticket, answer, form)

        monkeypatch.setattr(ask_tools.AnswerBody, "of", note)

    async def reach(self, count: int) -> None:
        """Wait until so many have ended."""
        async with asyncio.timeout(60):
            while self.count < count:
                await asyncio.sleep(0.01)


async def fetch(session: ClientSession, ticket: str, **more: Any) -> Any:
    """Fetch an answer, in as many calls as it takes."""
    async with asyncio.timeout(60):
        while (body := await call(session, "get_answer", ticket=ticket, **more))["status"] == "waiting":
            pass
    return body


@pytest.mark.slow
async def test_reply_to_a_form_counts_after_its_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    human, calls = SlowUser(ElicitResult(action="accept", content={"own_words": "9090"})), OpenCalls(monkeypatch)
    async with serving() as site, over_http(site, human=human) as session:
        first = asyncio.create_task(call(session, "ask_human", **PORT, run="work"))
        await calls.reach(1)
        again = asyncio.create_task(call(session, "ask_human", **PORT, run="work"))
        await calls.reach(2)
        human.let.set()
        answered = await fetch(session, (await first)["ticket"])
        assert ((await first)["status"], (await again)["ticket"]) == ("waiting", answered["ticket"])
    assert (answered["text"], answered["by"], len(human.asked)) == ("9090", "human", 1)


@pytest.mark.slow
async def test_late_reply_that_fits_nothing_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    human = SlowUser(*(ElicitResult(action="accept", content={"chosen": each}) for each in ("Maybe", "Yes")))
    ship, calls = {"question": "Ship it?", "schema": {"type": "boolean"}, "run": "work"}, OpenCalls(monkeypatch)
    async with serving() as site, over_http(site, human=human) as session, asyncio.timeout(60):
        first = asyncio.create_task(call(session, "ask_human", **ship))
        await calls.reach(1)
        human.let.set()
        ticket = (await first)["ticket"]
        while (body := await call(session, "ask_human", **ship))["status"] == "waiting":
            pass
    assert (body["ticket"], body["value"], len(human.asked)) == (ticket, True, 2)


@pytest.mark.slow
async def test_reply_counts_after_its_call_was_cut() -> None:
    human = SlowUser(ElicitResult(action="accept", content={"own_words": "9090"}))
    async with serving() as site, over_http(site, human=human) as session:
        cut = asyncio.create_task(call(session, "ask_human", **PORT, run="work"))
        question_id = await open_question("work", "alice")
        while not human.asked:
            await asyncio.sleep(0.01)
        cut.cancel()
        human.let.set()
        assert (await fetch(session, f"work/{question_id}"))["text"] == "9090"


@pytest.mark.slow
async def test_assumption_and_notice_reach_the_human() -> None:
    async with on_stdio() as session:
        body = await call(session, "assume", question="Which port?", assumption="80", path=["lead"])
        await call(session, "notify", text="I took port 80.", path=["lead"])
    assert (body["status"], "80" in body["text"]) == ("assumed", True)
    assert [answer.text for _, answer in (await reader().get("work")).assumptions] == ["80"]
    assert "I took port 80." in str(await reader().log.transcript("work"))


@pytest.mark.slow
async def test_wrong_calls_of_askers_are_explained() -> None:
    async with serving() as site, over_http(site) as session:
        assert "not a ticket" in await call(session, "get_answer", ticket="work")
        assert "cannot be asked" in await call(session, "ask_human", question="Who?", schema={"type": "object"})
        assert "a length of time" in await call(session, "ask_human", question="Who?", deadline="soon")
        assert "same label" in await call(session, "ask_human", question="Who?", options=["a", "A"])


@pytest.mark.parametrize(
    ("schema", "answer", "value"),
    [
        ({"type": "integer"}, "8080", 8080),
        ({"type": "boolean"}, "no", False),
        ({"enum": ["red", "blue"]}, "2", "blue"),
        ({"type": "array", "items": {"enum": ["red", "blue"]}}, "1, 2", ["red", "blue"]),
        ({"properties": {"port": {"type": "integer"}, "tls": {"type": "boolean"}}}, '{"port": "80"}', {"port": 80}),
    ],
)
@pytest.mark.slow
async def test_answer_has_the_value_of_the_schema(schema: dict[str, Any], answer: str, value: Any) -> None:
    async with serving() as site, over_http(site) as session:
        asked = asyncio.create_task(call(session, "ask_human", question="Which one?", schema=schema, run="work"))
        await answered_in("work", answer, "alice")
        assert (await asked)["value"] == value


@pytest.mark.slow
async def test_answer_that_misfits_its_schema_is_named() -> None:
    async with serving() as site, over_http(site) as session:
        asked = call(session, "ask_human", question="How many?", schema={"type": "integer"}, run="work")
        asking = asyncio.create_task(asked)
        await answered_in("work", "a few", "alice")
        body = await asking
    assert (body["value"], "does not fit the schema" in body["text"]) == (None, True)


def test_options_of_askers_need_the_server_for_them() -> None:
    ended = upcall("mcp", "--run", "shop")
    assert (ended.status, "add --ask" in ended.error) == (2, True)


def begin(path: str, question: str) -> subprocess.Popen[str]:
    """Start a client with its server, as one group that is killed together."""
    command = [sys.executable, str(SUPPORT / "asking_client.py"), "work", path, question]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def kill(process: subprocess.Popen[str]) -> None:
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.slow
async def test_both_sides_killed_in_the_wait_find_the_answer(depth: int) -> None:
    path, question = "/".join(["lead", "coder", "tester"][:depth]), f"Which port for {depth}?"
    first = begin(path, question)
    asked = await open_question()
    kill(first)
    await app().answer("work", "80")
    again = begin(path, question)
    out, err = again.communicate(timeout=120)
    assert out == "answered 80\n", err
    (record,) = (await reader().get("work")).records
    assert (record.id, record.question.path) == (asked, tuple(path.split("/")))


@pytest.mark.slow
async def test_two_killed_askers_share_one_answer() -> None:
    askers = [("lead/coder", "Which port?"), ("lead/tester", "Please tell me: which port?")]
    first = [begin(*each) for each in askers]
    await open_question()
    while len((await reader().get("work")).open_questions) < 2:
        assert all(each.poll() is None for each in first)
        await asyncio.sleep(0.05)
    for each in first:
        kill(each)
    assert len(await reader().inbox()) == 1
    await app().answer("work", "80")
    again = [begin(*each) for each in askers]
    assert [each.communicate(timeout=120)[0] for each in again] == ["answered 80\n"] * 2
    assert len((await reader().get("work")).records) == 2


@pytest.mark.slow
async def test_twenty_rounds_of_cut_calls_lose_nothing() -> None:
    async with serving() as site:
        for number in range(20):
            question = {"question": f"Which port for {number}?", "path": ["lead", f"agent{number}"], "run": "work"}
            async with over_http(site) as session:
                cut = asyncio.create_task(call(session, "ask_human", **question))
                await open_question("work", "alice")
                cut.cancel()
            await app().answer("work", str(number), user="alice")
            async with over_http(site) as session:
                assert (await call(session, "ask_human", **question))["text"] == str(number)
    records = (await reader().get("work")).records
    assert [each.question.path[1] for each in records] == [f"agent{number}" for number in range(20)]
