"""What the sandbox costs: the time of a command in each executor beside a bare process, taken in turn in one run."""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from upcall.workspace.limits import Limits
from upcall.workspace.sandboxes import Bubblewrap, Executor, Local
from upcall.workspace.sandboxes.bubblewrap import explain_unusable

COMMANDS: Mapping[str, list[str]] = {
    "/bin/true": ["/bin/true"],
    "python -c pass": [sys.executable, "-c", "pass"],
}


async def bare(command: list[str], folder: Path) -> None:
    """The same through `subprocess.run`."""
    await asyncio.to_thread(subprocess.run, command, cwd=folder, check=True, capture_output=True)


def in_executor(executor: Executor) -> Callable[[list[str], Path], Awaitable[object]]:
    async def run(command: list[str], folder: Path) -> None:
        execution = await executor.run(command, folder=folder, limits=Limits())
        assert execution.exit_status == 0, execution.output

    return run


async def milliseconds(work: Awaitable[object]) -> float:
    start = time.perf_counter()
    await work
    return (time.perf_counter() - start) * 1000


async def measure(runs: int) -> None:
    """Print the table. The rounds are interleaved, so that a slow moment of the machine meets all alike."""
    ways: dict[str, Callable[[list[str], Path], Awaitable[object]]] = {
        "bare process": bare,
        "local": in_executor(Local()),
    }
    if (why := explain_unusable()) is None:
        ways["bubblewrap"] = in_executor(Bubblewrap())
    else:
        print(f"no bubblewrap: {why}")
    print(f"{'command':<18}{'executor':<16}{'median ms':>10}{'to bare':>9}")
    with tempfile.TemporaryDirectory() as folder:
        for name, command in COMMANDS.items():
            rounds = [
                {way: await milliseconds(run(command, Path(folder))) for way, run in ways.items()}
                for _ in range(runs + 1)
            ][1:]
            medians = {way: statistics.median(each[way] for each in rounds) for way in ways}
            for way, median in medians.items():
                print(f"{name:<18}{way:<16}{median:>10.1f}{median / medians['bare process']:>8.1f}x")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=30)
    asyncio.run(measure(parser.parse_args().runs))


if __name__ == "__main__":
    main()
