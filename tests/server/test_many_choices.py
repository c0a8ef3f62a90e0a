"""Several choices keep apart at every door of the service, whatever commas their labels hold."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
from mcp.types import ElicitResult
from services import Site, one_agent, serving
from test_mcp_command import User, connected
from test_web_security import find_csrf

from upcall import Upcall
from upcall.server.callers import Caller
from upcall.testing import Call

CITIES = ["Paris, Texas", "Rome", "Paris", "Texas"]
ASK_CITIES = Call("ask_user", {"question": "Which cities?", "options": CITIES, "multi_select": True})


def app_of(site: Site) -> Upcall:
    return site.service.app_for(Caller("alice"))


async def by_api(site: Site, chosen: Sequence[str]) -> None:
    async with await site.caller("alice") as alice:
        run = await app_of(site).start("Travel", user="alice")
        given = {"answers": {run.questions[0].id: list(chosen)}}
        (await alice.post(f"/api/runs/{run.id}/answers", json=given)).raise_for_status()


async def by_page(site: Site, chosen: Sequence[str]) -> None:
    run = await app_of(site).start("Travel", user="alice")
    async with await site.browser("alice") as alice:
        csrf = find_csrf((await alice.get(f"/runs/{run.id}")).text)
        form = {"csrf": csrf, "question": run.questions[0].id, "choice": list(chosen)}
        answered = await alice.post(f"/runs/{run.id}/answers", data=form)
        assert answered.status_code == 303


async def by_elicitation(site: Site, chosen: Sequence[str]) -> None:
    human = User(ElicitResult(action="accept", content={"chosen": list(chosen)}))
    async with connected(site, "alice", human) as session:
        await session.call_tool("start", {"task": "Travel"})


async def by_mcp_tool(site: Site, chosen: Sequence[str]) -> None:
    run = await app_of(site).start("Travel", user="alice")
    given = {"run_id": run.id, "question_id": run.questions[0].id, "answer": list(chosen)}
    async with connected(site, "alice") as session:
        await session.call_tool("answer", given)


@pytest.mark.parametrize("chosen", [["Paris", "Texas"], ["Paris, Texas", "Rome"]])
@pytest.mark.parametrize("answer_by", [by_api, by_page, by_elicitation, by_mcp_tool])
@pytest.mark.slow
async def test_choices_with_commas_stay_apart(
    answer_by: Callable[[Site, Sequence[str]], Awaitable[None]], chosen: list[str]
) -> None:
    async with serving(one_agent(ASK_CITIES, "Booked.")) as site:
        await answer_by(site, chosen)
        (run,) = await app_of(site).list()
    assert [answer.text for answer in run.answers] == [", ".join(f'"{each}"' for each in chosen)]
