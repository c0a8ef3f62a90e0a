"""What is known of the worth of a run's questions, over HTTP and on the run's page, where nothing is tried."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import httpx
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from services import Site, serving, settle, start

from upcall import PausableAgent
from upcall.server.service import Caller
from upcall.testing import Call, Reply, Request, ScriptedModelClient

COLOUR = Call("ask_user", {"question": "Which colour?", "options": ["Red", "Green"]})
CITY = Call("ask_user", {"question": "Which city?", "options": ["Rome", "Oslo"]})


def reply(request: Request) -> Reply:
    """Ask for a colour, which does not matter, and a city, which does."""
    given = [*request.tool_results.values()]
    return [COLOUR, CITY, f"Flown to {given[-1] if given else ''}"][len(given)]


@asynccontextmanager
async def completed() -> AsyncIterator[tuple[Site, httpx.AsyncClient, str, ScriptedModelClient]]:
    """Serve a completed run of alice, who answered both questions."""
    model = ScriptedModelClient(reply)

    def team() -> Team:
        return RoundRobinGroupChat([PausableAgent("agent", model)], max_turns=1)

    async with serving(team) as site, await site.caller("alice") as alice:
        run = await start(alice)
        for answer in ("Red", "Rome"):
            (asked,) = run["questions"]
            await alice.post(f"/api/runs/{run['run_id']}/answers", json={"answers": {asked["id"]: answer}})
            run = await settle(alice, run["run_id"])
        yield site, alice, run["run_id"], model


async def test_worth_over_http_names_verdicts_and_costs() -> None:
    async with completed() as (site, alice, run_id, model):
        before = (await alice.get(f"/api/runs/{run_id}/worth")).json()
        assert [each["verdict"] for each in before["questions"]] == [None, None]
        assert (before["model_calls"], len(model.requests)) == (6, 3)
        await site.service.app_for(Caller("alice")).worth.measure(run_id, user="alice")
        after = (await alice.get(f"/api/runs/{run_id}/worth")).json()
        assert [each["verdict"] for each in after["questions"]] == ["same", "changed"]
        listed = (await alice.get("/api/runs")).json()["runs"]
        assert [each["run_id"] for each in listed] == [run_id]


async def test_worth_on_the_page_links_to_the_trials() -> None:
    async with completed() as (site, _, run_id, _), await site.browser("alice") as browser:
        assert "Was it worth asking?" not in (await browser.get(f"/runs/{run_id}")).text
        known = await site.service.app_for(Caller("alice")).worth.measure(run_id, user="alice")
        page = (await browser.get(f"/runs/{run_id}")).text
    section = page.partition("Was it worth asking?")[2].partition("</ul>")[0]
    assert section.index("no other answer changes") < section.index("another answer changes")
    assert all(f'href="/runs/{trial}"' in section for each in known.questions for trial in each.trials)
    assert page.count('<span class="badge">trial</span>') == 3
