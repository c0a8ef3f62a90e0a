"""Trials: what would have come of another answer, without any effect, and so whether its question was worth asking.

A trial is a fork (`upcall.execution.forks`) whose config says so. What does not depend on the answer is found in the
journal of its run, so only models that saw the answer are called. A tool is called anew only if it is `effect_free`;
any other call gets the outcome that the same call had in the run, and ends the trial if there was none. Until that
first other call both have done the same, so the outcome is that of the same world.

The result is another one if the text is, whatever the space in it, or if the trial makes another call of a tool that is
not declared free of effects, or leaves one out. A model may say something else by chance: before the verdict is that
the result changes, the same answer is tried with new replies, and has to come to the same.

Nobody consents in a trial: it repeats the human's answers to questions that its run asked too, and gives no other. What
agents do in code of their own, outside of tools, could not be held back: no answer is tried with them.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import blake2b
from itertools import chain
from typing import NamedTuple

from upcall.autogen.tried_calls import REFUSED
from upcall.errors import AnswerError, CallerError, NotAllowed, UnknownRun
from upcall.execution.access import RunAccess
from upcall.execution.earlier_work import list_calls_left
from upcall.execution.forks import ForkPlaces, plan_fork, show_call
from upcall.policy.duplicates import repeat_answer
from upcall.policy.same_question import is_same_question
from upcall.questions.answer import Answer, AnsweredBy
from upcall.questions.question import Question
from upcall.runs.budget import is_about_budget
from upcall.runs.config import TrialKind
from upcall.runs.events import QuestionTried
from upcall.runs.journal_records import ReplyRecord, ToolRecord
from upcall.runs.run import Run
from upcall.runs.states import RunStatus
from upcall.runs.worth import (
    QuestionWorth,
    RunWorth,
    TrialCost,
    TrialVerdict,
    is_by_human,
    is_same_text,
    list_others,
    why_unrepeated,
    why_untried,
)
from upcall.storage.asked_topics import read_trials, record_trial
from upcall.storage.store import RunStore

MAX_PAUSES = 50
"""A trial that has paused more often is given up: its team asks the same again and again."""


@dataclass(frozen=True)
class Door:
    """What takes a trial further: `upcall.Upcall`, as far as a trial needs it.

    Args:
        fork: begins a trial of another answer.
        answer: answers its questions.
        resume: resumes it where it was cut off.
        cancel: ends it.
    """

    fork: Callable[..., Awaitable[Run]]
    answer: Callable[..., Awaitable[Run]]
    resume: Callable[..., Awaitable[Run]]
    cancel: Callable[..., Awaitable[Run]]


class _Judgement(NamedTuple):
    verdict: TrialVerdict
    reason: str


class KnownWorth(NamedTuple):
    """A question that the human answered, and what came of trying other answers to it, the last time."""

    question: Question
    answer: Answer
    tried: QuestionTried


async def list_known_worth(access: RunAccess, run_id: str) -> Sequence[KnownWorth]:
    """List what is known of the worth of a run's questions, oldest first.

    Raises:
        UnknownRun, NotAllowed: it is not there, or somebody else's.
    """
    run = await access.find_whole(run_id, "show")
    tried = await access.store.database.read(partial(read_trials, run_id=run.id))
    return [KnownWorth(*pair, tried[pair[0].id][-1]) for pair in run.clarification_history if pair[0].id in tried]


async def read_worth(access: RunAccess, run_id: str) -> RunWorth:
    """Return what is known of the worth of a run's questions, and what trying other answers may cost.

    Raises:
        UnknownRun, NotAllowed: it is not there, or somebody else's.
        CallerError: it is not completed, or is no run of a team of its own.
    """
    run = (await access.load_owned(run_id, "fork")).run
    if run.status is not RunStatus.COMPLETED:
        raise CallerError(f"Run {run.id} is {run.status}: other answers can be tried once it has a result.")
    if run.config.is_external or run.config.trial:
        what = "has questions of other programs" if run.config.is_external else "is itself a trial of another answer"
        raise CallerError(f"Run {run.id} {what}; no other answer can be tried in it.")
    tried = await access.store.database.read(partial(read_trials, run_id=run.id))
    places = ForkPlaces(access, bare=True)
    asked = [pair for pair in run.clarification_history if is_by_human(pair[1])]
    return RunWorth(run.id, tuple([await _read_question(places, run, *pair, tried) for pair in asked]))


async def _read_question(
    places: ForkPlaces, run: Run, question: Question, answer: Answer, tried: Mapping[str, Sequence[QuestionTried]]
) -> QuestionWorth:
    others, why, cost = list_others(question, answer), why_untried(question), TrialCost()
    if not others:
        why = why or "no other answer is known"
    elif (known := tried.get(question.id)) and known[-1].verdict is not TrialVerdict.UNKNOWN:
        pass  # What it cost is no longer of interest, nor whether it can be forked.
    else:
        try:
            cost = await _find_cost(places, run, question, len(others) + 1)
        except (CallerError, NotAllowed) as error:
            others, why = (), str(error)
    found = QuestionWorth(question, answer, others, reason=why, cost=cost)
    return found if question.id not in tried else _merge(found, tried[question.id][-1])


async def _find_cost(places: ForkPlaces, run: Run, question: Question, times: int) -> TrialCost:
    await _refuse_shared(places.access.store, run, question)
    of, point = await places.locate(run.id, question.id)
    await places.access.require_answerable(of.run, question)
    if point.dependent is None:
        raise CallerError("not all of the run's work was kept (the setting store.journals)")
    plan = plan_fork(of.run, point)
    held = [each for each in point.dependent.tools.values() if each.outcome is not None and not each.effect_free]
    return TrialCost(
        model_calls=times * sum(plan.model_calls_again.values()),
        tokens=times * plan.tokens_again,
        held_back=tuple(map(show_call, held)),
    )


async def _refuse_shared(store: RunStore, run: Run, question: Question) -> None:
    """Refuse a question that a fork has from the run above it: what depends on it was done in both, and it would count
    in both.

    Raises:
        CallerError: it is one, or the run above is gone, so that nobody knows.
    """
    asked_in = run
    while asked_in.forked_from is not None:
        try:
            above = (await store.load_head(asked_in.forked_from)).run
        except UnknownRun:
            raise CallerError(f"run {asked_in.forked_from}, which this was forked from, is gone") from None
        if question.id not in above.asked:
            break
        asked_in = above
    if asked_in is not run:
        raise CallerError(f"it was asked in run {asked_in.id}, which this was forked from: try it there")


def _merge(worth: QuestionWorth, tried: QuestionTried) -> QuestionWorth:
    return replace(
        worth,
        verdict=tried.verdict,
        reason=tried.reason,
        trials=tried.trials,
        model_calls=tried.model_calls,
        counted=tried.counted,
        cost=worth.cost if tried.verdict is TrialVerdict.UNKNOWN else TrialCost(),
    )


@dataclass(frozen=True)
class Trials:
    """Tries the other answers to the questions of a run.

    Args:
        access: a user's rights at the store.
        door: takes the trials further.
        counts: whether what was not worth asking counts as dismissed (the setting ``ask_credit``).
    """

    access: RunAccess
    door: Door
    counts: bool

    async def measure(self, worth: RunWorth, on_verdict: Callable[[QuestionWorth], None]) -> RunWorth:
        """Try what was not tried yet, question by question. Each verdict is stored at once: whoever is interrupted
        continues from there, and a trial that was cut off from its journal."""
        run = (await self.access.load_owned(worth.run_id, "fork")).run
        tried = await self.access.store.database.read(partial(read_trials, run_id=run.id))
        done = []
        for each in worth.questions:
            if each.is_to_try:
                for earlier in tried.get(each.question.id, ()):  # Whoever tried was cut off before the end of these.
                    await self._clear(earlier.trials)
                each = await self._try_all(run, each, attempt=len(tried.get(each.question.id, ())))
            elif each.verdict is TrialVerdict.SAME and not each.counted and self.counts:
                each = _merge(each, await record_trial(self.access.store.database, run, _event(each), counts=True))
            await self._clear(each.trials)
            on_verdict(each)
            done.append(each)
        return replace(worth, questions=tuple(done))

    async def _try_all(self, run: Run, worth: QuestionWorth, attempt: int) -> QuestionWorth:
        """Try one answer after another until one changes the result; then the same answer again, with replies that are
        asked for anew: what differs there too is no matter of the answer."""
        trials = list[str]()
        try:
            verdict, reason = await self._judge(run, worth, attempt, trials)
        except Exception:
            await self._clear(trials)
            raise
        calls = sum([await _count_own_replies(self.access.store, each) for each in trials])
        new = replace(worth, verdict=verdict, reason=reason, trials=tuple(trials), model_calls=calls)
        database = self.access.store.database
        return _merge(new, await record_trial(database, run, _event(new, self.access.user), counts=self.counts))

    async def _judge(self, run: Run, worth: QuestionWorth, attempt: int, trials: list[str]) -> _Judgement:
        """Try the answers, and add the names of the trials to `trials` before they begin."""
        found, question = list[_Judgement](), worth.question
        for other in worth.others:
            trials.append(_name_trial(run, question, other, attempt))
            found.append(await self._try(run, question, other, trials[-1], "other"))
            if found[-1].verdict is TrialVerdict.CHANGED:
                break
        order = [TrialVerdict.CHANGED, TrialVerdict.UNKNOWN, TrialVerdict.SAME]
        judged = min(found, key=lambda each: order.index(each.verdict))
        if judged.verdict is TrialVerdict.CHANGED:
            trials.append(_name_trial(run, question, None, attempt))
            again = await self._try(run, question, worth.answer, trials[-1], "same")
            if again.verdict is not TrialVerdict.SAME:
                return _Judgement(TrialVerdict.UNKNOWN, f"with the same answer again, {again.reason}")
        return judged

    async def _try(
        self, run: Run, question: Question, answer: str | Answer, trial_id: str, kind: TrialKind
    ) -> _Judgement:
        store, user, rights = self.access.store, self.access.user, self.access.rights
        if not await self._is_begun(trial_id):
            try:
                await self.door.fork(run.id, question.id, answer, kind, user=user, new_id=trial_id)
            except CallerError as error:
                if not await self._is_begun(trial_id):  # Else another process has begun it meanwhile.
                    return _Judgement(TrialVerdict.UNKNOWN, str(error))
            except AnswerError as error:  # Its text may have the answer's words.
                return _Judgement(TrialVerdict.UNKNOWN, f"it does not take this answer: {type(error).__name__}")
        for _ in range(MAX_PAUSES):
            stored = await store.load(trial_id)
            trial = stored.run
            if (refused := _find_refused(stored.records)) is not None:
                return refused
            if _has_other_answer(run, trial, question):
                return _Judgement(TrialVerdict.UNKNOWN, "somebody answered it otherwise than its run")
            if trial.status is RunStatus.COMPLETED:
                return await self._compare(run, trial)
            if trial.status is RunStatus.FAILED or trial.is_final:
                return _Judgement(TrialVerdict.UNKNOWN, f"the trial is {trial.status} (see `upcall show {trial.id}`)")
            if not trial.waiting:
                await self.door.resume(trial_id, user=user)
            elif trial.budget is not None and any(map(is_about_budget, trial.questions)):
                calls = trial.budget.list_reached().get("calls")
                more = "the budget of its run" if calls is None else f"{calls:.0f} model calls"
                return _Judgement(TrialVerdict.UNKNOWN, f"it takes more than {more}")
            elif theirs := [each for each in trial.questions if not rights.may_answer(trial, each)]:
                return _Judgement(TrialVerdict.UNKNOWN, f"it asks what is {theirs[0].assignee}'s to answer")
            elif again := _repeat_answers(run, trial):
                await self.door.answer(trial_id, again, user=user)
            else:
                return _Judgement(TrialVerdict.UNKNOWN, "it asks something else, which nobody has answered")
        return _Judgement(TrialVerdict.UNKNOWN, "it asks again and again")

    async def _is_begun(self, trial_id: str) -> bool:
        try:
            await self.access.store.load_head(trial_id)
        except UnknownRun:
            return False
        return True

    async def _compare(self, run: Run, trial: Run) -> _Judgement:
        if left := [each for each in await list_calls_left(self.access.store, trial) if not each.effect_free]:
            return _Judgement(TrialVerdict.CHANGED, f"{left[0].path[-1]} makes fewer calls of {left[0].tool}")
        if not is_same_text(run.result, trial.result):
            return _Judgement(TrialVerdict.CHANGED, "the result is another text")
        return _Judgement(TrialVerdict.SAME, "the result is the same")

    async def _clear(self, trials: Sequence[str]) -> None:
        """End the trials that were not brought to their end and that nobody works on: their verdict is stored, or there
        will be none."""
        leases = self.access.store.leases
        for each in trials:
            try:
                stored = await self.access.store.load(each)
            except UnknownRun:
                continue
            if stored.run.is_final or (stored.run.working and await leases.find_worker(stored) is not None):
                continue
            await self.door.cancel(each, user=self.access.user)


def _name_trial(run: Run, question: Question, other: str | None, attempt: int) -> str:
    """Derive the id of a trial from its content, so that the next process finds it."""
    name = json.dumps([run.id, question.id, other, attempt])
    return blake2b(name.encode(errors="replace"), digest_size=6).hexdigest()


def _event(worth: QuestionWorth, user: str | None = None) -> QuestionTried:
    assert worth.verdict is not None
    return QuestionTried(
        user=user,
        question=worth.question.id,
        verdict=worth.verdict,
        reason=worth.reason,
        trials=worth.trials,
        model_calls=worth.model_calls,
    )


def _find_refused(records: Mapping[str, str]) -> _Judgement | None:
    """Return what the call says that a trial has not made, if there is one."""
    for key, text in records.items():
        if key.startswith(f"{REFUSED}:"):
            call = ToolRecord.model_validate_json(text)
            if call.outcome is None:
                return _Judgement(TrialVerdict.CHANGED, f"{call.path[-1]} makes another call of {call.tool}")
            return _Judgement(
                TrialVerdict.UNKNOWN, f"{call.tool} got another answer, and is not declared free of effects"
            )
    return None


def _repeat_answers(run: Run, trial: Run) -> dict[str, Answer]:
    """Return the human's answers to the open questions of a trial that its run asked too, the same agent the same. What
    it asks for the second time gets the second answer."""
    found: dict[str, Answer] = {}
    before = [question for question, _ in trial.clarification_history]
    for question in trial.questions:
        known = [pair for pair in run.clarification_history if _asks_same(pair[0], question)]
        number = sum(_asks_same(each, question) for each in before)
        before.append(question)
        if number < len(known) and is_by_human(known[number][1]) and not why_unrepeated(question):
            again = repeat_answer(*known[number], question)
            found |= {} if again is None else {question.id: again}
    return found


def _has_other_answer(run: Run, trial: Run, tried: Question) -> bool:
    """Return whether a human answered a question of a trial otherwise than the same one of its run."""
    theirs = [pair for pair in trial.clarification_history if pair[1].by is AnsweredBy.HUMAN]
    return any(
        why_unrepeated(question)
        or not any(
            _asks_same(asked, question) and known.is_equivalent(answer) for asked, known in run.clarification_history
        )
        for question, answer in theirs
        if question.id != tried.id and answer not in run.answers
    )


def _asks_same(asked: Question, question: Question) -> bool:
    is_same = asked.question == question.question or is_same_question(asked, question)
    return asked.path == question.path and is_same and not why_unrepeated(asked)


async def _count_own_replies(store: RunStore, trial_id: str) -> int:
    """Count the model calls that a trial made itself."""
    try:
        stored = await store.load(trial_id)
    except UnknownRun:
        return 0
    journals = [each.journal for each in await store.bare_checkpoints(trial_id)]
    texts = chain.from_iterable(each.items() for each in [*journals, stored.records])
    own = {key for key, text in texts if key.startswith("model:") and ReplyRecord.model_validate_json(text).own}
    return len(own)
