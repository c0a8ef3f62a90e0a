"""Everything that a segment stores: the run with its checkpoint, the journal, the transcript, the times, the lease.

Each write names the version that it follows, and they follow one another: two at a time would refuse each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from functools import partial

from upcall import identity
from upcall.autogen.journal import STEERING, Journal
from upcall.autogen.messages import list_answers
from upcall.autogen.tried_calls import CallsOfRun
from upcall.errors import StoredStateError
from upcall.execution.earlier_work import NO_BRANCH, BranchedWork
from upcall.execution.transcripts import TranscriptRecorder
from upcall.questions.answer import Answer
from upcall.runs.call_timings import Timings
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.plan import ApprovedPlan, PlanStatus
from upcall.runs.run import Run
from upcall.runs.run_changes import record_act
from upcall.runs.steering import TakenMessages
from upcall.runs.transcript import EntryKind, TranscriptEntry
from upcall.storage.change_log import StoredChanges
from upcall.storage.connection import Work, join_work
from upcall.storage.event_log import append_events
from upcall.storage.plans import write_plan
from upcall.storage.store import RunStore
from upcall.storage.stored_run import StoredRun
from upcall.storage.transcripts import load_segment, write_transcript

LEASE_RENEWALS = 4
"""How often a worker renews its lease during the time it lasts."""

TRANSCRIPT_INTERVAL_S = 1.0
"""How often the new entries of a transcript are written while a team is at work."""


class SegmentWriter:
    """Writes what a segment does to the store.

    Args:
        stored: the run as it was claimed; every write follows the one before.
        store: where it is.
        records: the journal since the checkpoint.
        timed: whether the times of its calls are stored.
        keep_transcript: whether its transcript is stored.
        keep_journals: whether the checkpoint keeps what was done on the way to it.
        branch: what the run that this one was forked from has done.
    """

    def __init__(
        self,
        stored: StoredRun,
        store: RunStore,
        records: Mapping[str, str],
        *,
        timed: bool,
        keep_transcript: bool,
        keep_journals: bool,
        branch: BranchedWork = NO_BRANCH,
    ) -> None:
        self._is_replacing = branch.is_replacing
        self.stored = stored
        """The run as it was stored last."""
        self.timings, self._timed, self._keeps_journals = Timings(), timed, keep_journals
        self._store, self._keeps_transcript = store, keep_transcript
        run, reached = stored.run, stored.checkpoint.reached
        self.pauses = reached.pauses
        """How many checkpoints there were before."""
        known = [each.id for each in run.records.open if not each.asked_since_checkpoint]
        self.transcript = TranscriptRecorder(run.task, known, keep=keep_transcript)
        self.journal = Journal(
            run.id,
            reached.name_epoch(run.id),
            records,
            self._write_records,
            check=lambda new: store.journal.refuse_large(run.id, new),
            exact=reached.lineage not in (None, run.id),
            earlier=branch.work,
            departed=reached.departed,
            tried=CallsOfRun(branch.tried),
            on_delivery=self.transcript.add_answers,
        )
        self._answered = reached.answered + len(list_answers(stored.checkpoint.inbox))
        self._saving = asyncio.Lock()
        self._renewed = self._written = asyncio.get_running_loop().time()
        self._entries: int | None = 0
        """How many entries of its transcript are stored; None if a write failed, which may have been stored."""
        self._held = -1
        """Which entry could not be written after the run was stored last: it waits for the pause."""

    @property
    def store_name(self) -> str:
        """The name of the store."""
        return self._store.name

    @property
    def changes(self) -> StoredChanges:
        """What the run's agents change in its files."""
        run, pinned = self.stored.run, self.stored.run.config.team
        return StoredChanges(self._store, run.id, keeps_new=pinned is not None and pinned.has_own_workspace(run.id))

    async def _write_records(self, records: Mapping[str, str | None]) -> None:
        """Write into the journal; what agents take in of the human's messages is logged with it."""
        events = [
            event
            for key, text in records.items()
            if text is not None and key.startswith(STEERING)
            for event in TakenMessages.model_validate_json(text).as_events()
        ]
        also = partial(append_events, run_id=self.stored.run.id, events=events) if events else None
        await self._store.journal.write(self.stored, records, also=also)

    def journal_beyond(self, run: Run) -> Mapping[str, str]:
        """Return what the next checkpoint keeps of the journal: a fork finds there what does not depend on its answer.
        If the run got answers since its checkpoint, a fork cannot be at that point again without it; if it has paused
        before, a fork at an earlier question does not do that work again."""
        has_answers = len(run.answers) > self._answered
        if not (has_answers or (self._keeps_journals and self.pauses > 0)):
            return {}
        # In the place of its run, it is to know what it did itself: that is what is taken back if it is overruled.
        return self.journal.done if self._is_replacing else self.journal.records

    async def read_transcript(self) -> None:
        """Continue the transcript of this segment, if it was interrupted before."""
        if self._keeps_transcript and self.stored.version > 1:
            # Only one that was interrupted has something there.
            self.transcript.continue_from(await self._load_transcript())
        self._entries = len(self.transcript.entries)

    async def _load_transcript(self) -> Sequence[TranscriptEntry]:
        return await load_segment(self._store, self.stored.run.id, self.pauses)

    async def queued_answers(self) -> Sequence[Answer]:
        """Return the answers that wait in the store to be taken in."""
        return await self._store.queue.read(self.stored.run.id)

    async def save(
        self, run: Run, checkpoint: Checkpoint | None = None, *, also: Work[object] | None = None
    ) -> StoredRun:
        """Store the run; at its pause with the checkpoint, which ends the journal. `also` is done in the same
        transaction."""
        async with self._saving:
            if checkpoint is None:
                await self.journal.flush()
            else:
                await self.journal.stop_writing()
            ends = checkpoint is not None or not run.working
            stores_times = ends and self._timed
            count = len(self.transcript.entries) if ends else 0
            with record_act(self.timings.to_event()) if stores_times else nullcontext():
                async with self._writing_transcript(count, merge=True) as transcript:
                    also = join_work([transcript, self._write_plan(run), also])
                    self.stored = await self._store.save(self.stored, run, checkpoint, also=also)
            count = self._count_readable()
            self._held = count if count < len(self.transcript.entries) else -1
        return self.stored

    async def beat(self) -> None:
        """Write the transcript so far and renew the lease, each when it is time for it.

        Raises:
            RunConflict: another process has the run now.
        """
        now = asyncio.get_running_loop().time()
        if now - self._written > TRANSCRIPT_INTERVAL_S and self._count_readable() > (self._entries or 0):
            async with self._saving, self._writing_transcript(self._count_readable()) as transcript:
                await self._store.leases.renew(self.stored, also=transcript)
            self._renewed = self._written = asyncio.get_running_loop().time()
        elif now - self._renewed > self._store.leases.seconds / LEASE_RENEWALS:
            await self._store.leases.renew(self.stored)
            self._renewed = asyncio.get_running_loop().time()

    async def release(self) -> None:
        """Give the lease back, if the store can be reached: the journal says what was done."""
        with suppress(StoredStateError):
            await self.journal.flush()
            async with self._saving, self._writing_transcript(self._count_readable()) as transcript:
                await self._store.leases.release(self.stored, also=transcript)

    def _write_plan(self, run: Run) -> Work[object] | None:
        """Return a function that saves the plan for similar tasks, if the user has just approved it."""
        before, team = self.stored.run.plan, run.config.team
        if team is None or not team.plan_memory or (before is not None and before.status is PlanStatus.APPROVED):
            return None
        kept = ApprovedPlan.of(run.id, run.task, run.plan, identity.now())
        return None if kept is None else write_plan(kept, run.user)

    @property
    def is_held_up(self) -> bool:
        """Whether an entry of the transcript waits for the run to be stored with its question or answer."""
        if asyncio.get_running_loop().time() - self._written <= TRANSCRIPT_INTERVAL_S:
            return False
        count = self._count_readable()
        return count < len(self.transcript.entries) and count != self._held

    def _count_readable(self) -> int:
        """Count the entries up to the first of a question or an answer that the stored run does not have: a reader who
        has read an entry does not come back to it."""
        entries, records = self.transcript.entries, self.stored.run.records
        for number, entry in enumerate(entries[self._entries or 0 :], start=self._entries or 0):
            if entry.kind.is_of_question:
                record = records.get(entry.name)
                if record is None or (entry.kind is EntryKind.ANSWER and record.answer is None):
                    return number
        return len(entries)

    @asynccontextmanager
    async def _writing_transcript(self, count: int, *, merge: bool = False) -> AsyncIterator[Work[object] | None]:
        """Inside, a write of the run takes along the function that is given, if there is one: it adds those of the
        first `count` entries that are not stored yet."""
        if self._entries is None:
            self._entries = len(await self._load_transcript())
        stored, new = self._entries, self.transcript.entries[self._entries : count]
        if not new and not (merge and count and stored):
            yield None
            return
        self._entries = None
        yield write_transcript(self.stored.run.id, self.pauses, new, merge=merge and stored > 0)
        self._entries = stored + len(new)
