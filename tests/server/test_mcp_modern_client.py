"""The runs as MCP tools for clients of the specification of 2026-07-28, with the client of `mcp` 2.x, over standard
input and output and over HTTP: ``.ci/run`` has an environment with it."""

from __future__ import annotations

import asyncio
import importlib.util
import json
import os
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import mcp
import pytest
from cryptography.fernet import Fernet
from mcp import StdioServerParameters
from mcp.client.stdio import stdio_client
from mcp.types import ElicitResult
from scenario import TASK, WRITE, model, requests_of, script
from services import ASK, Process, Site, one_agent, serve_apart, serving

from upcall import ask_secret
from upcall.autogen.mcp_sessions import open_http
from upcall.server import mcp_tools
from upcall.server.callers import Caller
from upcall.server.tokens import create_token
from upcall.testing import Call, Calls, Hang
from upcall.testing.server import LoopbackServer

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("mcp.server.mcpserver") is None, reason="mcp 1.x is installed, these need 2.x"
)

RISK = Call(
    "ask_user", {"question": "Delete all?", "clarification_type": "risk_confirmation", "options": ["Yes", "No"]}
)
STRICT = Call("ask_user", {**ASK.arguments, "allow_free_text": False})


def accept(**content: Any) -> ElicitResult:
    return ElicitResult(action="accept", content=content)


def human(*replies: ElicitResult) -> tuple[list[Any], Any]:
    """Return the list of what a user will be asked, and a user who says these."""
    asked, left = [], [*replies]

    async def reply(_: Any, params: Any) -> ElicitResult:
        asked.append(params)
        return left.pop(0)

    return asked, reply


async def ask_nobody(*_: Any) -> ElicitResult:
    """Stand for a user of a client that drives the rounds itself."""
    raise AssertionError("nobody is asked by a request")


@asynccontextmanager
async def connected(transport: Any, user: Any = ask_nobody, mode: str = "2026-07-28") -> AsyncIterator[Any]:
    make: Any = mcp.Client  # type: ignore[attr-defined,unused-ignore]
    async with make(transport, elicitation_callback=user, mode=mode) as client:
        yield client


async def at(site: Site, name: str) -> Any:
    """Return the transport of a user over HTTP."""
    _, secret = await create_token(site.service.store, name)
    return open_http(f"{site.url}/mcp", {"Authorization": f"Bearer {secret}"})


def apart(process: Process) -> Any:
    return open_http(f"{process.url}/mcp", {"Authorization": process.client.headers["Authorization"]})


def read(result: Any) -> Any:
    """Return what a tool gave, or its error."""
    return result.content[0].text if result.is_error else result.structured_content


async def send(
    client: Any, tool: str, arguments: dict[str, Any], state: str | None = None, **text: ElicitResult
) -> Any:
    """Make one call: what it gave, its error, or what it requires."""
    result = await client.session.call_tool(
        tool, arguments, request_state=state, input_responses=text or None, allow_input_required=True
    )
    return result if result.result_type == "input_required" else read(result)


async def send_apart(process: Process, *given: Any, **text: ElicitResult) -> Any:
    async with connected(apart(process)) as client:
        return await send(client, *given, **text)


async def test_mcp_questions_are_required_input_whose_answers_complete_calls() -> None:
    asked, user = human(accept(chosen="Rails"), accept(chosen="FastAPI"))
    async with serving(one_agent(STRICT, "Built.")) as site, connected(await at(site, "alice"), user) as client:
        run = read(await client.call_tool("start", {"task": "Build it"}))
    assert (run["status"], run["result"], run["user"]) == ("completed", "Built.", "alice")
    assert asked[0].requested_schema["properties"]["chosen"]["enum"] == ["Express", "FastAPI"]
    assert asked[1].message.startswith("'Rails' is not an option")


async def test_mcp_client_of_the_older_protocol_gets_a_request() -> None:
    asked, user = human(accept(chosen="Rails"), accept(chosen="FastAPI"))
    team = one_agent(STRICT, "Built.")
    async with serving(team) as site, connected(await at(site, "alice"), user, mode="legacy") as client:
        assert client.protocol_version == "2025-11-25"
        assert read(await client.call_tool("start", {"task": "Build it"}))["result"] == "Built."
    assert asked[1].message.startswith("'Rails' is not an option")


