"""Messages to agents at work, and stops after a step, by each door of the service."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from lab import CHROMIUM, chromium
from playwright.async_api import expect
from services import ASK, Site, one_agent, serving, settle, start
from steered_process import wait_for
from test_mcp_command import call, connected
from test_web_browser import log_in

from upcall import PausableAgent
from upcall.testing import Call, ScriptedModelClient


class AtWork:
    """A service with a run of alice whose agent is in a step that ends when `finish` is called."""

    def __init__(self, site: Site, me: httpx.AsyncClient, run_id: str, client: ScriptedModelClient) -> None:
        self.site, self.me, self.run_id, self._client = site, me, run_id, client

    def finish(self) -> None:
        """Let the step end."""
        Path("go").touch()

    @property
    def last_read(self) -> Any:
        """The last message that the model was sent."""
        return self._client.requests[-1].messages[-1]["content"]


@asynccontextmanager
async def at_work() -> AsyncIterator[AtWork]:
    """Yield a run at work."""

    async def hold() -> str:
        """Wait."""
        Path("at step").touch()
        await wait_for(Path("go"))
        return "waited"

    client = ScriptedModelClient([Call("hold"), "Done."])

    def make_team() -> Team:
        return RoundRobinGroupChat([PausableAgent("agent", client, tools=[hold])], max_turns=1)

    async with serving(make_team) as site, await site.caller("alice") as me:
        started = await me.post("/api/runs", json={"task": "Build it"})
        await asyncio.wait_for(wait_for(Path("at step")), 30)
        try:
            yield AtWork(site, me, started.json()["run_id"], client)
        finally:
            Path("go").touch()


PAGE = {"Accept": "text/html"}
_FIELD = re.compile(r'name="(csrf|key)" value="([0-9a-f]+)"')


async def read_fields(client: httpx.AsyncClient, run_id: str) -> dict[str, str]:
    """Read the hidden fields of the forms on a run's page."""
    return dict(_FIELD.findall((await client.get(f"/runs/{run_id}")).text))


async def agui(me: httpx.AsyncClient, **more: Any) -> list[Any]:
    """Send the message "Use tabs." by AG-UI; the events that follow."""
    messages = [
        {"id": "m1", "role": "user", "content": "Build it"},
        {"id": "m2", "role": "user", "content": "Use tabs."},
    ]
    body = {"threadId": "thread", "runId": "2", "messages": messages, "tools": [], "context": [], **more}
    response = await me.post("/agui", json=body)
    return [json.loads(line[6:]) for line in response.text.splitlines() if line.startswith("data: ")]


async def test_message_by_http_is_read_once_though_sent_twice() -> None:
    async with at_work() as work:
        address, body = f"/api/runs/{work.run_id}/messages", {"text": "Use tabs."}
        sent = [await work.me.post(address, json=body, headers={"Idempotency-Key": "one"}) for _ in range(2)]
        assert [each.status_code for each in sent] == [202, 202]
        assert sent[0].json()["id"] == sent[1].json()["id"]
        assert "reads it after the present step" in sent[0].json()["note"]
        work.finish()
        assert (await settle(work.me, work.run_id))["result"] == "Done."
        assert work.last_read == "Use tabs."
        log = [each.kind for each in await work.site.service.store.events.read(work.run_id)]
        assert [log.count(kind) for kind in ("message", "message taken")] == [1, 1]


async def test_message_by_http_to_somebody_elses_run_is_refused() -> None:
    async with at_work() as work, await work.site.caller("bob") as bob:
        assert (await bob.post(f"/api/runs/{work.run_id}/messages", json={"text": "Mine."})).status_code == 404


async def test_message_by_http_after_the_end_is_refused() -> None:
    async with serving(one_agent("Done.")) as site, await site.caller("alice") as me:
        run = await start(me)
        refused = await me.post(f"/api/runs/{run['run_id']}/messages", json={"text": "And tests."})
        assert (refused.status_code, "read nothing any more" in refused.json()["detail"]) == (409, True)


async def test_message_by_page_is_shown_until_read() -> None:
    async with at_work() as work, await work.site.browser("alice") as alice:
        page = (await alice.get(f"/runs/{work.run_id}")).text
        fields = dict(re.findall(r'name="(csrf|key)" value="([0-9a-f]+)"', page))
        sent = await alice.post(f"/runs/{work.run_id}/messages", data={**fields, "text": "Use tabs.", "to": "agent"})
        assert (sent.status_code, sent.headers["location"]) == (303, f"/runs/{work.run_id}#messages")
        page = (await alice.get(f"/runs/{work.run_id}")).text
        assert ("not read yet, for agent" in page, "Stop after this step" in page) == (True, True)
        work.finish()
        await settle(work.me, work.run_id)
        page = (await alice.get(f"/runs/{work.run_id}")).text
        assert (work.last_read, "not read yet" in page, page.count("Use tabs.")) == ("Use tabs.", False, 1)


