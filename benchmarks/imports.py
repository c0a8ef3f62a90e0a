"""What importing upcall costs in CPU, beside AutoGen: each line is the median of fresh processes, taken in turn."""

from __future__ import annotations

import argparse
import resource
import statistics
import subprocess
import sys

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


def milliseconds(command: list[str]) -> float:
    """How much CPU one process takes, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1000


def medians(runs: int) -> dict[str, float]:
    """Milliseconds by line. The rounds are interleaved, so that a slow moment of the machine meets all lines alike."""
    for command in COMMANDS.values():
        milliseconds(command)  # The first start compiles the modules.
    rounds = [{name: milliseconds(command) for name, command in COMMANDS.items()} for _ in range(runs)]
    return {name: statistics.median(each[name] for each in rounds) for name in COMMANDS}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="processes per line (default: %(default)s)")
    taken = medians(parser.parse_args().runs)
    print(f"{'':62} {'ms':>6}  {'/ autogen_agentchat':>19}  {'/ agents, teams':>15}")
    for name, each in taken.items():
        print(f"{name:62} {each:6.0f}  {each / taken[AUTOGEN]:19.2f}  {each / taken[AUTOGEN_AGENTS]:15.2f}")


if __name__ == "__main__":
    main()
