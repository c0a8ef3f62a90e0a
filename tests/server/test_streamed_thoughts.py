"""Text and thoughts at each door while they are written: the service's events, AG-UI, its page."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest
from autogen_agentchat.base import Team
from autogen_core.models import CreateResult
from lab import CHROMIUM, chromium, looking
from playwright.async_api import expect
from services import read_events, serving
from worlds import pausing

from upcall import PausableAgent
from upcall.agents import Classifier
from upcall.server.service import MakeTeam
from upcall.testing import Call, Calls, Reply, Say, ScriptedModelClient

META = Say('<think>Hm, so.</think>{"intent": "meta", "meta_response": "Hi! I am a team."}')


class Gated(ScriptedModelClient):
    """A model whose last piece waits until somebody has read the others."""

    read: asyncio.Event

    async def create_stream(self, *given: Any, **options: Any) -> AsyncGenerator[str | CreateResult, None]:
        """Stream the next reply, four characters at a time."""
        whole = await self.create(*given, **options)
        text = whole.content if isinstance(whole.content, str) else ""
        for place in range(0, len(text), 4):
            if place + 4 >= len(text):
                await self.read.wait()
            yield text[place : place + 4]
        yield whole


def classifier(read: asyncio.Event) -> MakeTeam:
    def make() -> Team:
        client = Gated([META])
        client.read = read
        return pausing(Classifier(client, stream=True))

    return make


def solo(*replies: Reply) -> MakeTeam:
    def make() -> Team:
        client = Gated(list(replies))
        client.read = asyncio.Event()
        client.read.set()
        return pausing(PausableAgent("solo", client, tools=[look], stream=True))

    return make


def look() -> str:
    """Look it up."""
    return "It is here."


async def run_agui(team: MakeTeam, read: asyncio.Event | None = None) -> list[dict[str, Any]]:
    """Return the events of a run; `read` is set when text has arrived."""
    body = {"threadId": "t", "runId": "1", "messages": [{"id": "m", "role": "user", "content": "Hi"}]}
    events = list[dict[str, Any]]()
    async with serving(team) as site, await site.caller() as me, me.stream("POST", "/agui", json=body) as response:
        async for line in response.aiter_lines():
            if line.startswith("data: "):
                events.append(json.loads(line[6:]))
                if read is not None and events[-1]["type"] == "TEXT_MESSAGE_CONTENT":
                    read.set()
    return events


def written(events: list[dict[str, Any]], kind: str) -> str:
    return "".join(each["delta"] for each in events if each["type"] == kind)


@pytest.mark.slow
async def test_text_and_thoughts_are_events_of_two_kinds() -> None:
    read = asyncio.Event()
    async with serving(classifier(read)) as site, await site.caller() as me:
        run = (await me.post("/api/runs", json={"task": "Hi"})).json()["run_id"]
        begun = await read_events(me, f"/api/runs/{run}/events", until="token")
        thoughts = [each.data for each in begun if each.kind == "thought"]
        read.set()
        rest = await read_events(me, f"/api/runs/{run}/events")
    assert "".join(each["text"] for each in thoughts) == "Hm, so."
    assert begun[-1].data["path"] == ["classifier"]
    assert "Hi! I am a team.".startswith(begun[-1].data["text"])
    texts = [each.data for each in rest if each.kind == "entry" and each.data["kind"] == "message"]
    assert [(each["text"], each["text_id"]) for each in texts] == [("Hi! I am a team.", begun[-1].data["text_id"])]


@pytest.mark.slow
async def test_agui_has_thoughts_as_reasoning() -> None:
    read = asyncio.Event()
    events = await run_agui(classifier(read), read)
    assert "Hm, so." in written(events, "REASONING_MESSAGE_CONTENT")
    assert "Hi! I am a team." in written(events, "TEXT_MESSAGE_CONTENT")
    assert "intent" not in json.dumps([each for each in events if each["type"].startswith("TEXT")])
    messages = events[-2]["messages"]
    assert [each["content"] for each in messages if each["role"] == "assistant"] == ["Hi! I am a team."]


@pytest.mark.parametrize("opens", ["<think>", ""])
@pytest.mark.slow
async def test_agui_takes_back_a_text_that_was_a_thought(opens: str) -> None:
    events = await run_agui(solo(f"{opens}Hm, so.\n</think>\n\nDone."))
    kinds = [each["type"] for each in events]
    last = events[max(place for place, each in enumerate(kinds) if each == "MESSAGES_SNAPSHOT")]
    texts = [(each["role"], each["content"]) for each in last["messages"] if each["role"] != "user"]
    assert texts == [("reasoning", "Hm, so."), ("assistant", "Done.")]
    assert kinds.count("REASONING_MESSAGE_START") == kinds.count("REASONING_MESSAGE_END") == 1
    assert kinds.count("TEXT_MESSAGE_START") == kinds.count("TEXT_MESSAGE_END")


@pytest.mark.slow
async def test_agui_keeps_text_beside_calls_apart_from_results() -> None:
    events = await run_agui(solo(Calls([Call("look", {})], thought="<think>Hm.</think>I look."), Say("Done.")))
    reasoning = [each["content"] for each in events[-2]["messages"] if each["role"] == "reasoning"]
    assert (reasoning, events[-1]["result"]) == (["Hm.\n\nI look."], "Done.")


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
async def test_page_shows_thoughts_apart_until_they_are_entries() -> None:
    read = asyncio.Event()
    async with chromium() as browser, serving(classifier(read)) as site, await site.caller() as me:
        run = (await me.post("/api/runs", json={"task": "Hi"})).json()["run_id"]
        async with looking(browser) as (page, elsewhere):
            faults = list[str]()
            page.on("pageerror", lambda error: faults.append(str(error)))
            await page.goto(f"{site.url}/login?token=the-operator")
            await page.goto(f"{site.url}/runs/{run}")
            live = page.locator("#tokens")
            await expect(live.locator(".thought")).to_have_text("classifier thinks: Hm, so.")
            await expect(live.locator("div:not(.thought)")).to_contain_text("Hi! I am")
            assert await live.locator(".thought").evaluate("each => getComputedStyle(each).fontStyle") == "italic"
            await page.reload()  # What is half written is emitted again.
            await expect(live.locator(".thought")).to_have_text("classifier thinks: Hm, so.")
            await expect(page.locator("#transcript").get_by_text("Hm, so.")).to_have_count(0)
            read.set()
            await expect(page.get_by_role("status")).to_have_text("completed")
            await expect(page.locator(".talk").get_by_text("Hi! I am a team.")).to_have_count(1)
            await expect(live).to_have_text("")
    assert (faults, elsewhere) == ([], [])
