"""Pictures as Chromium draws them."""

from __future__ import annotations

from itertools import combinations

import pytest
from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm
from test_diagrams import made

from upcall import PausableAgent
from upcall.testing import ScriptedModelClient
from upcall.ui.diagrams import team_svg, timeline, tree

lab = pytest.importorskip("lab")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(lab.CHROMIUM is None, reason="no Chromium here: apt-get install chromium"),
]

TEXTS = """() => [...document.querySelectorAll("text")].map(each => {
    const box = each.getBoundingClientRect()
    return [box.left, box.top, box.right, box.bottom, each.textContent]
})"""
SHORTEST = 9
"""Pixels that a line of text is high, at least."""


def of_size(agents: int, waits: int) -> dict[str, str]:
    """Pictures of a run with so many agents and waits, and of a team that is as large."""
    run, worked = made(agents, waits)
    client = ScriptedModelClient({})
    names = [f"agent_{number}" for number in range(agents)]
    swarm = Swarm(
        [AssistantAgent(name, client, handoffs=[other for other in names if other != name]) for name in names]
    )
    nested = PausableAgent("lead", client, agents=[PausableAgent(name, client) for name in names])
    teams = {"swarm": team_svg(swarm), "nested": team_svg(RoundRobinGroupChat([nested]))}
    return {"timeline": timeline(run, worked), "tree": tree(run)} | teams


@pytest.mark.parametrize(("agents", "waits"), [(1, 0), (5, 3), (20, 10), (50, 20)])
async def test_diagram_texts_do_not_overlap_in_the_browser(agents: int, waits: int) -> None:
    async with lab.chromium() as browser, lab.looking(browser, width=800) as (page, elsewhere):
        for name, svg in of_size(agents, waits).items():
            await page.set_content(f'<body style="margin:0">{svg}</body>')
            boxes = await page.evaluate(TEXTS)
            assert len(boxes) > 1
            for left, top, right, bottom, emitted in boxes:
                assert bottom - top >= SHORTEST, (name, emitted)
                assert (left >= 0, right <= 800) == (True, True), (name, emitted)
            for one, other in combinations(boxes, 2):
                across = one[0] < other[2] and other[0] < one[2]
                assert not (across and one[1] < other[3] and other[1] < one[3]), (name, one, other)
        assert elsewhere == []
