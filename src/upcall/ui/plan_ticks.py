"""The steps of a plan as lines: which are done, and what each rests on."""

from __future__ import annotations

from upcall.questions.record import QuestionRecord
from upcall.runs.plan import PlanStep
from upcall.runs.plan_steps import find_basis, find_done_steps_of
from upcall.runs.run import Run
from upcall.text import one_line

_QUESTION_CHARS = 120


def tick_step(step: PlanStep, *, done: bool) -> str:
    """Return the step in one line, with its tick: ``[x] 1. [coder] Write the tests``."""
    return f"[{'x' if done else ' '}] {step.as_line()}"


def list_steps(run: Run) -> list[str]:
    """Return the steps of a run's plan with their ticks, and below each what it rests on, a line each."""
    if run.plan is None:
        return []
    done, basis, lines = find_done_steps_of(run, run.plan), find_basis(run), list[str]()
    for step in run.plan.steps:
        lines.append(tick_step(step, done=step.step_id in done))
        lines += [f"    {explain_basis(each)}" for each in basis.get(step.step_id, ())]
    return lines


def explain_basis(record: QuestionRecord) -> str:
    """Return what a step rests on, in one line: ``waits for: Which port?`` or ``rests on: Which port? 80``."""
    question = one_line(record.question.question, _QUESTION_CHARS)
    if record.answer is None:
        return f"waits for: {question}"
    if record.question.secret:
        return f"rests on: {question} (secret)"
    assumed = " (assumed for now)" if record.is_provisional else ""
    return f"rests on: {question} {one_line(record.answer.as_text(), _QUESTION_CHARS)}{assumed}"
