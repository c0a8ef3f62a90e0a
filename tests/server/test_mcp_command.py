"""The runs as MCP tools, called by the mcp package's own client: over standard input and output, and over HTTP."""

from __future__ import annotations

import html
import json
import logging
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
from anyio import ClosedResourceError
from cryptography.fernet import Fernet
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.types import (
    ElicitRequestFormParams,
    ElicitRequestParams,
    ElicitRequestURLParams,
    ElicitResult,
    ErrorData,
    TextContent,
)
from scenario import TASK
from services import ASK, Site, one_agent, serving
from trips import BAD_VALUES, BOOKED, BOOKED_AS_CLEARED, TRIP, make_team

import upcall
from upcall import ask_secret
from upcall.server.callers import Caller
from upcall.server.tokens import create_token
from upcall.testing import Call

RISK = Call(
    "ask_user", {"question": "Delete all?", "clarification_type": "risk_confirmation", "options": ["Yes", "No"]}
)


class User:
    """A user at a client that asks them; they say what is scripted."""

    def __init__(self, *replies: ElicitResult) -> None:
        self.asked: list[ElicitRequestParams] = []
        self._replies = [*replies]

    async def __call__(self, _: Any, params: ElicitRequestParams) -> ElicitResult:
        self.asked.append(params)
        return self._replies.pop(0)


