"""Answers to many questions of many runs at once: each holds or is refused by itself."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from starlette.datastructures import FormData

from upcall.errors import UpcallError
from upcall.questions.matching import AnswerValue
from upcall.questions.question_form import join_fields
from upcall.server.service import Caller, Service

RUNS_AT_ONCE = 8
"""Of how many runs questions are answered at the same time."""


@dataclass(frozen=True)
class Filled:
    """What was filled in for one question: what is ticked, and what is written."""

    run_id: str
    question_id: str
    choices: Sequence[str]
    own: str

    @property
    def key(self) -> str:
        """The question among those of all runs."""
        return f"{self.run_id}/{self.question_id}"

    @property
    def value(self) -> AnswerValue:
        """It as an answer."""
        return join_fields(self.choices, self.own)


@dataclass(frozen=True)
class RefusedAnswer:
    """An answer that does not hold, and why."""

    filled: Filled
    error: UpcallError


def read_answers(form: FormData) -> Sequence[Filled]:
    """Read a form with fields for each question, named by run and question; those left empty are no answers."""
    fields = dict[str, list[str]]()
    for name, value in form.multi_items():
        fields.setdefault(name, []).append(str(value))
    read = []
    for key in dict.fromkeys(fields.get("question", ())):
        run_id, _, question_id = key.partition("/")
        choices = [each for each in fields.get(f"choice-{key}", ()) if each]
        filled = Filled(run_id, question_id, choices, fields.get(f"own-{key}", [""])[0])
        read += [filled] if choices or filled.own.strip() else []
    return read


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
