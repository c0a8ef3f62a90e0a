"""What each step of a plan rests on: answers, assumptions, and questions that are still open."""

from __future__ import annotations

from upcall import Answer, Run
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.runs.plan import PlanStep, ReviewedPlan
from upcall.runs.plan_steps import find_basis, note_steps


def ask(text: str, *path: str) -> QuestionRecord:
    question = Question(id=text, question=f"{text}?", path=path)
    return QuestionRecord(question=question, asked_since_checkpoint=True).publish()


def make_run(*records: QuestionRecord, **more: object) -> Run:
    steps = [PlanStep(step_id=str(number), description="Do", name=name) for number, name in enumerate(STEPS, 1)]
    plan = ReviewedPlan(title="It", sections=["One"], steps=steps)
    return Run(task="T", plan=plan, records=QuestionRecords(records), **more)  # type: ignore[arg-type]


STEPS = ("coder", "researcher", "coder", "lead")


def test_question_belongs_to_the_first_step_not_done() -> None:
    run = note_steps(make_run(ask("port", "lead", "coder")))
    later = run.model_copy(update={"tools": {"lead/coder": 1}})
    later = later.model_copy(update={"records": later.records.add([ask("color", "lead", "coder", "painter")])})
    later = later.model_copy(update={"records": later.records.add([ask("name", "lead")])})
    found = find_basis(note_steps(later))
    assert {step: [each.id for each in records] for step, records in found.items()} == {
        "1": ["port"],
        "3": ["color"],
        "4": ["name"],
    }


def test_question_asked_before_the_checkpoint_keeps_its_step() -> None:
    run = note_steps(make_run(ask("port", "lead", "coder")))
    known = run.model_copy(update={"records": run.records.enter_checkpoint(["port"]), "tools": {"lead/coder": 1}})
    assert note_steps(known) is known
    answered = known.record_answers([Answer(question_id="port", text="80")])
    assert [each.step for each in answered.records.reopen([known.records["port"].question])] == ["1"]


def test_question_of_no_step_is_none_of_the_plan() -> None:
    run = make_run(ask("goal", "clarifier"))
    assert note_steps(run) is run
    assert find_basis(run) == {}
