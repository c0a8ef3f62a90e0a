"""One process of a run: it looks where the run stands, does what the user would do next, and ends at the next pause."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autogen_core.models import ChatCompletionClient
from autogen_ext.models.openai import OpenAIChatCompletionClient

from killing.http import httpx
from killing.model_server import WatchedTransport
from killing.points import TOKEN, Points
from killing.scenarios import SCENARIOS, Scenario, World, result_of, workspace
from upcall import Question, Run, RunStatus, Settings, Upcall
from upcall.errors import AlreadyAnswered, ConfigurationError, RunConflict, RunNotWaiting, UnknownRun, UpcallError
from upcall.storage import databases
from upcall.storage.connection import Connection
from upcall.storage.store import RunStore
from upcall.testing.model import MODEL_INFO

FINAL, OUTPUT = "final.json", "output.txt"

MOVED_ON = (RunConflict, AlreadyAnswered, RunNotWaiting)
"""What a worker is given when another process was faster."""


@dataclass(frozen=True)
class Job:
    """What a worker needs to know.

    ``human`` says what the human does about a call in doubt: ``look`` for its side effect, and say what it came to or
    have it run again; or, without looking, have each one run ``again``, or ``skip`` it. ``eager``: the human answers
    what is asked while the team still works, from a process of its own. ``signal``: SIGKILL, or SIGSTOP for a worker
    that stands still until its lease, of ``lease_seconds``, has ended.
    """

    scenario: str
    folder: Path
    base_url: str
    store: str
    run_id: str
    kill_at: str | None = None
    human: str = "look"
    eager: bool = False
    signal: int = signal.SIGKILL
    lease_seconds: float = 15.0

    @property
    def disturbed(self) -> bool:
        """Whether it is usual here that a worker is informed that another one was faster."""
        return self.eager or self.signal == signal.SIGSTOP

    @property
    def what(self) -> Scenario:
        """What is to be done."""
        return SCENARIOS[self.scenario]


def work(job: Job) -> None:
    """Take the run one step on: start, answer or resume it. A run that is over is written to a file instead."""
    asyncio.run(_step(job))


async def _step(job: Job) -> None:
    try:
        await _look_and_do(job)
    except MOVED_ON:
        if not job.disturbed:
            raise
        await asyncio.sleep(0.05)


async def _look_and_do(job: Job) -> None:
    try:
        run = await app_for(job, None).get(job.run_id)
    except UnknownRun:
        await _do(job, "start", None)
        return
    if run.waiting:
        await _do(job, f"answer-{len(run.answers)}", run)
    elif run.working or run.status is RunStatus.FAILED:
        await _do(job, "resume", run)
    else:
        (job.folder / FINAL).write_text(run.model_dump_json())


def note_what_is_recorded(job: Job) -> None:
    """Note the tokens of the replies and results that the store holds: right after a kill, these are done."""
    with suppress(UnknownRun):
        records = asyncio.run(_recorded(job))
        points = Points(job.folder, None, "killed")
        points.reach("journal", sorted({token for each in records for token in TOKEN.findall(each)}))


async def _recorded(job: Job) -> Sequence[str]:
    store = RunStore(job.store)
    stored = await store.load(job.run_id)
    journal = await store.journal.read(job.run_id)
    return [stored.run.model_dump_json(), stored.checkpoint.model_dump_json(), *journal.values()]


def answer_early(job: Job) -> None:
    """Answer, as the human, as soon as something is asked; this never ends."""
    asyncio.run(_answer_early(job))


async def _answer_early(job: Job) -> None:
    app = app_for(job, None)
    while True:
        with suppress(UpcallError):
            run = await app.get(job.run_id)
            for each in run.questions if run.working else ():
                if (text := job.what.answer_to(each.question)) is not None:
                    await app.answer(job.run_id, {each.id: text})
        await asyncio.sleep(0.01)


async def _do(job: Job, stage: str, run: Run | None) -> None:
    points = Points(job.folder, job.kill_at, stage, job.signal)
    _watch_commits(points)
    app = app_for(job, points)
    points.reach("pause before")
    if run is None:
        run = await _start(app, job)
    elif run.waiting:
        answered = run.questions[:1] if job.what.one_by_one else run.questions
        run = await app.answer(job.run_id, {each.id: _choose_answer(job, points, each) for each in answered})
    else:
        run = await app.resume(job.run_id)
    points.reach("pause after")
    if run.status is RunStatus.FAILED:
        raise RuntimeError(f"the run failed: {run.error}")


async def _start(app: Upcall, job: Job) -> Run:
    folder = workspace(job.folder)
    try:
        return await app.start(job.what.task, run_id=job.run_id, **({} if job.what.make else {"workspace": folder}))
    except ConfigurationError as taken:  # While it stood still another process has started the run.
        with suppress(UnknownRun):
            await app.get(job.run_id)
            raise RunConflict(job.run_id) from taken
        raise


def app_for(job: Job, points: Points | None) -> Upcall:
    """Return the program that works on the run; without points it can only look at it."""
    store = RunStore(job.store, lease_seconds=job.lease_seconds)
    scenario, settings = job.what, Settings.read(questions={"check_questions": False}, **job.what.settings)
    if points is None:
        return Upcall(store=store, settings=settings)
    world = World(_client(job, points), points)
    if (make := scenario.make) is not None:
        return Upcall(team=lambda: make(world), store=store, settings=settings)
    return Upcall(world.client, tools=[world.note, world.stamp], store=store, settings=settings)


def _client(job: Job, points: Points) -> ChatCompletionClient:
    sender = {
        "folder": str(job.folder),
        "scenario": job.scenario,
        "stage": points.stage,
        "process": os.getpid(),
        "kill_at": job.kill_at,
        "signal": job.signal,
    }
    arguments: dict[str, Any] = {
        "model": "scripted",
        "base_url": job.base_url,
        "api_key": "none",
        "model_info": MODEL_INFO,
        "user": json.dumps(sender),
        "max_retries": 0,
        "http_client": httpx.AsyncClient(transport=WatchedTransport(points)),
    }
    return OpenAIChatCompletionClient(**arguments)


def _choose_answer(job: Job, points: Points, question: Question) -> str:
    """Return what the human answers: what the scenario says, or to a call in doubt what the human sees of its side
    effect."""
    known = job.what.answer_to(question.question)
    if known is not None:
        points.reach(f"human answer {question.question}")
        return known
    token = question.calls[-1]
    again, skip = (option.label for option in question.options)
    done = points.effect_of(token)
    choice = ("result" if done else "again") if job.human == "look" else job.human
    points.reach(f"doubt {token} {choice}")
    if choice == "result" and done:
        return result_of(done, question.asker)
    return again if choice == "again" else skip


def _watch_commits(points: Points) -> None:
    """Make a point before and after each commit of this process, of whatever connection."""
    count = 0

    def watched(connection: Connection) -> None:
        nonlocal count
        count += 1
        number = count
        points.reach(f"commit {number} before")
        _commit(connection)
        points.reach(f"commit {number} after")

    databases.commit = watched


_commit = databases.commit
