"""Approval of a tool call: what an answer makes of it.

The call is not made before the answer. Only an option itself allows it; a JSON object is the arguments to make it with,
and whatever else is said is a no with its reason.
"""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import ClarificationType, Option
from upcall.questions.tool_call import PendingCall

ALLOW, ALLOW_TOOL, DENY = "Allow once", "Allow this tool in this run", "Do not allow"

NOT_DONE = "This was not allowed, and nothing was done."


def approval_fields(call: PendingCall) -> dict[str, Any]:
    """Return what the question for an approval says."""
    return {
        "question": call.as_question(),
        "context": call.as_context(),
        "clarification_type": ClarificationType.RISK_CONFIRMATION,
        "options": (
            Option(label=ALLOW, id="approval:once"),
            Option(label=ALLOW_TOOL, id="approval:run", description="From the same agent, whatever it is called with."),
            Option(label=DENY, id="approval:deny", description="Or say in your own words why not; the agent is told."),
        ),
        "approval": call,
    }


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
    if find_choice(answer) in (ALLOW, ALLOW_TOOL):
        return Allowed()
    if is_edit(answer.text) and answer.outcome is Outcome.ANSWERED and answer.by is AnsweredBy.HUMAN:
        return Allowed(json.dumps(call.edit(answer.text), ensure_ascii=False))
    return Denied(explain_refusal(answer, NOT_DONE, (DENY,)))


def is_edit(text: str) -> bool:
    """Tell whether an answer gives arguments."""
    return text.lstrip().startswith("{")


def find_choice(answer: Answer) -> str | None:
    """Return the one option that the human chose, with nothing else said; any text beside it is no plain yes."""
    plain = answer.outcome is Outcome.ANSWERED and answer.by is AnsweredBy.HUMAN and len(answer.selected) == 1
    return answer.selected[0] if plain and answer.text == answer.selected[0] else None


def explain_refusal(answer: Answer, refusal: str, labels: Collection[str]) -> str:
    """Tell a model that the human refused, and what they said besides the `labels` that say no."""
    if answer.outcome is not Outcome.ANSWERED:
        return f"{refusal} {answer.as_text()}"
    reason = answer.text if answer.by is AnsweredBy.HUMAN else ""
    for label in labels:
        reason = reason.removeprefix(label)
    reason = reason.strip(" ,.:;")
    end = "" if reason.endswith(("!", "?")) else "."
    said = f" They said: {reason}{end}" if reason else ""
    return (
        f"{refusal} The user decided so.{said} Do not do the same in another way; go on without it, or say in your "
        "report what stays open."
    )
