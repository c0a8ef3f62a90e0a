"""A branch in the place of its run: what depended on the answer is taken back before, and the rest stays."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from booking import Booking, begin_at_work
from worker_process import wait_for_entry

from upcall import Answer, AnsweredBy, Outcome, RunStatus
from upcall.errors import (
    AlreadyAnswered,
    AnswerRefused,
    CallerError,
    EffectsRemain,
    NotAllowed,
    OverrulesAssumption,
    RunBeingReplaced,
    RunBusy,
    RunConflict,
    RunNotWaiting,
)
from upcall.questions.record import QuestionRecords
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.events import StopRequested
from upcall.storage.maintenance import prune
from upcall.storage.queued_answers import AnswersQueued
from upcall.storage.stored_run import StoredRun
from upcall.testing import Call, Reply, Request, ScriptedModelClient


async def test_run_completes_and_its_questions_stay_in_the_inbox(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    assert (run.result, run.questions) == ("Built with Express in red.", ())
    assert [(each.question.question, each.assumed) for each in await booking.app.inbox()] == [
        ("Which framework?", "Express"),
        ("Which color?", "red"),
    ]
    assert [each["provisional"] for each in run.as_json()["assumptions"]] == [True, True]


async def test_agreeing_answer_is_free(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    calls = len(booking.model.requests)
    for question, answer in (("Which framework?", "express"), ("Which color?", "1")):
        run_id, question_id = await booking.find(question)
        confirmed = await booking.app.answer(run_id, {question_id: answer})
    assert (len(booking.model.requests), confirmed.result, await booking.app.inbox()) == (calls, run.result, [])
    assert [(each.by, each.outcome, each.text) for each in confirmed.answers] == [
        (AnsweredBy.HUMAN, Outcome.ANSWERED, "Express"),
        (AnsweredBy.HUMAN, Outcome.ANSWERED, "red"),
    ]
    with pytest.raises(AlreadyAnswered):
        await booking.app.answer(run.id, {confirmed.answers[0].question_id: "FastAPI"})


@pytest.mark.parametrize("named", [True, False])
async def test_nobody_confirms_the_assumption_of_another(tmp_path: Path, named: bool) -> None:
    booking = Booking(tmp_path, ask_rules=[{"words": "color", "do": "wait"}])
    run = await booking.app.start("Build it", user="ann", open=True)
    run = await booking.app.answer(run.id, "red", user="ann")
    (entry,) = await booking.app.inbox("ann")
    given: Any = {entry.question.id: "Express"} if named else "Express"
    with pytest.raises(NotAllowed):
        await booking.app.answer(run.id, given, user="bob")
    assert [each.assumed for each in await booking.app.inbox("ann")] == ["Express"]
    assert await booking.app.inbox("bob") == []


async def test_other_answer_is_refused_with_the_way(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    await booking.app.start("Build it")
    run_id, question_id = await booking.find("Which framework?")
    with pytest.raises(OverrulesAssumption, match=f"'Express' was assumed.*upcall fork {run_id} {question_id} ANSWER"):
        await booking.app.answer(run_id, {question_id: "FastAPI"})
    assert booking.booked == ["Express"]


async def test_branch_takes_back_what_depended_on_the_answer(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    first = await booking.app.start("Build it")
    run_id, question_id = await booking.find("Which framework?")
    plan = await booking.app.forks.plan(run_id, question_id, replace=True)
    assert (plan.taken_back, plan.effects) == (('coder: book({"name": "Express"})',), ())
    branch = await booking.app.fork(run_id, question_id, "FastAPI", replace=True)
    assert (branch.result, booking.booked) == ("Built with FastAPI in red.", ["FastAPI"])
    assert (await booking.app.get(first.id)).replaced_by == branch.id
    assert [(each.run_id, each.assumed) for each in await booking.app.inbox()] == [(branch.id, "red")]
    with pytest.raises(RunNotWaiting, match=f"as run {branch.id}"):
        await booking.app.answer(first.id, {question_id: "Express"})
    with pytest.raises(CallerError, match=f"continued as {branch.id}"):
        await booking.app.fork(first.id, question_id, "Flask", replace=True)


async def test_answers_of_the_human_outlast_each_overruling(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    await booking.app.start("Build it")
    second = await booking.app.fork(*await booking.find("Which color?"), "blue", replace=True)
    assert (second.result, booking.booked) == ("Built with Express in blue.", ["Express"])
    third = await booking.app.fork(*await booking.find("Which framework?"), "FastAPI", replace=True)
    assert (third.result, booking.booked) == ("Built with FastAPI in blue.", ["FastAPI"])
    assert await booking.app.inbox() == []


async def test_human_allows_what_cannot_be_taken_back(tmp_path: Path) -> None:
    booking = Booking(tmp_path, can_cancel=False)
    await booking.app.start("Build it")
    run_id, question_id = await booking.find("Which framework?")
    with pytest.raises(EffectsRemain, match=r"1 effect .* cannot be taken back: coder: book"):
        await booking.app.fork(run_id, question_id, "FastAPI", replace=True)
    assert ((await booking.app.get(run_id)).replaced_by, booking.booked) == (None, ["Express"])
    branch = await booking.app.fork(run_id, question_id, "FastAPI", replace=True, keep_effects=True)
    assert (branch.result, booking.booked) == ("Built with FastAPI in red.", ["Express", "FastAPI"])


async def test_bill_allows_the_effects_on_it_alone(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run_id, question_id = (await booking.app.start("Build it")).id, (await booking.find("Which framework?"))[1]
    bill = (await booking.app.forks.plan(run_id, question_id, replace=True)).bill
    booking.file.unlink()
    with pytest.raises(CallerError, match="could not be taken back"):
        await booking.app.fork(run_id, question_id, "FastAPI", replace=True, keep_effects=bill)
    booking.can_cancel = False
    with pytest.raises(CallerError, match="does not say how any more"):
        await booking.app.fork(run_id, question_id, "FastAPI", replace=True, keep_effects=bill)
    branch = await booking.app.fork(run_id, question_id, "FastAPI", replace=True, keep_effects=True)
    assert branch.result == "Built with FastAPI in red."


async def test_bill_is_of_one_run_alone(tmp_path: Path) -> None:
    booking = Booking(tmp_path, can_cancel=False)
    run_id, question_id = (await booking.app.start("Build it")).id, (await booking.find("Which framework?"))[1]
    bill = (await booking.app.forks.plan(run_id, question_id, replace=True)).bill
    await booking.app.fork(run_id, question_id, "FastAPI", replace=True, keep_effects=bill)
    other = await booking.app.start("Build it")
    question = next(each.question.id for each in other.records if each.question.question == "Which framework?")
    with pytest.raises(EffectsRemain):
        await booking.app.fork(other.id, question, "FastAPI", replace=True, keep_effects=bill)


async def test_effect_made_since_is_on_no_bill(tmp_path: Path) -> None:
    booking, first = await begin_at_work(tmp_path, can_cancel=False)
    run_id, question_id = await booking.find("Which framework?")
    bill = (await booking.app.forks.plan(run_id, question_id, replace=True)).bill
    booking.may_end.set()
    await first
    with pytest.raises(EffectsRemain) as refused:
        await booking.app.fork(run_id, question_id, "FastAPI", replace=True, keep_effects=bill)
    assert (len(refused.value.effects), booking.booked) == (1, ["Express"])


async def test_failing_undo_changes_nothing(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    booking.file.unlink()
    with pytest.raises(CallerError, match=r"book.* could not be taken back: ValueError"):
        await booking.app.fork(*await booking.find("Which framework?"), "FastAPI", replace=True)
    assert (await booking.app.get(run.id)).replaced_by is None
    assert len(await booking.app.list()) == 1


async def test_run_at_work_is_stopped_first(tmp_path: Path) -> None:
    booking, first = await begin_at_work(tmp_path)
    run_id, question_id = await booking.find("Which framework?")
    branch = asyncio.create_task(booking.app.fork(run_id, question_id, "FastAPI", replace=True))
    await wait_for_entry(booking.app, run_id, StopRequested)
    booking.may_end.set()
    assert ((await branch).result, booking.booked) == ("Built with FastAPI in red.", ["FastAPI"])
    await first
    ended = await booking.app.get(run_id)
    assert (ended.status, ended.replaced_by) == (RunStatus.CANCELLED, (await branch).id)


async def test_word_for_an_assumption_reaches_a_run_at_work(tmp_path: Path) -> None:
    booking, first = await begin_at_work(tmp_path)
    run_id, question_id = await booking.find("Which framework?")
    await Booking(tmp_path).app.answer(run_id, {question_id: "Express"})
    booking.may_end.set()
    run = await first
    assert [each.by for each in (await booking.app.get(run.id)).answers] == [AnsweredBy.HUMAN, AnsweredBy.POLICY]


@pytest.mark.parametrize(
    "asked",
    [
        {"question": "Delete all?", "options": ["Yes", "No"]},
        {"question": "Which name?"},
        {"question": "Drop it?", "options": ["A", "B"], "clarification_type": "risk_confirmation"},
    ],
)
async def test_nothing_is_assumed_where_only_the_human_knows(tmp_path: Path, asked: dict[str, object]) -> None:
    booking = Booking(tmp_path)
    booking.model = ScriptedModelClient([Call("ask_user", asked, "a"), "Done."])
    assert (await booking.app.start("Build it")).waiting


async def test_rules_say_which_questions_are_assumed(tmp_path: Path) -> None:
    rules = [{"words": "color", "do": "assume"}, {"agent": "coder", "do": "wait"}]
    run = await Booking(tmp_path, ask_rules=rules).app.start("Build it")
    assert [each.question for each in run.questions] == ["Which framework?"]


async def test_question_that_waits_shares_no_assumption(tmp_path: Path) -> None:
    booking = Booking(tmp_path, ask_rules=[{"type": "approach_choice", "do": "wait"}])
    asked = {"question": "Which framework?", "options": ["Express", "FastAPI"]}
    waits = {**asked, "clarification_type": "approach_choice"}
    booking.model = ScriptedModelClient([Call("ask_user", asked, "a"), Call("ask_user", waits, "b"), "Done."])
    run = await booking.app.start("Build it")
    assert [each.question for each in run.questions] == ["Which framework?"]


async def test_nothing_continues_a_run_that_is_replaced(tmp_path: Path) -> None:
    booking = Booking(tmp_path, ask_rules=[{"words": "color", "do": "wait"}])
    run = await booking.app.start("Build it")
    booking.began.clear()
    booking.may_cancel.clear()
    (question_id,) = [each.question_id for each in run.answers]
    branch = asyncio.create_task(booking.app.fork(run.id, question_id, "FastAPI", replace=True))
    await booking.began.wait()
    other = Booking(tmp_path)
    with pytest.raises(RunBeingReplaced, match=f"upcall fork {run.id} {question_id} ANSWER --replace"):
        await other.app.answer(run.id, "red")
    with pytest.raises(RunBeingReplaced):
        await other.app.answer(run.id, {question_id: "Express"})
    with pytest.raises(RunBusy):
        await other.app.fork(run.id, question_id, "Flask", replace=True)
    with pytest.raises(RunConflict):
        await other.app.fork(run.id, run.questions[0].id, "blue")
    booking.may_cancel.set()
    assert [each.question for each in (await branch).questions] == ["Which color?"]
    assert (booking.booked, (await booking.app.get(run.id)).replaced_by) == (["FastAPI"], (await branch).id)


async def test_reminder_in_between_delays_no_overruling(tmp_path: Path) -> None:
    booking = Booking(tmp_path, books=2, ask_rules=[{"words": "color", "do": "wait"}])
    run = await booking.app.start("Build it")
    booking.began.clear()
    booking.may_cancel.clear()
    branch = asyncio.create_task(booking.app.fork(run.id, run.answers[0].question_id, "FastAPI", replace=True))
    await booking.began.wait()
    await booking.app.access.assign(run.id, run.questions[0].id, "ann")
    booking.may_cancel.set()
    assert (await branch).waiting
    assert booking.booked == ["FastAPI", "FastAPI1"]


async def test_run_being_replaced_is_not_pruned(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    booking.began.clear()
    booking.may_cancel.clear()
    branch = asyncio.create_task(booking.app.fork(run.id, run.answers[0].question_id, "FastAPI", replace=True))
    await booking.began.wait()
    store = Booking(tmp_path).app.store
    for dry_run in (True, False):
        assert (await prune(store, statuses=[run.status], last_checkpoints=1, dry_run=dry_run)).runs == []
    booking.may_cancel.set()
    assert ((await branch).result, booking.booked) == ("Built with FastAPI in red.", ["FastAPI"])
    assert {*(await prune(store, statuses=[run.status])).runs} == {run.id, (await branch).id}


async def test_cancelled_run_is_not_replaced(tmp_path: Path) -> None:
    booking = Booking(tmp_path, ask_rules=[{"words": "color", "do": "wait"}])
    run = await booking.app.start("Build it")
    booking.began.clear()
    booking.may_cancel.clear()
    branch = asyncio.create_task(booking.app.fork(run.id, run.answers[0].question_id, "FastAPI", replace=True))
    await booking.began.wait()
    await Booking(tmp_path).app.cancel(run.id)
    booking.may_cancel.set()
    with pytest.raises(RunConflict):
        await branch
    assert [each.status for each in await booking.app.list()] == [RunStatus.CANCELLED]


@pytest.mark.parametrize("answer", ["Falcon", "FastAPI"])
async def test_refused_overruling_stops_no_run_at_work(tmp_path: Path, answer: str) -> None:
    booking, first = await begin_at_work(tmp_path, can_cancel=False)
    run_id, question_id = await booking.find("Which framework?")
    entry = {question_id: answer} if answer == "FastAPI" else {"q-none": answer}
    with pytest.raises(CallerError):
        await Booking(tmp_path, can_cancel=False).app.fork(run_id, next(iter(entry)), answer, replace=True)
    booking.may_end.set()
    run = await first
    assert (run.status, run.result) == (RunStatus.COMPLETED, "Built with Express in red.")


async def test_plain_fork_of_a_replaced_run_stands_alone(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    branch = await booking.app.fork(run.id, run.answers[0].question_id, "FastAPI", replace=True)
    fork = await booking.app.fork(run.id, run.answers[0].question_id, "Flask")
    assert ((await booking.app.get(run.id)).replaced_by, fork.replaced_by) == (branch.id, None)


async def test_each_of_calls_with_one_id_is_taken_back(tmp_path: Path) -> None:
    booking = Booking(tmp_path, books=3, ids_repeat=True)
    run = await booking.app.start("Build it")
    assert booking.booked == ["Express", "Express1", "Express2"]
    branch = await booking.app.fork(run.id, run.answers[0].question_id, "FastAPI", replace=True)
    assert (branch.result, booking.booked) == ("Built with FastAPI in red.", ["FastAPI", "FastAPI1", "FastAPI2"])


async def test_two_words_for_assumptions_at_once_both_count(tmp_path: Path) -> None:
    booking, other = Booking(tmp_path), Booking(tmp_path)
    run = await booking.app.start("Build it")
    first, second = (each.question_id for each in run.answers)
    load, is_loaded, may_go_on = booking.app.store.load, asyncio.Event(), asyncio.Event()

    async def load_and_wait(run_id: str) -> StoredRun:
        stored = await load(run_id)
        is_loaded.set()
        await may_go_on.wait()
        return stored

    booking.app.store.load = load_and_wait  # type: ignore[method-assign]
    slower = asyncio.create_task(booking.app.answer(run.id, {first: "Express"}))
    await is_loaded.wait()
    await other.app.answer(run.id, {second: "red"})
    may_go_on.set()
    assert [each.by for each in (await slower).answers] == [AnsweredBy.HUMAN, AnsweredBy.HUMAN]


async def test_word_in_the_moment_of_the_assumption_counts(tmp_path: Path) -> None:
    booking, first = await begin_at_work(tmp_path)
    run_id, question_id = await booking.find("Which framework?")
    store = booking.app.store
    other = Answer(question_id=question_id, text="FastAPI", selected=("FastAPI",))
    with pytest.raises(OverrulesAssumption, match=f"upcall fork {run_id}"):  # It was looked at before it was assumed.
        await store.queue.add(run_id, [other])
    booking.may_end.set()
    await first
    at_work = (await store.load(run_id)).run
    waits = at_work.model_copy(update={"id": "w" * 12, "records": QuestionRecords.build(at_work.answered_questions)})
    stored = await store.create(waits.model_copy(update={"status": RunStatus.EXECUTING}), Checkpoint())
    await store.queue.add(waits.id, [other])
    assumed = stored.run.model_copy(update={"records": stored.run.records.close([at_work.answers[0]])})
    with pytest.raises(AnswersQueued):
        await store.save(stored, assumed)
    assert [each.text for each in await store.queue.read(waits.id)] == ["FastAPI"]


async def test_queued_assumption_gives_way_to_no_other_answer(tmp_path: Path) -> None:
    booking, first = await begin_at_work(tmp_path)
    booking.may_end.set()
    await first
    ended = (await booking.app.list())[0]
    open_again = QuestionRecords.build(ended.answered_questions)
    run = ended.model_copy(update={"id": "w" * 12, "status": RunStatus.EXECUTING, "records": open_again})
    store, assumed = booking.app.store, ended.answers[0]
    await store.create(run, Checkpoint())
    await store.queue.add(run.id, [assumed])
    confirmed = assumed.model_copy(update={"outcome": Outcome.ANSWERED, "by": AnsweredBy.HUMAN, "provisional": False})
    with pytest.raises(OverrulesAssumption):
        await store.queue.add(run.id, [confirmed.model_copy(update={"text": "FastAPI", "selected": ("FastAPI",)})])
    await store.queue.add(run.id, [confirmed])
    assert [each.by for each in await store.queue.read(run.id)] == [AnsweredBy.HUMAN]


async def test_questions_of_one_meaning_are_overruled_together(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    asked = {"question": "Which framework?", "options": ["Express", "FastAPI"]}

    def reply(request: Request) -> Reply:
        results = [each["content"] for each in request.messages if each["role"] == "tool"]
        return " and ".join(results) if len(results) == 2 else Call("ask_user", asked, f"call{len(results)}")

    booking.model = ScriptedModelClient(reply)
    run = await booking.app.start("Build it")
    assert run.result == "Express and Express"
    (entry,) = await booking.app.inbox()
    branch = await booking.app.fork(run.id, entry.question.id, "FastAPI", replace=True)
    assert (branch.result, await booking.app.inbox()) == ("FastAPI and FastAPI", [])


async def test_several_answers_make_one_branch(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    first, second = (each.question_id for each in run.answers)
    before = len(booking.model.requests)
    branch = await booking.app.fork(run.id, second, "blue", replace=True, also={first: "FastAPI"})
    assert (branch.result, booking.booked) == ("Built with FastAPI in blue.", ["FastAPI"])
    assert (len(booking.model.requests) - before, await booking.app.inbox()) == (3, [])
    assert AnsweredBy.POLICY not in [each.by for each in branch.answers]
    with pytest.raises(AnswerRefused, match="two answers at once"):
        await booking.app.fork(branch.id, second, "red", replace=True, also={second: "blue"})
    with pytest.raises(CallerError, match="Several other answers at once"):
        await booking.app.fork(branch.id, second, "red", also={first: "Express"})


async def test_cut_off_branch_of_several_answers_wants_them_all(tmp_path: Path) -> None:
    booking = Booking(tmp_path)
    run = await booking.app.start("Build it")
    first, second = (each.question_id for each in run.answers)
    booking.began.clear()
    booking.may_cancel.clear()
    forking = booking.app.fork(run.id, second, "blue", replace=True, also={first: "FastAPI"}, keep_effects=True)
    branch = asyncio.create_task(forking)
    await booking.began.wait()
    branch.cancel()
    await asyncio.wait([branch])
    assert {*(await booking.app.get(run.id)).replacing} == {first, second}
    with pytest.raises(RunBeingReplaced, match="--also"):
        await booking.app.fork(run.id, first, "FastAPI", replace=True, keep_effects=True)
    booking.may_cancel.set()
    again = await booking.app.fork(run.id, first, "FastAPI", replace=True, also={second: "blue"}, keep_effects=True)
    assert (again.result, booking.booked) == ("Built with FastAPI in blue.", ["Express", "FastAPI"])
