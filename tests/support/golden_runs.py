"""Paused runs of every kind, as they are kept for each released format under ``tests/data/formats``.

`pause` takes one of them up to its pause in a store, and `finish` to its end, with the models playing on where they
were. `golden_stores` keeps and reads the stores.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from autogen_agentchat.agents import AssistantAgent
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat
from scenario import CLEAR, DEEP_CODING, PLAN, WRITE
from shapes import SHAPES, World, ask, note, task

from upcall import Run, RunStatus, Settings, Upcall, ask_secret, with_questions
from upcall.testing import Call, Calls, Fail, Reply, Request, ScriptedModelClient

SECRET_KEY = "m3z0mJ0YcH8m2Xb9l0yQ5kq1q7v9r3t5x7z9B1D3F5E="
"""What the secrets in the kept stores are encrypted with. Nothing else is."""

USER = "alice"
TASK = "Build me a user authentication system"
QUESTION = "Which framework?"


@dataclass(frozen=True)
class GoldenRun:
    """A run that is paused, and how it ends.

    Attributes:
        replies: what each agent's model says from the beginning to the end; "" is who has no system message.
        answers: what is answered at each pause; those of the first `before` are given before the run is kept.
        result: the result, or a part of it.
        make: its team; None for the built-in one.
        settings: those of the application.
        cut_off: it is cut off in the middle of its first tool call before that, which is in doubt.
        fails: it is kept as it failed, because its model could not be reached.
        forked: the kept run is a fork, which was given another answer to the first question.
    """

    replies: Mapping[str, Sequence[Reply]]
    result: str
    answers: Sequence[str] = ("Express",)
    before: int = 0
    make: Callable[[World], Team] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    cut_off: bool = False
    fails: bool = False
    forked: bool = False


class Player:
    """A model that plays on where an earlier process was. Its calls have the same ids each time."""

    def __init__(self, replies: Mapping[str, Sequence[Reply]], used: Mapping[str, int]) -> None:
        self.replies, self.used = replies, Counter(used)

    def client(self) -> ScriptedModelClient:
        return ScriptedModelClient(self._reply)

    def _reply(self, request: Request) -> Reply:
        named = re.match(r"You are the (\w+)", request.system)
        name = named.group(1) if named else ""
        number = self.used[name]
        self.used[name] += 1
        reply = self.replies[name][number]
        match reply:
            case Call():
                return replace(reply, id=f"{name}-{number}")
            case Calls(calls):
                return replace(
                    reply, calls=[replace(each, id=f"{name}-{number}-{at}") for at, each in enumerate(calls)]
                )
            case _:
                return reply


class Doubtful(World):
    """Agents whose tool hangs the first time."""

    hangs = False

    async def note(self, text: str) -> str:
        """Take a note."""
        if self.hangs and text == "began":
            await asyncio.Event().wait()
        return await super().note(text)


def with_secret(world: World) -> Team:
    """Return an agent whose tool asks for a password."""

    async def log_in(host: str) -> str:
        """Log in."""
        return f"logged in to {host} with {len(ask_secret('Which password?'))} characters"

    return RoundRobinGroupChat([world.agent("coder", tools=[log_in, world.note])], name="crew", max_turns=1)


def with_approval(world: World) -> Team:
    """Return an agent whose notes are approved."""
    return RoundRobinGroupChat([world.agent("coder", approve=["note"])], name="crew", max_turns=1)


def with_stock_agent(world: World) -> Team:
    """Return AutoGen's own agent, given questions."""
    agent = AssistantAgent("coder", world.client, tools=[world.note], system_message="You are the coder.")
    return RoundRobinGroupChat([with_questions(agent)], name="crew", max_turns=1)


def alone(world: World) -> Team:
    """Return one agent."""
    return RoundRobinGroupChat([world.coder()], name="crew", max_turns=1)


ONE: Mapping[str, Sequence[Reply]] = {"coder": [note("began"), ask(QUESTION), note("ended"), "Coded."]}
TWO: Mapping[str, Sequence[Reply]] = {
    "coder": [Calls([task("left"), task("right")]), "Coded."],
    "left": [note("left"), ask("Which browser?"), note("left2"), "Left."],
    "right": [note("right"), ask("How many rows?"), note("right2"), "Right."],
}
REPORT = '{"summary": "Written.", "files": ["auth.js"]}'
LED: Sequence[Reply] = [Call("coder", {"task": "Build authentication"}), '{"summary": "All done."}']
RESEARCH = '{"intent": "research", "meta_response": null, "research_depth": "deep"}'
UNCLEAR = (
    '{"needs_clarification": true, "clarification_question": "For which users?", "options": ["Staff", "Customers"]}'
)
BUILT_IN: Mapping[str, Sequence[Reply]] = {
    "classifier": [DEEP_CODING],
    "clarifier": [CLEAR],
    "planner": [CLEAR, PLAN],
    "lead": LED,
    "coder": [WRITE, ask(QUESTION), '{"summary": "Written.", "files": ["auth.js"]}'],
}

