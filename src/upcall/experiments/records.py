"""The figures of one trial, counted from its stored run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from pydantic import BaseModel

from upcall.experiments.budget import Cost
from upcall.experiments.checks import CheckResult
from upcall.experiments.tasks import Task
from upcall.experiments.trial import Cell, Trial
from upcall.experiments.user import find_leaks, mentions
from upcall.policy.deadlines import explain_expiry
from upcall.policy.same_question import question_key
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecord
from upcall.runs.run import Run, Usage, was_stopped
from upcall.ui.stop_reasons import explain_stop


class TrialRecord(BaseModel, frozen=True):
    """One trial in figures: a row of the results.

    Attributes:
        success: whether the result is right; None if nothing is expected.
        note: why, or the error of the run; of one that was cut off, that it was.
        cut_off: whether a limit ended the run before it was done, so that the result is unfinished.
        missing: how many details the task lacks.
        questions: how many the user was asked.
        hits: how many of the missing details were asked for.
        needless: questions that ask for no missing detail.
        repeated: questions asked before, or for a detail asked for before.
        assumptions: answers that nobody gave: defaults, facts, what another agent was given.
        wrong: assumptions that differ from what the user would have said.
        leaks: facts that the simulated user gave away unasked.
        turns: how often a model had its turn.
        seconds: how long the models took.
        waited: how long the user took, on a simulated clock, in seconds.
    """

    trial: str
    task: str
    split: str
    team: str
    policy: str
    model: str
    seed: int
    status: str
    success: bool | None
    note: str
    cut_off: bool
    missing: int
    questions: int
    hits: int
    needless: int
    repeated: int
    assumptions: int
    wrong: int
    leaks: int
    turns: int
    tokens: int
    money: float
    seconds: float
    waited: float

    @property
    def cell(self) -> Cell:
        """What it is a trial of."""
        return Cell(self.team, self.policy, self.model)


def count_trial(
    trial: Trial,
    run: Run,
    check: CheckResult | None,
    *,
    others: Usage,
    cost: Cost,
    seconds: float,
    takes: float,
) -> TrialRecord:
    """Count a trial.

    Args:
        trial: the trial.
        run: its run, however far it got.
        check: whether its result is right.
        others: the tokens of the models that play user and judge.
        cost: the cost of all of them.
        seconds: how long the models took.
        takes: how long the user takes for a round of questions.
    """
    asked = [record for record in run.records if _reached_user(record)]
    counts = _count_questions(trial.task, [record.question for record in asked])
    assumed = [pair for pair in run.clarification_history if _is_assumption(pair[1])]
    used = Usage.total([run.total_usage, others])
    answered = [record for record in asked if record.answer is not None and record.answer.by is AnsweredBy.HUMAN]
    return TrialRecord(
        trial=trial.id,
        task=trial.task.id,
        split=trial.task.split,
        team=trial.team,
        policy=trial.policy,
        model=trial.model,
        seed=trial.seed,
        status=run.status.value,
        success=check.is_right if check is not None else None,
        note="; ".join(filter(None, _list_notes(run, check))),
        cut_off=was_stopped(run),
        missing=len(trial.task.missing),
        **counts,
        assumptions=len(assumed),
        wrong=sum(_is_wrong(trial.task, *pair) for pair in assumed),
        leaks=sum(len(find_leaks(trial.task, each.question, each.answer)) for each in answered if each.answer),
        turns=used.model_calls,
        tokens=cost.tokens,
        money=cost.money,
        seconds=seconds,
        waited=takes * len(answered),
    )


def _list_notes(run: Run, check: CheckResult | None) -> Iterator[str]:
    yield explain_stop(run)
    yield run.error or (check.reason if check is not None else "")


def _reached_user(record: QuestionRecord) -> bool:
    """Whether the user was asked a real question, not one about a call that was cut off."""
    answer = record.answer
    if record.call_in_doubt is not None or record.duplicate_of is not None:
        return False
    if answer is None:
        return record.is_shown
    return answer.by is AnsweredBy.HUMAN or answer.reason == explain_expiry(record.question)


def _count_questions(task: Task, questions: Sequence[Question]) -> dict[str, int]:
    """Count what was asked for, in the order of the questions. Approvals do not count as questions about the task."""
    asked: set[str] = set()
    texts: set[object] = set()
    needless = repeated = 0
    questions = [question for question in questions if question.approval is None]
    for question in questions:
        names, key = set(task.find_asked(question)), question_key(question.question)
        again = key in texts or (bool(names) and names <= asked)
        repeated += again
        needless += not again and not names & set(task.missing)
        asked |= names
        texts.add(key)
    hits = len(asked & set(task.missing))
    return {"questions": len(questions), "hits": hits, "needless": needless, "repeated": repeated}


def _is_assumption(answer: Answer) -> bool:
    return answer.outcome is Outcome.ASSUMED or answer.by in (AnsweredBy.FACTS, AnsweredBy.PARENT)


def _is_wrong(task: Task, question: Question, answer: Answer) -> bool:
    wanted = [task.facts[name].answer for name in task.find_asked(question)]
    return bool(wanted) and not any(mentions(answer.text, each) for each in wanted)
