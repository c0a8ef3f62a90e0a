"""A run as a value: its statuses are a literal table, and what the command line prints has one shape."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from upcall import identity
from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.config import NamedTeam, RootTeamConfig, RunConfig
from upcall.runs.outputs import Classification, Intent
from upcall.runs.plan import ClarifierResult, Plan, PlanStatus, ReviewedPlan
from upcall.runs.run import Run, Usage
from upcall.runs.states import RunEvent, RunStatus

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
LATER = datetime(2026, 1, 2, 13, 0, tzinfo=UTC)
ASKED = Question(id="q1", question="Which framework?", options=("Express",), path=("lead", "coder"), asked_at=NOON)
BEFORE = ASKED.model_copy(update={"id": "q0"})
OVER = {RunStatus.COMPLETED, RunStatus.CANCELLED, RunStatus.EXPIRED}


PLAN = Plan(title="T", sections=("S",))


def reviewed(status: PlanStatus) -> ReviewedPlan:
    return ReviewedPlan.of(PLAN, status)


def run(**fields: Any) -> Run:
    return Run(**{"id": "r1", "task": "Build it", "created_at": NOON, "updated_at": NOON, **fields})


# -- the table --------------------------------------------------------------------------------------------------------


def test_statuses_are_those_of_the_contract() -> None:
    """S3-22"""
    assert [status.value for status in RunStatus] == [
        "queued",
        "initializing",
        "planning",
        "executing",
        "awaiting_clarification",
        "completed",
        "failed",
        "cancelled",
        "expired",
    ]


# -- the value --------------------------------------------------------------------------------------------------------


def test_move_changes_the_fields_it_names_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identity, "now", lambda: LATER)
    moved = run().apply(RunEvent.ASKED, records=QuestionRecords.build([ASKED]))
    assert moved == run(status="awaiting_clarification", records=QuestionRecords.build([ASKED]), updated_at=LATER)


def test_move_leaves_the_old_value_alone() -> None:
    before = run()
    before.apply(RunEvent.PLANNING, result="x")
    assert before == run()


def test_run_cannot_be_changed_in_place() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        run().status = RunStatus.COMPLETED  # type: ignore[misc]  # that it is refused at run time too is the test


def test_run_survives_json() -> None:
    full = run(
        records=QuestionRecords.build([ASKED], [(BEFORE, Answer(question_id="q0", text="yes", answered_at=NOON))]),
        classification=Classification(intent=Intent.CODING),
        plan=reviewed(PlanStatus.PROPOSED).revise(PLAN, "Add costs."),
        clarifier_log="log",
        execution_path=("classifier", "planner"),
        usage={"lead/coder": Usage(prompt_tokens=1)},
        inputs={"workspace": "work"},
    )
    assert Run.model_validate_json(full.model_dump_json()) == full


def test_run_that_awaits_an_answer_says_so() -> None:
    """S3-39"""
    assert [status for status in RunStatus if run(status=status).waiting] == [RunStatus.AWAITING_CLARIFICATION]


def test_history_has_answered_questions_and_answers_in_order() -> None:
    """S3-24, S3-39"""
    second = ASKED.model_copy(update={"id": "q2", "question": "Which database?"})
    unanswered = ASKED.model_copy(update={"id": "q3"})
    answered = [(each, Answer(question_id=each.id, text=f"to {each.id}", answered_at=NOON)) for each in (ASKED, second)]
    made = run(records=QuestionRecords.build([unanswered], answered))
    history = Run.model_validate_json(made.model_dump_json()).clarification_history
    assert [(question.question, answer.text) for question, answer in history] == [
        ("Which framework?", "to q1"),
        ("Which database?", "to q2"),
    ]
    assert made.clarification_count == 2


def test_new_run_has_no_history_and_empty_result() -> None:
    """S0-23, S0-25 to S0-28, S3-39"""
    assert (run().clarification_history, run().clarification_count) == ([], 0)
    assert run().clarifier_result == ClarifierResult(
        clarifier_log="", plan_title=None, plan_sections=(), plan_approved=False, plan_rejected=False
    )


@pytest.mark.parametrize("status", PlanStatus)
def test_run_has_clarification_result_and_plan_review(status: PlanStatus) -> None:
    """S0-13, S0-31 to S0-37, X10"""
    plan = reviewed(status)
    assert run(clarifier_log="log", plan=plan).clarifier_result == ClarifierResult.of("log", plan)


def test_two_runs_share_nothing() -> None:
    first, second = run(), run()
    first.usage["x"] = Usage()
    assert second.usage == {}


def test_usage_adds_up() -> None:
    spent = Usage().plus(10, 5).plus(1, 2)
    assert spent == Usage(prompt_tokens=11, completion_tokens=7, model_calls=2)
    both = run(usage={"lead": spent, "lead/coder": Usage().plus(1, 1)}).total_usage
    assert both == Usage(prompt_tokens=12, completion_tokens=8, model_calls=3)
    assert both.tokens == 20
    assert run().total_usage == Usage()


# -- what the command line prints -------------------------------------------------------------------------------------


def test_run_prints_as_a_person_reads_it() -> None:
    emitted = str(run(status=RunStatus.FAILED, task="Build it", error="No network."))
    assert emitted.splitlines()[1:3] == ["Status   failed", "Task     Build it"]
    assert "Error    No network." in emitted


def test_run_as_json_has_just_the_agreed_keys() -> None:
    assert run(status="completed", result="Done.").as_json() == {
        "run_id": "r1",
        "status": "completed",
        "interrupted": False,
        "result": "Done.",
        "stop_reason": None,
        "error": None,
        "questions": [],
        "assumptions": [],
        "warnings": [],
    }


def test_open_question_as_json_has_all_for_answering() -> None:
    shown = run(records=QuestionRecords.build([ASKED])).as_json()["questions"][0]
    assert {name: shown[name] for name in ("id", "question", "options", "path", "allow_free_text")} == {
        "id": "q1",
        "question": "Which framework?",
        "options": [{"label": "Express"}],
        "path": ["lead", "coder"],
        "allow_free_text": True,
    }


def test_run_as_json_is_plain_json() -> None:
    shown = run(records=QuestionRecords.build([ASKED])).as_json()
    assert json.loads(json.dumps(shown)) == shown


@pytest.mark.parametrize("team", [None, RootTeamConfig(workspace=Path("there"))])
def test_imported_run_names_no_code_to_import(team: RootTeamConfig | None) -> None:
    config = RunConfig(team=team, named_team=NamedTeam(name="there:make", account="0@there"))
    assert config.reset_for_import(Path("here")).named_team is None


def test_stored_run_that_names_a_scorer_is_read() -> None:
    models = {"small": {"model": "m"}, "embeddings": {"model": "e"}}
    stored = {"team": {"workspace": "w", "ask_scorer": "scorer.json", "models": models}}
    team = RunConfig.model_validate_json(json.dumps(stored)).team
    assert team is not None
    assert [*team.models] == ["small"]
