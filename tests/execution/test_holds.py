"""What an operator holds: no work begins on it, nothing of it is lost, and it continues when it is released."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from worlds import app_of, solo

from upcall import RunStatus, Upcall
from upcall.errors import CallerError, NotAllowed, RunHeld
from upcall.execution import in_process
from upcall.runs.config import ModelAddress, NamedTeam, RootTeamConfig, RunConfig
from upcall.runs.events import HoldPlaced, HoldReleased
from upcall.runs.holds import Hold, HoldKind
from upcall.runs.run import Run
from upcall.testing import Call, ScriptedModelClient

ASK = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI"]})


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "HOLD_POLL_INTERVAL_S", 0.02)


def open_app(*replies: Any) -> Upcall:
    return app_of(solo(ScriptedModelClient([*replies])))


async def finish(app: Upcall, run_id: str) -> Run:
    async with asyncio.timeout(20):
        await app.drain()
    return await app.get(run_id)


@pytest.mark.parametrize("held", [("queue", ""), ("user", "alice")])
async def test_held_run_is_started_queued_and_continues(held: tuple[str, str]) -> None:
    app = open_app("Done.")
    await app.holds.place(*held, reason="The budget is spent.")
    run = await app.start("Build it", user="alice")
    await asyncio.sleep(0.1)
    assert (run.status, (await app.get(run.id)).status) == (RunStatus.QUEUED, RunStatus.QUEUED)
    await app.holds.release(*held)
    assert (await finish(app, run.id)).result == "Done."


async def test_answer_to_a_held_run_is_kept() -> None:
    app = open_app(ASK, "Done.")
    run = await app.start("Build it", user="alice")
    await app.holds.place("user", "alice", reason="Too many runs.")
    held = await app.answer(run.id, "Express")
    assert (held.status, [each.text for each in held.answers]) == (RunStatus.QUEUED, ["Express"])
    await app.holds.release("user", "alice")
    assert (await finish(app, run.id)).result == "Done."


async def test_other_users_work_while_one_is_held() -> None:
    app = open_app("Done.")
    await app.holds.place("user", "alice", reason="Too many runs.")
    assert (await app.start("Build it", user="bob")).status is RunStatus.COMPLETED


async def test_held_run_is_resumed_in_another_process() -> None:
    app = open_app()
    await app.holds.place("queue", reason="Maintenance.")
    run = await app.start("Build it")
    (waiting,) = asyncio.all_tasks() - {asyncio.current_task()}
    waiting.cancel()
    await app.holds.release("queue")
    assert (await open_app("Done.").resume(run.id)).result == "Done."


async def test_held_run_cannot_be_forked() -> None:
    app = open_app(ASK, "Done.")
    run = await app.start("Build it")
    done = await app.answer(run.id, "Express")
    await app.holds.place("queue", reason="Maintenance.")
    with pytest.raises(RunHeld, match=r"the queue is held since .* by the operator: Maintenance."):
        await app.fork(run.id, done.answers[0].question_id, "FastAPI")
    assert len(await app.list()) == 1


async def test_hold_of_what_is_held_leaves_the_first() -> None:
    app = open_app()
    first = await app.holds.place("model", "gpt-5", reason="It costs too much.", user=None)
    assert await app.holds.place("model", "gpt-5", reason="Another reason.") == first
    assert await app.holds.list() == [first]
    await app.holds.release("model", "gpt-5")
    with pytest.raises(CallerError, match=r"model gpt-5 is not held. Held: nothing"):
        await app.holds.release("model", "gpt-5")
    noted = [each.event for each in await app.log.audit()]
    assert [type(each) for each in noted] == [HoldPlaced, HoldReleased]


async def test_release_of_one_user_leaves_others_held() -> None:
    app = open_app()
    _, bobs = [await app.holds.place("user", name, reason="Too many runs.") for name in ("alice", "bob")]
    await app.holds.release("user", "alice")
    assert await app.holds.list() == [bobs]


async def test_only_admins_hold_and_see_who_is_held() -> None:
    app = app_of(solo(ScriptedModelClient([])), users={"admins": ["root"]})
    for act in (app.holds.place("queue", reason="Mine.", user="bob"), app.holds.release("queue", user="bob")):
        with pytest.raises(NotAllowed, match="bob is none"):
            await act
    await app.holds.place("user", "alice", reason="Too many runs.", user="root")
    seen = {user: len(await app.holds.list(user=user)) for user in ("alice", "bob", "root")}
    assert seen == {"alice": 1, "bob": 0, "root": 1}


@pytest.mark.parametrize(
    "wrong",
    [
        {"kind": "planet", "name": "earth"},
        {"kind": "user"},
        {"kind": "user", "name": "  "},
        {"kind": "queue", "name": "mine"},
        {"kind": "user", "name": "a\0b"},
        {"kind": "queue", "reason": " \n "},
        {"kind": "queue", "reason": "x" * 501},
    ],
)
async def test_hold_of_nothing_or_without_reason_is_refused(wrong: dict[str, str]) -> None:
    with pytest.raises(CallerError):
        await open_app().holds.place(**{"reason": "Maintenance.", **wrong})


_ROOT = RunConfig(
    team=RootTeamConfig(
        workspace=Path("w"), model=ModelAddress(model="small"), models={"coding": ModelAddress(model="large")}
    )
)
_NAMED = RunConfig(named_team=NamedTeam(name="shop:make_team", account="me"))


@pytest.mark.parametrize(
    ("config", "kind", "name", "is_held"),
    [
        (_ROOT, "team", "root", True),
        (_ROOT, "team", "shop:make_team", False),
        (_NAMED, "team", "shop:make_team", True),
        (RunConfig(), "team", "root", False),
        (_ROOT, "model", "small", True),
        (_ROOT, "model", "large", True),
        (_ROOT, "model", "smal", False),
        (_NAMED, "model", "small", False),
        (RunConfig(), "queue", "", True),
        (RunConfig(), "user", "alice", False),
    ],
)
def test_hold_is_about_runs_of_its_name(config: RunConfig, kind: str, name: str, is_held: bool) -> None:
    run = Run(id="run", task="Build it", config=config)
    hold = Hold(HoldKind(kind), name, "Because.", None, run.created_at)
    assert hold.is_about(run) is is_held