@asynccontextmanager
async def connected(site: Site, user: str, human: User | None = None) -> AsyncIterator[ClientSession]:
    """Yield a client of a user over HTTP."""
    _, secret = await create_token(site.service.store, user)
    headers = {"Authorization": f"Bearer {secret}"}
    async with (
        httpx.AsyncClient(headers=headers, timeout=60) as client,
        streamable_http_client(f"{site.url}/mcp", http_client=client) as (read, write, _),
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


@pytest.mark.slow
async def test_question_reaches_the_client_in_the_middle_of_calls() -> None:
    human = User(
        ElicitResult(action="accept", content={"chosen": "Rails"}),
        ElicitResult(action="accept", content={"chosen": "FastAPI"}),
    )
    strict = Call("ask_user", {**ASK.arguments, "allow_free_text": False})
    async with serving(one_agent(strict, "Built.")) as site, connected(site, "alice", human) as session:
        assert [each.name for each in (await session.list_tools()).tools] == [
            "start",
            "inbox",
            "answer",
            "overrule",
            "say",
            "stop",
            "show",
        ]
        run = await call(session, "start", task="Build it")
        assert (run["status"], run["result"], run["user"]) == ("completed", "Built.", "alice")
        assert human.asked[0].requestedSchema["properties"]["chosen"]["enum"] == ["Express", "FastAPI"]
        assert human.asked[1].message.startswith("'Rails' is not an option")


@pytest.mark.parametrize("reply", [ErrorData(code=-32601, message="not supported"), {"action": "maybe"}])
@pytest.mark.slow
async def test_client_that_cannot_ask_after_all_gets_open_questions(reply: Any) -> None:
    async def refuse(*_: Any) -> Any:
        return reply if isinstance(reply, ErrorData) else ElicitResult.model_construct(**reply)

    async with serving(one_agent(RISK)) as site, connected(site, "alice", refuse) as session:  # type: ignore[arg-type]
        run = await call(session, "start", task="Build it")
        assert (run["status"], len(run["questions"])) == ("awaiting_clarification", 1)
        answer = {"run_id": run["run_id"], "question_id": run["questions"][0]["id"], "answer": "Yes"}
        assert "it stays open" in await call(session, "answer", **answer)


@pytest.mark.slow
async def test_client_that_asks_nobody_lists_and_passes_on() -> None:
    async with serving(one_agent(ASK, "Built.")) as site, connected(site, "alice") as session:
        run = await call(session, "start", task="Build it")
        (asked,) = (await call(session, "inbox"))["questions"]
        assert (run["status"], asked["run_id"]) == ("awaiting_clarification", run["run_id"])
        done = await call(session, "answer", run_id=run["run_id"], question_id=asked["id"], answer="Express")
        assert done["result"] == "Built."
        assert (await call(session, "show", run_id=run["run_id"]))["status"] == "completed"
        assert "Unknown run" in await call(session, "show", run_id="nothing")


@pytest.mark.slow
async def test_model_confirms_no_risk_in_its_users_place() -> None:
    async with serving(one_agent(RISK, "Deleted.")) as site:
        async with connected(site, "alice") as session:
            run = await call(session, "start", task="Tidy up")
            answer = {"run_id": run["run_id"], "question_id": run["questions"][0]["id"], "answer": "Yes"}
            assert "is for the user to decide" in await call(session, "answer", **answer)
        human = User(ElicitResult(action="cancel"), ElicitResult(action="accept", content={"chosen": "No"}))
        async with connected(site, "alice", human) as session:
            assert "it stays open" in await call(session, "answer", **answer)
            assert (await call(session, "answer", **answer))["result"] == "Deleted."
        stored = (await site.service.store.load(run["run_id"])).run
        assert [each.text for each in stored.answers] == ["No"]


def unlock() -> str:
    """Ask for a secret."""
    return f"{len(ask_secret('Your key?'))} characters"


@pytest.mark.parametrize("action", ["accept", "decline"])
@pytest.mark.slow
async def test_secret_is_typed_on_our_page_only(action: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_SECRET_KEY", Fernet.generate_key().decode())
    pages: list[str] = []

    async def show(_: Any, params: ElicitRequestParams) -> ElicitResult:
        assert isinstance(params, ElicitRequestURLParams)
        pages.append(params.url)
        if action == "accept":
            async with await site.browser("alice") as browser:
                assert "Your key?" in (await browser.get(params.url)).text
            run_id = params.url.rpartition("/")[2]
            await site.service.answer(Caller("alice"), run_id, {params.elicitationId: "sk-secret"})
        return ElicitResult(action=action)

    team = one_agent(Call("unlock"), "Done.", tools=[unlock])
    async with serving(team) as site, connected(site, "alice", show) as session:  # type: ignore[arg-type]
        run = await call(session, "start", task="Open")
        assert pages == [f"{site.url}/runs/{run['run_id']}"]
        assert run["status"] == ("completed" if action == "accept" else "awaiting_clarification")
        assert "sk-secret" not in str(run)


@pytest.mark.slow
async def test_user_sees_their_own_runs_alone() -> None:
    async with serving(one_agent(ASK)) as site:
        async with connected(site, "alice") as session:
            run = await call(session, "start", task="Build it")
        async with connected(site, "mallory") as session:
            assert "Unknown run" in await call(session, "show", run_id=run["run_id"])
            answer = {"run_id": run["run_id"], "question_id": run["questions"][0]["id"], "answer": "Express"}
            assert "Unknown run" in await call(session, "answer", **answer)
            assert (await call(session, "inbox"))["questions"] == []
        async with httpx.AsyncClient(base_url=site.url) as nobody:
            assert (await nobody.post("/mcp", json={})).status_code == 401
        async with await site.browser("alice") as browser:
            assert (await browser.post("/mcp", json={})).status_code == 401


@pytest.mark.parametrize("other", ["mallory", None])
@pytest.mark.slow
async def test_session_of_another_caller_is_not_found(other: str | None) -> None:
    """By it they would read the questions to its user, and answer them in the user's name."""
    hello = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "x", "version": "1"}}
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    reply = {"jsonrpc": "2.0", "id": 1, "result": {"action": "accept", "content": {"chosen": "Express"}}}
    takes = {"Accept": "application/json, text/event-stream"}
    async with serving(one_agent(ASK)) as site, await site.caller("alice") as alice, await site.caller(other) as else_:
        begun = await alice.post("/mcp", json=first, headers=takes)
        assert f'"serverInfo":{{"name":"upcall","version":"{upcall.__version__}"}}' in begun.text
        hers = {**takes, "Mcp-Session-Id": begun.headers["Mcp-Session-Id"]}
        none = {**takes, "Mcp-Session-Id": "f" * 32}
        for method, body in (("POST", reply), ("GET", None), ("DELETE", None)):
            tried = [await else_.request(method, "/mcp", json=body, headers=each) for each in (hers, none)]
            assert [(each.status_code, each.text) for each in tried] == [(404, tried[1].text)] * 2
        assert (await alice.request("DELETE", "/mcp", headers=hers)).status_code == 200


