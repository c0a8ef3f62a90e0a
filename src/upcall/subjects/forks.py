"""`app.forks`: what forking a run would do, and how branches differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from dataclasses import replace as change
from typing import TYPE_CHECKING

from upcall.execution.branches import BranchRow, list_branches
from upcall.execution.forks import ForkPlaces, ForkPlan, compare_runs, load_branch, plan_fork, sign_effects
from upcall.execution.replacing import plan_reversal
from upcall.subjects.subject import Subject

if TYPE_CHECKING:
    from upcall.settings import Settings


@dataclass(frozen=True)
class RunForks(Subject):
    """The branches of runs; `Upcall.fork` makes them.

    Args:
        settings: name the prices of tokens.
    """

    settings: Settings

    async def plan(
        self,
        run_id: str,
        question_id: str,
        *,
        replace: bool = False,
        also: Iterable[str] = (),
        user: str | None = None,
    ) -> ForkPlan:
        """Return what a fork at a question keeps of the run, and what may be done again; where it is to take the place
        of the run, also what is taken back before. `also` are further questions that are answered differently at once.
        Nothing is changed.

        Raises:
            UnknownRun, NotAllowed, CallerError: as from `Upcall.fork`.
        """
        access = self.access_of(user)
        stored, point = await ForkPlaces(access, replaces=replace, bare=True).locate(run_id, question_id, also)
        plan = plan_fork(stored.run, point)
        if not replace:
            return plan
        reversal = await plan_reversal(access.store, stored, point)
        remaining = tuple(reversal.remaining)
        return change(
            plan,
            effects=remaining,
            taken_back=tuple(reversal.list_taken_back()),
            bill=sign_effects(stored.run, point, remaining),
        )

    async def tree(self, run_id: str, *, user: str | None = None) -> list[BranchRow]:
        """Return the tree of a run's branches, from the first run down: each before its own branches, at most 200.

        Those that the user may not read are left out. A run that was never forked is the only row.

        Raises:
            UnknownRun, NotAllowed: it is not there, or somebody else's.
        """
        return await list_branches(self.access_of(user), run_id)

    async def diff(self, one: str, other: str, *, user: str | None = None) -> list[str]:
        """Return lines that say where two branches diverge, how each continued, which files it changed, and what its
        own calls used: a branch did not make those that it keeps from its run.

        Raises:
            UnknownRun, NotAllowed: one of them is not there, or somebody else's.
        """
        access = self.access_of(user)
        return compare_runs(*[await load_branch(access, each, self.settings) for each in (one, other)])
