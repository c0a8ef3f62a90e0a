"""Forks: the same run up to one of its questions, with another answer. The part before is shared, not repeated."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from upcall.autogen.messages import ANSWERS, answer_message, list_answers, message_answers
from upcall.errors import CallerError, require_type
from upcall.execution.access import RunAccess
from upcall.execution.earlier_work import (
    count_reversed,
    is_asked_before,
    leave_out_reversed,
    list_work,
    load_timeline,
)
from upcall.execution.prices import Prices
from upcall.questions.answer import Answer
from upcall.questions.matching import resolve_id
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecords
from upcall.runs.budget import is_about_budget
from upcall.runs.call_paths import Origin
from upcall.runs.checkpoint import Checkpoint
from upcall.runs.config import RunConfig
from upcall.runs.dependence import DependentWork, find_dependent_work, leave_out_repeatable, leave_out_replies
from upcall.runs.file_changes import Change, count_signs, list_standing
from upcall.runs.journal_records import EarlierWork, ToolRecord, disown
from upcall.runs.run import Run, Usage
from upcall.runs.states import RunEvent
from upcall.runs.unknown_outcomes import is_about_unknown_outcome
from upcall.storage.change_log import StoredChanges
from upcall.storage.stored_run import StoredRun
from upcall.text import one_line, show_name
from upcall.trees import TreeTooDeep, copy_tree

if TYPE_CHECKING:
    from upcall.settings import Settings
    from upcall.storage.store import RunStore

_RESULT_CHARS = 200


@dataclass(frozen=True)
class ForkPoint:
    """The point where a fork leaves its run.

    ``checkpoint`` is the pause that it starts from. ``records`` is the journal from there, up to the question and
    beyond: work that does not depend on the answer is found there again. ``before`` are the answers that stay. ``how``
    says how the answer reaches its asker: replacing the one in the checkpoint's inbox, as a new message in it,
    or looked up by the question's id when the same call asks again. ``dependent`` is what of all the run's work may be
    done again; None if not all of it was kept. ``others`` are later questions that are answered differently at once.
    """

    question: Question
    checkpoint: Checkpoint
    records: Mapping[str, str] = field(default_factory=dict)
    before: tuple[Answer, ...] = ()
    how: Literal["replaced", "delivered", "found"] = "found"
    dependent: DependentWork | None = None
    others: tuple[Origin, ...] = ()


@dataclass(frozen=True)
class ForkPlan:
    """What a fork would do, counted in the run.

    Attributes:
        question: the question where the fork leaves the run.
        answered: the answer that it replaces.
        kept_answers: the other answers that it keeps.
        answers_again: answers that may have to be given again.
        kept_model_calls: model calls that it keeps.
        model_calls_again: model calls that may be made again, by agent.
        tool_calls_again: tool calls that may be made again, by agent and tool.
        tokens_again: how many tokens these model calls took in the run; 0 where that is not known.
        effects: the calls among them that are not idempotent, each as ``agent: tool(arguments)``; where the fork takes
            the place of its run, what of their effects cannot be taken back.
        taken_back: where it does, the calls and files that are taken back before.
        bill: a digest of the effects: by it somebody says that these may stay, in this run and for these questions.
    """

    question: Question
    answered: Answer | None
    kept_answers: int
    answers_again: int
    kept_model_calls: int
    model_calls_again: dict[str, int]
    tool_calls_again: dict[str, int]
    tokens_again: int = 0
    effects: tuple[str, ...] = ()
    taken_back: tuple[str, ...] | None = None
    bill: str = ""

    def as_json(self) -> dict[str, Any]:
        """Return the plan as a JSON object for the command line."""
        return {
            "question": self.question.as_json(),
            "answered": None if self.answered is None else self.answered.as_text(),
            "kept": {"answers": self.kept_answers, "model_calls": self.kept_model_calls},
            "again": {
                "answers": self.answers_again,
                "model_calls": self.model_calls_again,
                "tool_calls": self.tool_calls_again,
                "tokens": self.tokens_again,
                "effects": list(self.effects),
            },
            "bill": self.bill,
            **({} if self.taken_back is None else {"taken_back": list(self.taken_back)}),
        }

    def lines(self) -> list[str]:
        """Return the plan in words, as lines."""
        calls = sum(self.model_calls_again.values())
        by = ", ".join(f"{agent} {count}" for agent, count in self.model_calls_again.items())
        tools = ", ".join(f"{tool} {count}" for tool, count in self.tool_calls_again.items())
        again = [
            _some(calls, "model call") + (f" ({by})" if by else ""),
            *([f"about {self.tokens_again:,} tokens"] if self.tokens_again else []),
            _some(sum(self.tool_calls_again.values()), "tool call") + (f" ({tools})" if tools else ""),
            _some(self.answers_again, "answer"),
        ]
        answer_text = self.answered.as_text() if self.answered is not None else "not answered yet"
        stays = "Its first effect stays" if self.taken_back is None else "It cannot be taken back"
        return [
            f"{self.question.asker_for_whom()} asked: {self.question.question} - {answer_text}",
            f"Kept: {_some(self.kept_answers, 'other answer')}, {_some(self.kept_model_calls, 'model call')}.",
            f"May be done again: {', '.join(again)}.",
            *(f"Taken back before: {each}" for each in self.taken_back or ()),
            *(f"{stays}: {each}" for each in self.effects),
        ]


def find_fork_point(
    run: Run, checkpoints: Sequence[Checkpoint], journal: Mapping[str, str], question_id: str
) -> ForkPoint | None:
    """Find where a fork with another answer to a question begins; None if the work before it is not stored with
    this run, because it is a fork itself, or was pruned.

    Args:
        checkpoints: those of the run that are known, oldest first.
        journal: the journal since the last one.

    Raises:
        CallerError: the run did not ask it, or it cannot be answered differently.
    """
    question_id = resolve_id(question_id, [*run.asked])
    question = run.asked.get(question_id)
    if question is None:
        asked = ", ".join(f"{each.id} ({one_line(each.question)})" for each in run.asked.values()) or "nothing yet"
        raise CallerError(f"Run {run.id} has no question {question_id!r}. It asked: {asked}.")
    answer = _answer_to(run, question_id)
    if is_about_unknown_outcome(question):
        raise CallerError(f"Question {question_id} is about a call in doubt; a fork cannot take back what a call did.")
    if is_about_budget(question):
        raise CallerError(f"Question {question_id} is about the budget of the run; start another run with another one.")
    if run.records[question_id].asked_since_checkpoint:
        before = tuple(each for each in run.answers if each.question_id != question_id)
        return ForkPoint(question, checkpoints[-1], journal, before)
    if answer is None:
        return ForkPoint(question, checkpoints[-1], before=_before(run, checkpoints[-1]), how="delivered")
    for checkpoint in checkpoints:
        if question_id in {each.question_id for each in list_answers(checkpoint.inbox)}:
            return ForkPoint(question, checkpoint, before=_before(run, checkpoint, question_id), how="replaced")
    last = checkpoints[-1].progress
    if run.is_final and last is not None and question_id in last.open:  # The run ended while its asker waited.
        return ForkPoint(question, checkpoints[-1], before=_before(run, checkpoints[-1]), how="delivered")
    place = [each.question_id for each in run.answers].index(question_id)
    ends = [number for number, each in enumerate(checkpoints) if each.progress and each.progress.answered > place]
    records = checkpoints[ends[0]].journal if ends else journal
    begin = ends[0] - 1 if ends else len(checkpoints) - 1
    if begin < 0 or not records:
        return None
    return ForkPoint(question, checkpoints[begin], records, before=run.answers[:place])


def forget_replies(point: ForkPoint) -> ForkPoint:
    """Return the point without the replies that depend on the answer: they are asked for anew."""
    if point.dependent is None:
        return point
    (left,) = leave_out_replies([EarlierWork("", point.records)], point.dependent)
    return replace(point, records=left.records)


def fork_run(
    run: Run, point: ForkPoint, given: Mapping[str, Answer], new_id: str, begins: RunEvent
) -> tuple[Run, Checkpoint]:
    """Return a new run with everything that `run` had before the question, and other answers to it and to those of
    `others` that were asked before; `begins` says whose turn it is."""
    progress, answer = point.checkpoint.reached, given[point.question.id]
    before = [each for each in point.before if each.question_id != answer.question_id]
    answers = [*(given.get(each.question_id, each) for each in before), answer]
    too = [each.question for each in point.others if point.how == "delivered" and each.question.id in progress.open]
    answers += [given[each.id] for each in too]
    known = run.asked
    answered = {each.question_id for each in answers}
    still_open = [  # With a time of their own, where the run's question has one.
        known[each].model_copy(update={"expires_at": None})
        for each in progress.open
        if each in known and each not in answered
    ]
    forked = progress.restore(run).copy_as_new(
        id=new_id,
        config=run.config.model_copy(update={"open": False, "trial": None}),
        forked_from=run.id,
        forked_at=point.question.id,
        forked_too=tuple(each.model_copy(update={"answer": given[each.question.id]}) for each in point.others),
        replacing=(),
        replaced_by=None,
        records=QuestionRecords.build(still_open, [(known[each.question_id], each) for each in answers], run.records),
        budget=run.budget.begin_anew() if run.budget is not None else None,
        result=None,
        error=None,
    )
    inbox = list(point.checkpoint.inbox)
    if point.how == "replaced":
        inbox = [_with_answers(message, given, known) for message in inbox]
    elif point.how == "delivered":
        asked = [point.question, *too]
        inbox.append(answer_message([given[each.id] for each in asked], target=asked[0].path[0], questions=asked))
    lineage = progress.lineage or run.id
    start = point.checkpoint.model_copy(
        update={
            "inbox": tuple(inbox),
            "progress": progress.model_copy(update={"lineage": lineage, "departed": ()}),
            "journal": {},
        }
    )
    return forked.apply(begins), start


def sign_effects(run: Run, point: ForkPoint, effects: Sequence[str]) -> str:
    """Return a digest of the effects of a run that depend on the answers at `point`, as they are shown. Where they are
    not known, it is one of all that the run has done."""
    questions = sorted([point.question.id, *(each.question.id for each in point.others)])
    done = [run.total_usage.model_calls, sorted(run.tools.items())] if point.dependent is None else []
    signed = json.dumps([run.id, questions, [*effects], done])
    return sha256(signed.encode(errors="replace")).hexdigest()[:16]


def plan_fork(run: Run, point: ForkPoint) -> ForkPlan:
    """Return what a fork at `point` keeps, and what may be done again: what may depend on the answer, or, where not all
    of the run's work was kept, everything since its pause."""
    answered, then, work = _answer_to(run, point.question.id), point.checkpoint.reached, point.dependent
    if work is not None:
        models = Counter("/".join([*(agent for agent, _ in each.above), each.agent]) for each in work.replies)
        tools = Counter("/".join([*each.path, each.tool]) for each in work.tools.values())
        tokens, effects = work.count_tokens(), tuple(map(show_call, work.list_effects()))
    else:
        models = _count_model_calls(run.usage) - _count_model_calls(then.usage)
        tools = Counter(run.tools) - Counter(then.tools)
        tokens, effects = 0, ()
    # What was open at the pause was asked before, and does not depend on the answer.
    other = {point.question.id, *(each.question.id for each in point.others)}
    stay = {*other, *then.open, *(each.question_id for each in point.before)}
    later = [each for each in run.answers if each.question_id not in stay]
    again = [each for each in later if work is None or work.has_asked(run.asked[each.question_id])]
    return ForkPlan(
        question=point.question,
        answered=answered,
        kept_answers=len(run.answers) - len(again) - (answered is not None) - len(point.others),
        answers_again=len(again),
        kept_model_calls=run.total_usage.model_calls - models.total(),
        model_calls_again=dict(models),
        tool_calls_again=dict(tools),
        tokens_again=tokens,
        effects=effects,
        bill=sign_effects(run, point, effects),
    )