RUNS: Mapping[str, GoldenRun] = {
    **{
        f"team-{name.replace(' ', '-')}": GoldenRun({**ONE, **shape.others}, shape.result, make=shape.make)
        for name, shape in SHAPES.items()
    },
    "team-two-questions": GoldenRun(TWO, "Coded.", ("Firefox", "12"), before=1, make=alone),
    "team-stock-agent": GoldenRun(ONE, "Coded.", make=with_stock_agent),
    "answered-once": GoldenRun(
        {"coder": [note("began"), ask(QUESTION), note("on"), ask("Whose server?"), "Coded."]},
        "Coded.",
        ("Express", "Ours"),
        before=1,
        make=alone,
    ),
    "forked": GoldenRun(
        {"coder": [note("began"), ask(QUESTION), note("on"), ask("Whose server?"), note("x"), ask("When?"), "Coded."]},
        "Coded.",
        ("Express", "Ours", "Now"),
        before=1,
        make=alone,
        forked=True,
    ),
    "secret": GoldenRun(
        {"coder": [Call("log_in", {"host": "here"}), ask(QUESTION), "Logged in."]},
        "Logged in.",
        ("hunter2", "Express"),
        before=1,
        make=with_secret,
    ),
    "approval": GoldenRun({"coder": [note("began"), "Coded."]}, "Coded.", ("yes",), make=with_approval),
    "in-doubt": GoldenRun(ONE, "Coded.", ("Do not run it again", "Express"), make=alone, cut_off=True),
    "built-in-classifier": GoldenRun({**BUILT_IN, "classifier": [Fail(401), DEEP_CODING]}, "All done.", fails=True),
    "built-in-clarifier": GoldenRun({**BUILT_IN, "clarifier": [UNCLEAR, CLEAR]}, "All done.", ("Staff", "Express")),
    "built-in-planner": GoldenRun(
        BUILT_IN, "All done.", ("yes", "Express"), settings={"planning": {"enable_plan_approval": True}}
    ),
    "built-in-coder": GoldenRun(BUILT_IN, "All done."),
    "built-in-lead": GoldenRun(
        {**BUILT_IN, "lead": [ask("Who is to use it?"), *LED]}, "All done.", ("Staff", "Express")
    ),
    "built-in-researcher": GoldenRun(
        {
            "classifier": [RESEARCH],
            "clarifier": [CLEAR],
            "planner": [CLEAR, PLAN],
            "lead": [Call("researcher", {"task": "Look it up"}), '{"summary": "All done."}'],
            "researcher": [ask("Which years?"), '{"summary": "Found.", "findings": []}'],
        },
        "All done.",
        ("2020 to 2025",),
    ),
}


def make_app(golden: GoldenRun, store: str, player: Player, *, hangs: bool = False) -> Upcall:
    """Return an application for a run."""
    client = player.client()
    settings = Settings.read(None, **golden.settings)
    if golden.make is None:
        return Upcall(client, store=store, settings=settings)
    make, world = golden.make, Doubtful(client)
    world.hangs = hangs
    return Upcall(team=lambda: make(world), store=store, settings=settings)


async def pause(name: str, store: str) -> tuple[str, Mapping[str, int]]:
    """Take a run to where it is kept; return its id, and how many replies of each agent were used."""
    golden = RUNS[name]
    player = Player(golden.replies, {})
    app = make_app(golden, store, player)
    run_id = f"{name}-1"
    if golden.cut_off:
        await cut_off(make_app(golden, store, player, hangs=True), run_id)
        run = await app.resume(run_id)
    else:
        run = await app.start(TASK, run_id=run_id, user=USER)
    for text in golden.answers[: golden.before]:
        run = await answer(app, run, text)
    if golden.forked:
        player.used["coder"] = 2  # A fork continues from its question.
        run = await app.fork(run.id, run.answers[0].question_id, "Django", user=USER, new_id=f"{name}-2")
    await app.store.close()
    assert is_kept(golden, run), (name, run.status, run.error)
    return run.id, dict(player.used)


async def cut_off(app: Upcall, run_id: str) -> None:
    """Start a run, and end it as by a kill when its first tool call is under way."""
    work = asyncio.create_task(app.start(TASK, run_id=run_id, user=USER))
    while not await app.store.find(run_id) or not any(
        key.startswith("tool:") for key in (await app.store.load(run_id)).journal
    ):
        await asyncio.sleep(0.02)
    work.cancel()
    with suppress(asyncio.CancelledError):
        await work


def is_kept(golden: GoldenRun, run: Run) -> bool:
    """Whether a run is where it is to be kept."""
    return run.status == RunStatus.FAILED if golden.fails else run.waiting


async def answer(app: Upcall, run: Run, text: str) -> Run:
    """Answer the first open question of a run."""
    return await app.answer(run.id, {run.questions[0].id: text}, user=USER)


async def finish(name: str, run_id: str, store: str, used: Mapping[str, int]) -> Run:
    """Open a kept run, answer what it asks, and take it to its end."""
    golden = RUNS[name]
    app = make_app(golden, store, Player(golden.replies, used))
    run = await app.get(run_id)
    assert is_kept(golden, run), (name, run.status, run.error)
    if golden.fails:
        run = await app.resume(run_id)
    for text in golden.answers[golden.before :]:
        run = await answer(app, run, text)
    await app.store.close()
    return run
