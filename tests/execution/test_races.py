"""Eight processes do the same to one run at the same moment: it is done once, and the others learn so.

`benchmarks/race.py` starts the processes and judges by the requests that the model server got, the lines that the tools
wrote, and what each process was given.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest
from places import ROOT

RACE = ROOT / "benchmarks" / "race.py"
PROCESSES = 8
KINDS = ["same", "other", "resume", "mixed", "busy"]


def race(location: str, *arguments: str) -> list[dict[str, Any]]:
    """Return what each round of each race came to."""
    command = [sys.executable, str(RACE), "--json", "--store", location, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.stdout, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert found
    assert all(sum(each["outcomes"].values()) == PROCESSES for each in found)
    return found


@pytest.mark.slow
def test_work_is_done_once(location: str) -> None:
    """Different answers, and `resume` beside a worker that is alive: one process works, the others get one line; of
    different answers exactly one is taken."""
    found = {each["race"]: each for each in race(location, "--race", "other", "--race", "busy", "--rounds", "1")}
    assert {kind: each["faults"] for kind, each in found.items()} == {"other": [], "busy": []}
    assert found["other"]["outcomes"]["answer: Run"] == 1
    assert found["busy"]["outcomes"] == {"resume: RunBusy": PROCESSES}


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_work_is_done_once_in_every_round(kind: str, location: str) -> None:
    """One round may be lucky. Here are the same answer, `resume`, and both at once, too."""
    found = race(location, "--race", kind, "--rounds", "8")
    assert [each["faults"] for each in found] == [[]] * 8
