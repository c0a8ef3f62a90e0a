"""Over PostgreSQL the trials are submitted, and workers in other processes do them."""

from __future__ import annotations

import asyncio
import re

import pytest
from postgres import Server
from trial_world import experiment, make_solo
from worker_process import running

from upcall.errors import ConfigurationError
from upcall.experiments import Results, runner

pytest.importorskip("upcall.workers")
pytestmark = pytest.mark.slow

CHANGES = {"teams": {"solo": "trial_world:make_solo"}, "policies": ["never", "always", "resolver"]}


def rows(results: Results) -> list[dict[str, object]]:
    return [each.model_dump(exclude={"seconds", "trial"}) for each in results.records]


async def test_workers_do_the_trials_as_one_process_does(postgres: Server) -> None:
    location = postgres.new_database()
    with running(location, 2):
        done = await experiment(3, store=location, name="fleet", **CHANGES).run()
        again = await experiment(3, store=location, name="fleet", **CHANGES).run()
    assert rows(done) == rows(await experiment(3, **CHANGES).run())
    assert again.figures() == done.figures()


async def test_it_is_reported_that_no_worker_takes_the_runs(
    postgres: Server, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(runner, "WORKER_WARNING_DELAY_S", 0.2)
    location = postgres.new_database()
    doing = asyncio.create_task(experiment(1, store=location, **CHANGES).run())
    while not caplog.messages and not doing.done():
        await asyncio.sleep(0.05)
    with running(location):
        done = await doing
    (text,) = caplog.messages
    assert re.fullmatch(r"No worker takes the runs of (\S+) \(\d+ waiting\)\. .*: upcall worker --store \1", text)
    assert (len(done.records), "ss%3A" in text) == (3, False)


async def test_team_without_a_name_is_no_workers_task(postgres: Server) -> None:
    chosen = experiment(1, store=postgres.new_database(), teams={"solo": make_solo})
    with pytest.raises(ConfigurationError, match="workers do the runs of this store: name it"):
        await chosen.run()


async def test_team_for_each_task_is_no_workers_task(postgres: Server) -> None:
    chosen = experiment(1, store=postgres.new_database(), teams={"solo": "trial_world:make_for_task"})
    with pytest.raises(ConfigurationError, match="is made for each task, and workers do the runs of this store"):
        await chosen.run()
