"""The plans that a user approved: which one is offered for a new task, and how one is forgotten."""

from __future__ import annotations

from upcall.errors import CallerError
from upcall.identity import means
from upcall.policy.same_task import find_like
from upcall.runs.plan import ApprovedPlan
from upcall.storage.plans import delete_plan, list_plans
from upcall.storage.store import RunStore


async def find_plan(store: RunStore, owner: str | None, task: str) -> ApprovedPlan | None:
    """Find the plan that one user approved for the task most like this one, if any is like it."""
    plans = await list_plans(store, owner)
    at = find_like(task, [plan.task for plan in plans])
    return None if at is None else plans[at]


async def forget_plan(store: RunStore, owner: str | None, named: str) -> ApprovedPlan:
    """Forget the plan of a run, named by its id or its first characters.

    Raises:
        CallerError: there is none, or there are several.
    """
    found = [each for each in await list_plans(store, owner) if means(named, each.run_id)]
    if len(found) != 1 or not await delete_plan(store, found[0].run_id, owner):
        what = f"{len(found)} plans are kept of runs that begin with" if found[1:] else "No plan is kept of run"
        raise CallerError(f"{what} {named!r}. See which there are: upcall plans")
    return found[0]
