"""Kill workers with SIGKILL at every point of their work, let others continue, and count what was done twice or lost.

    python benchmarks/kill.py                      # every point of every scenario, some minutes
    python benchmarks/kill.py --points 100 --twice 20 --seed 7
    python benchmarks/kill.py --scenario nested --at "start/tool left:1:1 middle"

For each scenario a run that nobody kills shows the points: before each model request, while the server holds the reply,
in the middle of a stream, after the reply; before a tool's side effect, after it, and after its return; before and
after each commit; around each pause. Then, for each point, a worker is killed there, and the command line's `start`,
`answer` and `resume`, each in a new process, take the run to its end. The status is 1 if anything was wrong.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any

from killing.forks import each_in_a_child
from killing.model_server import model_server
from killing.points import Reached, reached
from killing.scenarios import SCENARIOS
from killing.trial import VERDICT, State, Verdict, attempt, judge, state, warm_up
from killing.worker import Job

HUMAN = ("human", "doubt")
"""Points that only note what the human does."""


@dataclass(frozen=True)
class Trial:
    """A job, and where its workers are killed."""

    job: Job
    kills: Sequence[str]


@dataclass(frozen=True)
class Figures:
    """What one scenario came to. ``kills`` are the processes killed; a point that is not reached kills none."""

    scenario: str
    points: int
    kills: int
    model_calls: int
    calls_in_flight: int
    tools_again: int
    doubts: int
    faulty_trials: int
    model_calls_repeated: int
    tool_calls_repeated: int
    effects_twice: int
    losses: int
    locked: int
    """Workers stopped in the middle of a write to SQLite: its lock is theirs, and nobody can continue."""
    seconds: float


class Harness:
    """Trials of one kind of store, with one model server, in one folder."""

    def __init__(self, folder: Path, base_url: str, store: str | None, jobs: int, **more: Any) -> None:
        self.folder, self.base_url, self.store = folder, base_url, store
        self.jobs, self.more = jobs, more

    def job(self, scenario: str, name: str) -> Job:
        """Return the job of one trial, in a folder of its own."""
        folder = self.folder / scenario.replace(" ", "-") / name
        folder.mkdir(parents=True)
        run_id = f"{scenario.replace(' ', '-')}-{name}-{os.getpid()}"
        store = self.store or str(folder / "runs.db")
        return Job(scenario, folder, self.base_url, store, run_id, **self.more)

    def undisturbed(self, scenario: str) -> tuple[State, list[Reached]]:
        """Return the state and the points of a run that nobody kills; it is run twice, and both must come to the
        same."""
        warm_up(self.job(scenario, "warm-up"))
        jobs = [self.job(scenario, f"undisturbed-{number}") for number in (1, 2)]
        for job in jobs:
            verdict = attempt(job, [])
            if verdict.faults:
                raise RuntimeError(f"{scenario}: without a kill it {verdict.faults[0]}; see {job.folder}")
        first, second = map(state, jobs)
        if first != second:
            raise RuntimeError(f"{scenario}: two runs without a kill end differently: {first} {second}")
        return first, reached(jobs[0].folder)

    def run(self, scenario: str, trials: Sequence[Sequence[str]], expected: State) -> list[tuple[Path, Verdict]]:
        """Return the verdicts of all trials."""
        prepared = [Trial(self.job(scenario, f"{number:04}"), kills) for number, kills in enumerate(trials)]

        def do(trial: Trial) -> None:
            verdict = attempt(trial.job, trial.kills)
            judge(verdict, trial.job, expected)
            (trial.job.folder / VERDICT).write_text(json.dumps(asdict(verdict)))

        done = []
        for trial in each_in_a_child(do, prepared, self.jobs, self.folder / "trials.txt"):
            verdict = Verdict(**json.loads((trial.job.folder / VERDICT).read_text()))
            done.append((trial.job.folder, verdict))
            if not verdict.faults:
                shutil.rmtree(trial.job.folder)
        return done


def schedule(points: Sequence[Reached], wanted: int | None, twice: int, seed: str) -> list[list[str]]:
    """Where to kill: each point once, or `wanted` of them, of all kinds alike; and `twice` trials in which the process
    that continues is killed too."""
    dice = random.Random(seed)
    labels = list(dict.fromkeys(f"{each.stage}/{each.label}" for each in points if each.kind not in HUMAN))
    kinds: dict[str, list[str]] = {}
    for label in labels:
        kinds.setdefault(label.partition("/")[2].partition(" ")[0], []).append(label)
    for group in kinds.values():
        dice.shuffle(group)
    mixed = [label for row in zip_longest(*kinds.values()) for label in row if label is not None]
    once = [[label] for label in mixed[:wanted]]
    again = [[dice.choice(labels), f"#{dice.randint(1, 40)}"] for _ in range(twice)]
    return once + again


def figures(scenario: str, points: Sequence[Reached], verdicts: Sequence[Verdict], seconds: float) -> Figures:
    """Return the verdicts of a scenario, counted."""
    faults = [fault for each in verdicts for fault in each.faults]

    def count(*beginnings: str) -> int:
        return sum(fault.startswith(beginnings) for fault in faults)

    twice = sum("times:" in fault for fault in faults)
    losses = count("side effect lost", "ends with another", "hangs", "fails", "does not end")
    return Figures(
        scenario,
        points=len(verdicts),
        kills=sum(each.kills for each in verdicts),
        model_calls=sum(each.kind == "held" for each in points),
        calls_in_flight=sum(len(each.calls_in_flight) for each in verdicts),
        tools_again=sum(len(each.tools_again) for each in verdicts),
        doubts=sum(each.doubts for each in verdicts),
        faulty_trials=sum(bool(each.faults) for each in verdicts),
        model_calls_repeated=count("model call"),
        tool_calls_repeated=count("tool call"),
        effects_twice=twice,
        losses=losses,
        locked=sum(each.locked for each in verdicts),
        seconds=round(seconds, 1),
    )


def arguments() -> argparse.Namespace:
    """Return what the command line says."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--scenario", action="append", choices=list(SCENARIOS), help="one of them, or several; all")
    parser.add_argument("--points", type=int, help="so many points a scenario, of all kinds alike; all")
    parser.add_argument("--twice", type=int, default=0, help="so many trials more, with a second kill on the way back")
    parser.add_argument("--at", action="append", help="kill at this point; twice: at the second one after it")
    human = "looks for the side effect of a call in doubt, has it run again, or skips it"
    parser.add_argument("--human", choices=["look", "again", "skip"], default="look", help=human)
    parser.add_argument("--eager", action="store_true", help="the human answers while others are still at work")
    parser.add_argument(
        "--stop", action="store_true", help="stop workers instead, and let them go on when the run is over"
    )
    parser.add_argument("--seed", default="1", help="for the choice of points")
    parser.add_argument("--store", help="a database URL, instead of an SQLite file a trial")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="trials at a time")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    parser.add_argument("--folder", type=Path, help="keep what faulty trials leave behind in this folder")
    return parser.parse_args()


