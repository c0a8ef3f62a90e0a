"""What a command of the coder costs: alone, in bubblewrap, and with each way to view a workspace of so many files.

python benchmarks/sandbox.py --files 100 5000 100000 --runs 20
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

from upcall.sandboxes import Bubblewrap, Local
from upcall.sandboxes.bubblewrap import explain_unusable
from upcall.sandboxes.limits import Limits
from upcall.sandboxes.views import ViewName, explain_no_overlay
from upcall.workspace.commands import ExecutionWorkbench

Way = Callable[[str], Awaitable[object]]
COMMANDS = ("true", "date +%N > new-$(date +%N)", "python3 -c pass")
VIEWS: tuple[ViewName, ...] = ("kernel", "fuse", "copy")
MAX_COPIED = 5_000
"""A copy of more files is not measured: it takes seconds, and is refused above 50,000."""


def list_ways(folder: Path) -> Mapping[str, Way]:
    """List the ways to run a command in a folder, from the plainest to what the coder's tool does."""
    limits = Limits()

    async def run_bare(command: str) -> None:
        await asyncio.to_thread(subprocess.run, ["bash", "-c", command], cwd=folder, check=True, capture_output=True)

    def call_tool(view: ViewName) -> Way:
        bench = ExecutionWorkbench(folder, Bubblewrap(), overlay=view)

        async def run(command: str) -> None:
            emitted = (await bench.call_tool("run_command", {"command": command})).to_text()
            assert emitted.startswith("[exit status 0"), emitted

        return run

    ways: dict[str, Way] = {
        "bare process": run_bare,
        "without a sandbox": lambda command: Local().run(command, folder=folder, limits=limits),
        "bubblewrap alone": lambda command: Bubblewrap().run(command, folder=folder, limits=limits),
    }
    copied = sum(1 for _ in folder.rglob("*"))
    for view in VIEWS:
        if copied <= MAX_COPIED + 200 if view == "copy" else explain_no_overlay(view, folder, folder.parent) is None:
            ways[f"tool, {view}"] = call_tool(view)
    return ways


async def measure(files: int, runs: int) -> None:
    """Print the medians for one number of files. The rounds are interleaved: a slow moment meets all alike."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary, "work")
        for number in range(files):
            file = folder / f"d{number // 1000}" / f"f{number}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{number}\n" * 20)
        ways = list_ways(folder)
        for command in COMMANDS:
            times: dict[str, list[float]] = {way: [] for way in ways}
            for _ in range(runs + 1):
                for way, run in ways.items():
                    start = time.perf_counter()
                    await run(command)
                    times[way].append((time.perf_counter() - start) * 1000)
            medians = " | ".join(f"{statistics.median(each[1:]):.0f}" for each in times.values())
            if command == COMMANDS[0]:
                print(f"| files | command | {' | '.join(ways)} |\n|---|---|{'---:|' * len(ways)}")
            print(f"| {files:,} | `{command}` | {medians} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--files", type=int, nargs="+", default=[100, 5_000, 100_000])
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    if (why := explain_unusable()) is not None:
        parser.error(why)
    for files in given.files:
        asyncio.run(measure(files, given.runs))


if __name__ == "__main__":
    main()
