"""How far a run is in its plan, and what each step rests on, judged by the calls that were made.

A plan names agents, not calls: the first step of an agent is done when that agent has returned once, its second one
when it has returned twice, and what an agent asks belongs to its first step that is not done.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from upcall.questions.question import Question
from upcall.questions.record import QuestionRecord
from upcall.runs.plan import Plan
from upcall.runs.run import Run
from upcall.runs.states import RunStatus


def count_returns(run: Run) -> Counter[str]:
    """Count how often each agent and tool came back without an error, whoever called it."""
    counts: Counter[str] = Counter()
    for path, times in run.tools.items():
        counts[path.rsplit("/", 1)[-1]] += times - run.failed_tools.get(path, 0)
    return counts


def find_done_steps_of(run: Run, plan: Plan) -> list[str]:
    """Return the ids of the steps that a run has done. What the lead does itself is done when the run is."""
    returns = count_returns(run)
    if run.status is RunStatus.COMPLETED:
        returns["lead"] = len(plan.steps)
    return find_done_steps(plan, returns)


def find_done_steps(plan: Plan, returns: Mapping[str, int]) -> list[str]:
    """Return the ids of the steps that are done."""
    seen: Counter[str] = Counter()
    done = []
    for step in plan.steps:
        seen[step.name] += 1
        if seen[step.name] <= returns.get(step.name, 0):
            done.append(step.step_id)
    return done


def note_steps(run: Run) -> Run:
    """Return the run with the step of its plan noted at each question that was asked since the checkpoint."""
    if run.plan is None or not run.plan.steps or not run.records.asked_since_checkpoint:
        return run
    done = {*find_done_steps(run.plan, count_returns(run))}
    current: dict[str, str] = {}
    for step in run.plan.steps:
        if step.step_id not in done:
            current.setdefault(step.name, step.step_id)

    def find(question: Question) -> str | None:
        return next((current[name] for name in reversed(question.path) if name in current), None)

    records = run.records.note_steps(find)
    return run if records is run.records else run.model_copy(update={"records": records})


def find_basis(run: Run) -> dict[str, Sequence[QuestionRecord]]:
    """Return what the steps of the plan rest on: the questions asked in each, by its id, which are open, answered or
    have only an assumption; those shown as one with another one are left out."""
    found: dict[str, list[QuestionRecord]] = {}
    for record in run.records:
        if record.step is not None and record.duplicate_of is None:
            found.setdefault(record.step, []).append(record)
    return {step: sorted(records, key=lambda each: each.question.asked_at) for step, records in found.items()}