async def test_mcp_open_questions_are_required_together_until_all_answered() -> None:
    other = Call("ask_user", {"question": "Which port?"})
    async with serving(one_agent(Calls([ASK, other]), "Built.")) as site, connected(await at(site, "alice")) as client:
        given = "start", {"task": "Build it"}
        first = await send(client, *given)
        framework, port = first.input_requests
        again = await send(client, *given, first.request_state, **{framework: accept(chosen="Express"), "x": accept()})
        assert [*again.input_requests] == [port]
        run = await send(client, *given, again.request_state, **{port: accept(own_words="80")})
        assert (run["status"], run["result"]) == ("completed", "Built.")
        assert await send(client, *given, again.request_state, **{port: accept(own_words="80")}) == run
        late = await send(client, *given, again.request_state, **{port: accept(own_words="81")})
        assert "80" in late


@pytest.mark.parametrize(("action", "status"), [("decline", "completed"), ("cancel", "awaiting_clarification")])
async def test_required_input_may_be_declined_or_left_open(action: Any, status: str) -> None:
    _, user = human(ElicitResult(action=action))
    async with serving(one_agent(ASK, "Built.")) as site, connected(await at(site, "alice"), user) as client:
        run = read(await client.call_tool("start", {"task": "Build it"}))
    assert (run["status"], len(run["questions"])) == (status, int(action == "cancel"))


async def test_answers_that_never_fit_leave_the_question_open() -> None:
    asked, user = human(*[accept(chosen="Rails")] * 9)
    async with serving(one_agent(STRICT)) as site, connected(await at(site, "alice"), user) as client:
        run = read(await client.call_tool("start", {"task": "Build it"}))
    assert (run["status"], len(run["questions"]), len(asked)) == ("awaiting_clarification", 1, mcp_tools.MAX_TRIES)


async def test_mcp_call_returns_the_question_before_clients_give_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_tools, "MAX_ROUNDS", 2)
    asked, user = human(*[accept(chosen="Express")] * 2)
    asks = [Call("ask_user", {**ASK.arguments, "question": f"Which framework for part {each}?"}) for each in range(3)]
    async with serving(one_agent(*asks, "Built.")) as site, connected(await at(site, "alice"), user) as client:
        run = read(await client.call_tool("start", {"task": "Build it"}))
        assert (run["status"], len(asked)) == ("awaiting_clarification", 2)
        answer = {"run_id": run["run_id"], "question_id": run["questions"][0]["id"], "answer": "Express"}
        assert read(await client.call_tool("answer", answer))["result"] == "Built."


async def test_client_that_asks_nobody_gets_the_run() -> None:
    async with serving(one_agent(ASK)) as site, connected(await at(site, "alice"), None) as client:
        run = read(await client.call_tool("start", {"task": "Build it"}))
    assert (run["status"], len(run["questions"])) == ("awaiting_clarification", 1)


async def test_model_confirms_no_risk_in_its_users_place() -> None:
    async with serving(one_agent(RISK, "Deleted.")) as site, connected(await at(site, "alice"), None) as client:
        run = read(await client.call_tool("start", {"task": "Tidy up"}))
        question = run["questions"][0]["id"]
        given = "answer", {"run_id": run["run_id"], "question_id": question, "answer": "Yes"}
        assert "is for the user to decide" in await send(client, *given)
        assert "without" in await send(client, *given, **{question: accept(chosen="Yes")})
        async with connected(await at(site, "alice")) as asks:
            required = await send(asks, *given)
            closed = await send(asks, *given, required.request_state, **{question: ElicitResult(action="cancel")})
            assert "it stays open" in closed
            done = await send(asks, *given, required.request_state, **{question: accept(chosen="No")})
    assert done["result"] == "Deleted."
    assert [each.text for each in (await site.service.store.load(run["run_id"])).run.answers] == ["No"]


def unlock() -> str:
    """Ask for a secret."""
    return f"{len(ask_secret('Your key?'))} characters"


