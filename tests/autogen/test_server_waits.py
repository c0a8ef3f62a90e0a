"""A model server that is loading or busy is waited for: a real server on loopback, through the real OpenAI client."""

from __future__ import annotations

from pathlib import Path

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.messages import ThoughtEvent
from autogen_agentchat.teams import RoundRobinGroupChat
from autogen_core.models import UserMessage

from upcall import PausableAgent, Run, Settings, Upcall
from upcall.execution.model_clients import ModelClients
from upcall.testing import Fail
from upcall.testing.server import LoopbackServer

LOADING, BUSY = Fail(503, "Loading model", retry_after=0.05), Fail(429, "slow down", retry_after=0.05)
RATE = Fail(429, "Your request rate must be reduced. Retry after 1 second.", retry_after=0.05)


async def run_with(server: LoopbackServer, tmp_path: Path, *, stock: bool = False, wait: float = 60) -> tuple[Run, str]:
    """Return a run of one agent, and what it reported meanwhile."""
    settings = Settings.read(
        None,
        models={
            "model": "scripted",
            "base_url": server.base_url,
            "server_wait": wait,
            "max_retries": 2,
            "api_key": "sk-scripted",
        },
    )
    client = ModelClients(settings)("coder")

    def make_team() -> Team:
        agent = AssistantAgent("coder", client) if stock else PausableAgent("coder", client, system_message="You code.")
        return RoundRobinGroupChat([agent], max_turns=1)

    text, run = [], None
    async for item in Upcall(store=tmp_path / "runs.db", team=make_team, settings=settings).start_stream("Say hello"):
        if isinstance(item, Run):
            run = item
        elif isinstance(item, ThoughtEvent):
            text.append(item.content)
    assert run is not None
    return run, "\n".join(text)


@pytest.mark.parametrize("stock", [False, True], ids=["ours", "stock"])
@pytest.mark.parametrize("reply", [LOADING, BUSY, RATE], ids=["loading", "busy", "rate"])
async def test_server_that_asks_for_time_gets_it(reply: Fail, stock: bool, tmp_path: Path) -> None:
    with LoopbackServer([reply, reply, reply, reply, "Hello."]) as server:
        run, text = await run_with(server, tmp_path, stock=stock)
    assert (run.result, len(server.requests)) == ("Hello.", 5)
    assert f"seconds waited for the model server (HTTP {reply.status}): 0 of 60" in text


async def test_wait_beyond_the_limit_fails_the_run_at_once(tmp_path: Path) -> None:
    with LoopbackServer([Fail(503, "Loading model", retry_after=600)]) as server:
        run, _ = await run_with(server, tmp_path)
    assert "failed (HTTP 503): Loading model" in (run.error or "")
    assert len(server.requests) == 1


@pytest.mark.slow
async def test_quota_that_is_used_up_is_not_awaited(tmp_path: Path) -> None:
    with LoopbackServer([Fail(429, "You exceeded your quota")] * 3) as server:
        run, text = await run_with(server, tmp_path)
    assert "You exceeded your quota" in (run.error or "")
    assert "waited" not in text


async def test_reply_is_bounded_and_cool_where_settings_want(tmp_path: Path) -> None:
    with LoopbackServer(["Hello."]) as server:
        settings = Settings.read(
            None, models={"model": "scripted", "base_url": server.base_url, "max_reply_tokens": 700, "temperature": 0}
        )
        client = ModelClients(settings)("coder")
        await client.create([UserMessage(content="Say hello", source="user")])
        await client.close()
    assert (server.requests[0].body["max_tokens"], server.requests[0].body["temperature"]) == (700, 0)
