"""What a fork has from its run beyond the point where it left it: all that was done there, and what the human answered.

A call that is identical there is not made again, and a question that the same call asks keeps its answer. So a fork
does again only what depends on its own answer.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType

from upcall.errors import UnknownRun
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.dependence import find_dependent_work, leave_out_repeatable
from upcall.runs.journal_records import EarlierWork
from upcall.runs.run import Run, RunProgress
from upcall.storage.store import RunStore


@dataclass(frozen=True)
class BranchedWork:
    """What a fork has from the runs above it.

    Attributes:
        work: what was done there between their checkpoints, oldest first; of the nearest run first.
        answers: the human's answers there, by question.
    """

    work: Sequence[EarlierWork] = ()
    answers: Mapping[str, Answer] = field(default_factory=lambda: MappingProxyType({}))


NO_BRANCH = BranchedWork()


async def load_branched_work(store: RunStore, run: Run) -> BranchedWork:
    """Load what a fork has from the runs above it; nothing for a run that is no fork. What was removed since is
    missing, and is done again."""
    work: list[EarlierWork] = []
    answers: dict[str, Answer] = {}
    seen = {run.id}
    while run.forked_from is not None and run.forked_from not in seen:
        left, seen = run.forked_at, seen | {run.forked_from}
        try:
            stored = await store.load(run.forked_from)
        except UnknownRun:
            break
        run = stored.run
        done = list_work(run.id, await store.checkpoints(run.id), stored.records)
        if done and (question := run.asked.get(left or "")) is not None:
            done = leave_out_repeatable(done, find_dependent_work(done, question, done[0].epoch))
        work += done
        answers = {each.question_id: each for each in run.answers if _is_kept(run, each, left)} | answers
    return BranchedWork(work, answers)


def list_work(run_id: str, checkpoints: Sequence[Checkpoint], journal: Mapping[str, str]) -> list[EarlierWork]:
    """List what was done between the checkpoints of a run and since the last one, oldest first, as far as it was
    kept."""
    found: dict[str, Mapping[str, str]] = {}
    for before, after in pairwise(checkpoints):
        if (before.progress or RunProgress()).pauses != (after.progress or RunProgress()).pauses:
            found[_name_epoch(run_id, before)] = after.journal  # Otherwise it is the same pause, with its answers.
    if checkpoints:
        found[_name_epoch(run_id, checkpoints[-1])] = journal
    return [EarlierWork(epoch, records) for epoch, records in found.items() if records]


def _name_epoch(run_id: str, checkpoint: Checkpoint) -> str:
    return (checkpoint.progress or RunProgress()).name_epoch(run_id)


def _is_kept(run: Run, answer: Answer, left: str | None) -> bool:
    """Return whether a fork at the question `left` keeps an answer: it is the human's, and may be given twice."""
    question = run.asked[answer.question_id]
    is_theirs = answer.by is AnsweredBy.HUMAN and answer.outcome is not Outcome.CANCELLED
    return is_theirs and answer.question_id != left and not question.secret
