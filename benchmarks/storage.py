"""What a pause costs in the store: bytes, CPU, and runs a second. Read the ratios; all of it is measured in one run.

Bytes are those of all columns of all tables (what the runs need), not of the file (pages, indexes). The bare message
log is what was written in the group, each message once, as JSON text.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from autogen_agentchat.agents import UserProxyAgent
from autogen_agentchat.base import Team
from autogen_agentchat.conditions import HandoffTermination
from autogen_agentchat.messages import TextMessage
from autogen_agentchat.teams import RoundRobinGroupChat, Swarm

from upcall import PausableAgent, Run, RunStatus, Settings, Upcall
from upcall.autogen.group_chats import make_resumable
from upcall.runs.checkpoint import Checkpoint
from upcall.storage.maintenance import stats
from upcall.storage.store import RunStore
from upcall.testing import Call, Reply, Request, ScriptedModelClient
from upcall.testing.script import Script

TASK = "Build me a user authentication system"
_TEXT = (
    "the a of to in for and with on by it this that user session token server database schema login password hash "
    "route handler request response test error retry cache index query migration deploy config module class function "
    "returns checks stores reads writes sends creates validates updates removes secure simple fast slow new old"
)
WORDS = _TEXT.split()


@functools.cache
def prose(seed: int, characters: int) -> str:
    """Words that only their seed repeats."""
    chosen, text = random.Random(seed), ""
    while len(text) < characters:
        text += f"{chosen.choice(WORDS)}{chosen.choice(['', '', '', ',', '.'])} "
    return text.strip()


def four(characters: int) -> Callable[[], Team]:
    """Four agents that speak one after another; each asks, and then says so many characters."""
    calls = itertools.count(1)

    def reply(request: Request) -> Reply:
        number = next(calls)
        if request.messages[-1]["role"] == "tool":
            return prose(-number, characters)
        return Call("ask_user", {"question": prose(number, 80) + "?", "options": ["Express", "FastAPI"]})

    model = ScriptedModelClient(Script(reply))

    def make() -> Team:
        names = ("architect", "coder", "tester", "writer")
        agents = [PausableAgent(name, model, system_message=f"You are the {name}.") for name in names]
        return RoundRobinGroupChat(agents, termination_condition=HandoffTermination("user"))

    return make


def nested() -> Team:
    """One agent nested in another asks: depth 2."""
    asks = Call("ask_user", {"question": "Which framework?", "options": ["Express", "FastAPI", "Django"]})
    coder = PausableAgent("coder", ScriptedModelClient([asks]), system_message="You code.")
    build = Call("coder", {"task": "Build authentication"})
    lead = PausableAgent("lead", ScriptedModelClient([build]), system_message="You lead.", agents=[coder])
    return Swarm([lead, UserProxyAgent("user")], termination_condition=HandoffTermination("user"))


def app_with(team: Callable[[], Team], location: str) -> Upcall:
    """Return a driver that asks as often as its agents like."""
    return Upcall(
        team=team,
        store=location,
        settings=Settings.read(None, questions={"max_questions_run": 10_000, "ledger": False}),
    )


async def one_pause(location: str) -> None:
    """Print the bytes at the pause of one nested asker."""
    app = app_with(nested, location)
    run = await app.start(TASK)
    assert run.status is RunStatus.AWAITING_CLARIFICATION, run.error
    found = await stats(app.store)
    print("One nested asker at depth 2, at its pause")
    for table, size in sorted(found.bytes.items(), key=lambda each: -each[1]):
        print(f"  {table:32} {size:8,} bytes in {found.rows[table]} rows")
    print(f"  {'in all':32} {found.payload:8,} bytes")


async def many_pauses(location: str, pauses: int, characters: int) -> None:
    """Print the bytes of a team of four over many pauses, beside what was written."""
    app = app_with(four(characters), location)
    run = await app.start(TASK)
    print(f"Four agents, {pauses} pauses, {characters} characters a report")
    print(f"  {'pause':>7} {'said':>10} {'stored':>10} {'ratio':>6} {'a pause':>8} {'whole state as JSON':>20}")
    before, mark = 0, 0
    for pause in range(1, pauses + 1):
        assert run.status is RunStatus.AWAITING_CLARIFICATION, run.error
        if pause in (1, 10, 25, 50, pauses):
            stored = await app.store.load(run.id)
            log = sum(len(json.dumps(each)) for each in stored.checkpoint.thread())
            found = await stats(app.store)
            added = (found.payload - before) / (pause - mark)
            before, mark = found.payload, pause
            whole = len(stored.checkpoint.dump())
            print(f"  {pause:7} {log:10,} {found.payload:10,} {found.payload / log:6.2f} {added:8,.0f} {whole:20,}")
        if pause < pauses:
            run = await app.answer(run.id, "FastAPI")
    found = await stats(app.store)
    print(f"  all checkpoints whole as JSON: {found.as_json:,} bytes, {found.ratio:.0f} times what is stored of them")
    for table, size in sorted(found.bytes.items(), key=lambda each: -each[1])[:4]:
        print(f"    {table:30} {size:10,} bytes in {found.rows[table]} rows")


async def long_history(location: str) -> None:
    """Print what one more pause costs after a long history: its bytes, and the CPU of the commit."""
    print("One more pause, of three messages, after a history of messages of 600 characters")
    print(f"  {'history':>7} {'state as JSON':>14} {'bytes':>8} {'commit, CPU ms':>15} {'load, CPU ms':>13}")
    store = RunStore(location)
    for length in (0, 50, 500):
        stored = await store.create(Run(task=f"{TASK} {length}"), state(length, length))
        sizes, spent = [], []
        for more in range(1, 21):
            checkpoint = state(length, length + 3 * more)
            before, start = (await stats(store)).payload, time.process_time()
            start = time.process_time()
            stored = await store.save(stored, stored.run, checkpoint)
            spent.append(time.process_time() - start)
            sizes.append((await stats(store)).payload - before)
        start = time.process_time()
        await store.load(stored.run.id)
        loading = (time.process_time() - start) * 1000
        whole, commit = len(stored.checkpoint.dump()), statistics.median(spent) * 1000
        print(f"  {length:7} {whole:14,} {statistics.mean(sizes):8,.0f} {commit:15.2f} {loading:13.2f}")


@functools.cache
def wording(kind: int, number: int) -> dict[str, Any]:
    """One message as a group chat's state holds it."""
    return dict(TextMessage(source=f"agent{number % 4}", content=prose(kind * 1000 + number, 600)).dump())


