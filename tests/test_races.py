"""Eight processes do the same to one run at the same moment: it is done once, and the others are told so.

`benchmarks/race.py` starts the processes and judges by the requests that the model server got, the lines that the tools
wrote, and what each process was told.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

RACE = Path(__file__).parents[1] / "benchmarks" / "race.py"
PROCESSES = 8
KINDS = ["same", "other", "resume", "mixed", "busy"]


def race(kind: str, store_url: str, rounds: int) -> list[dict[str, Any]]:
    """What each round came to."""
    command = [sys.executable, str(RACE), "--json", "--race", kind, "--store", store_url, "--rounds", str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=170, check=False)
    assert done.stdout, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    assert len(found) == rounds
    assert all(sum(each["outcomes"].values()) == PROCESSES for each in found)
    return found


@pytest.mark.parametrize("kind", KINDS)
def test_the_work_is_done_once(kind: str, store_url: str) -> None:
    """The same answer, different answers, `resume`, both at once, and `resume` beside a worker that is alive: one process
    works, the others get one line."""
    for each in race(kind, store_url, rounds=1):
        assert each["faults"] == []


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_the_work_is_done_once_in_every_round(kind: str, store_url: str) -> None:
    """One round may be lucky."""
    assert [each["faults"] for each in race(kind, store_url, rounds=8)] == [[]] * 8


def test_of_different_answers_one_stands(store_url: str) -> None:
    """Exactly one of eight different answers is taken; seven processes are told that theirs was not."""
    (found,) = race("other", store_url, rounds=1)
    assert found["outcomes"]["answer: Run"] == 1
