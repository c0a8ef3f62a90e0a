"""What a fork has from its run beyond the point where it left it: all that was done there, and what the human answered.

A call that is identical there is not made again, and a question that the same call asks keeps its answer. So a fork
does again only what depends on its own answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from types import MappingProxyType

from upcall.autogen.messages import list_answers
from upcall.errors import UnknownRun
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.record import Answered
from upcall.runs.call_paths import Origin
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.dependence import find_dependent_work, leave_out_repeatable, leave_out_replies
from upcall.runs.events import CallReversed, LogEvent, RunImported
from upcall.runs.journal_records import EarlierWork, ToolRecord
from upcall.runs.run import Run
from upcall.storage.databases import run_in_thread
from upcall.storage.store import RunStore

MAX_REPEATED = 1_000
"""How many answers of runs whose place others took are known to the last one."""


@dataclass(frozen=True)
class BranchedWork:
    """What a fork has from the runs above it.

    Attributes:
        work: what was done there between their checkpoints, oldest first; of the nearest run first.
        answers: the human's answers there, by question.
        repeated: those that are given to the same question again, whatever it depends on, with their questions, oldest
            first: where the fork took the place of a run, that one's.
        is_replacing: whether it took the place of the run above it.
        tried: where another answer is merely tried in it, the calls of the run above it that it has not made yet.
    """

    work: Sequence[EarlierWork] = ()
    answers: Mapping[str, Answer] = field(default_factory=lambda: MappingProxyType({}))
    repeated: Sequence[Answered] = ()
    is_replacing: bool = False
    tried: Sequence[ToolRecord] | None = None


NO_BRANCH = BranchedWork()


async def load_branched_work(store: RunStore, run: Run) -> BranchedWork:
    """Load what a fork has from the runs above it; nothing for a run that is no fork. What was removed since is
    missing, and is done again.

    Its own run comes first. Of the runs above that one only the replies count: they answer the same request, whatever
    was done since.
    """
    work: list[EarlierWork] = []
    answers: dict[str, Answer] = {}
    repeated: list[Answered] = []
    is_replacing = False
    tried = await list_calls_left(store, run) if run.config.trial else None
    begin, seen = run, {run.id}
    while run.forked_from is not None and run.forked_from not in seen:
        fork = run
        seen.add(run.forked_from)
        given = _list_given(fork)
        if len(repeated) < MAX_REPEATED:
            repeated[:0] = given
        try:
            stored = await store.load(run.forked_from)
        except UnknownRun:
            break
        run = stored.run
        kept = {each.question_id: each for each in run.answers if _is_kept(run, each, fork.forked_at)}
        if run.replaced_by == fork.id and len(repeated) < MAX_REPEATED:
            repeated[:0] = [(run.asked[each], answer) for each, answer in kept.items()]
        if fork is begin:
            first = (await store.bare_checkpoints(begin.id))[:1]
            above = await load_timeline(store, run, bare=True, is_whole=run.replaced_by == begin.id)
            undone = await count_reversed(store, run.id)
            work += await run_in_thread(partial(_list_kept, begin, run, above, stored.records, first, undone))
            answers = kept | {question.id: answer for question, answer in given}
            is_replacing = run.replaced_by == begin.id
        else:
            work += map(_keep_replies, list_work(run.id, await store.bare_checkpoints(run.id), stored.records))
    return BranchedWork(work, answers, repeated, is_replacing, tried)


async def list_calls_left(store: RunStore, trial: Run) -> list[ToolRecord]:
    """List the finished tool calls of a run, from the checkpoint where another answer is tried, that the trial has not
    made by its last checkpoint. Where the run is gone, there are none."""
    own = await store.bare_checkpoints(trial.id)
    if trial.forked_from is None or not own:
        return []
    try:
        above = await store.load(trial.forked_from)
    except UnknownRun:
        return []
    since = own[0].reached.name_epoch(trial.id)
    work = list_work(above.run.id, await load_timeline(store, above.run, bare=True), above.records)
    begin = next((number for number, each in enumerate(work) if each.epoch == since), len(work))
    count = Counter(each.content for each in _list_finished(list_work(trial.id, own, {})))
    made, left = list[ToolRecord](), list[ToolRecord]()
    for record in _list_finished(work[begin:]):
        is_made = count[record.content] > 0
        count[record.content] -= is_made
        (made if is_made else left).append(record)
    return [each for each in left if not any(map(each.is_inside, made))]


def _list_finished(work: Sequence[EarlierWork]) -> list[ToolRecord]:
    """List the calls in some work that have an outcome, other than a question."""
    texts = [text for each in work for key, text in each.records.items() if key.startswith("tool:")]
    records = map(ToolRecord.model_validate_json, texts)
    return [each for each in records if each.outcome is not None and each.outcome.asked is None]


async def load_timeline(
    store: RunStore, run: Run, *, bare: bool = False, is_whole: bool = False
) -> Sequence[Checkpoint]:
    """Load the checkpoints of a run, oldest first. Those of a fork that took the place of its run come after those
    that it shares with that. Where one of these was removed, it begins behind that.

    Args:
        bare: without the states of their teams.
        is_whole: those of any other fork come after what it shares, too.
    """
    own = await (store.bare_checkpoints(run.id) if bare else store.checkpoints(run.id))
    if run.forked_from is None or not own:
        return own
    try:
        above = (await store.load_head(run.forked_from)).run
    except UnknownRun:
        return own
    if not (is_whole or above.replaced_by == run.id):
        return own
    timeline = await load_timeline(store, above, bare=bare, is_whole=is_whole)
    earlier = [_name_lineage(each, above.id) for each in timeline]
    epoch = own[0].reached.name_epoch(run.id)
    at = next((place for place, each in enumerate(earlier) if each.reached.name_epoch(above.id) == epoch), None)
    if at is None:
        return own
    return [*earlier[:at], own[0].model_copy(update={"journal": earlier[at].journal}), *own[1:]]


def _name_lineage(checkpoint: Checkpoint, run_id: str) -> Checkpoint:
    reached = checkpoint.reached
    named = reached.model_copy(update={"lineage": reached.lineage or run_id})
    return checkpoint.model_copy(update={"progress": named})


def list_work(run_id: str, checkpoints: Sequence[Checkpoint], journal: Mapping[str, str]) -> list[EarlierWork]:
    """List what was done between the checkpoints of a run and since the last one, oldest first, as far as it was
    kept."""
    found: dict[str, Mapping[str, str]] = {}
    for before, after in pairwise(checkpoints):
        if before.reached.pauses != after.reached.pauses:  # Else it is the same pause, with its answers.
            found[before.reached.name_epoch(run_id)] = after.journal
    if checkpoints:
        found[checkpoints[-1].reached.name_epoch(run_id)] = journal
    return [EarlierWork(epoch, records) for epoch, records in found.items() if records]


def is_asked_before(question_id: str, checkpoint: Checkpoint) -> bool:
    """Return whether a question was asked before a checkpoint, which waits for its answer or brings it."""
    brought = {each.question_id for each in list_answers(checkpoint.inbox)}
    return question_id in brought or question_id in checkpoint.reached.open


def _list_kept(
    fork: Run,
    run: Run,
    checkpoints: Sequence[Checkpoint],
    journal: Mapping[str, str],
    first: Sequence[Checkpoint],
    undone: Counter[str],
) -> list[EarlierWork]:
    """List the work of a run without the calls that its fork makes again, whatever they look like."""
    work = leave_out_reversed(list_work(run.id, checkpoints, journal), run.id, undone)
    question = run.asked.get(fork.forked_at or "")
    if not work or question is None:
        return work
    if first:
        since, is_open = first[0].reached.name_epoch(fork.id), is_asked_before(question.id, first[0])
    else:
        since, is_open = work[0].epoch, False
    dependent = find_dependent_work(work, [Origin(question=question, since=since, is_open=is_open), *fork.forked_too])
    if fork.config.trial == "same":
        work = leave_out_replies(work, dependent)
    return leave_out_repeatable(work, dependent, is_reversed=run.replaced_by == fork.id)


def _keep_replies(work: EarlierWork) -> EarlierWork:
    return EarlierWork(work.epoch, {key: text for key, text in work.records.items() if key.startswith("model:")})


def _is_kept(run: Run, answer: Answer, left: str | None) -> bool:
    """Return whether a fork at the question `left` keeps an answer: it is the human's, and may be given twice."""
    return _is_theirs(answer) and answer.question_id != left and not run.asked[answer.question_id].secret


