"""Overruling an assumption for MCP and AG-UI: what it costs is shown first, and done only by the digest of that."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256

from pydantic import BaseModel, JsonValue

from upcall.errors import CallerError
from upcall.execution.forks import ForkPlan
from upcall.questions.matching import AnswerValue
from upcall.server.bodies import RunBody
from upcall.server.service import Caller, Service
from upcall.server.starting import begin_fork


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
