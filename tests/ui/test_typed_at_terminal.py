"""An answer of several fields, filled in at a terminal for a run that another process began."""

from __future__ import annotations

from pathlib import Path

import pytest
import trips
from scenario import upcall
from screens import CTRL_C, DOWN, ENTER, ESCAPE, Desk, desk
from trips import BAD_TEXTS, BOOKED_AS_CLEARED

__all__ = ["desk"]

GOOD_TEXTS = ["Ada Byron", "", "2026-03-01", "1", "", "", "", "/empty", "Oslo", ""]
LABELS = [
    *("Traveller", "Number of nights", "Start", "Seat", "Price", "Extras", "Flexible", "Remark"),
    *("Address: City", "Address: Zip"),
]


@pytest.fixture
def run_id() -> str:
    """Begin a run that waits with the form."""
    Path("own_trips.py").write_text(Path(trips.__file__).read_text())
    return str(upcall("run", "Book it", "--team", "own_trips:make_team", "--store", "runs.db", "--json").json["run_id"])


@pytest.mark.slow
def test_fields_are_asked_in_lines_until_each_fits(run_id: str, desk: Desk) -> None:
    screen = desk.start("answer", run_id, "--store", "runs.db", columns=110, rows=90, TERM="dumb")
    for label, good in zip(LABELS, GOOD_TEXTS, strict=True):
        screen.wait_for(f"  {label} (")
        for _, wrong, message in (each for each in BAD_TEXTS if each[0] == label):
            screen.press(wrong.strip() or "/empty", ENTER)
            screen.wait_for(message)
        screen.press(good, ENTER)
    screen.wait_for(BOOKED_AS_CLEARED)
    assert screen.end() == 0


@pytest.mark.slow
def test_field_before_is_changed_by_going_back(run_id: str, desk: Desk) -> None:
    screen = desk.start("answer", run_id, "--store", "runs.db", columns=110, rows=60)
    screen.wait_for("Traveller:")
    screen.press("Eve Byron", ENTER)
    screen.wait_for("Number of nights: 2")
    screen.press(ESCAPE)
    screen.wait_for("Traveller: Eve Byron\n  Number of nights")
    screen.press("\x15", "Ada Byron", ENTER)
    screen.wait_for("Traveller: Ada Byron")
    screen.press(ENTER)
    screen.wait_for("Start:")
    screen.press("2026-02-31", ENTER)
    screen.wait_for("day value is outside expected range")
    screen.press("\x15", "2026-03-01", ENTER)
    screen.wait_for("2. aisle")
    screen.press(ENTER)
    screen.wait_for("Price:")
    screen.press(ENTER)
    screen.wait_for("2. bag")
    screen.press(DOWN, " ", ENTER)
    screen.wait_for("Extras: bag")
    screen.press(ENTER)
    screen.wait_for("Remark: No smoking")
    screen.press("\x15", ENTER)
    screen.wait_for("Remark: (empty)")
    screen.wait_for("Address: City:")
    screen.press("Oslo", ENTER)
    screen.wait_for("Address: Zip:")
    screen.press(ENTER)
    screen.wait_for(BOOKED_AS_CLEARED)
    assert screen.end() == 0
    assert upcall("show", run_id, "--store", "runs.db", "--json").json["status"] == "completed"


@pytest.mark.slow
def test_form_that_is_left_can_be_filled_in_later(run_id: str, desk: Desk) -> None:
    screen = desk.start("answer", run_id, "--store", "runs.db", columns=110)
    screen.wait_for("Traveller:")
    screen.press("Ada Byron", ENTER)
    screen.wait_for("Number of nights: 2")
    screen.press(CTRL_C)
    screen.wait_for("upcall answer")
    again = desk.start("answer", run_id, "--store", "runs.db", columns=110, TERM="dumb")
    again.wait_for("Traveller:")
    again.press("/decline", ENTER)
    again.wait_for("Not booked: declined.")


RISKY = """
from autogen_agentchat.teams import RoundRobinGroupChat
from upcall import PausableAgent, ask
from upcall.testing import Call, ScriptedModelClient

FIELDS = {"properties": {"all": {"type": "boolean"}, "note": {"type": "string"}}}


def drop() -> str:
    "Drop it."
    return f"Dropped with {ask('Drop it?', schema=FIELDS, clarification_type='risk_confirmation')}."


def reply(request):
    return next(iter(request.tool_results.values()), Call("drop"))


def make_team():
    return RoundRobinGroupChat([PausableAgent("coder", ScriptedModelClient(reply), tools=[drop])], max_turns=1)
"""


@pytest.mark.slow
@pytest.mark.parametrize(("terminal", "steps"), [("dumb", ["", ""]), ("xterm", [DOWN * 3, ""])])
def test_enter_alone_agrees_to_no_risk(desk: Desk, terminal: str, steps: list[str]) -> None:
    Path("risky.py").write_text(RISKY)
    run = upcall("run", "Go", "--team", "risky:make_team", "--store", "runs.db", "--json").json
    screen = desk.start("answer", run["run_id"], "--store", "runs.db", columns=110, rows=60, TERM=terminal)
    for label, step in zip(["All (", "Note ("], steps, strict=True):
        screen.wait_for(f"  {label}")
        screen.press(step, ENTER)
    screen.wait_for("Send it with nothing filled in (")
    screen.press("1", ENTER)
    screen.wait_for("Dropped with {}.")
    assert screen.end() == 0
