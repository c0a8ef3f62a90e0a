"""Forks of random trees of agents: the end is that of having asked for the other answer first, and nothing is done
again but what saw it. A recount by another way than the journal's says what that is."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
from agent_trees import ANSWERS, Shape


async def check(seed: int, folder: Path, *, is_cut: bool = False, ids_repeat: bool = False) -> int:
    """Fork a run at one of its questions, and maybe cut the fork off; return how many model calls were not made."""
    rng = random.Random(seed)
    shape = Shape(seed, folder / "one", ids_repeat=ids_repeat)
    run = await shape.finish(await shape.app.start("Paint it"), {}, rng)
    if not run.answered_questions:
        return 0
    question = rng.choice(run.answered_questions)
    (was,) = (each.as_text() for each in run.answers if each.question_id == question.id)
    other = {question.question: next(each for each in ANSWERS if each != was)}
    whole, notes = shape.requests(), Counter(shape.notes)
    plan = await shape.app.forks.plan(run.id, question.id)
    begin = len(shape.client.requests)
    if is_cut:
        shape.fails_at = begin + rng.randint(1, 4)
    forked = await shape.app.fork(run.id, question.id, other[question.question])
    forked = await shape.finish(forked, other)
    first = Shape(seed, folder / "other", ids_repeat=ids_repeat)
    fresh = await first.finish(await first.app.start("Paint it"), other)
    assert (forked.status, forked.result) == (fresh.status, fresh.result)
    assert sorted(each.as_text() for each in forked.answers) == sorted(each.as_text() for each in fresh.answers)
    # What a fresh run asks and the first run did not is all that was asked again; of the notes the same.
    assert shape.requests(begin) == first.requests() - whole
    assert Counter(shape.notes) - notes == Counter(first.notes) - notes
    assert shape.requests(begin).total() <= sum(plan.model_calls_again.values())
    return first.requests().total() - shape.requests(begin).total()


@pytest.mark.parametrize(
    "seed", [seed if seed in (1, 2) else pytest.param(seed, marks=pytest.mark.slow) for seed in range(40)]
)
async def test_fork_ends_as_if_asked_first(seed: int, tmp_path: Path) -> None:
    assert await check(seed, tmp_path, is_cut=seed % 2 == 1, ids_repeat=seed % 4 > 1) >= 0