async def test_message_refused_by_page_keeps_its_text() -> None:
    async with at_work() as work, await work.site.browser("alice") as alice:
        fields = await read_fields(alice, work.run_id)
        wrong = {**fields, "text": "\nUse tabs.", "to": "nobody"}
        refused = await alice.post(f"/runs/{work.run_id}/messages", data=wrong, headers=PAGE)
        assert (refused.status_code, "has no agent" in refused.text) == (400, True)
        assert ">\n\nUse tabs.</textarea>" in refused.text
        assert 'value="nobody"' in refused.text
        again = {**dict(_FIELD.findall(refused.text)), "text": "Use tabs."}
        assert (await alice.post(f"/runs/{work.run_id}/messages", data=again)).status_code == 303


async def test_message_after_the_end_becomes_a_follow_up() -> None:
    async with (
        serving(one_agent("Done.")) as site,
        await site.caller("alice") as me,
        await site.browser("alice") as page,
    ):
        run = await start(me)
        fields = await read_fields(page, run["run_id"])
        late = {**fields, "text": "And tests."}
        refused = await page.post(f"/runs/{run['run_id']}/messages", data=late, headers=PAGE)
        assert (refused.status_code, refused.text.count("And tests.</textarea>")) == (409, 1)
        assert "read nothing any more" in refused.text


async def test_requested_stop_is_shown_until_the_run_stops() -> None:
    async with at_work() as work, await work.site.browser("alice") as alice:
        address, notice = f"/runs/{work.run_id}", "The run stops after the present step."
        fields = await read_fields(alice, work.run_id)
        shown = [notice in (await alice.get(address)).text]
        await alice.post(f"{address}/stop", data=fields)
        shown.append(notice in (await alice.get(address)).text)
        work.finish()
        async with asyncio.timeout(30):
            while not (await work.me.get(f"/api/runs/{work.run_id}")).json()["interrupted"]:
                await asyncio.sleep(0.05)
        shown.append(notice in (await alice.get(address)).text)
    assert shown == [False, True, False]


async def test_stop_by_page_leaves_the_run_resumable() -> None:
    async with at_work() as work, await work.site.browser("alice") as alice:
        page = (await alice.get(f"/runs/{work.run_id}")).text
        fields = dict(re.findall(r'name="(csrf)" value="([0-9a-f]+)"', page))
        assert (await alice.post(f"/runs/{work.run_id}/stop", data=fields)).status_code == 303
        work.finish()
        async with asyncio.timeout(30):
            while not (stopped := (await work.me.get(f"/api/runs/{work.run_id}")).json())["interrupted"]:
                await asyncio.sleep(0.05)
        assert stopped["result"] is None
        await work.me.post(f"/api/runs/{work.run_id}/resume")
        assert (await settle(work.me, work.run_id))["result"] == "Done."


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here: apt-get install chromium")
async def test_message_form_gives_way_to_the_follow_up() -> None:
    async with chromium() as browser, at_work() as work:
        page = await log_in(browser, f"{work.site.url}/login?token=the-operator")
        await page.goto(f"{work.site.url}/runs/{work.run_id}")
        await expect(page.get_by_label("Say something to the agents")).to_be_visible()
        work.finish()
        await expect(page.get_by_label("What next?")).to_be_visible()
        await expect(page.get_by_label("Say something to the agents")).to_have_count(0)


@pytest.mark.slow
async def test_message_by_mcp_is_read_by_the_agent_named() -> None:
    async with at_work() as work, connected(work.site, "alice") as session:
        sent = await call(session, "say", run_id=work.run_id, text="Use tabs.", to="agent")
        assert "agent reads it after the present step" in sent["note"]
        assert "has no agent 'agnet'" in await call(session, "say", run_id=work.run_id, text="Hm.", to="agnet")
        work.finish()
        assert (await settle(work.me, work.run_id))["result"] == "Done."
        assert work.last_read == "Use tabs."


@pytest.mark.slow
async def test_stop_by_mcp_is_refused_where_nobody_works() -> None:
    async with serving(one_agent(ASK)) as site, connected(site, "alice") as session, await site.caller("alice") as me:
        run = await start(me)
        assert "nobody works on it" in await call(session, "stop", run_id=run["run_id"])


async def test_message_by_agui_goes_to_the_run_at_work() -> None:
    async with at_work() as work:
        following = asyncio.create_task(agui(work.me, state={"run_id": work.run_id}))
        async with asyncio.timeout(30):
            while "message" not in [each.kind for each in await work.site.service.store.events.read(work.run_id)]:
                await asyncio.sleep(0.05)
        work.finish()
        events = await following
        note = next(each["value"]["note"] for each in events if each["type"] == "CUSTOM")
        assert "reads it after the present step" in note
        assert (events[-1]["type"], events[-1]["result"], work.last_read) == ("RUN_FINISHED", "Done.", "Use tabs.")
        snapshot = [each for each in events if each["type"] == "MESSAGES_SNAPSHOT"][-1]
        assert [each["content"] for each in snapshot["messages"] if each["role"] == "user"] == ["Build it", "Use tabs."]


async def test_message_by_agui_to_a_waiting_agent_is_kept() -> None:
    async with serving(one_agent(ASK, "Built.")) as site, await site.caller("alice") as me:
        run = await start(me)
        events = await agui(me, state={"run_id": run["run_id"]}, forwardedProps={"upcall": {"to": "agent"}})
        note = next(each["value"]["note"] for each in events if each["type"] == "CUSTOM")
        assert "waits for an answer. The message is kept" in note
        assert events[-1]["outcome"]["type"] == "interrupt"
