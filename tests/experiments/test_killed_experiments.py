"""An experiment whose process is killed again and again ends as if it had not been."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest
from places import ROOT


@pytest.mark.slow
def test_killed_experiment_ends_with_the_same_table(tmp_path: Path) -> None:
    disturb = runpy.run_path(str(ROOT / "benchmarks/experiment.py"))["disturb"]
    outcome = disturb(tmp_path, tasks=10, kills=4, seed=3)
    assert outcome.kills >= 3
    assert outcome.is_right, outcome