@pytest.mark.slow
@pytest.mark.needs("research")
async def test_warning_of_a_dead_server_reaches_every_door() -> None:
    from upcall.research.mcp_server import McpServer
    from upcall.research.mcp_tools import McpTools

    dead = McpTools("shop", McpServer(command=sys.executable, args=["-c", "raise SystemExit(3)"]))
    async with serving(one_agent("Done.", workbench=dead)) as site, connected(site, "alice") as session:
        run = await call(session, "start", task="Look")
        async with await site.caller("alice") as program, await site.browser("alice") as browser:
            seen = (await program.get(f"/api/runs/{run['run_id']}")).json()
            page = (await browser.get(f"/runs/{run['run_id']}")).text
            watch = {"threadId": "t", "runId": "1", "messages": [], "state": {"run_id": run["run_id"]}}
            events = (await program.post("/agui", json=watch)).text
    (warning,) = run["warnings"]
    assert warning.startswith("MCP server shop")
    assert (seen["warnings"], json.dumps(warning) in events) == ([warning], True)
    assert warning in html.unescape(page)


@pytest.mark.needs("workspace")
@pytest.mark.slow
async def test_command_speaks_over_standard_input_and_output() -> None:
    human = User(ElicitResult(action="accept", content={"own_words": "", "chosen": "Express"}))
    server = StdioServerParameters(
        command=sys.executable, args=["-m", "upcall", "mcp", "--model", "demo"], env={**os.environ}
    )
    async with (
        stdio_client(server) as (read, write),
        ClientSession(read, write, elicitation_callback=human) as session,
    ):
        await session.initialize()
        run = await call(session, "start", task=TASK)
    assert (run["status"], "Express" in run["result"]) == ("completed", True)
    assert human.asked[0].message.startswith("coder (for lead) needs to know: Which framework?")


@pytest.mark.parametrize(("error", "emitted"), [(ClosedResourceError(), 0), (ValueError("wrong"), 1)])
async def test_session_end_is_no_error_in_the_log(
    error: Exception, emitted: int, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(one_agent()):
        logging.getLogger("mcp.server.streamable_http").error("Error in standalone SSE writer", exc_info=error)
    assert len(caplog.records) == emitted


@pytest.mark.slow
async def test_typed_question_is_asked_as_fields_again() -> None:
    wrong = {"traveller": "Ada Byron", "nights": 0, "start": "2026-03-01", "seat": "window", "address.city": "Oslo"}
    human = User(
        ElicitResult(action="accept", content=wrong),
        ElicitResult(action="accept", content={**wrong, "nights": 2, "remark": ""}),
    )
    async with serving(make_team) as site, connected(site, "alice", human) as session:
        run = await call(session, "start", task="Book it")
        assert (run["status"], run["result"]) == ("completed", BOOKED_AS_CLEARED)
    first, again = (
        each.requestedSchema["properties"] for each in human.asked if isinstance(each, ElicitRequestFormParams)
    )
    assert (first["nights"]["type"], first["nights"]["default"], again["nights"]["default"]) == ("integer", 2, 0)
    assert (first["start"]["format"], first["seat"]["enum"]) == ("date", ["window", "aisle"])
    assert again["address.city"]["default"] == "Oslo"
    assert "nights: Input should be greater than or equal to 1" in human.asked[1].message


@pytest.mark.slow
async def test_typed_answer_that_a_client_passes_on_is_json() -> None:
    async with serving(make_team) as site, connected(site, "alice") as session:
        run = await call(session, "start", task="Book it")
        named = {"run_id": run["run_id"], "question_id": run["questions"][0]["id"]}
        for name, value, message in BAD_VALUES:
            assert message in await call(session, "answer", **named, answer={**TRIP, name: value})
        done = await call(session, "answer", **named, answer=TRIP)
        assert done["result"] == BOOKED
