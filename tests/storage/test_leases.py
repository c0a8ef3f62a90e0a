"""Who works on a run: leases, on both databases, with real processes; and what happens at the same moment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from forked import start_command
from places import SUPPORT
from stores import FIRST, execute, history

from upcall.errors import AlreadyAnswered, RunBusy, RunConflict, UserAtLimit
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.run import Run
from upcall.runs.states import RunEvent, RunStatus
from upcall.storage.leases import LeaseHolder, hold_lease
from upcall.storage.queued_answers import AnswersQueued
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredRun

WORKER = """
import asyncio, sys, time
from stores import FIRST
from upcall.runs.run import Run
from upcall.runs.states import RunEvent, RunStatus
from upcall.storage.store import RunStore

asyncio.run(RunStore(sys.argv[1]).create(Run(id="abcdef000000", task="do it", status=RunStatus.EXECUTING), FIRST))
print("at work", flush=True)
time.sleep(600)
"""

CLAIMS = """
import asyncio, sys
from upcall.errors import RunConflict
from upcall.runs.states import RunEvent, RunStatus
from upcall.storage.store import RunStore

async def main():
    store = RunStore(sys.argv[1])
    stored = await store.load("abcdef000000")
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        await store.claim(stored, stored.run.apply(RunEvent.PLANNING))
        print("won")
    except RunConflict as error:
        print(type(error).__name__)

