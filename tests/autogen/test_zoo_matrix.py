"""The zoo of servers x streamed or not x tools or not x a question in between x whose client: right, or one clear line.

Ours, a user's client of AutoGen's in a pausable agent, and a stock agent with its own client.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from forked import run_python
from places import SUPPORT
from zoo_cells import CELLS, Cell, CellServer, judge, make_app, play, to_json

from upcall.testing.zoo import ZOO, Behaviour

BEHAVIOURS = [*ZOO.values()]


def cells_of(behaviour: Behaviour) -> list[Cell]:
    """Return the cells that a behaviour can show itself in: calls need tools."""
    return [cell for cell in CELLS if cell.tools or behaviour.right != "calls"]


def one_of(number: int, behaviour: Behaviour) -> Cell:
    """Return a cell for the fast suite: the next one for each behaviour, so that each cell has several."""
    cells = cells_of(behaviour)
    return cells[number % len(cells)]


@pytest.mark.parametrize(("number", "behaviour"), [*enumerate(BEHAVIOURS)], ids=lambda each: getattr(each, "name", ""))
async def test_zoo_run_is_right_or_one_line(number: int, behaviour: Behaviour, tmp_path: Path) -> None:
    assert await play(behaviour, one_of(number, behaviour), tmp_path / "cell") is None


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda each: each.name)
async def test_zoo_runs_are_right_in_every_cell(behaviour: Behaviour, tmp_path: Path) -> None:
    found = {cell: await play(behaviour, cell, tmp_path / f"{at}") for at, cell in enumerate(cells_of(behaviour))}
    assert {cell: wrong for cell, wrong in found.items() if wrong} == {}


@pytest.mark.slow
@pytest.mark.parametrize("caller", ["ours", "user's", "stock agent"])
@pytest.mark.parametrize(
    "name", ["all calls have index 0", "reasoning beside the text", "roles must alternate", "cut off at max_tokens"]
)
async def test_zoo_run_resumes_in_another_process(caller: str, name: str, tmp_path: Path) -> None:
    behaviour, cell = (
        ZOO[name],
        next(each for each in CELLS if (each.caller, each.stream, each.resume) == (caller, True, True)),
    )
    program = [str(SUPPORT / "zoo_cells.py")]
    with CellServer(behaviour, cell) as server:
        given = [server.base_url, name, to_json(cell), str(tmp_path)]
        first = run_python(*program, *given, "start")
        second = run_python(*program, *given, first.stdout)
        run = await make_app(behaviour, cell, server.base_url, tmp_path).get(first.stdout)
    assert second.stdout == first.stdout, second.stderr
    assert judge(behaviour, run, tmp_path) is None


def test_zoo_has_sixty_behaviours_with_sources_in_every_cell() -> None:
    assert len(BEHAVIOURS) >= 60
    assert all(each.source for each in BEHAVIOURS)
    assert {one_of(*each) for each in enumerate(BEHAVIOURS)} == {*CELLS}