def _list_given(fork: Run) -> list[Answered]:
    """List what the human answered differently, besides the question where a run was forked, in the place of its
    run."""
    pairs = [(each.question, each.answer) for each in fork.forked_too if not each.question.secret]
    return [(question, answer) for question, answer in pairs if answer is not None and _is_theirs(answer)]


def _is_theirs(answer: Answer) -> bool:
    return answer.by is AnsweredBy.HUMAN and answer.outcome is not Outcome.CANCELLED


async def shares_work(store: RunStore, run: Run) -> bool:
    """Return whether some of a run's work may be that of another one, beside which it stands."""
    while run.forked_from is not None:
        try:
            above = (await store.load_head(run.forked_from)).run
        except UnknownRun:
            return True
        if above.replaced_by != run.id:
            return True
        run = above
    kinds: tuple[type[LogEvent], ...] = (RunImported,)
    imported = [each.event for each in await store.events.read(run.id, types=kinds)]
    return any(isinstance(each, RunImported) and each.origin != run.id for each in imported)


async def list_reversed(store: RunStore, run_id: str) -> list[CallReversed]:
    """List the steps in which calls of a run were taken back, oldest first."""
    kinds: tuple[type[LogEvent], ...] = (CallReversed,)
    events = [each.event for each in await store.events.read(run_id, types=kinds)]
    return [each for each in events if isinstance(each, CallReversed)]


async def count_reversed(store: RunStore, run_id: str) -> Counter[str]:
    """Count how often calls of a run were taken back, by their idempotency keys."""
    return Counter(each.call for each in await list_reversed(store, run_id) if each.step == "done")


def leave_out_reversed(work: Sequence[EarlierWork], run_id: str, undone: Counter[str]) -> list[EarlierWork]:
    """Leave out the calls of a run that were taken back, the newest first where ids repeat: who wants their effects
    makes them anew."""
    if not undone:
        return [*work]
    left, found = undone.copy(), list[EarlierWork]()
    for each in reversed(work):
        gone = set[str]()
        for key, text in reversed([*each.records.items()]):
            if key.startswith("tool:") and left.total():
                name = ToolRecord.model_validate_json(text).name_in(run_id)
                if left[name] > 0:
                    left[name] -= 1
                    gone.add(key)
        records = {key: text for key, text in each.records.items() if key not in gone}
        found.insert(0, EarlierWork(each.epoch, records))
    return found
