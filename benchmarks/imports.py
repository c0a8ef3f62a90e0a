"""What importing upcall costs in CPU, and commands that look at runs, beside AutoGen: each line is the median of fresh
processes, taken in turn."""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

AUTOGEN = "import autogen_agentchat"
AUTOGEN_AGENTS = "import autogen_agentchat.agents, autogen_agentchat.teams"
UPCALL = "from upcall import PausableAgent, Upcall"
PYTHON = [sys.executable, "-c"]
COMMANDS = {
    "python -c pass": [*PYTHON, "pass"],
    "import upcall": [*PYTHON, "import upcall"],
    "upcall --help": [sys.executable, "-m", "upcall", "--help"],
    AUTOGEN: [*PYTHON, AUTOGEN],
    AUTOGEN_AGENTS: [*PYTHON, AUTOGEN_AGENTS],
    UPCALL: [*PYTHON, UPCALL],
}


def looking_at(store: Path) -> dict[str, list[str]]:
    """Give the commands that look at the runs of a store, which is made with one."""
    from upcall import Run, RunStatus
    from upcall.runs.checkpoint import Checkpoint
    from upcall.storage.store import RunStore

    run = Run(task="Build me a user authentication system", status=RunStatus.CANCELLED)
    asyncio.run(RunStore(store).create(run, Checkpoint()))
    commands = {"upcall list": ["list"], "upcall show RUN": ["show", run.id], "upcall inbox": ["inbox", "--json"]}
    return {name: [sys.executable, "-m", "upcall", *given, "--store", str(store)] for name, given in commands.items()}


def milliseconds(command: list[str]) -> float:
    """How much CPU one process takes, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1000


def medians(commands: Mapping[str, list[str]], runs: int) -> dict[str, float]:
    """Milliseconds by line. The rounds are interleaved, so that a slow moment of the machine meets all lines alike."""
    for command in commands.values():
        milliseconds(command)  # The first start compiles the modules.
    rounds = [{name: milliseconds(command) for name, command in commands.items()} for _ in range(runs)]
    return {name: statistics.median(each[name] for each in rounds) for name in commands}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="processes per line (default: %(default)s)")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        taken = medians(COMMANDS | looking_at(Path(folder) / "runs.db"), runs)
    print(f"{'':62} {'ms':>6}  {'/ autogen_agentchat':>19}  {'/ agents, teams':>15}")
    for name, each in taken.items():
        print(f"{name:62} {each:6.0f}  {each / taken[AUTOGEN]:19.2f}  {each / taken[AUTOGEN_AGENTS]:15.2f}")


if __name__ == "__main__":
    main()