def _count_model_calls(usage: Mapping[str, Usage]) -> Counter[str]:
    return Counter({agent: used.model_calls for agent, used in usage.items()})


def show_call(record: ToolRecord) -> str:
    """Show a tool call on one line."""
    return one_line(f"{record.path[-1]}: {show_name(record.tool)}({record.arguments})", _RESULT_CHARS)


def copy_workspace(config: RunConfig, old_id: str, new_id: str, named: Path | None) -> RunConfig:
    """Return the config of a fork. Its workspace is a copy of the run's in its present state: a fork changes no file of
    its run. A folder that the user named is shared, unless another is `named`."""
    if config.team is None:
        return config
    folder = config.team.workspace
    target = named or (folder.parent / new_id if config.team.has_own_workspace(old_id) else folder)
    if folder.is_dir() and target != folder:
        try:
            copy_tree(folder, target)
        except TreeTooDeep as error:
            raise CallerError(f"The workspace {folder} cannot be copied: {error}. Move them, then fork.") from error
    return config.model_copy(update={"team": config.team.model_copy(update={"workspace": target})})


@dataclass(frozen=True)
class ComparedRun:
    """A run as it is compared with another.

    Attributes:
        run: the run.
        own_usage: what the calls used that it made itself, by agent.
        is_estimate: whether some tokens of that are a share: of an agent that made some of its calls, and found others
            in the journal of the run that it was forked from.
        changes: its changes to files, oldest first.
        prices: what tokens cost.
    """

    run: Run
    own_usage: Mapping[str, Usage]
    is_estimate: bool = False
    changes: Sequence[Change] = ()
    prices: Prices = field(default_factory=Prices)


