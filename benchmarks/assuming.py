"""Continuing under assumptions, beside stopping at each question and beside doing all again.

    python benchmarks/assuming.py                 # 60 tasks, default right in 0, 25, 50, 75, 100 %
    python benchmarks/assuming.py --tasks 6 --right 0.5
    python benchmarks/assuming.py --bill          # how long the bill of an overruling takes, with 1,000 journal entries

A task is a random tree of agents that ask and take notes, whose every word depends on all that they were given. The
human means the default with the given probability, question by question, the same in all three ways:

- ``stop``: the run waits at each pause; the human answers all that is open.
- ``all again``: the run continues with the defaults; where the human means otherwise, it is done again from the start
  with what they mean, until nothing is assumed that they do not mean.
- ``upcall``: the run continues with the defaults; the human confirms or overrules each, and what depended on it is done
  again.

In the end the result and the notes must be those of the run that stopped, in all ways; and the calls that ``upcall``
made in all must be those of that run plus those that saw an assumption which was overruled, by an independent count of
the requests. Seconds are those of the machine with a model that answers after 10 ms. A look is a time when the human is
needed before the right result is there.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))

from agent_trees import ANSWERS, Shape, choose
from autogen_agentchat.base import Team
from autogen_agentchat.teams import RoundRobinGroupChat

from upcall import Run, Settings, Upcall, reversible
from upcall.agents import PausableAgent
from upcall.testing import Call, Reply, Request, ScriptedModelClient

LATENCY_S = 0.01
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)


@dataclass
class Cost:
    """What one way took for some tasks."""

    requests: int = 0
    effects: int = 0
    looks: int = 0
    seconds: float = 0.0
    until_result: float = 0.0
    """Seconds up to the first result, right or not, without the human."""


@dataclass
class Human:
    """What the human means, question by question."""

    seed: int
    share_right: float
    asked: set[str] = field(default_factory=set)

    def means(self, question: str) -> str:
        """Return their answer."""
        self.asked.add(question)
        drawn = choose(self.seed, question, "right", count=10_000) / 10_000
        return ANSWERS[0] if drawn < self.share_right else ANSWERS[1 + choose(self.seed, question, count=2)]


class Task(Shape):
    """A tree whose model takes its time, and whose notes are counted when they are taken."""

    def __init__(self, seed: int, folder: Path, **questions: Any) -> None:
        super().__init__(seed, folder, **questions)
        create = self.client.create

        async def create_slowly(*args: Any, **named: Any) -> Any:
            await asyncio.sleep(LATENCY_S)
            return await create(*args, **named)

        self.client.create = create_slowly
        self.effects = 0
        self.notes = _Counted(self)

    def measure(self, cost: Cost, began: float, looks: int) -> None:
        """Add what was done to a cost."""
        cost.requests += len(self.client.requests)
        cost.effects += self.effects
        cost.looks += looks
        cost.seconds += time.perf_counter() - began


class _Counted(list[str]):
    def __init__(self, task: Task) -> None:
        super().__init__()
        self._task = task

    def append(self, text: str) -> None:
        self._task.effects += 1
        super().append(text)


async def stop(task: Task, human: Human, cost: Cost) -> tuple[Run, Task]:
    """Wait at each pause."""
    began, looks = time.perf_counter(), 0
    run = await task.app.start("Paint it")
    while run.waiting:
        looks += 1
        run = await task.app.answer(run.id, {each.id: human.means(each.question) for each in run.questions})
    task.measure(cost, began, looks)
    cost.until_result += time.perf_counter() - began
    return run, task


async def do_all_again(seed: int, folder: Path, human: Human, cost: Cost) -> tuple[Run, Task]:
    """Continue with the defaults; begin anew with what the human means as long as that differs."""
    known: dict[str, str] = {}
    for number in range(1_000):
        task = Task(seed, folder / str(number))
        began = time.perf_counter()
        run = await task.app.start("Paint it")
        assumed = dict[str, str]()
        while run.waiting:
            given = {each.id: known.get(each.question, ANSWERS[0]) for each in run.questions}
            assumed |= {each.question: ANSWERS[0] for each in run.questions if each.question not in known}
            run = await task.app.answer(run.id, given)
        if not number:
            cost.until_result += time.perf_counter() - began
        known |= {question: human.means(question) for question in assumed}
        wrong = any(known[question] != answer for question, answer in assumed.items())
        task.measure(cost, began, 1 if assumed else 0)
        if not wrong:
            return run, task
        cost.effects += len(task.notes)  # They have to be taken back.
    raise AssertionError("it never ends")


async def overrule(task: Task, human: Human, cost: Cost) -> tuple[Run, Task]:
    """Continue with the defaults; confirm and overrule them afterwards."""
    began, looks = time.perf_counter(), 0
    run = await task.app.start("Paint it")
    cost.until_result += time.perf_counter() - began
    while box := list(await task.app.inbox()):
        looks += 1
        means = {each.question.id: human.means(each.question.question) for each in box}
        agreed = {question: answer for question, answer in means.items() if answer == ANSWERS[0]}
        if agreed:
            run = await task.app.answer(run.id, agreed)
        if other := [each for each in means if each not in agreed]:
            also = {each: means[each] for each in other[1:]}
            run = await task.app.fork(run.id, other[0], means[other[0]], replace=True, also=also)
    task.measure(cost, began, looks)
    return run, task


async def compare(seed: int, share_right: float, folder: Path, costs: dict[str, Cost]) -> str | None:
    """Do a task in all three ways; return what is wrong."""
    human = Human(seed, share_right)
    first, asked = await stop(Task(seed, folder / "stop"), human, costs["stop"])
    second, again = await do_all_again(seed, folder, human, costs["all again"])
    third, task = await overrule(Task(seed, folder / "upcall", on_ask="assume"), human, costs["upcall"])
    for name, run, made in (("all again", second, again), ("upcall", third, task)):
        if run.result != first.result or Counter(made.notes) != Counter(asked.notes):
            return f"task {seed}, {name}: another end than that of the run that stopped"
    if missing := asked.requests() - task.requests():
        return f"task {seed}: {missing.total()} requests of the run that stopped were never made"
    if share_right == 1 and task.requests() != asked.requests():
        return f"task {seed}: other requests although every default was right"
    twice = [count for count in task.requests().values() if count > 1]
    return f"task {seed}: {sum(twice)} requests were made more than once" if twice else None


async def measure(tasks: Sequence[int], share_right: float) -> tuple[dict[str, Cost], list[str]]:
    """Do all tasks; return the costs, and what was wrong."""
    costs = {name: Cost() for name in ("stop", "all again", "upcall")}
    wrong: list[str] = []
    for seed in tasks:
        with tempfile.TemporaryDirectory() as folder:
            wrong += filter(None, [await compare(seed, share_right, Path(folder), costs)])
    return costs, wrong


async def time_bill(folder: Path, entries: int = 1_000, times: int = 9) -> list[float]:
    """Return how many milliseconds the bill takes for a run with so many replies and tool calls behind its question."""
    calls = entries // 2

    def reply(request: Request) -> Reply:
        made = sum(each["role"] == "assistant" for each in request.messages)
        if not made:
            return Call("ask_user", {"question": "Which?", "options": ["a", "b"]}, "asked")
        return Call("note", {"text": str(made)}, f"call{made}") if made <= calls else "Done."

    @reversible(undo=lambda text: None)
    async def note(text: str) -> str:
        """Take a note."""
        return f"noted {text}"

    model = ScriptedModelClient(reply)

    def make_team() -> Team:
        return RoundRobinGroupChat([PausableAgent("agent", model, tools=[note], max_rounds=entries)], max_turns=1)

    settings = Settings.read(None, models={"model": "demo"}, questions={"on_ask": "assume"})
    app = Upcall(team=make_team, store=folder / "runs.db", settings=settings)
    run = await app.start("Take notes")
    (entry,) = await app.inbox()
    found = []
    for _ in range(times):
        began = time.perf_counter()
        plan = await app.forks.plan(run.id, entry.question.id, replace=True)
        found.append((time.perf_counter() - began) * 1000)
        assert len(plan.taken_back or ()) == calls
    return found


def main() -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=60)
    parser.add_argument("--right", type=float, nargs="*", default=SHARES)
    parser.add_argument("--bill", action="store_true")
    given = parser.parse_args()
    if given.bill:
        with tempfile.TemporaryDirectory() as folder:
            found = asyncio.run(time_bill(Path(folder)))
        print(f"bill of 1,000 journal entries: median {statistics.median(found):.0f} ms, {len(found)} times")
        return 0
    print("default right | way | model calls | effects | looks | seconds to a result | seconds in all")
    print("---|---|---|---|---|---|---")
    faults = 0
    for share in given.right:
        costs, wrong = asyncio.run(measure(range(given.tasks), share))
        least = costs["stop"]
        for name, cost in costs.items():
            calls = f"{cost.requests:,} ({cost.requests / least.requests:.2f})"
            times = f"{cost.until_result:.1f} | {cost.seconds:.1f} ({cost.seconds / least.seconds:.2f})"
            print(f"{share:.0%} | {name} | {calls} | {cost.effects:,} | {cost.looks:,} | {times}", flush=True)
        faults += len(wrong)
        print(*wrong, sep="\n", end="\n" if wrong else "")
    print(f"{faults} of {given.tasks * len(given.right)} tasks ended otherwise than the run that stopped")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
