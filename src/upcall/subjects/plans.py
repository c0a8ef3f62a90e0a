"""`app.plans`: the plans that a user approved, kept for similar tasks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upcall.execution.access import require_run_id
from upcall.execution.known_plans import forget_plan
from upcall.runs.plan import ApprovedPlan
from upcall.storage.plans import list_plans
from upcall.subjects.subject import Subject


@dataclass(frozen=True)
class KnownPlans(Subject):
    """The approved plans of users."""

    async def list(self, *, user: str | None = None) -> Sequence[ApprovedPlan]:
        """Return the plans that the user approved, newest first. Each is kept as long as its run, and offered in the
        review of the plan for a similar task."""
        access = self.access_of(user)
        return await list_plans(access.store, access.user)

    async def delete(self, run_id: str, *, user: str | None = None) -> ApprovedPlan:
        """Delete the plan that the user approved in a run, given by its id or its first characters.

        Raises:
            CallerError: there is none, or there are several.
        """
        require_run_id(run_id)
        access = self.access_of(user)
        return await forget_plan(access.store, access.user, run_id)
