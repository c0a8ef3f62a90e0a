"""What if the user had answered differently: each run is forked at its questions, to see which of them mattered.

A question whose other answers all lead to the same result was needless, however it seemed when it was asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from upcall.errors import AnswerRefused, CallerError, UnknownRun
from upcall.experiments.tasks import Task
from upcall.experiments.user import UNKNOWN
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import Question
from upcall.runs.run import Run
from upcall.runs.states import RunStatus

if TYPE_CHECKING:
    from upcall.app import Upcall
    from upcall.experiments.runner import Runner
    from upcall.experiments.trial import Trial

MAX_OTHERS = 3
"""Other answers to a question that are tried."""


@dataclass(frozen=True)
class Branch:
    """A run as it would have gone with another answer to one of its questions.

    Attributes:
        trial: the trial whose run was forked.
        run: the branch.
        fact: the fact that was asked for, or else the question itself.
        same_result: whether the result is the same.
        success: whether the run was right; None if nothing is expected.
        success_other: whether the branch is right.
    """

    trial: str
    run: str
    task: str
    policy: str
    fact: str
    question: str
    answer: str
    other: str
    same_result: bool
    success: bool | None
    success_other: bool | None


@dataclass(frozen=True)
class QuestionValue:
    """How much a question mattered, over all runs that asked it.

    Attributes:
        fact: what it asks for.
        asked: how many runs asked it.
        mattered: the share of them in which another answer leads to another result.
        value: by how much the share of right results falls with other answers; None if nothing is expected.
    """

    fact: str
    asked: int
    mattered: float
    value: float | None


def value_questions(branches: Sequence[Branch]) -> list[QuestionValue]:
    """Return how much each question mattered, the weightiest first."""
    by_fact: dict[str, list[Branch]] = {}
    for branch in branches:
        by_fact.setdefault(branch.fact, []).append(branch)
    return sorted((_value(fact, of) for fact, of in by_fact.items()), key=lambda each: (-each.mattered, each.fact))


def branches_json(branches: Sequence[Branch]) -> dict[str, Any]:
    """Return the branches, and the value of the questions, as plain JSON."""
    return {
        "questions": [asdict(each) for each in value_questions(branches)],
        "branches": [asdict(each) for each in branches],
    }


def branch_lines(branches: Sequence[Branch]) -> list[str]:
    """Return a line per question: how often it was asked, and how often another answer changes the result."""
    lines = ["", "What if the answer had been another one:"]
    for each in value_questions(branches):
        value = "" if each.value is None else f", worth {each.value:+.2f} of success"
        lines.append(f"  {each.fact}: asked in {each.asked} runs, mattered in {each.mattered:.0%}{value}")
    return lines if branches else [*lines, "  no run asked anything that could be answered otherwise"]


async def fork_questions(runner: Runner, app: Upcall, trial: Trial, run: Run, success: bool | None) -> list[Branch]:
    """Fork a run at each of its questions, with each of the other answers. Existing branches are not made again.

    What is no longer stored cannot be forked, and is left out.
    """
    branches = []
    for question, answer in run.clarification_history:
        for other in _list_others(trial.task, question, answer):
            # Derived from its content, so that the next start finds the branch.
            key = blake2b(f"{run.id}/{question.id}/{other}".encode(), digest_size=6).hexdigest()
            where = f"{question.question}={other}"
            branched = trial.model_copy(update={"id": key, "branch": where})
            try:
                forked = await _take(runner, app, branched, run, question, other)
            except (CallerError, AnswerRefused):
                continue
            if forked is None or forked.status is RunStatus.FAILED:  # It says nothing about the question.
                continue
            record = await runner.count(branched, forked)
            asked = trial.task.find_asked(question)
            branches.append(
                Branch(
                    trial=trial.id,
                    run=key,
                    task=trial.task.id,
                    policy=trial.policy,
                    fact=", ".join(asked) or question.question,
                    question=question.question,
                    answer=answer.text,
                    other=other,
                    same_result=forked.result == run.result,
                    success=success,
                    success_other=record.success,
                )
            )
    return branches


async def _take(runner: Runner, app: Upcall, branched: Trial, run: Run, question: Question, other: str) -> Run | None:
    """Take a branch to its end; None if the budget does not allow it."""
    try:
        forked = (await runner.store.load(branched.id)).run
    except UnknownRun:
        if not runner.tally.may_begin():
            return None
        with runner.recording.enter(branched):
            forked = await app.fork(run.id, question.id, other, new_id=branched.id)
    forked, is_done = await runner.finish(app, branched, forked)
    return forked if is_done else None


def _list_others(task: Task, question: Question, answer: Answer) -> Sequence[str]:
    """Return other answers that another user might have given."""
    if answer.by is not AnsweredBy.HUMAN or answer.outcome is not Outcome.ANSWERED or question.is_risk:
        return ()
    given = {answer.text.casefold(), *(each.casefold() for each in answer.selected)}
    others = dict.fromkeys(each for each in _list_candidates(task, question) if each.casefold() not in given)
    if not others and question.allow_free_text and UNKNOWN.casefold() not in given:
        return (UNKNOWN,)
    return [*others][:MAX_OTHERS]


def _list_candidates(task: Task, question: Question) -> Iterator[str]:
    for name in task.find_asked(question):
        yield from task.facts[name].others
    yield from (option.label for option in question.options)
    if question.default:
        yield question.default


def _value(fact: str, branches: Sequence[Branch]) -> QuestionValue:
    by_run: dict[tuple[str, str], list[Branch]] = {}
    for branch in branches:
        by_run.setdefault((branch.trial, branch.question), []).append(branch)
    mattered = sum(any(not each.same_result for each in of) for of in by_run.values())
    known = [each for each in branches if each.success is not None and each.success_other is not None]
    falls = [bool(each.success) - bool(each.success_other) for each in known]
    return QuestionValue(fact, len(by_run), mattered / len(by_run), sum(falls) / len(falls) if falls else None)
