"""The edits of single steps that a user writes when a plan is reviewed ("edit step 2: ...")."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import count
from typing import TYPE_CHECKING

from pydantic import ValidationError

from upcall.lazy_pattern import LazyPattern
from upcall.runs.plan import Plan, PlanStatus, PlanStep, describe_problem
from upcall.text import one_line

if TYPE_CHECKING:
    from upcall.questions.question import Question
    from upcall.runs.run import Run

_ID = r"[\w.-]*\w"
_TEXT = r"(?:\[(?P<name>[\w-]+)\] *)?(?P<text>(?!\[[\w-]+\]$)\S.*)"
_EDIT_STEP = LazyPattern(rf"edit step (?P<id>{_ID}): *(?:\[(?P<only_name>[\w-]+)\]|{_TEXT})", re.IGNORECASE)
_ADD_STEP = LazyPattern(rf"add (?:a )?step(?: after (?P<id>{_ID}))?: *{_TEXT}", re.IGNORECASE)
_REMOVE_STEPS = LazyPattern(rf"remove steps? (?P<ids>{_ID}(?:(?:, *| and |, and ){_ID})*)\.?", re.IGNORECASE)

EDITS_HINT = 'Single steps: "edit step 2: ...", "add step after 2: ...", "remove step 2", one a line.'
"""How single steps are edited, as the user reads it."""

FIELDS_HINT = "A step whose field is empty is removed. With changes you see the plan again before anybody works on it."
"""The same where each step has a field."""


class EditRefused(ValueError):
    """An edit of single steps cannot be made. The text says why; the plan is as it was."""


def apply_edits(plan: Plan, reply: str) -> Plan | None:
    """Return the plan after the edits of single steps in `reply`, one a line; None where `reply` is not made of edits
    alone.

    What an edit does not touch stays as it is. Who depended on a removed step depends on what that step depended on. A
    word in the place of an id is none ("remove step headings"), unless a step has it.

    Raises:
        EditRefused: there is no such step, or what is left cannot be carried out.
    """
    lines = [line.strip() for line in reply.splitlines() if line.strip()]
    matched = [
        _EDIT_STEP.fullmatch(line) or _ADD_STEP.fullmatch(line) or _REMOVE_STEPS.fullmatch(line) for line in lines
    ]
    edits = [(match, _ids(match)) for match in matched if match is not None]
    known = {step.step_id for step in plan.steps}
    named = [step_id for _, ids in edits for step_id in ids]
    if not edits or len(edits) < len(lines) or any(_is_word(step_id) for step_id in named if step_id not in known):
        return None
    steps = list(plan.steps)
    try:
        for match, ids in edits:
            if match.re.pattern == _EDIT_STEP.pattern:
                _edit(steps, match)
            elif match.re.pattern == _ADD_STEP.pattern:
                _add(steps, match)
            else:
                for step_id in ids:
                    _remove(steps, step_id)
        return Plan(title=plan.title, sections=plan.sections, steps=tuple(steps))
    except ValidationError as error:
        raise EditRefused(describe_problem(error)) from error


def can_edit(step: PlanStep) -> bool:
    """Return whether an edit can name a step: a model may have made up any id."""
    return re.fullmatch(_ID, step.step_id) is not None


def write_edits(plan: Plan, descriptions: Mapping[str, str], added: str = "") -> str:
    """Write the edits, one a line, after which each step of a plan has the description given for its id, and `added` is
    a step at the end. A step with an empty description is removed. Empty if nothing changes."""
    lines, removed = [], []
    for step in filter(can_edit, plan.steps):
        text = one_line(descriptions.get(step.step_id, step.description))
        if not text:
            removed.append(f"remove step {step.step_id}")
        elif text != one_line(step.description):
            lines.append(f"edit step {step.step_id}: {text}")
    return "\n".join([*lines, *removed, *([f"add step: {one_line(added)}"] if added.strip() else [])])


def write_review(plan: Plan, descriptions: Mapping[str, str], added: str, own: str) -> str:
    """Write what a form of a plan changes: the edits of `write_edits`, then `own` words. Empty if nothing."""
    return "\n".join(filter(None, [write_edits(plan, descriptions, added), own.strip()]))


def ask_for_review(plan: Plan) -> str:
    """Return the question above a form in which a plan is reviewed."""
    return f"Do you approve this plan: {plan.title}?"


def shows_plan(question: Question) -> bool:
    """Return whether a question shows a plan for review, of which single steps can be edited."""
    return question.is_risk and EDITS_HINT in question.question


def find_review(run: Run) -> str | None:
    """Return the id of the open question that shows the present plan of a run for review; None if there is none."""
    plan = run.plan
    if plan is None or plan.status is not PlanStatus.PROPOSED:
        return None
    return next((each.id for each in run.questions if each.is_risk and plan.as_text() in each.question), None)


def _ids(match: re.Match[str]) -> list[str]:
    if match.re.pattern == _REMOVE_STEPS.pattern:
        return re.split(r",? and |, *", match["ids"], flags=re.IGNORECASE)
    return [match["id"]] if match["id"] else []


def _is_word(step_id: str) -> bool:
    return not any(sign.isdigit() for sign in step_id)


def _place(steps: Sequence[PlanStep], step_id: str) -> int:
    for place, step in enumerate(steps):
        if step.step_id == step_id:
            return place
    raise EditRefused(f"there is no step {step_id!r}; steps: {', '.join(step.step_id for step in steps) or 'none'}")


def _by(name: str | None) -> dict[str, str]:
    return {"type": "handler", "name": name} if name else {}


def _edit(steps: list[PlanStep], match: re.Match[str]) -> None:
    place = _place(steps, match["id"])
    fields = {"description": match["text"]} if match["text"] else {}
    by = _by(match["only_name"] or match["name"])
    steps[place] = PlanStep.model_validate({**steps[place].model_dump(), **fields, **by})


def _add(steps: list[PlanStep], match: re.Match[str]) -> None:
    place = _place(steps, match["id"]) + 1 if match["id"] else len(steps)
    taken = {step.step_id for step in steps}
    step_id = next(str(number) for number in count(len(steps) + 1) if str(number) not in taken)
    fields = {"step_id": step_id, "description": match["text"], "depends_on": [match["id"]] if match["id"] else []}
    steps.insert(place, PlanStep.model_validate({**fields, **_by(match["name"])}))


def _remove(steps: list[PlanStep], step_id: str) -> None:
    removed = steps.pop(_place(steps, step_id))
    for place, step in enumerate(steps):
        if step_id in step.depends_on:
            instead = [
                needed for each in step.depends_on for needed in (removed.depends_on if each == step_id else [each])
            ]
            steps[place] = step.model_copy(update={"depends_on": tuple(dict.fromkeys(instead))})
