"""The page of runs, with and without what its form asks for."""

from __future__ import annotations

import pytest
from services import one_agent, serving, start

PAGE = {"Accept": "text/html"}


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", True),
        ("?status=completed", True),
        ("?text=&status=&owner=&older_than=", True),
        ("?text=BUILD&owner=bob", True),
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
