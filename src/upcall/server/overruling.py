"""Overruling assumptions: what it costs is shown first. For MCP and AG-UI it is done only by the digest of that."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import NamedTuple

from pydantic import BaseModel, JsonValue

from upcall.app import Upcall
from upcall.errors import CallerError, OverrulesAssumption, UnknownQuestion
from upcall.execution.forks import ForkPlan
from upcall.questions.answer import Answer
from upcall.questions.choices import join_choices
from upcall.questions.matching import AnswerValue, list_parts
from upcall.questions.question import Question
from upcall.runs.run import Run
from upcall.server.bodies import RunBody
from upcall.server.many_answers import RefusedAnswer, find_run
from upcall.server.service import Caller, Service
from upcall.server.starting import begin_fork


class ChangedAnswer(NamedTuple):
    """A question, the answer that it has, if any, another one, and the parts in which a form sends that: of several
    choices with commas in them, one text would be read as others."""

    question: Question
    known: Answer | None
    answer: str
    parts: Sequence[str]


class OverruledRun(NamedTuple):
    """A run, and other answers than the assumed ones to its questions, which hold once what they cost was shown."""

    run: Run
    changes: Sequence[ChangedAnswer]


def list_changed(run: Run, answers: Mapping[str, AnswerValue]) -> Sequence[ChangedAnswer]:
    """List questions with the answers that they have, and those that they are to have.

    Raises:
        UnknownQuestion: the run did not ask one of them.
    """
    changed = []
    for name, value in answers.items():
        record = run.records.get(name)
        if record is None:
            raise UnknownQuestion(name, [each.id for each in run.questions])
        parts = [value.text] if isinstance(value, Answer) else list_parts(value)
        shown = join_choices(parts, (option.label for option in record.question.options))
        changed.append(ChangedAnswer(record.question, record.answer, shown, parts))
    return changed


async def list_overruled(app: Upcall, caller: Caller, refused: Sequence[RefusedAnswer]) -> Sequence[OverruledRun]:
    """List the caller's own runs of which assumptions were given other answers, each with all of these."""
    answers: dict[str, dict[str, AnswerValue]] = {}
    for each in refused:
        if isinstance(each.error, OverrulesAssumption):
            answers.setdefault(each.filled.run_id, {})[each.filled.question_id] = each.filled.value
    runs = [await find_run(app, caller.user, each) for each in answers]
    own = [each for each in runs if each is not None and app.access.owns(each, caller.user)]
    return [OverruledRun(each, list_changed(each, answers[each.id])) for each in own]


class Overruling(BaseModel):
    """What another answer than the assumed one does again, or the branch that does it.

    Attributes:
        text: what to do with it, in a sentence.
        plan: what is done again, taken back and kept.
        consent: a digest of the plan, by which the next call says that the user agreed to it.
        run: the branch that is in the place of the run, once it has begun.
    """

    text: str
    plan: dict[str, JsonValue]
    consent: str = ""
    run: RunBody | None = None


def sign_plan(answers: Mapping[str, AnswerValue], plan: ForkPlan) -> str:
    """Return a digest of a branch, by which somebody agrees to it: to the answers by their questions, what is taken
    back for them, and what stays. What is done again is none of it: that grows while the run works."""
    signed = json.dumps([plan.bill, plan.taken_back, answers], sort_keys=True, default=str)
    return sha256(signed.encode(errors="replace")).hexdigest()[:16]


async def overrule(
    service: Service, caller: Caller, run_id: str, question_id: str, answer: AnswerValue, consent: str
) -> str | Overruling:
    """Begin the branch in the place of a run, and return its id; without consent to the plan as it is now, return
    that.

    Raises:
        CallerError: nothing was assumed there, or effects cannot be taken back: only the user lets these stay.
        UpcallError: it cannot be answered so.
    """
    app = service.app_for(caller)
    run = await app.get(run_id, user=caller.user)
    record = run.records.get(question_id)
    if record is None or not record.is_provisional:
        raise CallerError(f"For question {question_id} nothing is assumed for now, so there is nothing to overrule.")
    plan = await app.forks.plan(run.id, question_id, replace=True, user=caller.user)
    if plan.effects:
        raise CallerError(
            f"This cannot be taken back, and no model lets it stay in the user's place: {'; '.join(plan.effects)}. "
            "They can, in the browser (upcall serve) or with upcall fork --replace."
        )
    shown, digest = plan.as_json(), sign_plan({question_id: answer}, plan)
    if consent == digest:
        return await begin_fork(service, caller, run.id, question_id, answer, None, replace=True)
    text = "Show the user this plan. If they agree to it, call again with this consent; nothing was done so far."
    return Overruling(text=text, plan=shown, consent=digest)
