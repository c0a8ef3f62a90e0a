"""How long a model's reply is in this process alone: from its arrival until the store has it, idle and under load.

The reply is followed by no tool call and by no pause, the longest case. Under load so many processes keep the machine
busy beside it.

python benchmarks/loss_window.py --replies 200 --load 0 4
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import statistics
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from autogen_core.models import CreateResult, RequestUsage, UserMessage

from upcall import Run
from upcall.autogen.journal import Journal
from upcall.runs.checkpoint import Checkpoint
from upcall.storage.store import RunStore

TEXT = "A reply of a usual length. " * 40


async def measure(replies: int) -> list[float]:
    """Return the milliseconds of each reply."""
    with tempfile.TemporaryDirectory() as folder:
        store = RunStore(str(Path(folder, "runs.db")))
        stored = await store.create(Run(task="do it"), Checkpoint())
        written = asyncio.Event()

        async def write(records: Mapping[str, str | None]) -> None:
            await store.journal.write(stored, records)
            written.set()

        async def fetch() -> CreateResult:
            return CreateResult(
                finish_reason="stop",
                content=TEXT,
                usage=RequestUsage(prompt_tokens=1, completion_tokens=1),
                cached=False,
            )

        journal, times = Journal(stored.run.id, "0", {}, write), []
        for number in range(replies):
            written.clear()
            await journal.replay_or_request("agent", [UserMessage(content=str(number), source="user")], [], fetch)
            begun = time.perf_counter()
            await written.wait()
            times.append((time.perf_counter() - begun) * 1000)
        await store.close()
        return times


def burn() -> None:
    while True:
        pass


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--replies", type=int, default=200)
    parser.add_argument("--load", type=int, nargs="+", default=[0, 4])
    given = parser.parse_args()
    print("| busy processes | median, ms | 95 %, ms | longest, ms |\n|---:|---:|---:|---:|")
    for load in given.load:
        busy = [multiprocessing.Process(target=burn, daemon=True) for _ in range(load)]
        for each in busy:
            each.start()
        times = sorted(asyncio.run(measure(given.replies)))
        for each in busy:
            each.kill()
        print(f"| {load} | {statistics.median(times):.0f} | {times[len(times) * 95 // 100]:.0f} | {times[-1]:.0f} |")


if __name__ == "__main__":
    main()