@pytest.mark.parametrize("action", ["accept", "decline"])
async def test_mcp_secret_is_typed_on_our_page_only(action: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("UPCALL_SECRET_KEY", Fernet.generate_key().decode())

    async def show(_: Any, params: Any) -> ElicitResult:
        run_id = params.url.removeprefix(f"{site.url}/runs/")
        if action == "accept":
            (question,) = (await site.service.store.load(run_id)).run.questions
            await site.service.answer(Caller("alice"), run_id, {question.id: "sk-secret"})
        return ElicitResult(action=action)

    team = one_agent(Call("unlock"), "Done.", tools=[unlock])
    async with serving(team) as site, connected(await at(site, "alice"), show) as client:
        run = read(await client.call_tool("start", {"task": "Open"}))
    assert run["status"] == ("completed" if action == "accept" else "awaiting_clarification")
    assert "sk-secret" not in str(run)


def change_end(state: str) -> str:
    return state[:-3] + ("AAA" if state[-3:] != "AAA" else "BBB")


@pytest.mark.parametrize(
    ("who", "tool", "task", "change"),
    [
        ("mallory", "start", "Build it", str),
        ("alice", "start", "Something else", str),
        ("alice", "answer", "", str),
        ("alice", "start", "Build it", change_end),
        ("alice", "start", "Build it", lambda _: ""),
        ("alice", "start", "Build it", lambda _: json.dumps({"run_id": "x"})),
    ],
    ids=["of another user", "of another task", "of another tool", "changed", "empty", "made up"],
)
async def test_state_that_is_not_of_this_call_is_refused(who: str, tool: str, task: str, change: Any) -> None:
    async with serving(one_agent(ASK, "Built.")) as site:
        async with connected(await at(site, "alice")) as client:
            required = await send(client, "start", {"task": "Build it"})
        (question,) = required.input_requests
        given = {"task": task} if task else {"run_id": "x", "question_id": question}
        async with connected(await at(site, who)) as client:
            with pytest.raises(mcp.MCPError, match=r"^Invalid or expired requestState$"):  # type: ignore[attr-defined,unused-ignore]
                await send(client, tool, given, change(required.request_state), **{question: accept(chosen="Express")})
        runs = await site.service.app_for(Caller("alice")).list(user="alice")
        assert [len(each.questions) for each in runs] == [1]


@pytest.mark.slow
async def test_mcp_answer_over_http_completes_elsewhere_after_a_kill() -> None:
    given = "start", {"task": TASK}
    with serve_apart("--model", "demo", "--store", "runs.db") as process:
        async with connected(apart(process)) as client:
            required = await send(client, *given)
        process.stop(signal.SIGKILL)
    (question,) = required.input_requests
    with serve_apart("--model", "demo", "--store", "runs.db") as process:
        async with connected(apart(process)) as client:
            run = await send(client, *given, required.request_state, **{question: accept(chosen="Express")})
    assert (run["status"], "Express" in run["result"]) == ("completed", True)


SPEAK = """
import os, pathlib, runpy
pathlib.Path("pid").write_text(str(os.getpid()))
runpy.run_module("upcall", run_name="__main__", alter_sys=True)
"""


@pytest.mark.needs("workspace")
@pytest.mark.slow
async def test_mcp_call_repeated_continues_a_run_killed_at_work() -> None:
    given = "start", {"task": TASK}
    with LoopbackServer(script(coder=[ASK, Hang(), WRITE, '{"summary": "Built."}'])) as server:
        with serve_apart(*model(server), "--store", "runs.db") as process:
            async with connected(apart(process)) as client:
                required = await send(client, *given)
            (question,) = required.input_requests
            fields = {question: accept(chosen="Express")}
            lost = asyncio.create_task(send_apart(process, *given, required.request_state, **fields))
            while len(requests_of(server, "coder")) < 2:
                await asyncio.sleep(0.05)
            process.stop(signal.SIGKILL)
            await asyncio.wait([lost])
        with serve_apart(*model(server), "--store", "runs.db") as process:
            run = await send_apart(process, *given, required.request_state, **fields)
    assert (lost.exception() is not None, run["status"]) == (True, "completed")


def command() -> Any:
    """Return the transport to the command on standard input and output; its process writes its id to the file `pid`."""
    arguments = ["-c", SPEAK, "mcp", "--model", "demo", "--store", "runs.db"]
    return stdio_client(StdioServerParameters(command=sys.executable, args=arguments, env={**os.environ}))


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["2026-07-28", "auto"])
async def test_mcp_answer_over_stdin_completes_elsewhere_after_a_kill(mode: str) -> None:
    given = "start", {"task": TASK}
    async with connected(command(), mode=mode) as client:
        required = await send(client, *given)
        os.kill(int(Path("pid").read_text()), signal.SIGKILL)
    (question,) = required.input_requests
    async with connected(command(), mode=mode) as client:
        run = await send(client, *given, required.request_state, **{question: accept(chosen="Express")})
    assert (run["status"], "Express" in run["result"]) == ("completed", True)


@pytest.mark.slow
async def test_older_client_is_asked_over_standard_input() -> None:
    asked, user = human(accept(chosen="Express"))
    async with connected(command(), user, mode="legacy") as client:
        run = read(await client.call_tool("start", {"task": TASK}))
    assert (run["status"], len(asked)) == ("completed", 1)
