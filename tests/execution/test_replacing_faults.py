"""An overruling beside other branches, in a queue, with undos that fail: no effect is lost, and none is taken back from
a run that stands."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from booking import COLOR, FRAMEWORK, Booking

from upcall import AnsweredBy, Run, RunStatus
from upcall.errors import CallerError, EffectsRemain, RunConflict
from upcall.storage.export import export_run, import_runs
from upcall.testing import Call, Reply, Request, ScriptedModelClient

SIZE = {"question": "Which size?", "options": ["S", "L"]}


def ask_all(booking: Booking, questions: Sequence[dict[str, object]]) -> None:
    """Let the agent ask one question after another, and give what it was answered."""

    def reply(request: Request) -> Reply:
        results = [each["content"] for each in request.messages if each["role"] == "tool"]
        if len(results) == len(questions):
            return ", ".join(results)
        return Call("ask_user", questions[len(results)], f"call{len(results)}")

    booking.model = ScriptedModelClient(reply)


def ids(run: Run) -> dict[str, str]:
    """Return the ids of a run's questions by their texts."""
    return {each.question: each.id for each in run.asked.values()}


async def overrule_two(booking: Booking) -> tuple[Run, Run]:
    """Let a run assume three answers, and overrule two of them at once; return it and the branch in its place."""
    ask_all(booking, [FRAMEWORK, COLOR, SIZE])
    run = await booking.app.start("Build it")
    known = ids(run)
    also = {known["Which color?"]: "blue"}
    return run, await booking.app.fork(run.id, known["Which framework?"], "FastAPI", replace=True, also=also)


async def test_effect_shared_with_a_standing_run_remains(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    framework, color = ids(run)["Which framework?"], ids(run)["Which color?"]
    fork = await booking.app.fork(run.id, color, "blue")
    with pytest.raises(EffectsRemain, match="shared with the run"):
        await booking.app.fork(fork.id, framework, "FastAPI", replace=True)
    assert booking.booked == ["Express"]
    branch = await booking.app.fork(fork.id, framework, "FastAPI", replace=True, keep_effects=True)
    assert (branch.result, booking.booked) == ("Built with FastAPI in blue.", ["Express", "FastAPI"])
    own = await booking.app.fork(branch.id, framework, "Flask", replace=True)
    assert (own.result, booking.booked) == ("Built with Flask in blue.", ["Express", "Flask"])


async def test_copy_of_a_run_takes_nothing_back(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    (copy,) = await import_runs(
        booking.app.store, [await export_run(booking.app.store, run.id, all_checkpoints=True)], as_new=True
    )
    with pytest.raises(EffectsRemain, match="copied from"):
        await booking.app.fork(copy.id, ids(run)["Which framework?"], "FastAPI", replace=True)
    branch = await booking.app.fork(run.id, ids(run)["Which framework?"], "FastAPI", replace=True)
    assert (branch.result, booking.booked) == ("Built with FastAPI in red.", ["FastAPI"])


async def test_no_branch_rests_on_what_was_taken_back(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    branch = await booking.app.fork(run.id, ids(run)["Which framework?"], "FastAPI", replace=True)
    with pytest.raises(CallerError, match=f"which was taken back .* fork {branch.id} instead"):
        await booking.app.fork(run.id, ids(run)["Which color?"], "blue")
    fork = await booking.app.fork(run.id, ids(run)["Which framework?"], "Express")
    assert (fork.result, booking.booked) == ("Built with Express in red.", ["FastAPI", "Express"])


async def test_cancelled_run_keeps_what_was_taken_back_in_mind(tmp_path: Path) -> None:
    booking = Booking(tmp_path, books=2, ask_rules=[{"words": "color", "do": "wait"}])
    run = await booking.app.start("Build it")
    framework = ids(run)["Which framework?"]
    booking.began.clear()
    booking.may_cancel.clear()
    branch = asyncio.create_task(booking.app.fork(run.id, framework, "FastAPI", replace=True))
    await booking.began.wait()
    await Booking(tmp_path).app.cancel(run.id)
    booking.may_cancel.set()
    with pytest.raises(RunConflict):
        await branch
    assert booking.booked == ["Express"]
    with pytest.raises(CallerError, match="fork it at that question"):
        await booking.app.fork(run.id, ids(run)["Which color?"], "blue")
    again = await booking.app.fork(run.id, framework, "FastAPI", replace=True)
    assert (again.status, booking.booked) == (RunStatus.AWAITING_CLARIFICATION, ["FastAPI", "FastAPI1"])


async def test_queued_run_is_worked_on_after_a_failed_overruling(tmp_path: Path) -> None:
    booking = Booking(tmp_path, ask_rules=[{"words": "color", "do": "wait"}])
    run = await booking.app.start("Build it")
    booking.app.driver.work_here = lambda run_id, version: None  # type: ignore[method-assign]
    queued = await booking.app.answer(run.id, "red", wait=False)
    assert queued.status is RunStatus.QUEUED
    booking.file.unlink()
    again = Booking(tmp_path).app
    with pytest.raises(CallerError, match="could not be taken back"):
        await again.fork(run.id, ids(run)["Which framework?"], "FastAPI", replace=True)
    async with asyncio.timeout(30):
        while (await again.get(run.id)).status is not RunStatus.COMPLETED:
            await asyncio.sleep(0.05)


async def test_answer_to_an_open_question_reaches_the_branch(tmp_path: Path) -> None:
    booking = Booking(tmp_path, ask_rules=[{"words": "color", "do": "wait"}])
    run = await booking.app.start("Build it")
    also = {ids(run)["Which color?"]: "blue"}
    branch = await booking.app.fork(run.id, ids(run)["Which framework?"], "FastAPI", replace=True, also=also)
    assert (branch.result, booking.booked) == ("Built with FastAPI in blue.", ["FastAPI"])


async def test_undo_that_always_fails_is_left_out_by_choice(tmp_path: Path) -> None:
    booking = Booking(tmp_path, books=2)
    run = await booking.app.start("Build it")
    framework = ids(run)["Which framework?"]
    booking.file.write_text("Express1")  # Somebody has cancelled the first one.
    for _ in range(2):
        with pytest.raises(CallerError, match=r"could not be taken back.*--keep-effects"):
            await booking.app.fork(run.id, framework, "FastAPI", replace=True)
    assert ((await booking.app.get(run.id)).replacing, booking.booked) == ((framework,), [])
    branch = await booking.app.fork(run.id, framework, "FastAPI", replace=True, keep_effects=True)
    assert (branch.result, booking.booked) == ("Built with FastAPI in red.", ["FastAPI", "FastAPI1"])


async def test_replaced_run_keeps_its_own_answers(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run, branch = await overrule_two(booking)
    assert branch.result == "FastAPI, blue, S"
    assert [each.text for each in (await booking.app.get(run.id)).answers] == ["Express", "red", "S"]
    fork = await booking.app.fork(run.id, ids(run)["Which size?"], "L")
    assert (fork.result, [each.text for each in fork.answers]) == ("Express, red, L", ["Express", "red", "L"])


async def test_answers_outlast_the_removal_of_the_replaced_run(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run, branch = await overrule_two(booking)
    await booking.app.store.delete(run.id)
    again = await booking.app.fork(branch.id, ids(branch)["Which framework?"], "Flask", replace=True)
    assert again.result == "Flask, blue, S"
    assert AnsweredBy.POLICY not in [each.by for each in again.answers if each.text == "blue"]
