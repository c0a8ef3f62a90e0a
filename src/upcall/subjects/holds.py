"""`app.holds`: stop the work on the runs of a user, a team or a model, or on all runs, and let it continue."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from upcall import identity
from upcall.errors import CallerError, NotAllowed, require_type
from upcall.execution.access import RunAccess
from upcall.runs.holds import Hold, HoldKind
from upcall.runs.run import Run
from upcall.runs.run_page import is_storable
from upcall.subjects.subject import Subject

MAX_REASON_CHARS = 500


@dataclass(frozen=True)
class RunHolds(Subject):
    """What is held in a store."""

    async def list(self, *, user: str | None = None) -> Sequence[Hold]:
        """List what is held, the longest held first; to users other than admins not who else is held."""
        access = self.access_of(user)
        found = await access.store.holds.list()
        return [
            each
            for each in found
            if access.rights.unlimited or each.kind is not HoldKind.USER or each.name == access.user
        ]

    async def find(self, run: Run) -> Hold | None:
        """Return the hold that a run waits for; None if there is none, or the run has nothing to do."""
        return await self.access_of(None).store.holds.find(run) if run.under_way else None

    async def place(self, kind: str, name: str = "", *, reason: str, user: str | None = None) -> Hold:
        """Hold the runs of a user, a team (``MODULE:FUNCTION``, or ``root``) or a model, or the queue, which is all.

        No work begins on these runs, in any process with this store: one that is started, answered or resumed is
        stored as ``queued``. Work that has begun continues to its next pause. What is held already stays as it is.

        Raises:
            NotAllowed: the user is no admin.
            CallerError: nothing of this kind can be held, the name is missing, or the reason.
        """
        access = self._require_admin(user, "hold")
        what = _read_subject(kind, name)
        require_type("reason", reason, str, "why these runs are held, in a few words")
        why = " ".join(reason.split())
        if not why or len(why) > MAX_REASON_CHARS or not is_storable(why):
            raise CallerError(
                f"A hold needs a reason of 1 to {MAX_REASON_CHARS} characters: whoever waits is shown it. "
                f"This one has {len(why)}."
            )
        return await access.store.holds.place(Hold(*what, why, access.user, identity.now()))

    async def release(self, kind: str, name: str = "", *, user: str | None = None) -> Hold:
        """Release what is held, and let the runs that waited continue; return the hold that was there.

        Raises:
            NotAllowed: the user is no admin.
            CallerError: it is not held.
        """
        access = self._require_admin(user, "release")
        what = _read_subject(kind, name)
        released = await access.store.holds.release(*what, access.user)
        if released is None:
            held = ", ".join(each.subject for each in await access.store.holds.list()) or "nothing"
            raise CallerError(f"{' '.join(filter(None, what))} is not held. Held: {held}.")
        return released

    def _require_admin(self, user: str | None, action: str) -> RunAccess:
        access = self.access_of(user)
        if not access.rights.unlimited:
            raise NotAllowed(f"Only admins {action} runs; {access.user} is none. Ask whoever runs this store.")
        return access


def _read_subject(kind: str, name: str) -> tuple[HoldKind, str]:
    kinds = [each.value for each in HoldKind]
    if kind not in kinds:
        raise CallerError(f"{kind!r} cannot be held. What can: {', '.join(kinds)}.")
    require_type("name", name, str, "the name of what is held")
    if kind == HoldKind.QUEUE and name:
        raise CallerError(f"The queue is one and has no name; {name!r} is too much.")
    if kind != HoldKind.QUEUE and not (name.strip() and is_storable(name)):
        raise CallerError(f"Which {kind}? Give the name: a user, a team (MODULE:FUNCTION, or root), or a model.")
    return HoldKind(kind), name
