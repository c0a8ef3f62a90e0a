"""nested-ask-conformance: what becomes of the question of a nested agent, in each system, as one table.

    python benchmarks/conformance/run.py                                # every system, each in its own environment
    python benchmarks/conformance/run.py --systems upcall_ langgraph_ --cases "kill -9 at each boundary"
    python benchmarks/conformance/run.py --adapter mine.py              # yours alone: mine.txt beside it is installed
    python benchmarks/conformance/run.py --adapter ./mine --no-costs    # any program that speaks the protocol

README.md has the protocol and the meaning of each row and column. Only the standard library is needed here.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import json
import os
import platform
import shutil
import statistics
import subprocess
import sys
import venv
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from cases import CASES, Case
from model_server import ModelServer
from scenarios import SCENARIOS, answer
from trial import Adapter, Outcome, Problem, Process, clean_environment, folder_for, play

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
ADAPTERS = HERE / "adapters"
ENVIRONMENTS = ROOT / ".bench"
SYSTEMS = {
    "upcall_": "upcall",
    "autogen_plain": "plain AutoGen",
    "langgraph_": "langgraph",
    "langgraph_sync": "langgraph, sync",
    "openai_agents": "openai-agents",
    "pydantic_ai_": "pydantic-ai",
    "strands_": "strands",
    "agent_framework_": "agent-framework",
    "by_hand": "by hand",
}
"""The adapters that belong to the table, and how their systems are called."""

PATIENCE_S = 60.0
COST_RUNS = 10
COSTS = {"bytes": "KB stored at the pause", "cpu": "CPU ms a run", "memory": "peak MB"}


def prepare_environment(name: str, requirements: Path) -> Path:
    """Return the Python of an environment, made or renewed where it does not have what the file asks for."""
    folder = ENVIRONMENTS / name
    python, stamp = folder / "bin" / "python", folder / "installed.txt"
    wanted = requirements.read_text()
    own = (ROOT / "pyproject.toml").read_text() if "-e ." in wanted else ""
    if not stamp.exists() or stamp.read_text() != wanted + own:
        print(f"installing into .bench/{name}/ ...", file=sys.stderr, flush=True)
        uv = shutil.which("uv")
        venv.create(folder, with_pip=uv is None, clear=True)
        pip = [uv, "pip", "install", "--python", str(python)] if uv else [str(python), "-m", "pip", "install"]
        subprocess.run([*pip, "--quiet", "-r", str(requirements)], check=True, stdout=sys.stderr, cwd=ROOT)
        stamp.write_text(wanted + own)
    return python


def find_adapter(path: Path, python: Path | None = None) -> Adapter:
    """Return the adapter of a file: a Python file with a class `System`, or a program that speaks the protocol."""
    if path.suffix != ".py":
        return Adapter(path.name, [str(path.resolve())])
    requirements = path.with_suffix(".txt")
    if python is None:
        python = prepare_environment(path.stem, requirements) if requirements.exists() else Path(sys.executable)
    python = python.absolute()  # Not resolved: the link is what makes it the Python of its environment.
    return Adapter(path.stem, [str(python), str(HERE / "serve.py"), str(path.resolve())])


def read_versions(adapter: Adapter) -> dict[str, str]:
    """Return the versions of the packages that an adapter is made with. Its first start compiles their modules."""
    done = subprocess.run(
        adapter.command,
        input=json.dumps({"do": "about"}) + "\n",
        capture_output=True,
        text=True,
        env=clean_environment(),
        timeout=300,
    )
    if done.returncode or not done.stdout:
        raise SystemExit(f"{adapter.name} does not start:\n{done.stderr[-3000:]}")
    return dict(json.loads(done.stdout.splitlines()[-1]).get("versions", {}))


def measure_costs(adapter: Adapter, patience: float) -> dict[str, float]:
    """Measure paused and whole runs at depth 2 from outside: bytes in the folder, CPU and memory of the process."""
    scenario = SCENARIOS["depth 2"]
    with folder_for(adapter) as folder, ModelServer() as server:
        kept = folder / "runs"
        kept.mkdir()
        where = {"folder": str(kept), "url": server.url, "scenario": scenario.as_json()}

        def start(process: Process, run: str) -> list[dict[str, str]]:
            process.send({"do": "start", "run": run, "task": scenario.task(run), "history": [], **where})
            reply = process.receive() or {}
            return list(reply.get("open", ()))

        def work(process: Process, run: str) -> None:
            answers = {each["id"]: answer(each["text"]) for each in start(process, run)}
            process.send({"do": "answer", "run": run, "answers": answers, **where})
            if not (process.receive() or {}).get("result"):
                raise SystemExit(f"{adapter.name} does not complete a run at depth 2")

        sizes = []
        for runs in (["w"], [f"p{i}" for i in range(COST_RUNS)]):
            process = Process(adapter, folder, server.url, patience)
            for run in runs:
                start(process, run)
            process.end()
            sizes.append(sum(each.stat().st_size for each in kept.rglob("*") if each.is_file()))
        process = Process(adapter, folder, server.url, patience)
        work(process, "warm1")
        work(process, "warm2")
        before = process.cpu()
        for number in range(COST_RUNS):
            work(process, f"r{number}")
        cpu, memory = process.cpu() - before, process.peak_memory()
        process.end()
    return {
        "bytes": (sizes[1] - sizes[0]) / COST_RUNS / 1e3,
        "cpu": 1e3 * cpu / COST_RUNS,
        "memory": memory / 1e6,
    }


def verdict_table(outcomes: Mapping[tuple[str, str], Outcome], cases: Sequence[Case], titles: Mapping[str, str]) -> str:
    """Return the table of all cases."""
    lines = ["| | " + " | ".join(titles.values()) + " |", "|---" * (len(titles) + 1) + "|"]
    for case in cases:
        cells = [outcomes[name, case.name].verdict for name in titles]
        lines.append(f"| {case.name} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def summary_table(
    outcomes: Mapping[tuple[str, str], Outcome],
    cases: Sequence[Case],
    titles: Mapping[str, str],
    costs: Mapping[str, Sequence[Mapping[str, float]]],
) -> str:
    """Return the table of all systems: what all cases come to."""
    columns = ["right", "calls ÷ least", "effects once", "lost", "hung", "asked once", "path", *COSTS.values()]
    lines = ["| | " + " | ".join(columns) + " |", "|---" + "|---:" * len(columns) + "|"]
    for name, title in titles.items():
        each = [outcomes[name, case.name] for case in cases if not outcomes[name, case.name].unsupported]
        ended = {Problem.LOST, Problem.FAILED, Problem.HUNG}
        whole = [one for one in each if not ended & set(one.problems)]
        calls, least = sum(one.calls for one in whole), sum(one.least for one in whole)
        paths = sum((Counter(one.paths) for one in each), Counter())
        cells = [
            f"{sum(not one.problems for one in each)} of {len(each)}",
            f"{calls / least:.2f}" if least else "",
            _all_but(each, Problem.REPEATED, Problem.MISSED),
            str(_count(each, Problem.LOST)),
            str(_count(each, Problem.HUNG)),
            _all_but(each, Problem.ASKED_AGAIN),
            paths.most_common(1)[0][0] if paths else "",
            *(_median([one[key] for one in costs.get(name, ())]) for key in COSTS),
        ]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _count(outcomes: Sequence[Outcome], *problems: Problem) -> int:
    return sum(any(each in one.problems for each in problems) for one in outcomes)


def _all_but(outcomes: Sequence[Outcome], *problems: Problem) -> str:
    found = _count(outcomes, *problems)
    return f"not in {found}" if found else "always"


def _median(values: Sequence[float]) -> str:
    return f"{statistics.median(values):.1f}" if values else ""


def run_cases(
    adapters: Sequence[Adapter], cases: Sequence[Case], patience: float, jobs: int
) -> dict[tuple[str, str], Outcome]:
    """Play every case with every adapter; the systems in turn, `jobs` cases at a time."""
    outcomes: dict[tuple[str, str], Outcome] = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        running = {
            pool.submit(play, adapter, case, patience): (adapter.name, case.name)
            for case in cases
            for adapter in adapters
        }
        for future in concurrent.futures.as_completed(running):
            name, case_name = running[future]
            outcomes[name, case_name] = outcome = future.result()
            print(f"{name}: {case_name}: {outcome.verdict}", file=sys.stderr, flush=True)
            for note in outcome.notes:
                print(f"    {note}", file=sys.stderr, flush=True)
    return outcomes


def run_costs(adapters: Sequence[Adapter], rounds: int, patience: float) -> dict[str, list[dict[str, float]]]:
    """Measure every system once a round, each round in another order."""
    costs: dict[str, list[dict[str, float]]] = {each.name: [] for each in adapters}
    for number in range(rounds):
        turn = number % len(adapters)
        for adapter in [*adapters[turn:], *adapters[:turn]]:
            costs[adapter.name].append(measure_costs(adapter, patience))
        print(f"costs: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
    return costs


def main() -> None:
    """Play and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--systems", nargs="+", metavar="NAME", help=f"of {', '.join(SYSTEMS)} (default: all)")
    parser.add_argument("--adapter", type=Path, help="an adapter of your own, instead of those here")
    parser.add_argument("--python", type=Path, help="the Python that runs the adapters, instead of .bench/*/bin/python")
    parser.add_argument("--cases", nargs="+", metavar="CASE", help="by name, in quotes (default: all)")
    parser.add_argument("--rounds", type=int, default=3, help="rounds of the cost columns (default: %(default)s)")
    parser.add_argument("--no-costs", action="store_true", help="verdicts only")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="cases at a time (default: one a core)")
    parser.add_argument("--patience", type=float, default=PATIENCE_S, help="seconds until a system counts as hung")
    parser.add_argument("--json", type=Path, help="a file for every outcome")
    chosen = parser.parse_args()
    names = list(SYSTEMS) if chosen.systems is None else chosen.systems
    if unknown := [each for each in names if each not in SYSTEMS]:
        parser.error(f"Unknown: {', '.join(unknown)}. There is: {', '.join(SYSTEMS)}.")
    if unknown := [each for each in chosen.cases or () if each not in {case.name for case in CASES}]:
        parser.error(f"Unknown: {', '.join(unknown)}. There is: {', '.join(case.name for case in CASES)}.")
    cases = [each for each in CASES if chosen.cases is None or each.name in chosen.cases]
    paths = [chosen.adapter] if chosen.adapter else [ADAPTERS / f"{name}.py" for name in names]
    adapters = [find_adapter(path, chosen.python) for path in paths]
    titles = {each.name: SYSTEMS.get(each.name, each.name) for each in adapters}
    versions = {package: number for each in adapters for package, number in read_versions(each).items()}
    outcomes = run_cases(adapters, cases, chosen.patience, chosen.jobs)
    costs = {} if chosen.no_costs else run_costs(adapters, chosen.rounds, chosen.patience)
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    print(f"Python {platform.python_version()}, {os.cpu_count()} cores; {named}.\n")
    print(verdict_table(outcomes, cases, titles))
    print(f"\n{summary_table(outcomes, cases, titles, costs)}")
    if chosen.json:
        found = {f"{name}/{case}": {**asdict(each), "verdict": each.verdict} for (name, case), each in outcomes.items()}
        chosen.json.write_text(json.dumps({"versions": versions, "outcomes": found, "costs": costs}, indent=1))


if __name__ == "__main__":
    main()