def state(kind: int, length: int) -> Checkpoint:
    """Return the state of a team of two after so many messages, in the thread and in the contexts of both."""
    thread = [wording(kind, number) for number in range(length)]
    context = [{"content": each["content"], "source": each["source"], "type": "UserMessage"} for each in thread]
    own = {"version": 1, "messages": context}
    agent = {"type": "ChatAgentContainerState", "version": "1.0.0", "agent_state": own, "message_buffer": []}
    manager = {"type": "RoundRobinManagerState", "message_thread": thread, "current_turn": length}
    return Checkpoint(team_state={"type": "TeamState", "agent_states": {"a": agent, "b": agent, "manager": manager}})


async def a_second(location: str, runs: int) -> None:
    """How many paused runs are created in a second, each with its team, its model calls and its writes."""
    app = app_with(nested, location)
    await app.start(TASK)
    start, spent = time.perf_counter(), time.process_time()
    for _ in range(runs):
        await app.start(TASK)
    took, spent = time.perf_counter() - start, time.process_time() - spent
    bare = time.process_time()
    for _ in range(runs):
        team = make_resumable(nested(), user_proxy="user")
        await team.run(task=TASK)
        await team.save_state()
    bare = time.process_time() - bare
    print(
        f"Paused runs created: {runs / took:.0f} a second, {spent / runs * 1000:.1f} ms CPU each; the same team "
        f"without driver and store {bare / runs * 1000:.1f} ms CPU"
    )


async def measure(location: Callable[[], str], given: argparse.Namespace) -> None:
    """All of it, each in a store of its own."""
    await one_pause(location())
    await many_pauses(location(), given.pauses, given.characters)
    await long_history(location())
    await a_second(location(), given.runs)


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pauses", type=int, default=100, help="(default: %(default)s)")
    parser.add_argument("--characters", type=int, default=1500, help="of each report (default: %(default)s)")
    parser.add_argument("--runs", type=int, default=100, help="paused runs to create (default: %(default)s)")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        numbers = itertools.count()
        asyncio.run(measure(lambda: str(Path(folder) / f"{next(numbers)}.db"), given))


if __name__ == "__main__":
    main()
