"""An answer by mail, while a team works, to a question that was open before the team began."""

from __future__ import annotations

import signal
from pathlib import Path

import mail_process
from conversation import soon
from forked import run_python

from upcall import RunStatus


async def test_the_team_is_not_run_again_when_it_is_done(tmp_path: Path) -> None:
    """The writer gets its answer in the middle of the work; when the lead is done, nobody makes one more model call."""
    world = mail_process.World(tmp_path, waits=True)
    run = await soon(mail_process.work(world))
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    assert world.calls.count("lead") == 2
    assert world.noted() == 1


async def test_what_followed_the_answer_is_not_done_again_after_a_kill(tmp_path: Path) -> None:
    """The writer took its note on the answer that came by mail; after the kill nobody asks or takes it again."""
    assert run_python(mail_process.__file__, str(tmp_path)).returncode == -signal.SIGKILL
    world = mail_process.World(tmp_path)
    run = await soon(world.app.resume(mail_process.RUN))
    assert [each.question for each in run.questions] == []
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    assert "writer" not in world.calls
    assert world.noted() == 1
