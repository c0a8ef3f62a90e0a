"""The conformance test gives an adapter the verdict that it deserves, whatever it does wrong."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from places import ROOT

CONFORMANCE = ROOT / "benchmarks" / "conformance"
ADAPTER = ROOT / "tests" / "support" / "conforming.py"


@pytest.fixture
def harness(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return the modules that play cases, found as by the script that uses them."""
    monkeypatch.syspath_prepend(str(CONFORMANCE))
    import cases
    import trial

    return SimpleNamespace(**vars(cases), play=trial.play, Adapter=trial.Adapter)


def _play(harness: Any, does: str, how: str = "all at once", patience: float = 60) -> str:
    case = harness.Case(how, harness.Scenario(depth=1), harness.Play(how))
    return str(harness.play(harness.Adapter(does, [sys.executable, str(ADAPTER), does]), case, patience).verdict)


@pytest.mark.parametrize(
    ("does", "verdict"),
    [
        ("right", "right"),
        ("loses", "lost, no effect"),
        ("asks", "asked again"),
        ("repeats", "effect twice"),
        ("fails", "failed"),
        ("ends", "failed"),
    ],
)
def test_verdict_is_what_the_adapter_deserves(harness: Any, does: str, verdict: str) -> None:
    assert _play(harness, does) == verdict


@pytest.mark.slow
def test_adapter_that_does_not_reply_hangs(harness: Any) -> None:
    assert _play(harness, "hangs", patience=3) == "hung"


def test_killed_adapter_without_journal_repeats_effects(harness: Any) -> None:
    """It stores at pauses alone: an answer is lost with the process that was working on it, whatever it had done."""
    how = harness.Play.KILLS
    assert _play(harness, "right", how) == "2 of 6 right: asked again, effect twice"


def test_late_answer_and_wrong_id_are_noticed(harness: Any) -> None:
    afterwards, wrong = harness.Play.OTHER_AFTERWARDS, harness.Play.WRONG_ID
    assert (_play(harness, "right", afterwards), _play(harness, "right", wrong)) == ("right", "right")
    assert (_play(harness, "takes", afterwards), _play(harness, "takes", wrong)) == (
        "both counted, works again",
        "wrong id taken",
    )


@pytest.mark.slow
def test_both_answers_of_a_race_are_noticed(harness: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trial.RACES", 2)
    assert _play(harness, "races", harness.Play.RACE) == "0 of 2 right: both counted, effect twice"


def test_table_of_foreign_adapter_is_printed(tmp_path: Path) -> None:
    program, found = tmp_path / "mine", tmp_path / "found.json"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{ADAPTER}" right\n')
    program.chmod(0o755)
    command = [
        sys.executable,
        str(CONFORMANCE / "run.py"),
        "--adapter",
        str(program),
        "--no-costs",
        "--json",
        str(found),
    ]
    done = subprocess.run([*command, "--cases", "depth 1", "nobody asks"], capture_output=True, text=True, timeout=120)
    assert "| depth 1 | right |" in done.stdout, done.stderr
    assert json.loads(found.read_text())["outcomes"]["mine/depth 1"]["calls"] == 4
