"""Measure one system in a process of its own; the figures are printed as one JSON object.

Started by costs.py: ``measure.py SYSTEM MODE ...``, with the time at which it was started in ``--spawned``.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import importlib
import importlib.metadata
import json
import re
import resource
import statistics
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

from scenarios import ANSWER, SCENARIOS, Scenario, answer

MILLI = 1000
AT_ONCE = 8
Json = dict[str, Any]


class Bench:
    """One system on one scenario and one store."""

    def __init__(self, system: Any, url: str, store: Path, scenario: Scenario) -> None:
        from meter import Meter, httpx

        self.meter, self.store, self.scenario = Meter(), store, scenario
        self.client = httpx.AsyncClient(transport=self.meter, timeout=600)
        self.system = system.System(url, self.client, store, scenario)

    async def start(self, run: str) -> Any:
        from meter import timed
        from scenarios import conversation

        history = conversation(run, self.scenario.history)
        rest, segment = await timed(self.meter, self.system.start(run, self.scenario.task(run), history))
        if not rest.open:
            raise AssertionError(f"{run} did not ask, but came to {rest.result!r}")
        return rest, segment

    async def answer(self, run: str, questions: dict[str, str]) -> Any:
        """Answer questions: their texts by their ids."""
        from meter import timed

        answers = {key: answer(text) for key, text in questions.items()}
        rest, segment = await timed(self.meter, self.system.answer(run, answers))
        return rest, segment

    def check(self, run: str, rest: Any) -> None:
        """Fail where the result lacks an answer that was given."""
        expected = set(self.scenario.keys(run))
        if rest.result is None or {key for key, _ in ANSWER.findall(rest.result)} != expected:
            raise AssertionError(f"{run} came to {rest!r} instead of a result with {len(expected)} answers")

    async def finish(self, run: str, rest: Any) -> list[Any]:
        """Answer until the run is over; the segments."""
        segments = []
        while rest.open:
            rest, segment = await self.answer(run, _texts(rest))
            segments.append(segment)
        self.check(run, rest)
        return segments


def _texts(rest: Any) -> dict[str, str]:
    return {each.id: each.text for each in rest.open}


async def runs(bench: Bench, count: int) -> Json:
    """`count` runs, one after another: all of them to their first pause, then all of them to their end."""
    from meter import file_size, payload

    await bench.system.open()
    for warm in ("warm1", "warm2"):
        rest, _ = await bench.start(warm)
        await bench.finish(warm, rest)
    names = [f"r{i}" for i in range(count)]
    before = payload(bench.store), file_size(bench.store)
    paused = {name: await bench.start(name) for name in names}
    at_pause = payload(bench.store), file_size(bench.store)
    finished = {name: await bench.finish(name, rest) for name, (rest, _) in paused.items()}
    at_end = payload(bench.store), file_size(bench.store)
    starts = [segment for _, segment in paused.values()]
    every = [*starts, *(each for segments in finished.values() for each in segments)]
    pausing = [*starts, *(each for segments in finished.values() for each in segments[:-1])]
    resuming = [each for segments in finished.values() for each in segments]
    calls = sum(len(each.calls) for each in every)
    return {
        "calls a run": calls / count,
        "cpu a call": MILLI * sum(each.cpu for each in every) / calls,
        "cpu a run": MILLI * sum(each.cpu for each in every) / count,
        "cpu to pause": MILLI * statistics.median(each.cpu for each in starts),
        "beside a call": MILLI * sum(each.beside for each in every) / calls,
        "pause and store": MILLI * statistics.median(each.after for each in pausing),
        "load and resume": MILLI * statistics.median(each.before for each in resuming),
        "bytes at pause": (at_pause[0] - before[0]) / count,
        "file at pause": (at_pause[1] - before[1]) / count,
        "bytes in all": (at_end[0] - before[0]) / count,
        "file in all": (at_end[1] - before[1]) / count,
        "peak rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
    }


async def pauses(bench: Bench, count: int) -> Json:
    """One run with many pauses, after a short one to warm up."""
    from meter import file_size, payload, written

    await bench.system.open()
    bench.meter.keep_bodies = True
    before_written = written()
    rest, segment = await bench.start("long")
    segments = [segment]
    for _ in range(bench.scenario.questions - 1):
        rest, segment = await bench.answer("long", _texts(rest))
        segments.append(segment)
    stored, stored_file, wrote = payload(bench.store), file_size(bench.store), written() - before_written
    log = sum(map(len, {_who(body): body for body in map(_messages, bench.meter.bodies)}.values()))
    last = await bench.finish("long", rest)
    early, late = segments[5:25], segments[-20:]
    calls = sum(len(each.calls) for each in (*segments, *last))
    return {
        "cpu a call": MILLI * sum(each.cpu for each in (*segments, *last)) / calls,
        "early cpu": MILLI * statistics.median(each.cpu for each in early),
        "late cpu": MILLI * statistics.median(each.cpu for each in late),
        "early beside": MILLI * statistics.median(each.beside for each in early),
        "late beside": MILLI * statistics.median(each.beside for each in late),
        "bytes": stored,
        "file": stored_file,
        "written": wrote,
        "log": log,
    }


def _messages(body: bytes) -> str:
    return json.dumps(json.loads(body)["messages"], separators=(",", ":"), ensure_ascii=False)


def _who(messages: str) -> str:
    """Which agent's context it is: the last and longest one of each agent is the bare log of its messages."""
    found = re.search(r"You are the (\w+)", messages)
    assert found is not None
    return found[1]


