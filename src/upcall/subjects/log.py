"""`app.log`: what happened in runs, who did what, what the agents said, and when."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from upcall.errors import CallerError
from upcall.execution.access import require_run_id
from upcall.runs.call_timings import ActiveCall, Timings, WorkPeriod
from upcall.runs.events import DETAILED, LogEntry, MessageSent, MessageTaken
from upcall.runs.run import Run
from upcall.runs.steering import SteeringMessage, list_unread
from upcall.runs.transcript import Transcript
from upcall.storage.transcripts import load_transcript
from upcall.subjects.subject import Subject

MOST = 2**63 - 1
"""The largest number that a database can store."""


@dataclass(frozen=True)
class RunLog(Subject):
    """The history of runs.

    Args:
        active: the times of the calls that this program is making, by run.
    """

    active: Mapping[str, Timings] = field(default_factory=dict)

    async def entries(self, run_id: str, *, user: str | None = None, after: int = 0) -> Sequence[LogEntry]:
        """Return the log of a run, oldest first, after the entry with the id `after`, without its transcript and its
        times.

        Raises:
            UnknownRun: there is no such run.
            NotAllowed: it belongs to somebody else.
        """
        _check_after(after)
        access = self.access_of(user)
        run = await access.find_whole(run_id, "log")
        return await access.store.events.read(run.id, after, without=DETAILED)

    async def visible(self, run_id: str, *, user: str | None = None) -> Sequence[LogEntry]:
        """Return the same as `entries`, but nothing for users who see only questions of the run.

        Raises:
            UnknownRun: there is no such run.
        """
        access = self.access_of(user)
        run = await access.find(run_id, "show")
        return await access.store.events.read(run.id, without=DETAILED) if access.rights.sees_whole(run) else ()

    async def audit(
        self, run_id: str | None = None, *, user: str | None = None, after: int = 0, limit: int | None = None
    ) -> Sequence[LogEntry]:
        """Return who did what, oldest first, after the entry with the id `after`, at most `limit` entries: who
        started, answered, resumed, cancelled, assigned, and who was refused. Of one run, or of all the user's runs.

        Raises:
            UnknownRun: there is no such run.
            NotAllowed: it belongs to somebody else.
        """
        _check_after(after)
        check_limit(limit)
        return await self.access_of(user).audit(run_id, after, limit)

    async def unread(self, run_id: str, *, user: str | None = None) -> Sequence[SteeringMessage]:
        """List the messages to the agents of a run that none of them has read yet, oldest first."""
        access = self.access_of(user)
        run = await access.find_whole(run_id, "show")
        entries = await access.store.events.read(run.id, types=(MessageSent, MessageTaken))
        return [*list_unread(each.event for each in entries).values()]

    async def transcript(self, run: Run | str, *, user: str | None = None) -> Transcript:
        """Return what the agents of a run wrote and did, oldest first; while they work, up to a second or so ago.

        With ``store.transcripts: false`` it is empty.

        Raises:
            UnknownRun: there is no such run.
            NotAllowed: it belongs to somebody else.
        """
        access = self.access_of(user)
        found = await access.find_whole(run.id if isinstance(run, Run) else run, "show")
        return Transcript.of(found, await load_transcript(access.store, found.id))

    async def call_timings(self, run_id: str, *, user: str | None = None) -> Sequence[WorkPeriod]:
        """Return when teams were at work on a run, and the model and tool calls they made, oldest first, as drawn by
        `upcall.ui.diagrams.timeline`. Work in progress when a process was killed is missing.

        Raises:
            UnknownRun: there is no such run.
            NotAllowed: it belongs to somebody else.
        """
        access = self.access_of(user)
        run = await access.find_whole(run_id, "show")
        return await access.store.events.call_timings(run.id)

    def active_calls(self, run_id: str) -> Sequence[ActiveCall]:
        """Return the model and tool calls that this program is making for a run, oldest first."""
        require_run_id(run_id)
        timings = self.active.get(run_id)
        return tuple(timings.active) if timings else ()


def check_limit(limit: object) -> None:
    """Refuse a limit of a list that is not a whole number of 1 or more.

    Raises:
        CallerError: it is not.
    """
    if limit is not None and not (isinstance(limit, int) and 0 < limit <= MOST):
        raise CallerError(f"limit = {limit!r} is wrong: it must be a whole number, 1 or more.")


def _check_after(after: object) -> None:
    if not (isinstance(after, int) and 0 <= after <= MOST):
        raise CallerError(f"after = {after!r} is wrong: it must be the id of an entry of the log, or 0.")