async def load_branch(access: RunAccess, run_id: str, settings: Settings) -> ComparedRun:
    """Load a run with all that it is compared by.

    Raises:
        UnknownRun, NotAllowed: it is not there, or somebody else's.
    """
    run = (await access.load_whole(run_id, "diff")).run
    changes, prices = await StoredChanges(access.store, run.id).list_changes(), Prices.of(settings, run)
    own, is_estimate = await _find_own_usage(access.store, run)
    return ComparedRun(run, own, is_estimate, list_standing(changes), prices)


async def _find_own_usage(store: RunStore, run: Run) -> tuple[Mapping[str, Usage], bool]:
    """Return what the calls used that a run made itself, and whether some of it is a share.

    What a branch begins with stands in its first checkpoint. Behind it, replies are found in the journal of the run
    that it was forked from: they count as used, and were never timed as calls of the branch.
    """
    if run.forked_from is None:
        return run.usage, False
    first = next(iter(await store.checkpoints(run.id)), None)
    begun = first.progress.usage if first is not None and first.progress and first.progress.lineage else {}
    made, theirs = [await _count_timed_calls(store, each) for each in (run.id, run.forked_from)]
    own, is_estimate = dict[str, Usage](), False
    for path, used in run.usage.items():
        since = used.minus(begun.get(path, Usage()))
        count = min(since.model_calls, made[path]) if path in made or path in theirs else since.model_calls
        is_estimate |= 0 < count < since.model_calls
        if count:
            own[path] = since.share(count)
    return own, is_estimate


