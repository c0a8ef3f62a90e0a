"""An overruling that is killed at any of its steps: the run is held until it is completed, and nothing is taken back
twice."""

from __future__ import annotations

import signal
from pathlib import Path

import booking as program
import pytest
from booking import Booking
from forked import run_python

from upcall.errors import EffectsRemain, RunBeingReplaced, RunNotWaiting

LAST_STEP = 20
"""More than there are: at this one nothing is killed."""


@pytest.mark.slow
@pytest.mark.parametrize("dies_at", [*range(1, LAST_STEP + 1)])
async def test_killed_overruling_is_completed(tmp_path: Path, dies_at: int) -> None:
    booking = Booking(tmp_path, books=3, ids_repeat=True, ask_rules=[{"words": "color", "do": "wait"}])
    run = await booking.app.start("Build it")
    question_id = run.answers[0].question_id
    before = booking.booked
    made = run_python(program.__file__, str(tmp_path), run.id, question_id, "FastAPI", str(dies_at))
    if dies_at == LAST_STEP:
        assert int(made.stdout) >= LAST_STEP - 1
        return
    assert made.returncode == -signal.SIGKILL, made.stderr
    app = Booking(tmp_path, books=3, ids_repeat=True).app
    now = await app.get(run.id)
    if now.replaced_by is not None:  # Killed behind its write: the branch is resumed, or answered.
        assert booking.booked in ([], ["FastAPI"], ["FastAPI", "FastAPI1"], ["FastAPI", "FastAPI1", "FastAPI2"])
        branch = await app.get(now.replaced_by)
        if branch.interrupted:
            branch = await app.resume(branch.id)
    else:
        if booking.booked != before:
            assert now.replacing == (question_id,)
            with pytest.raises(RunBeingReplaced):
                await app.answer(run.id, {run.questions[0].id: "red"})
        try:
            branch = await app.fork(run.id, question_id, "FastAPI", replace=True)
        except EffectsRemain:  # Killed in an undo.
            left = booking.booked
            branch = await app.fork(run.id, question_id, "FastAPI", replace=True, keep_effects=True)
            assert booking.booked[-3:] == ["FastAPI", "FastAPI1", "FastAPI2"]
            assert booking.booked[:-3] in ([], left[-1:])
            booking.file.write_text("\n".join(booking.booked[-3:]))
    while branch.waiting:
        branch = await app.answer(branch.id, "red")
    assert (branch.result, booking.booked) == ("Built with FastAPI in red.", ["FastAPI", "FastAPI1", "FastAPI2"])
    with pytest.raises(RunNotWaiting):
        await app.answer(run.id, {run.questions[0].id: "red"})
