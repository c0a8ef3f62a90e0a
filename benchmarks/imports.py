"""What importing upcall costs, and commands that look at runs, beside AutoGen: CPU, as the median of fresh processes
taken in turn; and calls of functions, whose number is the same however busy the machine is. Too many of them fail."""

from __future__ import annotations

import argparse
import asyncio
import importlib.util
import os
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
AGENT = "from upcall import PausableAgent"
MCP = "import mcp.server"
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "import upcall": ["-c", "import upcall"],
    "upcall --help": ["-m", "upcall", "--help"],
    AUTOGEN: ["-c", AUTOGEN],
    AUTOGEN_AGENTS: ["-c", AUTOGEN_AGENTS],
    AGENT: ["-c", AGENT],
    UPCALL: ["-c", UPCALL],
    **({MCP: ["-c", MCP]} if importlib.util.find_spec("mcp") else {}),
}

"""What is measured: by name, arguments for Python."""

MOST_CALLS = {"upcall --help": 0.32, AGENT: 1.375, UPCALL: 1.545, "upcall list": 0.865, "upcall ask": 0.975}
"""Calls of functions to those of importing AutoGen's agents and teams: what was reached, and 3 % for other versions."""

MOST_MODULES = {AGENT: 147, UPCALL: 265}
"""Modules of upcall that are imported."""

_COUNT = """
import cProfile, runpy, sys
profile, (first, *others) = cProfile.Profile(), sys.argv[1:]
profile.enable()
try:
    if first == "-c":
        exec(others[0])
    else:
        sys.argv = ["upcall", *others[1:]]
        runpy.run_module("upcall", run_name="__main__")
except SystemExit:
    pass
profile.disable()
ours = sum(each.split(".")[0] == "upcall" for each in sys.modules)
sys.stderr.write(f"{sum(entry.callcount for entry in profile.getstats())} {ours}")
"""


def looking_at(store: Path) -> dict[str, list[str]]:
    """Give the commands that look at the runs of a store, which is made with one."""
    from upcall import Run, RunStatus
    from upcall.runs.checkpoint import Checkpoint
    from upcall.storage.store import RunStore

    run = Run(task="Build me a user authentication system", status=RunStatus.CANCELLED)
    asyncio.run(RunStore(store).create(run, Checkpoint()))
    commands = {"upcall list": ["list"], "upcall show RUN": ["show", run.id], "upcall inbox": ["inbox", "--json"]}
    commands["upcall ask"] = ["ask", "Which one?", "--default", "a", "--deadline", "0.001s", "--json"]
    if importlib.util.find_spec("mcp"):  # A client that leaves at once.
        commands["upcall mcp --ask"] = ["mcp", "--ask"]
    return {name: ["-m", "upcall", *given, "--store", str(store)] for name, given in commands.items()}


def run_python(arguments: list[str], cache: Path) -> str:
    """Run a fresh process, and return what it writes on standard error. Compiled modules are kept in `cache`, so that
    all are compiled, whatever the environment says and whoever owns the sources."""
    given = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment = given | {"PYTHONPYCACHEPREFIX": str(cache), "PYTHONHASHSEED": "0"}
    command, quiet = [sys.executable, *arguments], subprocess.DEVNULL
    ended = subprocess.run(
        command, check=True, stdin=quiet, stdout=quiet, stderr=subprocess.PIPE, env=environment, text=True
    )
    return ended.stderr


def milliseconds(arguments: list[str], cache: Path) -> float:
    """How much CPU one process takes, from its start to its end."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    run_python(arguments, cache)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime) * 1000


def medians(commands: Mapping[str, list[str]], runs: int, cache: Path) -> dict[str, float]:
    """Milliseconds by line. The rounds are interleaved, so that a slow moment of the machine meets all lines alike."""
    rounds = [{name: milliseconds(command, cache) for name, command in commands.items()} for _ in range(runs)]
    return {name: statistics.median(each[name] for each in rounds) for name in commands}


def count(arguments: list[str], cache: Path) -> tuple[int, int]:
    """How many calls of functions a process makes, and how many of upcall's modules it imports."""
    calls, modules = run_python(["-c", _COUNT, *arguments], cache).split()[-2:]
    return int(calls), int(modules)


def main() -> int:
    """Print the table; return 1 if something costs more than it may."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=7, help="processes per line (default: %(default)s)")
    runs = parser.parse_args().runs
    with tempfile.TemporaryDirectory() as folder:
        commands, cache = COMMANDS | looking_at(Path(folder) / "runs.db"), Path(folder) / "compiled"
        for command in commands.values():
            run_python(command, cache)  # The first start compiles the modules.
        counted = {name: count(command, cache) for name, command in commands.items()}
        taken = medians(commands, runs, cache)
    titles = f"{'/ autogen_agentchat':>19}  {'/ agents, teams':>15}  {'calls / these':>13}  {'modules':>7}"
    print(f"{'':62} {'ms':>6}  {titles}")
    calls = {name: each / counted[AUTOGEN_AGENTS][0] for name, (each, _) in counted.items()}
    for name, each in taken.items():
        ratios = f"{each / taken[AUTOGEN]:19.2f}  {each / taken[AUTOGEN_AGENTS]:15.2f}  {calls[name]:13.3f}"
        print(f"{name:62} {each:6.0f}  {ratios}  {counted[name][1]:7}")
    limits = [(f"{name}: calls", calls[name], most) for name, most in MOST_CALLS.items()]
    limits += [(f"{name}: modules", counted[name][1], most) for name, most in MOST_MODULES.items()]
    too_much = [f"{what}: {each:.3g}, at most {most}" for what, each, most in limits if each > most]
    for line in too_much:
        print(f"TOO MUCH: {line}")
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(main())
