"""Whole runs of a fleet in a CPU-second, upcall beside LangGraph with its PostgreSQL saver, both over procrastinate.

    python benchmarks/throughput.py                       # 1, 2, 4 workers, 300 runs each
    python benchmarks/throughput.py --runs 40 --workers 1

A run asks twice and takes a note behind each answer; a driver in another process submits all of them and answers at
once. What is counted is the CPU of the workers, without that of their start, and beside it that of all: workers, driver
and PostgreSQL. LangGraph saves beside the next step by default (``async``); upcall writes it before (``sync``).
LangGraph is installed into ``.bench/``, as for `conformance/`, unless ``--python`` names an environment that has it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests" / "support"))
sys.path.insert(0, str(Path(__file__).resolve().parent / "conformance"))

from postgres import Server, running
from run import ADAPTERS, prepare_environment
from workers import Fleet

from upcall.workers.fleet import look_at_fleet

ADAPTER = ADAPTERS / "langgraph_fleet.py"
TICKS = os.sysconf("SC_CLK_TCK")
LEASE = 15.0


def cpu_of(processes: Iterable[int]) -> float:
    """Return the seconds of CPU of some processes, and of their children that have ended."""
    found = [Path(f"/proc/{each}/stat").read_text().rpartition(")")[2].split()[11:15] for each in processes]
    return sum(int(ticks) for fields in found for ticks in fields) / TICKS


def measure(server: Server, workers: Sequence[subprocess.Popen[str]], runs: int, drive: Callable[[], float]) -> str:
    """Drive some runs through workers that are ready; return a row of the table. `drive` returns its own seconds."""
    processes = [each.pid for each in workers]
    before, database, began = cpu_of(processes), cpu_of(server.processes()), time.monotonic()
    driver = drive()
    seconds, own = time.monotonic() - began, cpu_of(processes) - before
    everything = own + driver + cpu_of(server.processes()) - database
    return f"{runs / own:.1f} | {runs / everything:.1f} | {runs / seconds:.1f}"


def measure_upcall(server: Server, workers: int, runs: int) -> str:
    """Measure upcall."""
    fleet = Fleet(server.new_database(), LEASE)

    async def drive() -> None:
        answering = asyncio.create_task(fleet.answer_all())
        await fleet.submit(runs, 10_000)
        while fleet.has_work(runs):  # noqa: ASYNC110
            await asyncio.sleep(0.05)
        answering.cancel()

    def drive_here() -> float:
        began = time.process_time()
        asyncio.run(drive())
        return time.process_time() - began

    try:
        for _ in range(workers):
            fleet.start()
        while len(asyncio.run(look_at_fleet(fleet.app.store)).workers) < workers:
            time.sleep(0.1)
        time.sleep(1)
        return measure(server, fleet.workers, runs, drive_here)
    finally:
        fleet.end()


def measure_langgraph(python: Path, durability: str, server: Server, workers: int, runs: int) -> str:
    """Measure LangGraph, with one of its durabilities."""
    url = server.new_database()
    command = [str(python), str(ADAPTER)]
    subprocess.run([*command, "prepare", url], check=True)
    started = [
        subprocess.Popen([*command, "worker", url, durability], stdout=subprocess.PIPE, text=True)
        for _ in range(workers)
    ]

    def drive() -> float:
        done = subprocess.run([*command, "drive", url, str(runs)], check=True, stdout=subprocess.PIPE, text=True)
        return float(done.stdout)

    try:
        for each in started:
            assert each.stdout is not None
            each.stdout.readline()
        time.sleep(1)
        return measure(server, started, runs, drive)
    finally:
        for each in started:
            each.kill()
            each.wait()


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--python", type=Path, help="of an environment with LangGraph; must know procrastinate as well")
    options = parser.parse_args()
    python = options.python or prepare_environment(ADAPTER.stem, ADAPTER.with_suffix(".txt"))
    systems = {"upcall": measure_upcall} | {
        f"LangGraph, {durability}": partial(measure_langgraph, python, durability) for durability in ("async", "sync")
    }
    print(f"Load before: {os.getloadavg()[0]:.1f}")
    print("| system | workers | runs a CPU-second of the workers | of all | runs a second |")
    print("|---|---:|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder, running() as server:
        os.chdir(folder)
        for workers in options.workers:
            for system, measure_one in systems.items():
                print(f"| {system} | {workers} | {measure_one(server, workers, options.runs)} |", flush=True)
        os.chdir("/")
    print(f"Load after: {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
