"""Completing an overruling that was cut off, on a page: its other answers are given once more, and checked before what
that does is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from starlette.datastructures import FormData

from upcall.app import Upcall
from upcall.errors import AnswerError, AnswerRefused, UpcallError
from upcall.questions.matching import AnswerValue, parse_answer
from upcall.questions.record import QuestionRecord
from upcall.runs.run import Run
from upcall.server.many_answers import Filled, read_answers
from upcall.server.service import Caller, Service

SECRET_AMONG = (
    "A secret is among the answers, which no page shows. Whoever runs this service gives them at the command line."
)


@dataclass(frozen=True)
class GivenAgain:
    """What was given for an overruling once more, by question.

    Attributes:
        filled: all that was filled in.
        answers: those that hold.
        errors: why the others do not, and which are lacking.
    """

    filled: Mapping[str, Filled] = field(default_factory=dict)
    answers: Mapping[str, AnswerValue] = field(default_factory=dict)
    errors: Mapping[str, UpcallError] = field(default_factory=dict)

    @property
    def wrong(self) -> UpcallError | None:
        """The first of the errors, if any."""
        return next(iter(self.errors.values()), None)


def list_replaced(run: Run) -> Sequence[QuestionRecord]:
    """List the questions whose other answers are about to lead to a branch in the place of a run."""
    return [run.records[each] for each in run.replacing if each in run.records]


def has_secret(run: Run) -> bool:
    """Return whether a secret is among these answers."""
    return any(each.question.secret for each in list_replaced(run))


async def is_cut_off(service: Service, run: Run) -> bool:
    """Return whether an overruling of a run was begun, and nobody works on it."""
    if not run.replacing:
        return False
    return await service.store.leases.find_worker(await service.store.load(run.id)) is None


async def read_again(app: Upcall, caller: Caller, run: Run, form: FormData) -> GivenAgain:
    """Read the answers to all questions that are being answered differently."""
    read = await read_answers(app, caller.user, form)
    filled = {each.question_id: each for each in read if each.run_id == run.id}
    answers, errors = dict[str, AnswerValue](), dict[str, UpcallError]()
    for record in list_replaced(run):
        given = filled.get(record.id)
        if given is None:
            errors[record.id] = AnswerRefused(f"No answer was given to question {record.id}; give one.")
            continue
        try:
            parse_answer(record.question, given.value)
        except AnswerError as error:
            errors[record.id] = error
        else:
            answers[record.id] = given.value
    return GivenAgain(filled, answers, errors)
