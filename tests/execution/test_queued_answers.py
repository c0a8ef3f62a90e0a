"""An answer by mail, while a team works, to a question that was open before the team began."""

from __future__ import annotations

import signal
from pathlib import Path

import mail_process
import pytest
from conversation import soon
from forked import run_python

from upcall import RunStatus
from upcall.runs.transcript import EntryKind
from upcall.storage.transcripts import load_transcript


async def list_answered(world: mail_process.World) -> list[str]:
    """Return the questions whose answers the run's transcript has, sorted, by all its segments."""
    run = await world.app.get(mail_process.RUN)
    kept = await load_transcript(world.app.store, run.id)
    answered = [each.name for each in kept if each.kind is EntryKind.ANSWER]
    return sorted(each.question.question for name in answered for each in run.records if each.id == name)


@pytest.mark.slow
async def test_queued_answer_does_not_rerun_a_finished_team(tmp_path: Path) -> None:
    """The writer gets its answer in the middle of the work; when the lead is done, nobody makes one more model call."""
    world = mail_process.World(tmp_path, waits=True)
    run = await soon(mail_process.work(world))
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    assert world.calls.count("lead") == 2
    assert world.noted() == 1


@pytest.mark.slow
async def test_queued_answer_repeats_no_later_work_after_a_kill(tmp_path: Path) -> None:
    """The writer took its note on the answer that came by mail; after the kill nobody asks or takes it again."""
    assert run_python(mail_process.__file__, str(tmp_path)).returncode == -signal.SIGKILL
    world = mail_process.World(tmp_path)
    run = await soon(world.app.resume(mail_process.RUN))
    assert [each.question for each in run.questions] == []
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Done.")
    assert "writer" not in world.calls
    assert world.noted() == 1


@pytest.mark.slow
async def test_transcript_has_an_answer_that_came_by_mail(tmp_path: Path) -> None:
    await soon(mail_process.work(world := mail_process.World(tmp_path, waits=True)))
    assert await list_answered(world) == ["Which framework?", "Which style?"]


@pytest.mark.slow
async def test_kill_loses_no_answer_of_the_transcript(tmp_path: Path) -> None:
    assert run_python(mail_process.__file__, str(tmp_path)).returncode == -signal.SIGKILL
    await soon((world := mail_process.World(tmp_path)).app.resume(mail_process.RUN))
    assert await list_answered(world) == ["Which framework?", "Which style?"]


async def test_queued_answer_not_taken_lets_a_cancelled_run_fork(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("upcall.execution.segment.ANSWER_POLL_INTERVAL_S", 60)
    app = mail_process.World(tmp_path, waits=True).app
    ids = {each.question: each.id for each in (await app.start("Build it", run_id=mail_process.RUN)).questions}
    working = app.answer_stream(mail_process.RUN, {ids["Which framework?"]: "Express"})
    await soon(anext(working))
    await app.answer(mail_process.RUN, {ids["Which style?"]: "Plain"})
    await working.aclose()
    cancelled = await app.cancel(mail_process.RUN)
    assert [each.text for each in cancelled.answers] == ["Express", "Plain"]
    bench = mail_process.World(tmp_path)
    forked = await soon(bench.app.fork(mail_process.RUN, ids["Which style?"], "Ornate"))
    assert (forked.status, [each.text for each in forked.answers]) == (RunStatus.COMPLETED, ["Express", "Ornate"])