async def _count_timed_calls(store: RunStore, run_id: str) -> Counter[str]:
    """Count the model calls that were made for a run, by agent."""
    calls = [call for period in await store.events.call_timings(run_id) for call in period.calls]
    return Counter("/".join(call.path) for call in calls if not call.tool)


def compare_runs(one: ComparedRun, other: ComparedRun) -> list[str]:
    """Describe in lines where two branches diverge, how each continued, and what it changed and used on its own."""
    pairs, others = one.run.clarification_history, other.run.clarification_history
    alike = 0
    while alike < min(len(pairs), len(others)) and _alike(pairs[alike], others[alike]):
        alike += 1
    lines = [f"The same: {_some(alike, 'answer')}."] if alike else []
    if alike == max(len(pairs), len(others)):
        lines.append("No answer differs.")
    elif not alike:
        lines.append("They part at the first answer.")
    for branch, history in ((one, pairs), (other, others)):
        run = branch.run
        lines.append(f"{run.id} ({run.status}, {_count_calls(branch)})")
        lines += [
            f"  {asked.asker_for_whom()}: {asked.question} - {answer.as_text()}" for asked, answer in history[alike:]
        ]
        lines += [f"  still open: {question.asker_for_whom()}: {question.question}" for question in run.questions]
        lines.append(f"  result: {one_line(run.result or run.error or 'none yet', _RESULT_CHARS)}")
        spent = "cost of its own calls" if run.forked_from else "cost"
        lines += [
            f"  {label}: {text}" for label, text in (("files", _list_files(branch)), (spent, _cost(branch))) if text
        ]
    return lines


