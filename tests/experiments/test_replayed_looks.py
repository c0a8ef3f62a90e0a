"""A replay goes by the first looks that were taken, whoever owns the server then."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

import pytest
from ask_replies import CLEAR_LOOK, for_run
from scenario import CLEAR, PLAN, TASK

from upcall import RunStatus
from upcall.experiments import Experiment
from upcall.testing import LoopbackServer, Reply


async def replayed(server: LoopbackServer, *, later: str | None) -> None:
    """Run an experiment and replay it: without its server, or `later` with one whose models are owned by another."""
    fields: dict[str, Any] = {"name": "trial", "tasks": [{"id": "one", "task": TASK}], "policies": ["always"]}
    with server:
        fields["models"] = {"m": {"model": "m", "base_url": server.base_url, "small": True}}
        first = await Experiment(**fields).run()
    calls = server.calls
    with ExitStack() as stack:
        if later is not None:
            server.owned_by = later
            stack.enter_context(server)
        again = await Experiment(**fields).run(replay=True)
    assert (first.requested, again.requested, again.found, server.calls) == (calls, 0, calls, calls)
    assert repr(again.figures()) == repr(first.figures())
    assert [each.status for each in again.records] == [RunStatus.COMPLETED]


DONE: dict[str, list[Reply]] = {"planner": [CLEAR, PLAN], "lead": ['{"summary": "All done."}']}


@pytest.mark.parametrize("later", [None, "openai"])
async def test_replay_goes_by_the_look_that_was_taken(later: str | None) -> None:
    await replayed(LoopbackServer(for_run(looks=[CLEAR_LOOK], **DONE), owned_by="llamacpp"), later=later)


@pytest.mark.parametrize("later", [None, "llamacpp"])
async def test_replay_takes_no_look_that_was_not_taken(later: str | None) -> None:
    await replayed(LoopbackServer(for_run(clarifier=[CLEAR], **DONE), owned_by="openai"), later=later)
