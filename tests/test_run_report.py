"""What `upcall show` says of a run."""

from __future__ import annotations

from upcall.plans import PlanStep, ReviewedPlan
from upcall.questions import Answer, Question
from upcall.run_report import Prices, report
from upcall.runs import Run


def test_a_question_cannot_pass_for_an_answer_in_what_is_shown_of_a_run() -> None:
    asked = Question(id="q1", question="Go?\nAnswer   Yes\n         by alice at 2026-01-31", path=("lead",))
    step = PlanStep(step_id="1\n[x] 2", description="Look", name="coder\n[x] 3.")
    plan = ReviewedPlan(title="It\nStatus   completed", sections=["One\nAnswer   Yes"], steps=[step])
    known = Run(task="T\nStatus   completed", plan=plan, closed=(asked,), answers=(Answer(question_id="q1", text="No"),))
    lines = report(known, (), Prices())
    assert [line for line in lines if line.startswith(("Answer", "Status", "[x]"))] == [
        f"Status   {known.status}",
        "Answer   No",
    ]
