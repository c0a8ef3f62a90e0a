"""Runs whose askers are programs outside: agents of other frameworks, shell scripts, jobs of CI.

No team of ours works on such a run, so nothing is resumed when a question is answered: whoever asked comes for the
answer. The run waits while a question of it is open. It is completed while none is, with the newest answer as its
result, and waits again when somebody asks again: nobody knows whether the askers are done. An operator who cancels it
ends it for good.
"""

from __future__ import annotations

from collections.abc import Sequence

from upcall.questions.answer import Answer
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.runs.run import Run
from upcall.runs.states import RunEvent, RunStatus


def close_questions(run: Run, answers: Sequence[Answer]) -> Run:
    """Return the run with answers to open questions of askers outside."""
    return settle(run, run.records.close(answers))


def settle(run: Run, records: QuestionRecords) -> Run:
    """Return the run with its questions as they are now, in the status that follows from them."""
    is_over, records = run.status is RunStatus.COMPLETED, records.enter_checkpoint([each.id for each in records.open])
    if records.open:
        event = RunEvent.ASKED_AGAIN if is_over else RunEvent.ASKED
        return run.apply(event, records=records, result=None, error=None)
    newest = records.answered[-1:]
    result = next((f"{question.question}\n{answer.as_text()}" for question, answer in newest), None)
    if is_over:
        return run.update(records=records, result=result)
    working = run.apply(RunEvent.EXECUTING)
    return working.apply(RunEvent.COMPLETED, records=records, result=result)


def find_repeated(records: QuestionRecords, question: Question) -> QuestionRecord | None:
    """Find the question that a call asked before: the same asker asked it in the same words, and has no answer yet."""
    wanted = _identify(question)
    return next((each for each in records if not each.collected and _identify(each.question) == wanted), None)


def collect(run: Run, question_id: str) -> Run:
    """Return the run with a note that the asker of a question has its answer."""
    records = (
        each.model_copy(update={"collected": True}) if each.id == question_id and each.is_closed else each
        for each in run.records
    )
    return run.model_copy(update={"records": QuestionRecords(tuple(records))})


def _identify(question: Question) -> tuple[object, ...]:
    options = tuple((each.label, each.description) for each in question.options)
    kind = (question.clarification_type, question.allow_free_text, question.multi_select, question.schema_text)
    return (question.path, question.question, options, *kind)
