"""Completing an overruling that was cut off, on a page: its other answers are given once more, and checked before what
that does is shown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from starlette.datastructures import FormData

from upcall.app import Upcall
from upcall.errors import AnswerError, AnswerRefused, UnknownQuestion, UpcallError
from upcall.questions.answer import Answer
from upcall.questions.matching import AnswerValue, parse_answer
from upcall.questions.question import Question
from upcall.questions.record import QuestionRecord
from upcall.runs.run import Run
from upcall.server.many_answers import RefusedAnswer, read_answers
from upcall.server.service import Caller, Service


class ChangedAnswer(NamedTuple):
    """A question, the answer that it has, if any, and the text of another one."""

    question: Question
    known: Answer | None
    answer: str


class GivenAgain(NamedTuple):
    """What was given for an overruling once more: the answers as texts by question, those that do not hold, and what is
    wrong with the whole."""

    texts: Mapping[str, str]
    refused: Sequence[RefusedAnswer] = ()
    wrong: UpcallError | None = None


def list_replaced(run: Run) -> Sequence[QuestionRecord]:
    """List the questions whose other answers are about to lead to a branch in the place of a run."""
    return [run.records[each] for each in run.replacing if each in run.records]


async def is_cut_off(service: Service, run: Run) -> bool:
    """Return whether an overruling of a run was begun, and nobody works on it."""
    if not run.replacing:
        return False
    return await service.store.leases.find_worker(await service.store.load(run.id)) is None


async def read_again(app: Upcall, caller: Caller, run: Run, form: FormData) -> GivenAgain:
    """Read the answers to all questions that are being answered differently."""
    texts, refused = dict[str, str](), list[RefusedAnswer]()
    for filled in await read_answers(app, caller.user, form):
        record = run.records.get(filled.question_id)
        if record is None or record.id not in run.replacing or filled.run_id != run.id:
            continue
        try:
            parse_answer(record.question, filled.value)
        except AnswerError as error:
            refused.append(RefusedAnswer(filled, error))
        else:
            texts[record.id] = write_value(filled.value) or ""
    lacking = [each for each in run.replacing if each not in {*texts, *(each.filled.question_id for each in refused)}]
    if lacking:
        return GivenAgain(texts, refused, AnswerRefused(f"No answer was given to question {lacking[0]}; give one."))
    return GivenAgain(texts, refused, refused[0].error if refused else None)


def list_changed(run: Run, answers: Mapping[str, str]) -> Sequence[ChangedAnswer]:
    """List questions with the answers that they have, and those that they are to have.

    Raises:
        UnknownQuestion: the run did not ask one of them.
    """
    changed = []
    for name, text in answers.items():
        record = run.records.get(name)
        if record is None:
            raise UnknownQuestion(name, [each.id for each in run.questions])
        changed.append(ChangedAnswer(record.question, record.answer, text))
    return changed


def write_value(value: AnswerValue) -> str | None:
    """Write an answer as the text that means the same to its question; None if it is no answer but a refusal."""
    if isinstance(value, Answer):
        return None
    if isinstance(value, Mapping):
        return json.dumps(value, ensure_ascii=False)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
