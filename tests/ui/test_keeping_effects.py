"""Effects that stay at the command line: their bill is shown and agreed to first, at a terminal or by its digest."""

from __future__ import annotations

import shlex
from pathlib import Path

import booking
import pytest
from scenario import upcall
from terminals import Terminal, ended, terminal

__all__ = ["terminal"]

TEAM = """

def make_team():
    return Booking(Path.cwd(), can_cancel=False)._team()
"""

AT = ("--team", "own_booking:make_team", "--store", "runs.db")


@pytest.fixture
def overruling(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a run continue under an assumption; return the command that overrules it."""
    monkeypatch.setenv("UPCALL_QUESTIONS__ON_ASK", "assume")
    Path("own_booking.py").write_text(Path(booking.__file__).read_text().partition("\nif __name__")[0] + TEAM)
    run = upcall("run", "Build it", *AT, "--json").json
    (question,) = [each["id"] for each in run["assumptions"] if each["question"] == "Which framework?"]
    return ["fork", run["run_id"], question, "FastAPI", "--replace"]


def booked() -> list[str]:
    return Path("booked.txt").read_text().split()


@pytest.mark.slow
def test_script_agrees_to_effects_by_their_bill(overruling: list[str]) -> None:
    plan = upcall(*overruling, "--dry-run", "--store", "runs.db", "--json").json
    for other in ([], ["--bill", "of something else"]):
        refused = upcall(*overruling, "--keep-effects", *other, "--store", "runs.db")
        assert (refused.status, booked()) == (2, ["Express"])
        (line,) = [each for each in refused.err.splitlines() if "Nothing was done" in each]
        assert 'coder: book({"name": "Express"})' in line
        assert f"upcall {shlex.join(overruling)} --keep-effects --bill {plan['bill']}" in line
    branch = upcall(*overruling, "--keep-effects", "--bill", plan["bill"], "--store", "runs.db", "--json").json
    assert (branch["result"], booked()) == ("Built with FastAPI in red.", ["Express", "FastAPI"])


@pytest.mark.slow
def test_person_confirms_the_bill_of_effects(overruling: list[str], terminal: Terminal) -> None:
    for key, status in (("", 2), ("yes", 0)):
        child = terminal.start(*overruling, "--keep-effects", "--store", "runs.db")
        child.expect("It cannot be taken back: coder: book")
        child.expect("May that stay")
        assert booked() == ["Express"]
        child.sendline(key)
        assert ended(child)[0] == status
    assert booked() == ["Express", "FastAPI"]


@pytest.mark.slow
def test_bill_without_keeping_effects_is_refused(overruling: list[str]) -> None:
    refused = upcall(*overruling, "--bill", "x", "--store", "runs.db")
    assert (refused.status, "it goes with --keep-effects" in refused.err) == (2, True)
