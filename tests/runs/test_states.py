"""The status of a run: the table of events, and that nothing else writes it."""

from __future__ import annotations

import ast
from itertools import product
from pathlib import Path

import pytest

import upcall
from upcall.runs.run import Run
from upcall.runs.states import (
    FIRST,
    RESTORES,
    TRANSITIONS,
    WORKING,
    RunEvent,
    RunStatus,
    is_over,
    next_status,
    turn_event,
)
from upcall.transitions import IllegalTransition

OVER = {RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.EXPIRED}
LEGAL = [(status, event, after) for status, moves in TRANSITIONS.items() for event, after in moves.items()]
ILLEGAL = [(s, e) for s, e in product(RunStatus, RunEvent) if e not in TRANSITIONS[s]]


def _id(value: object) -> str:
    return str(value)


def test_status_table_has_each_status() -> None:
    assert set(TRANSITIONS) == set(RunStatus)


def test_status_table_uses_each_event() -> None:
    assert {event for moves in TRANSITIONS.values() for event in moves} == set(RunEvent)


def test_each_status_can_be_reached_from_the_first() -> None:
    reached = {FIRST}
    while new := {after for status in reached for after in TRANSITIONS[status].values()} - reached:
        reached |= new
    assert reached == set(RunStatus)


def test_event_leads_to_one_status_everywhere() -> None:
    assert len({(event, after) for _, event, after in LEGAL}) == len(RunEvent)


@pytest.mark.parametrize(("status", "event", "after"), LEGAL, ids=_id)
def test_legal_event_moves_the_run(status: RunStatus, event: RunEvent, after: RunStatus) -> None:
    assert Run(task="x", status=status).apply(event, error="e").status is after


@pytest.mark.parametrize(("status", "event"), ILLEGAL, ids=_id)
def test_illegal_event_names_status_and_event(status: RunStatus, event: RunEvent) -> None:
    run = Run(id="r1", task="x", status=status)
    with pytest.raises(IllegalTransition, match=f"Run r1 is {status.value}; it cannot be {event.value}"):
        run.apply(event)


@pytest.mark.parametrize("status", RunStatus)
def test_status_is_over_where_only_a_restore_leads_out(status: RunStatus) -> None:
    assert (status in OVER) == is_over(status) == (set(TRANSITIONS[status]) - {RunEvent.ASKED_AGAIN} == RESTORES)


@pytest.mark.parametrize("event", [RunEvent.COMPLETED, RunEvent.FAILED])
def test_waiting_run_never_ends_without_its_answer(event: RunEvent) -> None:
    assert event not in TRANSITIONS[RunStatus.AWAITING_CLARIFICATION]


def test_failed_run_can_continue() -> None:
    assert TRANSITIONS[RunStatus.FAILED][RunEvent.EXECUTING] is RunStatus.EXECUTING


@pytest.mark.parametrize("status", sorted(WORKING))
def test_turn_event_leads_back_to_its_status(status: RunStatus) -> None:
    assert next_status(status, turn_event(status), "r1") is status


# -- who writes it ----------------------------------------------------------------------------------------------------

SOURCE = Path(upcall.__file__).parent


def _writes_status(node: ast.AST) -> bool:
    """Return whether an expression makes a run with a status, copies one with another, or sets the attribute."""
    match node:
        case ast.Call(func=ast.Name(id="Run"), keywords=given):
            return any(each.arg in ("status", None) for each in given)
        case ast.Call(func=ast.Attribute(attr="model_copy" | "model_construct" | "update" | "apply"), keywords=given):
            return any(each.arg == "status" or _is_named(each.value) for each in given)
        case ast.Dict(keys=keys, values=values):
            named = [value for key, value in zip(keys, values, strict=True) if _is_text(key, "status")]
            return any(_is_of(each, "RunStatus") for each in named)
        case ast.Assign(targets=targets):
            return any(isinstance(each, ast.Attribute) and each.attr == "status" for each in targets)
    return False


def _is_text(node: ast.AST | None, text: str) -> bool:
    return isinstance(node, ast.Constant) and node.value == text


def _is_named(node: ast.AST) -> bool:
    return isinstance(node, ast.Dict) and any(_is_text(key, "status") for key in node.keys)


def _is_of(node: ast.AST, name: str) -> bool:
    return any(isinstance(each, ast.Name) and each.id == name for each in ast.walk(node))


def _find_writers(text: str) -> list[int]:
    nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.expr | ast.stmt)]
    return [node.lineno for node in nodes if _writes_status(node)]


@pytest.mark.parametrize(
    "code",
    [
        "run.model_copy(update={'status': RunStatus.QUEUED})",
        "Run(id='x', status=RunStatus.FAILED)",
        "Run(**fields)",
        "run.update(status=status)",
        "changes = {'status': RunStatus.FAILED if late else RunStatus.QUEUED}",
        "run.status = status",
        "run.apply(event, status=other)",
    ],
)
def test_status_written_elsewhere_is_found(code: str) -> None:
    assert _find_writers(code)


def test_status_of_a_run_is_written_in_one_module() -> None:
    """A plan has a status of its own."""
    own = {"runs/run.py", "runs/plan.py"}
    modules = {path.relative_to(SOURCE).as_posix(): path.read_text() for path in SOURCE.rglob("*.py")}
    assert {name: lines for name, text in modules.items() if (lines := _find_writers(text))}.keys() <= own


def test_run_copies_with_a_status_of_the_table_alone() -> None:
    copies = [
        ast.unparse(node)
        for node in ast.walk(ast.parse((SOURCE / "runs/run.py").read_text()))
        if isinstance(node, ast.Call) and _writes_status(node)
    ]
    by_table = [each for each in copies if "next_status(" in each or "FIRST" in each]
    assert copies == [*by_table, *(each for each in copies if "status=self.status" in each)]
