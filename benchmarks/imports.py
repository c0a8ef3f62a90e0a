"""What importing upcall costs, beside AutoGen: each line is the median of fresh processes, taken in turn in one run."""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time

AUTOGEN = "import autogen_agentchat"
AUTOGEN_AGENTS = "import autogen_agentchat.agents"
PYTHON = [sys.executable, "-c"]
COMMANDS = {
    "python -c pass": [*PYTHON, "pass"],
    "import upcall": [*PYTHON, "import upcall"],
    "upcall --help": [sys.executable, "-m", "upcall", "--help"],
    AUTOGEN: [*PYTHON, AUTOGEN],
    AUTOGEN_AGENTS: [*PYTHON, AUTOGEN_AGENTS],
    "import upcall.app": [*PYTHON, "import upcall.app"],
}


def milliseconds(command: list[str]) -> float:
    """How long one process takes, from its start to its end."""
    start = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    return (time.perf_counter() - start) * 1000


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
    print(f"{'':32} {'ms':>6}  {'/ autogen_agentchat':>19}  {'/ .agents':>9}")
    for name, each in taken.items():
        print(f"{name:32} {each:6.0f}  {each / taken[AUTOGEN]:19.2f}  {each / taken[AUTOGEN_AGENTS]:9.2f}")


if __name__ == "__main__":
    main()