async def rate(bench: Bench, count: int) -> Json:
    """Paused runs created per second, eight at a time."""
    await bench.system.open()
    await asyncio.gather(*(bench.start(f"warm{i}") for i in range(AT_ONCE)))
    names = iter([f"r{i}" for i in range(count)])

    async def worker() -> None:
        for name in names:
            await bench.start(name)

    begin, cpu = time.perf_counter(), time.process_time()
    await asyncio.gather(*(worker() for _ in range(AT_ONCE)))
    spent, took = time.process_time() - cpu, time.perf_counter() - begin
    return {"paused a second": count / took, "paused a CPU second": count / spent}


async def memory(bench: Bench, count: int) -> Json:
    """Python memory per run while its asker's model call is under way, and once it is paused and stored."""
    await bench.system.open()
    for i in range(5):
        rest, _ = await bench.start(f"warm{i}")
        await bench.finish(f"warm{i}", rest)
    tracemalloc.start()
    # Caches, and the connections of as many runs at once, are there before the measurement begins.
    await asyncio.gather(*(bench.start(f"before{i}") for i in range(count)))
    bench.meter.calls.clear()
    base = _traced()
    bench.meter.held = lambda body: b"You are the asker" in body and b'"tool_call_id"' in body
    tasks = [asyncio.create_task(bench.start(f"r{i}")) for i in range(count)]
    while bench.meter.waiting < count:
        await asyncio.sleep(0.05)
        for task in tasks:
            if task.done():
                task.result()
    live = _traced()
    bench.meter.gate.set()
    await asyncio.gather(*tasks)
    del tasks, task
    bench.meter.calls.clear()
    await asyncio.sleep(0.2)
    paused = _traced()
    return {"live": (live - base) / count, "paused": (paused - base) / count}


def _traced() -> int:
    for _ in range(3):
        gc.collect()
    return tracemalloc.get_traced_memory()[0]


async def leave_paused(bench: Bench, count: int) -> Json:
    """`count` paused runs for other processes to answer."""
    await bench.system.open()
    return {"runs": {f"r{i}": _texts((await bench.start(f"r{i}"))[0]) for i in range(count)}}


async def resume(bench: Bench, run: str, questions: dict[str, str], made: float, spawned: float) -> Json:
    """Answer a run that another process has paused. `made` is when the imports were done."""
    await bench.system.open()
    rest, segment = await bench.answer(run, questions)
    bench.check(run, rest)
    first = min(start for start, _ in segment.calls)
    return {"load and resume, new": MILLI * (first - made), "whole, new": MILLI * (first - spawned)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system")
    parser.add_argument("mode", choices=["runs", "pauses", "rate", "memory", "leave", "go-on", "imports"])
    parser.add_argument("--url")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--scenario", default="depth 2")
    parser.add_argument("--count", type=int, default=10)
    parser.add_argument("--run", default="r0")
    parser.add_argument("--questions", default="{}")
    parser.add_argument("--spawned", type=float, default=0.0)
    chosen = parser.parse_args()
    sys.path.insert(0, str(Path(__file__).parent / "adapters"))
    begin = time.perf_counter()
    system = importlib.import_module(chosen.system)
    made = time.perf_counter()
    if chosen.mode == "imports":
        versions = {name: importlib.metadata.version(name) for name in system.System.packages}
        print(json.dumps({"import": MILLI * (made - begin), "versions": versions, "modules": len(sys.modules)}))
        return

    async def work() -> Json:
        bench = Bench(system, chosen.url, chosen.store, SCENARIOS[chosen.scenario])
        modes = {"runs": runs, "pauses": pauses, "rate": rate, "memory": memory, "leave": leave_paused}
        try:
            if chosen.mode == "go-on":
                return await resume(bench, chosen.run, json.loads(chosen.questions), made, chosen.spawned)
            return await modes[chosen.mode](bench, chosen.count)
        finally:
            await bench.system.close()
            await bench.client.aclose()

    print(json.dumps(asyncio.run(work())))


if __name__ == "__main__":
    main()
