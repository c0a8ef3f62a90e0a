"""Answers to many questions of many runs at once: each holds or is refused by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from starlette.datastructures import FormData

from upcall.app import Upcall
from upcall.errors import StoreUnavailable, UpcallError
from upcall.questions.matching import AnswerValue
from upcall.questions.question_form import join_fields
from upcall.runs.run import Run
from upcall.server.service import Caller, Service
from upcall.server.typed_fields import is_changed, read_fields

RUNS_AT_ONCE = 8
"""Of how many runs questions are answered at the same time."""


@dataclass(frozen=True)
class Filled:
    """What was filled in for one question.

    Attributes:
        run_id: the run.
        question_id: the question.
        value: the answer that it makes.
        choices: what is ticked.
        own: what is written.
        given: what stands in the fields of an answer that has several, by their names.
        as_it_stands: whether the tick is set that sends these as they stand.
    """

    run_id: str
    question_id: str
    value: AnswerValue
    choices: Sequence[str] = ()
    own: str = ""
    given: Mapping[str, Any] = field(default_factory=dict)
    as_it_stands: bool = False

    @property
    def key(self) -> str:
        """The question among those of all runs."""
        return f"{self.run_id}/{self.question_id}"


@dataclass(frozen=True)
class RefusedAnswer:
    """An answer that does not hold, and why."""

    filled: Filled
    error: UpcallError


async def read_answers(app: Upcall, user: str | None, form: FormData) -> Sequence[Filled]:
    """Read a form with fields for each question, named by run and question. Those left empty are no answers, nor are
    those of several fields that were left as they stood, unless a tick says so."""
    typed = {*map(str, form.getlist("typed"))}
    runs = {each: await find_run(app, user, each) for each in sorted({key.partition("/")[0] for key in typed})}
    read = list[Filled]()
    for key in dict.fromkeys(map(str, form.getlist("question"))):
        run = runs.get(key.partition("/")[0])
        filled = _read_typed(run, form, key) if key in typed else _read_plain(form, key)
        read += [] if filled is None else [filled]
    return read


async def find_run(app: Upcall, user: str | None, run_id: str) -> Run | None:
    """Return a run as somebody sees it; None if they cannot, or it cannot be read."""
    try:
        return await app.get(run_id, user=user)
    except StoreUnavailable:
        raise
    except UpcallError:
        return None


def _read_plain(form: FormData, key: str) -> Filled | None:
    run_id, _, question_id = key.partition("/")
    choices = [str(each) for each in form.getlist(f"choice-{key}") if each]
    own = str(form.get(f"own-{key}", ""))
    filled = Filled(run_id, question_id, join_fields(choices, own), choices, own)
    return filled if choices or own.strip() else None


def _read_typed(run: Run | None, form: FormData, key: str) -> Filled | None:
    run_id, _, question_id = key.partition("/")
    as_it_stands = bool(form.get(f"as-it-stands-{key}"))
    question = None if run is None else run.asked.get(question_id)
    if question is None or (answer := question.answer_form) is None:  # Why it cannot be answered says who answers it.
        return Filled(run_id, question_id, {}, as_it_stands=True) if as_it_stands else None
    given = read_fields(form, answer, f"field-{key}-")
    if not (as_it_stands or is_changed(answer, given)):
        return None
    return Filled(run_id, question_id, answer.take(given), given=given, as_it_stands=as_it_stands)


async def answer_each(service: Service, caller: Caller, given: Sequence[Filled]) -> Sequence[RefusedAnswer]:
    """Answer questions, and let their runs continue; return the answers that were refused, in the order given."""
    by_run: Mapping[str, list[Filled]] = {each.run_id: [] for each in given}
    for each in given:
        by_run[each.run_id].append(each)
    turn = asyncio.Semaphore(RUNS_AT_ONCE)

    async def answer(answers: Sequence[Filled]) -> Sequence[RefusedAnswer]:
        async with turn:
            return await _answer_run(service, caller, answers)

    refused = await asyncio.gather(*map(answer, by_run.values()))
    return [each for some in refused for each in some]


async def _answer_run(service: Service, caller: Caller, answers: Sequence[Filled]) -> Sequence[RefusedAnswer]:
    """Answer questions of one run together, so that it continues once; if that is refused, one by one."""
    try:
        await service.answer(caller, answers[0].run_id, {each.question_id: each.value for each in answers})
    except UpcallError as error:
        if len(answers) == 1:
            return [RefusedAnswer(answers[0], error)]
    else:
        return []
    return [refused for each in answers for refused in await _answer_run(service, caller, [each])]
