"""Random trees of agents that continue with assumptions, which the human overrules later, one after another: the end is
that of having asked first, whatever is done in between, and nothing is done again but what saw the other answer."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from agent_trees import ANSWERS, Shape

from upcall import AnsweredBy, Run


async def check(seed: int, folder: Path, share_right: float, *, several: bool = False) -> None:
    """Let a tree assume everything, then say what the human would have said to each question, to one after another or
    to several at once."""
    rng = random.Random(seed)
    shape = Shape(seed, folder / "one", on_ask="assume", ids_repeat=seed % 2 == 1)
    meant: dict[str, str] = {}

    def means(question: str) -> str:
        return meant.setdefault(question, ANSWERS[0] if rng.random() < share_right else rng.choice(ANSWERS[1:]))

    run = await shape.app.start("Paint it")
    assert run.status == "completed", run.error
    while box := [*await shape.app.inbox()]:
        chosen = rng.sample(box, rng.randint(1, len(box))) if several else [rng.choice(box)]
        assert {(each.run_id, each.assumed) for each in chosen} == {(run.id, ANSWERS[0])}
        before, begin, notes = shape.requests(), len(shape.client.requests), Counter(shape.notes)
        given = {each.question.id: means(each.question.question) for each in chosen}
        if agreed := {each: answer for each, answer in given.items() if answer == ANSWERS[0]}:
            run = await shape.app.answer(run.id, agreed)
            assert len(shape.client.requests) == begin
        if not (other := {each: answer for each, answer in given.items() if answer != ANSWERS[0]}):
            continue
        one = rng.choice([*other])
        also = {each: answer for each, answer in other.items() if each != one}
        plan = await shape.app.forks.plan(run.id, one, replace=True, also=also)
        run = await shape.app.fork(run.id, one, other[one], replace=True, also=also)
        assert run.status == "completed", run.error
        first = await ask_first(seed, folder / f"other{begin}", run, ids_repeat=shape.ids_repeat)
        assert shape.requests(begin) == first.requests() - before
        assert shape.requests(begin).total() <= sum(plan.model_calls_again.values())
        assert (Counter(shape.notes) - Counter(first.notes), Counter(first.notes) - Counter(shape.notes)) == ({}, {})
        assert len(plan.taken_back or ()) >= (notes - Counter(shape.notes)).total()
    assert all(answer.by is not AnsweredBy.POLICY for answer in run.answers)
    assert {asked.question: answer.text for asked, answer in run.clarification_history}.items() <= meant.items()


async def ask_first(seed: int, folder: Path, run: Run, *, ids_repeat: bool) -> Shape:
    """Return the tree at the end of a run in which the human was asked first, and said what holds in `run`."""
    first = Shape(seed, folder, ids_repeat=ids_repeat)
    said = {asked.question: answer.text for asked, answer in run.clarification_history}
    fresh = await first.finish(await first.app.start("Paint it"), said)
    assert (fresh.status, fresh.result) == (run.status, run.result)
    return first


@pytest.mark.parametrize(
    "seed", [seed if seed in (1, 2) else pytest.param(seed, marks=pytest.mark.slow) for seed in range(40)]
)
async def test_overruled_assumptions_end_as_if_asked_first(seed: int, tmp_path: Path) -> None:
    await check(seed, tmp_path, share_right=(0.0, 0.5, 1.0)[seed % 3])


@pytest.mark.parametrize(
    "seed", [seed if seed in (2, 3) else pytest.param(seed, marks=pytest.mark.slow) for seed in range(40)]
)
async def test_several_overruled_at_once_end_as_if_asked_first(seed: int, tmp_path: Path) -> None:
    await check(seed, tmp_path, share_right=(0.0, 0.5)[seed % 2], several=True)