def _count_calls(branch: ComparedRun) -> str:
    own = Usage.total(branch.own_usage.values()).model_calls
    kept = branch.run.total_usage.model_calls - own
    return f"{_some(own, 'model call')}{f' of its own, {kept} shared' if kept else ''}"


def _list_files(branch: ComparedRun) -> str:
    """Return the files that a run changed, with the lines that it added and removed in all."""
    counted: dict[str, Counter[str]] = {}
    for change in branch.changes:
        for file in change.files:
            if file.is_named:
                counted.setdefault(file.path, Counter()).update(count_signs(file.diff))
    return ", ".join(f"{show_name(path)} (+{lines['+']} -{lines['-']})" for path, lines in sorted(counted.items()))


def _cost(branch: ComparedRun) -> str:
    """Return the tokens of a run's own calls, and what they cost if there are prices."""
    own = branch.own_usage
    if not own:
        return ""
    costs = branch.prices.total(own)
    partly = f" {costs.gap}" if costs.gap else ""
    money = "" if costs.cost is None else f", {costs.cost:.4f} {branch.prices.currency}{partly}"
    total = Usage.total(own.values())
    about = "about " if branch.is_estimate else ""
    return f"{about}{total.prompt_tokens:,}+{total.completion_tokens:,} tokens{money}"


def _alike(one: tuple[Question, Answer], other: tuple[Question, Answer]) -> bool:
    same = (one[0].path, one[0].question) == (other[0].path, other[0].question)
    return same and one[1].is_equivalent(other[1])


def _answer_to(run: Run, question_id: str) -> Answer | None:
    return next((each for each in run.answers if each.question_id == question_id), None)


def _before(run: Run, checkpoint: Checkpoint, but: str | None = None) -> tuple[Answer, ...]:
    """Return the answers that the run had when it continued from a checkpoint: earlier ones, and those in its
    inbox."""
    counted = run.answers[: checkpoint.reached.answered]
    ids = {each.question_id for each in (*counted, *list_answers(checkpoint.inbox))} - {but}
    return tuple(each for each in run.answers if each.question_id in ids)


def _with_answers(message: Any, given: Mapping[str, Answer], known: Mapping[str, Question]) -> Any:
    answers = message_answers(message)
    if given.keys().isdisjoint(each.question_id for each in answers):
        return message
    replaced = [given.get(each.question_id, each) for each in answers]
    asked = [known[each.question_id] for each in replaced if each.question_id in known]
    again = answer_message(replaced, target=message.target, questions=asked, source=message.source)
    return message.model_copy(
        update={"content": again.content, "metadata": {**message.metadata, ANSWERS: again.metadata[ANSWERS]}}
    )


