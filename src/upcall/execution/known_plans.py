"""The plans that a user approved: find one to offer for a new task, and forget one."""

from __future__ import annotations

from upcall.errors import CallerError
from upcall.identity import means
from upcall.policy.same_task import find_like
from upcall.runs.plan import ApprovedPlan
from upcall.storage.plans import delete_plan, list_plans
from upcall.storage.store import RunStore


async def find_plan(store: RunStore, owner: str | None, task: str) -> ApprovedPlan | None:
    """Find the plan that a user approved for the most similar task, if any is similar enough."""
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
        what = (
            f"{len(found)} plans are stored for runs that begin with" if found[1:] else "There is no stored plan of run"
        )
        raise CallerError(f"{what} {named!r}. To see all plans: upcall plans")
    return found[0]