asyncio.run(main())
"""


def process(code: str, location: str) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(SUPPORT), *sys.path])
    return subprocess.Popen(
        [sys.executable, "-c", code, location],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def says(child: subprocess.Popen[str]) -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


async def at_work(location: str, **of_another: str) -> StoredRun:
    """Return a run that a worker in another place works on: only the time can return whether it lives."""
    stored = await RunStore(location).create(Run(task="do it", status=RunStatus.EXECUTING), FIRST)
    worker = json.dumps({**LeaseHolder().model_dump(), "host": "elsewhere", "place": "another boot", **of_another})
    execute(location, "update upcall_runs set worker = ?", worker)
    return await RunStore(location).load(stored.run.id)


@pytest.mark.slow
async def test_lease_of_a_living_process_refuses_until_killed(location: str) -> None:
    child = process(WORKER, location)
    try:
        assert says(child) == "at work"
        store = RunStore(location)
        stored = await store.load("abcdef000000")
        with pytest.raises(RunBusy, match=f"process {child.pid} on .* nothing was written"):
            await store.claim(stored, stored.run.apply(RunEvent.PLANNING))
        assert await store.load("abcdef000000") == stored
        child.send_signal(signal.SIGKILL)  # Nobody has waited for it yet: it is a zombie, and dead all the same.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        claimed = await store.claim(stored, stored.run.apply(RunEvent.PLANNING))
        assert LeaseHolder.load(str(claimed.worker)) is not None
        await store.leases.renew(claimed)
    finally:
        child.kill()
        child.communicate()


def test_lease_holder_in_this_process_ends_with_its_work() -> None:
    worker = LeaseHolder()
    with hold_lease(worker.dump()):
        assert not worker.is_gone()
    assert worker.is_gone()


async def test_worker_elsewhere_keeps_its_run_while_its_lease_lasts(location: str) -> None:
    stored = await at_work(location)
    store = RunStore(location, lease_seconds=2)
    execute(location, "update upcall_runs set renewed_at = ?", time.time())
    with pytest.raises(RunBusy, match="on elsewhere"):
        await store.claim(stored, stored.run)
    execute(location, "update upcall_runs set renewed_at = ?", time.time() - 2)
    claimed = await store.claim(stored, stored.run)
    with pytest.raises(RunConflict):  # It comes back too late.
        await store.leases.renew(stored)
    with pytest.raises(RunConflict):
        await store.journal.write(stored, {"lead:1": "late"})
    with pytest.raises(RunConflict):
        await store.save(stored, stored.run)
    assert (await store.load(stored.run.id), await store.journal.read(stored.run.id)) == (claimed, {})


async def test_user_limit_counts_no_lease_that_is_over(location: str) -> None:
    store = RunStore(location)
    await store.create(Run(task="do it", status=RunStatus.EXECUTING, user="ann"), FIRST)
    one_more = store.leases.refuse_over_limit(Run(task="do more", user="ann"), 1)
    with pytest.raises(UserAtLimit):
        await store.database.write(one_more)
    execute(location, "update upcall_runs set renewed_at = ?", time.time() - 2 * store.leases.seconds)
    await store.database.write(one_more)


async def test_lease_that_was_returned_hinders_nobody(location: str) -> None:
    stored = await at_work(location)
    execute(location, "update upcall_runs set worker = null, renewed_at = null")
    claimed = await RunStore(location).claim(stored, stored.run)
    assert claimed.version == stored.version + 1


@pytest.mark.slow
async def test_lease_from_the_future_that_is_not_renewed_ends(location: str) -> None:
    """The clock went backwards."""
    stored = await at_work(location)
    store = RunStore(location, lease_seconds=0.3)
    execute(location, "update upcall_runs set renewed_at = ?", time.time() + 10_000)
    claimed = await store.claim(stored, stored.run)
    assert claimed.version == stored.version + 1


async def test_lease_from_the_future_that_is_renewed_holds(location: str) -> None:
    stored = await at_work(location)
    store = RunStore(location, lease_seconds=1)
    execute(location, "update upcall_runs set renewed_at = ?", time.time() + 10_000)
    claiming = asyncio.create_task(store.claim(stored, stored.run))
    while not claiming.done():
        await store.leases.renew(stored)
        await asyncio.sleep(0.05)
    with pytest.raises(RunBusy):
        claiming.result()


async def test_one_of_four_processes_that_claim_at_once_wins(location: str) -> None:
    stored = await RunStore(location).create(Run(id="abcdef000000", task="do it"), FIRST)
    stored = await RunStore(location).save(stored, stored.run.apply(RunEvent.FAILED))
    Path("claims.py").write_text(CLAIMS)
    command = start_command("claims.py", location)
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    children = [subprocess.Popen([command["command"], *command["args"]], text=True, **pipes) for _ in range(4)]
    assert [says(child) for child in children] == ["ready"] * 4
    for child in children:
        assert child.stdin is not None
        child.stdin.write("\n")
        child.stdin.flush()
    output = sorted(says(child) for child in children)
    for child in children:
        child.communicate()
    assert output == ["RunConflict"] * 3 + ["won"]
    assert (await RunStore(location).load("abcdef000000")).version == 3


async def asking(location: str) -> tuple[StoredRun, Question]:
    question = Question(question="Which framework?", path=("lead", "coder"))
    run = Run(task="do it", status=RunStatus.EXECUTING, records=QuestionRecords.build([question]))
    return await RunStore(location).create(run, FIRST), question


async def test_one_of_eight_answers_at_once_stands(location: str) -> None:
    stored, question = await asking(location)
    writes = [
        RunStore(location).queue.add(stored.run.id, [Answer(question_id=question.id, text=str(n))]) for n in range(8)
    ]
    ended = await asyncio.gather(*writes, return_exceptions=True)
    assert [type(each) for each in ended].count(AlreadyAnswered) == 7
    (kept,) = await RunStore(location).queue.read(stored.run.id)
    assert ended[int(str(kept.text))] is True


async def test_answer_that_comes_with_the_pause_is_never_lost(location: str) -> None:
    """Either it is queued and the run does not pause yet, or the run pauses and the answer is not queued."""
    ways = set()
    one, two = RunStore(location), RunStore(location)
    for _ in range(12):
        stored, question = await asking(location)
        waiting = stored.run.apply(RunEvent.ASKED)
        queued, paused = await asyncio.gather(
            two.queue.add(stored.run.id, [Answer(question_id=question.id, text="Express")]),
            one.save(stored, waiting, history(1)),
            return_exceptions=True,
        )
        assert (queued is True) == isinstance(paused, AnswersQueued), (queued, paused)
        assert len(await one.queue.read(stored.run.id)) == (queued is True)
        ways.add(queued)
    assert ways <= {True, False}


@pytest.mark.parametrize("text", ["Express", "Django"])
async def test_owned_answer_is_refused_whatever_somebody_else_left(location: str, text: str) -> None:
    """Who may not see the answer of another does not find out by giving the same one, however close they come."""
    question = Question(question="Which framework?", path=("lead",))
    run = Run(task="do it", status=RunStatus.EXECUTING, records=QuestionRecords.build([question]))
    store = RunStore(location)
    await store.create(run, FIRST)
    bobs, carols = (
        Answer(question_id=question.id, text=each, user=user) for each, user in (("Express", "bob"), (text, "carol"))
    )
    assert await store.queue.add(run.id, [bobs], owned=True)
    assert await store.queue.add(run.id, [bobs], owned=True)
    with pytest.raises(AlreadyAnswered, match="has an answer already"):
        await store.queue.add(run.id, [carols], owned=True)
