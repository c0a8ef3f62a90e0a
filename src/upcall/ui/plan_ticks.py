"""Which steps of a plan are done, judged by the calls that were made."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from upcall.runs.plan import Plan, PlanStep


def calls_by_name(tools: Mapping[str, int], failed: Mapping[str, int]) -> Counter[str]:
    """How often each agent and tool returned without an error, whoever called it; `tools` and `failed` are those of a
    `Run`."""
    counts: Counter[str] = Counter()
    for path, times in tools.items():
        counts[path.rsplit("/", 1)[-1]] += times - failed.get(path, 0)
    return counts


def done_steps(plan: Plan, came_back: Mapping[str, int]) -> list[str]:
    """Return the ids of the steps that are done. A plan names agents, not calls: the first step of an agent counts as
    done when that agent has returned once, its second one when it has returned twice."""
    seen: Counter[str] = Counter()
    done = []
    for step in plan.steps:
        seen[step.name] += 1
        if seen[step.name] <= came_back.get(step.name, 0):
            done.append(step.step_id)
    return done


def tick_steps(step: PlanStep, *, done: bool) -> str:
    """Return the step in one line, with its tick: ``[x] 1. [coder] Write the tests``."""
    return f"[{'x' if done else ' '}] {step.as_line()}"
