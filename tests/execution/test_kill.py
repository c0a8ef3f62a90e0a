"""Workers are killed with SIGKILL in the middle of their work; whoever continues does nothing twice and loses nothing.

`benchmarks/kill.py` is the harness. It kills real processes, with a model server in a process of its own, and judges by
the requests that the server got and the lines that the tools wrote.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from places import ROOT
from postgres import Server

pytestmark = pytest.mark.needs("workspace")

BENCHMARKS = ROOT / "benchmarks"
SCENARIOS = (
    "nested",
    "streamed",
    "round robin",
    "swarm",
    "graph",
    "team in agent",
    "root team",
    "root team that asks",
    "demo",
)


def kill(*arguments: str) -> dict[str, Any]:
    """Return what the harness found."""
    command = [sys.executable, str(BENCHMARKS / "kill.py"), "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert done.returncode == bool(found["faults"])
    return found


@pytest.mark.slow
def test_workers_killed_at_a_few_points() -> None:
    """A few points of a small team that nests, works in parallel and asks: one of each kind."""
    found = kill("--scenario", "small", "--points", "7", "--seed", "fast")
    assert found["faults"] == []
    assert found["figures"][0]["kills"] == 7


@pytest.mark.slow
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_workers_killed_at_many_points(scenario: str) -> None:
    """Points of all kinds in each scenario, and some runs in which the process that continues is killed too."""
    found = kill("--scenario", scenario, "--points", "10", "--twice", "2", "--seed", "slow")
    assert found["faults"] == []
    assert found["figures"][0]["kills"] >= 10


@pytest.mark.slow
@pytest.mark.parametrize("scenario", ["nested", "graph"])
def test_answers_that_come_while_others_work_are_not_lost(scenario: str) -> None:
    """The human answers from a process of its own as soon as something is asked; the worker is killed around that."""
    found = kill("--scenario", scenario, "--points", "14", "--eager", "--seed", "slow")
    assert found["faults"] == []


@pytest.mark.slow
def test_workers_killed_on_postgresql(postgres: Server) -> None:
    """The same on PostgreSQL, which ends the transaction of a killed worker by itself."""
    found = kill("--scenario", "streamed", "--points", "14", "--twice", "4", "--store", postgres.new_database())
    assert found["faults"] == []


@pytest.mark.slow
def test_worker_that_stood_still_has_lost_its_run() -> None:
    """Its lease ends, others take the run to its end; when it continues it notices, and records nothing more.

    A tool that was recorded as begun in the moment before may still run: two at most here, which are in one batch.
    """
    found = kill("--scenario", "streamed", "--points", "14", "--stop", "--seed", "slow")
    begun = [each for each in found["faults"] if "made by a worker that had lost the run" in each]
    assert [each for each in found["faults"] if each not in begun] == []
    assert len(begun) <= 2
    assert found["figures"][0]["kills"] > found["figures"][0]["locked"]


@pytest.mark.slow
def test_what_the_human_has_run_again_may_happen_twice() -> None:
    """A human who has a call in doubt run again, whatever was done, gets that: twice, and no third time."""
    found = kill("--scenario", "nested", "--at", "start/tool left:1:1 middle", "--human", "again")
    assert found["faults"] == []
    assert found["figures"][0]["tools_again"] == 1


# -- the harness can fail ---------------------------------------------------------------------------------------------


@pytest.fixture
def judged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that gives the faults which the harness sees in a list of points and side effects."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from collections import Counter

    from killing.points import EFFECTS, Reached, append, note
    from killing.trial import State, Verdict, judge
    from killing.worker import FINAL, Job

    def faults(points: Sequence[tuple[str, Sequence[str]]], effects: Sequence[str], status: str = "completed") -> Any:
        for label, holds in points:
            note(tmp_path, Reached(1, "start", label, tuple(holds)))
        for effect in effects:
            append(tmp_path / EFFECTS, effect)
        (tmp_path / FINAL).write_text(json.dumps({"status": status, "records": []}))
        verdict = Verdict([])
        run = {"status": "completed", "answers": [], "open": 0, "files": {}}
        expected = State(run, Counter(["note left:1:1"]))
        judge(verdict, Job("streamed", tmp_path, "", "", "run"), expected)
        return verdict.faults, verdict.calls_in_flight

    return faults


@pytest.mark.slow
def test_harness_passes_what_is_right(judged: Any) -> None:
    """One call each, the usual side effect, the usual end."""
    points = [("held left:1", []), ("tool left:1:1 before", []), ("held left:2", ["R=left:1:1", "left:1:1"])]
    assert judged(points, ["note left:1:1"]) == ([], [])


@pytest.mark.slow
def test_harness_sees_a_call_made_again(judged: Any) -> None:
    """The reply was recorded: the next request holds a call of it. The second time is a fault."""
    points = [("held left:1", []), ("held left:2", ["left:1:1"]), ("held left:1", [])]
    faults, in_flight = judged(points, ["note left:1:1"])
    assert faults == ["model call left:1 made again, though its reply was recorded"]
    assert in_flight == []


def test_harness_knows_a_call_in_flight(judged: Any) -> None:
    """Nobody had the reply when it was asked for again: it was in flight."""
    assert judged([("held left:1", []), ("held left:1", [])], ["note left:1:1"]) == ([], ["left:1"])


def test_harness_sees_a_tool_run_again(judged: Any) -> None:
    """A tool that ran again without a question is a fault, and its side effect is another."""
    points = [("tool left:1:1 before", []), ("tool left:1:1 before", [])]
    faults, _ = judged(points, ["note left:1:1", "note left:1:1"])
    assert faults == ["tool call left:1:1 made again, and nobody was asked", "side effect 2 times: note left:1:1"]


def test_harness_sees_what_is_lost(judged: Any) -> None:
    """A side effect that is missing, and another end."""
    faults, _ = judged([], [], status="failed")
    assert faults == ["ends with another status: 'failed', not 'completed'", "side effect lost: note left:1:1"]