def main() -> int:
    """Run what the command line says; 1 if anything was wrong."""
    given = arguments()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="upcall-kill-"))
    folder.mkdir(parents=True, exist_ok=True)
    rows: list[Figures] = []
    faults: list[str] = []
    with model_server(folder) as base_url:
        more: dict[str, Any] = {"human": given.human, "eager": given.eager}
        more |= {"signal": signal.SIGSTOP, "lease_seconds": 0.4} if given.stop else {}
        harness = Harness(folder, base_url, given.store, given.jobs, **more)
        for scenario in given.scenario or [name for name, each in SCENARIOS.items() if each.make or not given.eager]:
            began = time.monotonic()
            expected, points = harness.undisturbed(scenario)
            trials = [given.at] if given.at else schedule(points, given.points, given.twice, f"{given.seed}{scenario}")
            done = harness.run(scenario, trials, expected)
            rows.append(figures(scenario, points, [verdict for _, verdict in done], time.monotonic() - began))
            faults += [
                f"{scenario}, killed at {', '.join(verdict.kill_at)}: {fault}"
                for _, verdict in done
                for fault in verdict.faults
            ]
            if not given.json:
                _print(rows[-1], first=len(rows) == 1)
    if given.json:
        print(json.dumps({"figures": [asdict(row) for row in rows], "faults": faults}, indent=1))
    else:
        _print_faults(faults)
    if not faults and given.folder is None:
        shutil.rmtree(folder)
    return 1 if faults else 0


COLUMNS = {
    "points": "points",
    "kills": "kills",
    "model_calls": "calls",
    "calls_in_flight": "in flight",
    "doubts": "doubts",
    "tools_again": "tools again",
    "model_calls_repeated": "CALLS REPEATED",
    "tool_calls_repeated": "TOOLS REPEATED",
    "effects_twice": "EFFECTS TWICE",
    "losses": "LOSSES",
    "faulty_trials": "FAULTY",
    "seconds": "seconds",
}


def _print(row: Figures, first: bool) -> None:
    if first:
        print("| scenario |", " | ".join(COLUMNS.values()), "|")
        print("|---|" + "---|" * len(COLUMNS))
    values = asdict(row)
    print(f"| {row.scenario} |", " | ".join(str(values[name]) for name in COLUMNS), "|", flush=True)


def _print_faults(faults: Sequence[str], shown: int = 60) -> None:
    for fault in faults[:shown]:
        print(fault[:1200])
    if len(faults) > shown:
        print(f"... and {len(faults) - shown} more")
    kinds = Counter(fault.partition(": ")[2].split(" ")[0] for fault in faults)
    print(f"{len(faults)} faults {dict(kinds)}" if faults else "no faults")


if __name__ == "__main__":
    sys.exit(main())
