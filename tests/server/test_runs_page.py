"""The page of runs, with and without what its form asks for."""

from __future__ import annotations

from datetime import timedelta

import pytest
from services import one_agent, serving, start
from stores import FIRST

from upcall import Run, identity
from upcall.server import pages
from upcall.storage import run_lists

PAGE = {"Accept": "text/html"}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", True),
        ("?status=completed", True),
        ("?text=&status=&owner=&older_than=", True),
        ("?text=BUILD&owner=bob", True),
        ("?agent=agent", True),
        ("?agent=nobody", False),
        ("?status=failed", False),
        ("?text=no+such+task&older_than=1d", False),
    ],
)
async def test_runs_page_opens_with_any_filter(query: str, found: bool) -> None:
    async with serving(one_agent("Done.")) as site, await site.caller("bob") as bob:
        run = await start(bob, "Build it")
        page = await bob.get(f"/runs{query}", headers=PAGE)
    assert page.status_code == 200, page.text
    assert (f"/runs/{run['run_id']}" in page.text) == found


async def test_search_passes_over_pages_without_a_match(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_lists, "LOOKED_AT", 1)
    async with serving() as site, await site.caller("bob") as bob:
        for days, task in enumerate([*["Hay"] * 5, "The needle"]):
            at = identity.now() - timedelta(days=days)
            await site.service.store.create(Run(task=task, user="bob", created_at=at, updated_at=at), FIRST)
        found = [(await bob.get("/runs?text=needle", headers=PAGE)).text]
        monkeypatch.setattr(pages, "MAX_LOOKS", 2)
        found.append((await bob.get("/runs?text=needle", headers=PAGE)).text)
    assert [("The needle</a>" in each, "so far" in each) for each in found] == [(True, False), (False, True)]
