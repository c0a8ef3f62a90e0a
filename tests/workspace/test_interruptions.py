"""A run that is cut off at any step continues with nothing repeated but what was in flight."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import pytest

from upcall import Run, RunStatus, Settings, Upcall
from upcall.execution.demo import TASKS, demo_reply
from upcall.sandboxes.bubblewrap import explain_unusable
from upcall.storage.journal import RunJournal
from upcall.storage.store import RunStore
from upcall.testing import ScriptedModelClient
from upcall.workspace import folder

SANDBOXED = explain_unusable() is None
"""Whether the demo's coder can compile what it wrote. It does: code that was never run is a warning of its report."""

SETTINGS: dict[str, Any] = {
    "models": {"model": "demo"},
    "workspace": {"executor": "bubblewrap" if SANDBOXED else "none"},
}
MODEL_CALLS = 10 + SANDBOXED
FILES = 2
STEPS = 54 + 6 * SANDBOXED
"""Where the scenario can be cut: before and after each model call and each write to the store. To compile takes one
more call, the record of what is to be run, and that of what came of it."""


class Steps:
    """Counts the steps of the scenario, and calls the alarm at one of them, so many turns of the event loop later."""

    def __init__(self) -> None:
        self.taken = 0
        self.alarm: tuple[int, int, Callable[[], object]] | None = None

    def take(self) -> None:
        self.taken += 1
        if self.alarm is not None and self.alarm[0] == self.taken:
            _, turns, ring = self.alarm
            _later(turns, ring)


def _later(turns: int, ring: Callable[[], object]) -> None:
    loop = asyncio.get_running_loop()
    loop.call_soon(lambda: _later(turns - 1, ring)) if turns else ring()


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> Steps:
    monkeypatch.setattr(
        "upcall.autogen.record_buffer.REPLY_BUFFER_TIME_S", 60
    )  # Records share a write, however slow it is here.
    counted = Steps()
    parts = [
        (ScriptedModelClient, "create"),
        *((RunStore, name) for name in ("create", "save", "claim")),
        (RunJournal, "write"),
    ]
    for home, name in parts:
        monkeypatch.setattr(home, name, _stepping(getattr(home, name), counted))
    return counted


def _stepping(call: Any, steps: Steps) -> Any:
    async def stepping(*args: Any, **options: Any) -> Any:
        steps.take()
        await asyncio.sleep(0)
        result = await call(*args, **options)
        steps.take()
        await asyncio.sleep(0)
        return result

    return stepping


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Return the files written so far, each as often as it was written."""
    files: list[Any] = []
    take = folder.Folder._take_step
    monkeypatch.setattr(
        folder.Folder, "_take_step", lambda self, each, *more: (files.append(each.path), take(self, each, *more))
    )
    return files


async def to_the_end(app: Upcall) -> Run:
    """Start, resume and answer, whatever the run needs, until it is over."""
    for _ in range(5):
        runs = await app.list()
        if not runs:
            await app.start(TASKS[0])
        elif runs[0].status is RunStatus.AWAITING_CLARIFICATION:
            await app.answer(runs[0].id, "FastAPI")
        elif not runs[0].is_final:
            await app.resume(runs[0].id)
    return (await app.list())[0]


@pytest.mark.slow
async def test_scenario_has_as_many_steps_as_are_tried(steps: Steps) -> None:
    await to_the_end(Upcall(ScriptedModelClient(demo_reply), store="runs.db", settings=Settings.read(None, **SETTINGS)))
    assert steps.taken == STEPS


EVERY_STEP = [
    pytest.param(step, turns, marks=[pytest.mark.slow] if turns or step % 4 else [])
    for step, turns in itertools.product(range(1, STEPS + 1), (0, 1, 4))
]


@pytest.mark.parametrize(("step", "turns"), EVERY_STEP)
@pytest.mark.slow
async def test_run_cut_off_at_a_step_continues(step: int, turns: int, steps: Steps, written: list[Any]) -> None:
    model = ScriptedModelClient(demo_reply)
    app = Upcall(model, store="runs.db", settings=Settings.read(None, **SETTINGS))
    cut = asyncio.create_task(to_the_end(app))
    steps.alarm = (step, turns, cut.cancel)
    await asyncio.wait([cut])
    assert asyncio.all_tasks() == {asyncio.current_task()}
    done = await to_the_end(app)
    assert (done.status, "with FastAPI" in str(done.result)) == (RunStatus.COMPLETED, True)
    assert MODEL_CALLS <= len(model.requests) <= MODEL_CALLS + 1
    assert FILES <= len(written) <= FILES + FILES
    assert (done.plan is not None, done.classification is not None, len(done.answers)) == (True, True, 1)