def _some(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


def _find_dependent(
    points: Sequence[ForkPoint],
    run_id: str,
    checkpoints: Sequence[Checkpoint],
    journal: Mapping[str, str],
    *,
    replaces: bool,
) -> ForkPoint:
    """Return the first point with what may depend on the answers at all of them; the calls that are to be made again
    are no records of it."""
    point = points[0]
    later = checkpoints[_place(checkpoints, point) + 1 :]
    origins = [
        Origin(
            question=each.question,
            since=each.checkpoint.reached.name_epoch(run_id),
            is_open=is_asked_before(each.question.id, each.checkpoint),
        )
        for each in points
    ]
    point = replace(point, records=disown(point.records), others=tuple(origins[1:]))
    if not all(each.journal for each in later):
        return point
    dependent = find_dependent_work(list_work(run_id, checkpoints, journal), origins)
    own = EarlierWork(origins[0].since, point.records)
    (left,) = leave_out_repeatable([own], dependent, is_reversed=replaces)
    return replace(point, records=left.records, dependent=dependent)


class _Timeline(NamedTuple):
    """A run as it was loaded, its checkpoints, and how often which of its calls was taken back."""

    stored: StoredRun
    checkpoints: Sequence[Checkpoint]
    undone: Counter[str]


@dataclass(frozen=True)
class ForkPlaces:
    """Finds where to fork a run at its questions. Each run is read once.

    Args:
        access: a user's rights at the store.
        replaces: whether the fork is to take the place of its run.
        bare: whether the states of the teams are left out: enough to plan a fork, not to begin one.
    """

    access: RunAccess
    replaces: bool = False
    bare: bool = False
    _timelines: dict[str, _Timeline] = field(default_factory=dict)

    async def locate(self, run_id: str, question_id: str, others: Iterable[str] = ()) -> tuple[StoredRun, ForkPoint]:
        """Find where to fork, and in which run: the shared part of a fork is stored with the run above it. One that is
        to take the place of its run leaves that run itself, also in what it shares. Of several questions, it is forked
        at the one that was asked first.

        Raises:
            UnknownRun, NotAllowed: the run is not there, or somebody else's.
            CallerError: it cannot be forked there.
        """
        require_type("question_id", question_id, str, "the id of a question")
        wanted = run_id
        while True:
            stored, checkpoints, undone = await self._load(wanted)
            run = stored.run
            ids = _add_duplicates(run, [question_id, *others])
            found = [find_fork_point(run, checkpoints, stored.records, each) for each in ids]
            points = [each for each in found if each is not None]
            if len(points) == len(found):
                points.sort(key=lambda point: _order(run, checkpoints, point))
                point = _find_dependent(points, run.id, checkpoints, stored.records, replaces=self.replaces)
                _refuse_undone(run, point, undone)
                (left,) = leave_out_reversed([EarlierWork("", point.records)], run.id, undone)
                return stored, replace(point, records=left.records)
            if run.forked_from is None or self.replaces:
                raise CallerError(
                    f"Run {run_id} cannot be forked at question {question_id}: what was done before it is no longer "
                    "stored."
                )
            wanted = run.forked_from

    async def _load(self, run_id: str) -> _Timeline:
        if run_id in self._timelines:
            return self._timelines[run_id]
        store = self.access.store
        while True:
            stored = await self.access.load_owned(run_id, "fork")
            run = stored.run
            if run.config.is_external:
                raise CallerError(f"The askers of run {run.id} are other programs; a fork could not repeat their work.")
            checkpoints = await load_timeline(store, run, bare=self.bare, is_whole=self.replaces)
            undone = await count_reversed(store, run.id)
            if (await store.load_head(run.id)).version == stored.version:  # Else it was answered meanwhile.
                found = self._timelines[run_id] = _Timeline(stored, checkpoints, undone)
                return found


def _refuse_undone(run: Run, point: ForkPoint, undone: Counter[str]) -> None:
    """Refuse to fork where the work before rests on calls that were taken back.

    Raises:
        CallerError: it does.
    """
    dependent = point.dependent.tools.values() if point.dependent is not None else ()
    again = Counter(each.name_in(run.id) for each in dependent)
    if lost := [*(undone - again)]:
        call = lost[0].removeprefix(f"{run.id}/")
        where = f"fork {run.replaced_by} instead" if run.replaced_by else "fork it at that question"
        raise CallerError(
            f"Run {run.id} rests there on {one_line(call)}, which was taken back for another answer to an earlier "
            f"question; {where}."
        )


def _add_duplicates(run: Run, question_ids: Sequence[str]) -> list[str]:
    """Return the ids of questions, and of those that got the assumption of one of them."""
    found: dict[str, None] = {}
    for named in question_ids:
        question_id = resolve_id(named, [*run.asked])
        found[question_id] = None
        found |= dict.fromkeys(each.id for each in run.records.duplicates_of(question_id) if each.id in run.records)
    return [*found]


def _place(checkpoints: Sequence[Checkpoint], point: ForkPoint) -> int:
    """Return which of the checkpoints a point has: itself, since two without the states of their teams may be equal."""
    return next(number for number, each in enumerate(checkpoints) if each is point.checkpoint)


def _order(run: Run, checkpoints: Sequence[Checkpoint], point: ForkPoint) -> tuple[int, bool, int]:
    """Return what the points of a run are ordered by: their checkpoints, whether these bring the answers, and when they
    were answered."""
    places = [each.question_id for each in run.answers]
    place = places.index(point.question.id) if point.question.id in places else len(places)
    return _place(checkpoints, point), point.how == "found", place
