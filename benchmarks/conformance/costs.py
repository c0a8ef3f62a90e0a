"""The costs of the systems, from within: markdown tables of figures with their ratios to ours.

Adapters, scenarios, environments and model server are those of `run.py`, which says what each system does right; this
says what it takes, in finer figures than can be had from outside. Each is measured in a process of its own, which runs
one system on one scenario (`measure.py`). The systems take turns, and the rounds are interleaved, so that a slow moment
of the machine meets all alike; a figure is the median of the rounds.

    python benchmarks/conformance/costs.py                # about 20 minutes on 2 cores
    python benchmarks/conformance/costs.py --quick        # one short round
    python benchmarks/conformance/costs.py --runs-only --systems upcall_ upcall_opt_out autogen_plain
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from model_server import ModelServer
from run import ADAPTERS, HERE, SYSTEMS, prepare_environment
from trial import clean_environment

VARIANTS = {"upcall_opt_out": "upcall, take_over_clients off"}
"""Adapters that are for this measurement alone, where somebody names them."""

TITLES = {**SYSTEMS, **VARIANTS}
DEFAULT = [each for each in SYSTEMS if each not in ("langgraph_sync", "agent_framework_")]
"""What is measured where nobody names a system: a setting, and what replays each run from its start, are not."""

OURS = "upcall_"
RUN_SCENARIOS = ("depth 1", "depth 2", "depth 3", "two in parallel", "ask again", "history of 50", "history of 500")
PAUSES = "100 pauses"
NESTED = "depth 2"
"""The scenario of the figures that are taken on one scenario only."""

PROCESS_TIMEOUT_S = 600
SCALE = {"KB": 1e3, "MB": 1e6}
"""Measured in bytes, shown in these."""


@dataclass(frozen=True)
class Metric:
    """A figure of each scenario: its key in the measurements, what it is called, and its unit."""

    key: str
    title: str
    unit: str


BEYOND, FLOOR = "beyond the floor", "by_hand"
"""The figure that is taken from two systems, and the one of them that has the least."""

METRICS = (
    Metric("calls a run", "Model calls a run", ""),
    Metric("cpu a call", "CPU a model call", "ms"),
    Metric("cpu a run", "CPU a run", "ms"),
    Metric(BEYOND, "CPU a model call, beyond that of the loop written by hand", "ms"),
    Metric("cpu to pause", "CPU from the start of a run to its first pause", "ms"),
    Metric("beside a call", "Time beside the model's, a model call", "ms"),
    Metric("pause and store", "Pause and store", "ms"),
    Metric("load and resume", "Load and resume, same process", "ms"),
    Metric("bytes at pause", "Bytes stored by a run at its first pause", "KB"),
    Metric("file at pause", "Growth of the file by a run at its first pause", "KB"),
    Metric("bytes in all", "Bytes stored by a run that is over", "KB"),
    Metric("file in all", "Growth of the file by a run that is over", "KB"),
)
SINGLE = (
    Metric("rate/paused a second", "paused runs created a second, 8 at a time (more is better)", "/s"),
    Metric("rate/paused a CPU second", "the same a second of CPU", "/s"),
    Metric("go-on/load and resume, new", "load and resume in a new process, imports left out", "ms"),
    Metric("go-on/whole, new", "from the start of a new process to its first model call", "ms"),
    Metric("imports/import", "import", "ms"),
    Metric("memory/live", "Python memory of a live run", "KB"),
    Metric("memory/paused", "Python memory of a paused run", "KB"),
    Metric("peak/peak rss", "peak memory (RSS) of the process of the depth 2 row", "MB"),
    Metric("pauses/cpu a call", "100 pauses: CPU a model call", "ms"),
    Metric("pauses/early cpu", "100 pauses: CPU a pause, pauses 6 to 25", "ms"),
    Metric("pauses/late cpu", "100 pauses: CPU a pause, pauses 81 to 100", "ms"),
    Metric("pauses/late beside", "100 pauses: time beside the model's a pause, pauses 81 to 100", "ms"),
    Metric("pauses/bytes", "100 pauses: bytes stored at the last", "KB"),
    Metric("pauses/file", "100 pauses: size of the file at the last", "KB"),
    Metric("pauses/log", "100 pauses: the bare message log", "KB"),
    Metric("pauses/written", "100 pauses: bytes written to files up to the last", "KB"),
)

Figures = dict[tuple[str, str], dict[str, list[float]]]
"""Measurements by scenario and key, then by system, one a round."""


@dataclass
class Bench:
    """What a comparison is made of: which Python runs each system, which systems, and how much of each."""

    pythons: Mapping[str, Path]
    systems: Sequence[str]
    scenarios: Sequence[str]
    rounds: int
    count: int
    singles: bool = True
    keep: Path | None = None
    """Where every measurement is kept, after each round."""

    def run(self) -> tuple[Figures, dict[str, str]]:
        """All figures, and the versions measured."""
        figures: Figures = defaultdict(lambda: defaultdict(list))
        versions: dict[str, str] = {}
        with tempfile.TemporaryDirectory() as folder, ModelServer() as server:
            self._folder, self._url = Path(folder), f"{server.url}/v1"
            for system in self.systems:
                versions |= self._measure(system, "imports")["versions"]  # The first start compiles the modules.
            for number in range(self.rounds):
                order = [*self.systems[number % len(self.systems) :], *self.systems[: number % len(self.systems)]]
                for scenario, system, found in self._round(order):
                    for key, value in found.items():
                        figures[scenario, key][system].append(value)
                _add_what_is_beyond_the_floor(figures, self.scenarios)
                if self.keep is not None:
                    self.keep.write_text(json.dumps({"/".join(key): found for key, found in figures.items()}, indent=1))
                _print_line(f"round {number + 1} of {self.rounds} is done")
        return figures, versions

    def _round(self, order: Sequence[str]) -> Iterator[tuple[str, str, Mapping[str, float]]]:
        for scenario in self.scenarios:
            for system in order:
                found = self._measure(system, "runs", scenario=scenario, count=self.count)
                if scenario == NESTED:
                    yield "peak", system, {"peak rss": found["peak rss"]}
                yield scenario, system, found
        if not self.singles:
            return
        for system in order:
            yield "imports", system, {"import": statistics.median(self._imports(system))}
            yield "go-on", system, self._new_process(system)
        for mode, scenario, count in (("rate", NESTED, 8 * self.count), ("memory", NESTED, 100), ("pauses", PAUSES, 1)):
            for system in order:
                yield mode, system, self._measure(system, mode, scenario=scenario, count=count)

    def _imports(self, system: str) -> list[float]:
        return [self._measure(system, "imports")["import"] for _ in range(3)]

    def _new_process(self, system: str) -> dict[str, float]:
        """Pause runs in one process, and answer each in a process of its own."""
        store = self._new_store(system)
        left = self._measure(system, "leave", store=store, count=3)["runs"]
        each = [
            self._measure(system, "go-on", store=store, run=run, questions=json.dumps(ids)) for run, ids in left.items()
        ]
        return {key: statistics.median(found[key] for found in each) for key in each[0]}

    def _new_store(self, system: str) -> Path:
        return Path(tempfile.mkdtemp(dir=self._folder, prefix=system)) / "runs.db"

    def _measure(self, system: str, mode: str, store: Path | None = None, **options: str | int) -> dict[str, float]:
        """One process. `options` are those of measure.py."""
        options |= {
            "url": self._url,
            "store": str(store or self._new_store(system)),
            "spawned": str(time.perf_counter()),
        }
        given = [f"--{name}={value}" for name, value in options.items()]
        command = [str(self.pythons[system]), str(HERE / "measure.py"), system, mode, *given]
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=clean_environment(),
            capture_output=True,
            text=True,
            timeout=PROCESS_TIMEOUT_S,
        )
        if done.returncode:
            raise SystemExit(
                f"{TITLES[system]} failed ({mode}, {options.get('scenario', NESTED)}):\n{done.stderr[-3000:]}"
            )
        return json.loads(done.stdout.splitlines()[-1])


def _add_what_is_beyond_the_floor(figures: Figures, scenarios: Sequence[str]) -> None:
    """Add what a call takes beside the same call in the loop written by hand, of the same round."""
    for scenario in scenarios:
        each = figures[scenario, "cpu a call"]
        floor = each.get(FLOOR, ())
        for system, taken in each.items():
            figures[scenario, BEYOND][system] = [one - least for one, least in zip(taken, floor, strict=False)]


def tables(figures: Figures, systems: Sequence[str], scenarios: Sequence[str]) -> str:
    """Return the markdown: one table for each metric over all scenarios, then one for what is measured once."""
    parts = []
    for metric in METRICS:
        title = f"{metric.title} ({metric.unit})" if metric.unit else metric.title
        if metric.key == BEYOND and FLOOR not in systems:
            continue
        rows = [(scenario, metric.unit, figures[scenario, metric.key]) for scenario in scenarios]
        parts.append(f"**{title}**\n\n{_table(rows, systems)}")
    singles = [
        (f"{metric.title}, {metric.unit}", metric.unit, figures[scenario, key])
        for metric in SINGLE
        for scenario, key in [metric.key.split("/", 1)]
        if (scenario, key) in figures
    ]
    if singles:
        parts.append(f"**Other figures**\n\n{_table(singles, systems)}")
    return "\n\n".join(parts)


def _table(rows: Sequence[tuple[str, str, Mapping[str, Sequence[float]]]], systems: Sequence[str]) -> str:
    lines = ["| | " + " | ".join(TITLES[each] for each in systems) + " |", "|---" + "|---:" * len(systems) + "|"]
    for title, unit, found in rows:
        medians = {each: statistics.median(found[each]) / SCALE.get(unit, 1) for each in systems}
        cells = [_cell(medians[each], medians.get(OURS) if each != OURS else None) for each in systems]
        lines.append(f"| {title} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _cell(value: float, ours: float | None) -> str:
    """Return the figure, with its ratio to ours where both are more than nothing."""
    figure = f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}"
    return f"{figure} ({value / ours:.2f})" if ours is not None and min(ours, value) >= 0.05 else figure


def about(versions: Mapping[str, str]) -> str:
    """Return what was measured, and where."""
    named = ", ".join(f"{name} {version}" for name, version in versions.items())
    return f"Python {platform.python_version()}, {os.cpu_count()} cores; {named}."


def _prepare_environment(system: str) -> Path:
    name = OURS if system in VARIANTS else system
    return prepare_environment(name, ADAPTERS / f"{name}.txt")


def _chosen(names: Sequence[str], known: Sequence[str], what: str) -> list[str]:
    if unknown := sorted(set(names) - set(known)):
        raise SystemExit(f"Unknown {what}: {', '.join(unknown)}. There is: {', '.join(known)}.")
    return [each for each in known if each in names]


def _print_line(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=10, help="runs a scenario and round (default: %(default)s)")
    parser.add_argument("--quick", action="store_true", help="one round of 3, without the other figures")
    parser.add_argument("--runs-only", action="store_true", help="without the figures that are taken on one scenario")
    parser.add_argument("--systems", nargs="+", default=DEFAULT, metavar="NAME", help=f"of {', '.join(TITLES)}")
    parser.add_argument("--scenarios", nargs="+", default=RUN_SCENARIOS, metavar="NAME", help="by name, in quotes")
    parser.add_argument("--python", type=Path, help="the Python that runs the systems, instead of .bench/*/bin/python")
    parser.add_argument("--json", type=Path, help="a file for every measurement, written after each round")
    chosen = parser.parse_args()
    systems = _chosen(chosen.systems, list(TITLES), "system")
    bench = Bench(
        pythons={each: chosen.python or _prepare_environment(each) for each in systems},
        systems=systems,
        scenarios=_chosen(chosen.scenarios, RUN_SCENARIOS, "scenario"),
        rounds=1 if chosen.quick else chosen.rounds,
        count=3 if chosen.quick else chosen.count,
        singles=not (chosen.quick or chosen.runs_only),
        keep=chosen.json,
    )
    figures, versions = bench.run()
    print(f"{about(versions)} {bench.rounds} rounds of {bench.count} runs, interleaved, medians.\n")
    print(tables(figures, bench.systems, bench.scenarios))


if __name__ == "__main__":
    main()
