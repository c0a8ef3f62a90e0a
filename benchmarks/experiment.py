"""Kill an experiment again and again, start it again each time, and compare its table with that of an undisturbed one.

    python benchmarks/experiment.py                  # 200 tasks x 4 policies, 20 kills, some minutes
    python benchmarks/experiment.py --tasks 10 --kills 4

The model is scripted, and each of its calls leaves a line in a file. A process is killed with SIGKILL when so many
calls were made, at a random moment after that. The status is 1 if the tables differ, if a replay is not the same bit
for bit or calls a model, or if a call was made again that was paid for.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SUPPORT = ROOT / "tests" / "support"
sys.path.insert(0, str(SUPPORT))

FILE = """\
name: killed
tasks: tasks.jsonl
teams: {solo: "trial_world:make_team"}
policies: [never, always, budget 1, resolver]
models: {script: {replies: "trial_world:reply", limit: 8, price: {prompt: 1, completion: 2}}}
"""


@dataclass(frozen=True)
class Outcome:
    """What the kills came to.

    Attributes:
        kills: how many processes were killed in their work.
        same_table: whether the table is that of the undisturbed experiment. How long models took is not compared.
        same_replay: whether the replay gives the same figures bit for bit, without a model.
        trials: how many trials there are.
        counted: model calls that the table counts.
        made: model calls that were made.
        seconds: of the undisturbed experiment, of the killed one with all its starts, and of the replay.
    """

    kills: int
    same_table: bool
    same_replay: bool
    trials: int
    counted: int
    made: int
    seconds: tuple[float, float, float]

    @property
    def is_right(self) -> bool:
        """Whether nothing is lost and nothing paid twice but what was under way at a kill: 8 calls at most."""
        return self.same_table and self.same_replay and self.made - self.counted <= 8 * self.kills


class Folder:
    """One experiment in a folder of its own."""

    def __init__(self, path: Path, tasks: int) -> None:
        from trial_world import task

        path.mkdir(parents=True)
        self.path, self.calls = path, path / "calls"
        self.calls.touch()
        lines = [task(number).model_dump_json(exclude_defaults=True) for number in range(tasks)]
        (path / "tasks.jsonl").write_text("\n".join(lines))
        (path / "exp.yaml").write_text(FILE)

    def start(self, *options: str) -> subprocess.Popen[str]:
        """Start the command in a process of its own."""
        found = os.pathsep.join([str(ROOT / "src"), str(SUPPORT)])
        return subprocess.Popen(
            [sys.executable, "-m", "upcall", "experiment", "exp.yaml", "--json", *options],
            cwd=self.path,
            env={**os.environ, "PYTHONPATH": found, "CALLS": str(self.calls)},
            stdout=subprocess.PIPE,
            text=True,
        )

    def finish(self, *options: str) -> dict[str, Any]:
        """Run the command to its end; what it printed."""
        process = self.start(*options)
        printed, _ = process.communicate()
        assert process.returncode == 0, process.returncode
        return dict(json.loads(printed))

    def kill_after(self, calls: int, pause: float) -> bool:
        """Start the command, and kill it when so many calls were made; False where it was done before that."""
        process = self.start()
        while self.count_calls() < calls and process.poll() is None:
            time.sleep(0.002)
        time.sleep(pause)
        is_alive = process.poll() is None
        if is_alive:
            os.kill(process.pid, signal.SIGKILL)
        process.communicate()
        return is_alive

    def count_calls(self) -> int:
        """Return how many calls the model got."""
        return self.calls.read_text().count("\n")


def figures(printed: dict[str, Any], *, timed: bool) -> str:
    """Return all figures as text; without how long the models took, which is never twice the same."""
    chosen = {name: printed[name] for name in ("cells", "differences")}
    for row in [] if timed else [*chosen["cells"], *chosen["differences"]]:
        del row["measures"]["seconds"]
    return json.dumps(chosen)


def disturb(folder: Path, tasks: int, kills: int, seed: int) -> Outcome:
    """Do an experiment undisturbed, then with kills, then as a replay."""
    chance, times = random.Random(seed), [time.monotonic()]
    printed = Folder(folder / "undisturbed", tasks).finish()
    counted = round(sum(each["measures"]["turns"]["value"] * each["trials"] for each in printed["cells"]))
    times.append(time.monotonic())
    killed = Folder(folder / "killed", tasks)
    at = [counted * number // (kills + 1) for number in range(1, kills + 1)]
    done = sum(killed.kill_after(calls, chance.uniform(0, 0.03)) for calls in at)
    after, made = killed.finish(), killed.count_calls()
    times.append(time.monotonic())
    replayed = killed.finish("--replay")
    times.append(time.monotonic())
    is_same = figures(replayed, timed=True) == figures(after, timed=True)
    return Outcome(
        kills=done,
        same_replay=is_same and replayed["replies"]["requested"] == 0 and killed.count_calls() == made,
        same_table=figures(after, timed=False) == figures(printed, timed=False),
        trials=printed["trials"],
        counted=counted,
        made=made,
        seconds=(times[1] - times[0], times[2] - times[1], times[3] - times[2]),
    )


def main() -> None:
    """Exit with 1 if anything was lost or paid twice."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tasks", type=int, default=200)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--seed", type=int, default=7)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        outcome = disturb(Path(folder), chosen.tasks, chosen.kills, chosen.seed)
    print(f"{outcome.trials} trials, {outcome.kills} kills")
    print(f"the same table: {outcome.same_table}; the replay bit for bit: {outcome.same_replay}")
    print(f"model calls: {outcome.counted} in the table, {outcome.made} made")
    print("seconds: {:.0f} undisturbed, {:.0f} with kills and starts, {:.0f} replayed".format(*outcome.seconds))
    sys.exit(0 if outcome.is_right else 1)


if __name__ == "__main__":
    main()
