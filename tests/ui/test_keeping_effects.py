"""Effects that stay at the command line: their bill is shown and agreed to first, at a terminal or by its digest."""

from __future__ import annotations

from pathlib import Path

import booking
import pytest
from scenario import upcall
from terminals import Terminal, ended, terminal

__all__ = ["terminal"]

TEAM = """

def make_team():
    there = Booking(Path.cwd(), can_cancel=Path("can_cancel").exists())
    if Path("broken").exists():
        there.on_step = lambda: 1 / 0
    return there._team()
"""

AT = ("--team", "own_booking:make_team", "--store", "runs.db")


@pytest.fixture(params=["stays"])
def overruling(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Let a run continue under an assumption; return the command that overrules it."""
    monkeypatch.setenv("UPCALL_QUESTIONS__ON_ASK", "assume")
    if request.param == "taken back":
        Path("can_cancel").touch()
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
        assert f"the same command with --bill {plan['bill']}" in line
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
@pytest.mark.parametrize("overruling", ["taken back"], indirect=True)
def test_bill_passes_an_undo_that_fails(overruling: list[str]) -> None:
    Path("broken").touch()
    for options, words in (([], "ZeroDivisionError"), (["--keep-effects"], "cannot be after all, stays too")):
        refused = upcall(*overruling, *options, "--store", "runs.db")
        assert (refused.status, words in refused.err) == (2, True), refused.err
    bill = refused.err.strip().rpartition(" ")[2]
    branch = upcall(*overruling, "--keep-effects", "--bill", bill, "--store", "runs.db", "--json").json
    assert branch["result"] == "Built with FastAPI in red."


@pytest.mark.slow
def test_keeping_effects_goes_with_replacing(overruling: list[str]) -> None:
    refused = upcall(*overruling[:-1], "--keep-effects", "--store", "runs.db")
    assert (refused.status, "it goes with --replace" in refused.err) == (2, True)


@pytest.mark.slow
def test_bill_without_keeping_effects_is_refused(overruling: list[str]) -> None:
    refused = upcall(*overruling, "--bill", "x", "--store", "runs.db")
    assert (refused.status, "it goes with --keep-effects" in refused.err) == (2, True)
