"""What a run makes of an answer is decided from values alone: no store, no team, no clock."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from upcall import Answer, Outcome, Question, Run, RunStatus
from upcall.errors import AlreadyAnswered, NotAllowed, QuestionExpired, RunNotWaiting, UnknownQuestion
from upcall.policy.acceptance import accept
from upcall.policy.authorization import Authorization
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.runs.config import RunConfig
from upcall.runs.queued import show_queued

NOON = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
FRAMEWORK = Question(id="q1", question="Which framework?", options=["Express", "FastAPI"], path=("solo",), calls=("1",))
COLOUR = Question(id="q2", question="Which colour?", path=("solo",), calls=("2",))


def waiting(*questions: Question, **changes: Any) -> Run:
    fields = {"status": RunStatus.AWAITING_CLARIFICATION, "records": QuestionRecords.build(questions)}
    return Run(id="r1", task="Build it", **{**fields, **changes})


def test_answer_is_matched_and_nothing_else_changes() -> None:
    run = waiting(FRAMEWORK)
    (answer,) = accept(run, 2, NOON).answers
    assert (answer.question_id, answer.selected) == ("q1", ("FastAPI",))
    assert run == waiting(FRAMEWORK, created_at=run.created_at, updated_at=run.updated_at)


def test_same_answer_again_is_nothing_new() -> None:
    answered = waiting(
        COLOUR, records=QuestionRecords.build([COLOUR], [(FRAMEWORK, Answer(question_id="q1", text="X"))])
    )
    assert accept(answered, {"q1": "X"}, NOON).answers == ()


def test_duplicate_gets_the_answer_too() -> None:
    again = FRAMEWORK.model_copy(update={"id": "q3", "path": ("other",)})
    records = QuestionRecords.build([FRAMEWORK]).add([QuestionRecord(question=again).attach_to("q1")])
    answers = accept(waiting(records=records), "Express", NOON).answers
    assert [(each.question_id, each.text) for each in answers] == [("q1", "Express"), ("q3", "Express")]


def test_what_expired_beside_it_comes_to_its_default() -> None:
    late = COLOUR.model_copy(update={"expires_at": NOON - timedelta(hours=1), "default": "blue"})
    run = waiting(FRAMEWORK, late, config=RunConfig(on_expiry="assume"))
    answers = accept(run, {"q1": "Express"}, NOON).answers
    assert [(each.question_id, each.outcome) for each in answers] == [("q1", Outcome.ANSWERED), ("q2", Outcome.ASSUMED)]


def test_late_answer_is_refused_and_its_run_ends() -> None:
    late = FRAMEWORK.model_copy(update={"expires_at": NOON})
    accepted = accept(waiting(late, config=RunConfig(on_expiry="fail")), "Express", NOON)
    assert isinstance(accepted.refusal, QuestionExpired)
    assert accepted.ended is not None
    assert accepted.ended.status is RunStatus.EXPIRED


@pytest.mark.parametrize(
    ("access", "given", "refusal"),
    [
        (Authorization("alice"), {"q1": "Express"}, NotAllowed),
        (Authorization("carol"), {"q2": "red"}, UnknownQuestion),
        (Authorization("bob"), {"q3": "red"}, None),
    ],
)
def test_what_is_somebody_elses_is_refused(access: Authorization, given: Any, refusal: type[Exception] | None) -> None:
    """The owner hears whose it is; who sees only some questions of the run does not hear that there are others."""
    assigned = FRAMEWORK.model_copy(update={"assignee": "bob"})
    theirs = COLOUR.model_copy(update={"id": "q3", "assignee": "bob"})
    mine = COLOUR.model_copy(update={"id": "q4", "assignee": "carol"})
    accepted = accept(waiting(assigned, COLOUR, theirs, mine, user="alice"), given, NOON, access=access)
    assert type(accepted.refusal) is (refusal or type(None))
    assert accepted.is_intrusion is bool(refusal)


def test_what_somebody_else_answered_first_stands() -> None:
    theirs = COLOUR.model_copy(update={"assignee": "role:lead"})
    access = Authorization("bob", {"lead": ("bob", "eve")})
    run = show_queued(waiting(theirs, user="alice"), [Answer(question_id="q2", text="red", user="eve")])
    accepted = accept(run, "red", NOON, access=access)
    assert isinstance(accepted.refusal, AlreadyAnswered)
    assert accepted.is_intrusion


@pytest.mark.parametrize("status", [RunStatus.FAILED, RunStatus.CANCELLED, RunStatus.EXPIRED])
def test_run_that_waits_for_nothing_takes_nothing(status: RunStatus) -> None:
    with pytest.raises(RunNotWaiting):
        accept(waiting(FRAMEWORK, status=status), "Express", NOON)
