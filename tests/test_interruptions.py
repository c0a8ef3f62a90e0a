"""A run that is cut off at any step goes on with nothing repeated but what was in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest

from upcall import Run, RunStatus, Settings, Upcall
from upcall.agents import workspace
from upcall.demo import TASKS, demo_reply
from upcall.testing import ScriptedModelClient

MODEL_CALLS = 10
FILES = 2


class SlowModel(ScriptedModelClient):
    """The demo, with a few turns of the event loop a call, so that a call can be in flight."""

    async def create(self, *args: Any, **options: Any) -> Any:
        for _ in range(5):
            await asyncio.sleep(0)
        return await super().create(*args, **options)


async def cut_off(work: Awaitable[Run], turns: int) -> None:
    """Cancel the work after so many turns of the event loop, like Ctrl-C."""
    task = asyncio.ensure_future(work)
    for _ in range(turns):
        await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait([task])


async def to_the_end(app: Upcall, model: SlowModel) -> Run:
    """Resume and answer until the run is over."""
    for _ in range(5):
        runs = await app.list()
        if not runs:
            await app.start(TASKS[0])
        elif runs[0].status is RunStatus.AWAITING_CLARIFICATION:
            await app.answer(runs[0].id, "FastAPI")
        elif not runs[0].over:
            await app.resume(runs[0].id)
    return (await app.list())[0]


@pytest.mark.parametrize("turns", [*range(0, 120, 5), *range(120, 600, 20), *range(600, 3000, 150)])
async def test_a_run_cut_off_after_so_many_turns_of_the_event_loop_goes_on(
    turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    written: list[Any] = []
    replace = workspace._replace
    monkeypatch.setattr(workspace, "_replace", lambda path, text: (written.append(path), replace(path, text)))
    model = SlowModel(demo_reply)
    app = Upcall(model, store="runs.db", settings=Settings.read(model="demo"))
    await cut_off(app.start(TASKS[0]), turns)
    for run in await app.list():
        if run.status is RunStatus.AWAITING_CLARIFICATION:
            await cut_off(app.answer(run.id, "FastAPI"), turns // 2)
    done = await to_the_end(app, model)
    assert (done.status, "with FastAPI" in str(done.result)) == (RunStatus.COMPLETED, True)
    assert MODEL_CALLS <= len(model.requests) <= MODEL_CALLS + 2
    assert FILES <= len(written) <= FILES + 2


async def test_a_call_that_ends_with_the_cancellation_leaves_no_task_behind() -> None:
    app = Upcall(SlowModel(demo_reply), store="runs.db", settings=Settings.read(model="demo"))
    await cut_off(app.start(TASKS[0]), 150)
    assert asyncio.all_tasks() == {asyncio.current_task()}
