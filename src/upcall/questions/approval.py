"""Approval of a tool call: what an answer makes of it.

The call is not made before the answer. Only an option itself, or a word that means it, allows it; a JSON object is the
arguments to make it with, and whatever else is answered is a no with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import ClarificationType, Option, Side
from upcall.questions.reply_intents import read_lead
from upcall.questions.tool_call import PendingCall
from upcall.text import show_name

_ONCE, FOR_RUN, _DENY = "approval:once", "approval:run", "approval:deny"

OR_WHY = "Or say why not, in your own words; the agent reads it."

NOTHING_DONE = "Nothing was done."

ANSWER_NO, NOT_YES = "The user said no.", "The user did not say yes."
"""Begin what a model reads of a refusal, by an option and by anything else."""


def approval_fields(call: PendingCall) -> dict[str, Any]:
    """Return what the question for an approval says."""
    return {
        "question": call.as_question(),
        "context": call.as_context(),
        "clarification_type": ClarificationType.RISK_CONFIRMATION,
        "options": list_decisions(call),
        "approval": call,
    }


def list_decisions(call: PendingCall) -> tuple[Option, ...]:
    """List the options of an approval: once, for the whole run, not at all."""
    for_run = f"Yes, and don't ask again for {show_name(call.tool)} in this run"
    return (
        Option(label="Yes, call it", id=_ONCE, side=Side.YES),
        Option(label=for_run, id=FOR_RUN, description="From the same agent, whatever it is called with."),
        Option(label="No, do not call it", id=_DENY, description=OR_WHY, side=Side.NO),
    )


def find_side(options: Sequence[Option], side: Side) -> Option:
    """Return the option that says yes, or no, to a question of ours."""
    return next(each for each in options if each.side is side)


@dataclass(frozen=True)
class Allowed:
    """The call is to be made; with other `arguments`, as JSON, where the human changed them."""

    arguments: str | None = None


@dataclass(frozen=True)
class Denied:
    """The call is not to be made; `text` says so to the model, with the human's reason."""

    text: str


Decision: TypeAlias = Allowed | Denied


def read_decision(call: PendingCall, answer: Answer) -> Decision:
    """Read what an answer makes of a call."""
    options = list_decisions(call)
    if (chosen := find_choice(answer, options)) is not None and chosen.side is not Side.NO:
        return Allowed()
    if is_edit(answer.text) and answer.outcome is Outcome.ANSWERED and answer.by is AnsweredBy.HUMAN:
        return Allowed(json.dumps(call.edit(answer.text), ensure_ascii=False))
    return Denied(explain_refusal(answer, NOTHING_DONE, options))


def is_edit(text: str) -> bool:
    """Return whether an answer gives arguments."""
    return text.lstrip().startswith("{")


def find_choice(answer: Answer, options: Sequence[Option]) -> Option | None:
    """Return the one option that the human chose, with nothing else said; any text beside it is no plain yes."""
    plain = answer.outcome is Outcome.ANSWERED and answer.by is AnsweredBy.HUMAN and len(answer.selected) == 1
    if not plain or answer.text != answer.selected[0]:
        return None
    return next((each for each in options if each.label == answer.text), None)


def explain_refusal(answer: Answer, outcome: str, options: Sequence[Option]) -> str:
    """Tell a model that the human did not agree, what stays as it was, and what they said besides."""
    if answer.outcome is not Outcome.ANSWERED:
        return f"{NOT_YES} {outcome} {answer.as_text()}"
    no, by_human = find_side(options, Side.NO).label, answer.by is AnsweredBy.HUMAN
    reason = (answer.text.removeprefix(no) if by_human else "").strip(" ,.:;")
    is_no = answer.selected == (no,) or (by_human and read_lead(answer.text) is Side.NO)
    end = "" if reason.endswith(("!", "?")) else "."
    remark = f" They said: {reason}{end}" if reason else ""
    return (
        f"{ANSWER_NO if is_no else NOT_YES} {outcome}{remark} Do not do the same in another way, unless "
        "they declined; go on without it, or say in your report what stays open."
    )


def is_refusal(text: str) -> bool:
    """Return whether the result of a call says that the human did not agree to it."""
    return text.startswith((ANSWER_NO, NOT_YES))
