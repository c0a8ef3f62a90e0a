"""Which steps of a plan are done, judged by the calls that were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from upcall.runs.plan import Plan, PlanStep
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
    """Return the ids of the steps that are done. A plan names agents, not calls: the first step of an agent counts as
    done when that agent has returned once, its second one when it has returned twice."""
    seen: Counter[str] = Counter()
    done = []
    for step in plan.steps:
        seen[step.name] += 1
        if seen[step.name] <= returns.get(step.name, 0):
            done.append(step.step_id)
    return done


def tick_step(step: PlanStep, *, done: bool) -> str:
    """Return the step in one line, with its tick: ``[x] 1. [coder] Write the tests``."""
    return f"[{'x' if done else ' '}] {step.as_line()}"
