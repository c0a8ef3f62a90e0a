"""Plans: what the planner writes, what is checked before anybody acts on it, and what the user made of it."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from enum import StrEnum
from itertools import chain, count, zip_longest
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, Field, ValidationError, ValidationInfo, field_validator, model_validator

from upcall.formats import StoredValue
from upcall.lazy_pattern import LazyPattern
from upcall.questions.question import VisibleText
from upcall.runs.outputs import StructuredReply
from upcall.runs.shown_text import SHOWN
from upcall.text import one_line

MAX_STEPS = 50
"""A plan of more steps than this is refused: nobody can review it."""

_REFERENCE = LazyPattern(r"\$\{([^{}]*)\}")


class PlanStep(StructuredReply):
    """One step of a plan: what is done, by which agent (``handler``) or with which tool, from what, after what (S3-42).

    An input may be ``${step_id}`` or ``${step_id.output}``: the result of an earlier step, or one of its outputs.
    """

    step_id: Annotated[str, Field(min_length=1)]
    description: Annotated[VisibleText, SHOWN, Field(min_length=1)]
    type: Literal["handler", "tool"] = Field(default="handler", description="Whether name is an agent or a tool.")
    name: Annotated[str, Field(min_length=1)] = Field(default="lead", description="The agent or the tool.")
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = Field(default=(), description="The step_ids that must be done before this step.")

    @model_validator(mode="before")
    @classmethod
    def _who_does_it(cls, value: Any) -> Any:
        """Read ``"agent": "coder"`` and ``"tool": "search"`` too, as models like to write it."""
        if not isinstance(value, dict) or value.get("name") is not None:
            return value
        for key, kind in (("agent", "handler"), ("handler", "handler"), ("tool", "tool")):
            if isinstance(value.get(key), str):
                return {**value, "type": kind, "name": value[key]}
        return value

    @field_validator("type", mode="before")
    @classmethod
    def _known_type(cls, value: object) -> object:
        word = value.strip().lower() if isinstance(value, str) else value
        return "handler" if word == "agent" else word

    @field_validator("inputs", "outputs", "depends_on", mode="before")
    @classmethod
    def _as_list(cls, value: object, info: ValidationInfo) -> object:
        if isinstance(value, Mapping):  # Outputs are referred to by their names.
            return list(value) if info.field_name == "outputs" else [f"{name}: {each}" for name, each in value.items()]
        return [value] if isinstance(value, str) else value

    def as_line(self) -> str:
        """Return the step in one line: ``2. [coder] Write the tests (after 1); uses ...; makes ...``."""
        after = f" (after {', '.join(self.depends_on)})" if self.depends_on else ""
        uses = f"; uses {', '.join(self.inputs)}" if self.inputs else ""
        makes = f"; makes {', '.join(self.outputs)}" if self.outputs else ""
        return one_line(f"{self.step_id}. [{self.name}] {self.description}{after}{uses}{makes}")

    def references(self) -> list[str]:
        """Return what stands between ``${`` and ``}`` in the inputs."""
        return [found.strip() for each in self.inputs for found in _REFERENCE.findall(each)]


class PlanOutline(StructuredReply):
    """The title and the sections of a plan: what the result consists of."""

    title: Annotated[VisibleText, SHOWN, Field(min_length=1)]
    sections: Annotated[tuple[VisibleText, ...], SHOWN, Field(min_length=1, max_length=MAX_STEPS)]

    @field_validator("sections", mode="before")
    @classmethod
    def _named_sections(cls, value: object) -> object:
        """Read sections given as objects with a title, and leave out empty ones."""
        if not isinstance(value, list | tuple):
            return value
        named = [each.get("title") or each.get("name") if isinstance(each, Mapping) else each for each in value]
        return [each for each in named if not (isinstance(each, str) and not each.strip())]


class Plan(PlanOutline):
    """A plan that can be carried out: its steps have distinct ids and rest only on steps that come before them."""

    steps: Annotated[tuple[PlanStep, ...], Field(max_length=MAX_STEPS)] = ()

    @model_validator(mode="after")
    def _steps_can_be_done(self) -> Self:
        known: dict[str, PlanStep] = {}
        ids = [step.step_id for step in self.steps]
        for step in self.steps:
            if ids.count(step.step_id) > 1:
                raise ValueError(f"step_id {step.step_id!r} is used twice")
            for needed in step.depends_on:
                if needed == step.step_id:
                    raise ValueError(f"step {step.step_id!r} depends on itself")
                if needed not in ids:
                    raise ValueError(f"step {step.step_id!r} depends on {needed!r}, which is not a step of this plan")
                if needed not in known:
                    raise ValueError(f"step {step.step_id!r} depends on {needed!r}, which does not come before it")
            _check_references(step, known)
            known[step.step_id] = step
        return self

    def in_words(self) -> str:
        """See `StructuredReply`."""
        steps = "1 step" if len(self.steps) == 1 else f"{len(self.steps) or 'no'} steps"
        return f"a plan of {steps}: {self.title}"

    def unknown_names(self, handlers: Collection[str], tools: Collection[str]) -> list[str]:
        """Return what is wrong with who does the steps, where not everything is a known agent or tool (S3-42)."""
        problems = []
        for step in self.steps:
            known = handlers if step.type == "handler" else tools
            if known and step.name not in known:
                kind = "agent" if step.type == "handler" else "tool"
                problems.append(f"step {step.step_id!r} names the {kind} {step.name!r}; there is: {', '.join(known)}")
            elif not known and step.type == "tool":
                problems.append(f"step {step.step_id!r} names the tool {step.name!r}; there are no tools")
        return problems

    def as_markdown(self) -> str:
        """Return the plan as markdown: the text that the lead works from."""
        lines = [f"# {self.title}", "", *(f"- {section}" for section in self.sections)]
        steps = ["", "## Steps", "", *(step.as_line() for step in self.steps)] if self.steps else []
        return "\n".join(lines + steps)

    def as_text(self) -> str:
        """Return the plan as the user reviews it (the form of seed S0's dialog)."""
        lines = [f"Title: {self.title}", "Sections:", *(f"- {section}" for section in self.sections)]
        steps = ["Steps:", *(step.as_line() for step in self.steps)] if self.steps else []
        return "\n".join(lines + steps)


def _check_references(step: PlanStep, earlier: Mapping[str, PlanStep]) -> None:
    for each in step.inputs:
        if each.count("${") != len(_REFERENCE.findall(each)):
            raise ValueError(f"step {step.step_id!r} has a broken reference in {each!r}; write ${{step_id.output}}")
    for reference in step.references():
        if reference in earlier:
            continue
        named, fits = _find_named(reference, earlier)
        if named is None:
            raise ValueError(f"step {step.step_id!r} uses ${{{reference}}}, but no earlier step has that id")
        if not fits:
            has = ", ".join(earlier[named].outputs) or "none"
            raise ValueError(f"step {step.step_id!r} uses ${{{reference}}}; the outputs of step {named!r}: {has}")


def _find_named(reference: str, earlier: Mapping[str, PlanStep]) -> tuple[str | None, bool]:
    """Return the earlier step whose output ``step_id.output`` names, if there is one, and whether that step lists the
    output. Ids and outputs may hold dots too."""
    dots = [place for place, sign in enumerate(reference) if sign == "."]
    splits = [(reference[:dot], reference[dot + 1 :]) for dot in dots if reference[:dot] in earlier]
    fitting = [named for named, output in splits if output in earlier[named].outputs]
    named = fitting or [named for named, _ in splits]
    return named[-1] if named else None, bool(fitting)


class PlanDraft(PlanOutline):
    """A plan as a model wrote it twice in a way that cannot be carried out: what of it can be used."""

    steps: tuple[Any, ...] = ()

    @field_validator("steps", mode="before")
    @classmethod
    def _some(cls, value: object) -> object:
        return value if isinstance(value, list | tuple) else ()

    def usable(self, known: Callable[[PlanStep], PlanStep | None], instead: str) -> tuple[Plan, list[str]]:
        """Return the plan without what is wrong in its steps, and what was changed, one line each.

        Args:
            known: gives a step with the name that its agent or tool is called by; None where there is no such.
            instead: the agent that gets the steps of nobody.
        """
        steps: dict[str, PlanStep] = {}
        changes: list[str] = []
        if len(self.steps) > MAX_STEPS:
            changes.append(f"the steps after the first {MAX_STEPS} of {len(self.steps)} were left out")
        for place, each in enumerate(self.steps[:MAX_STEPS], start=1):
            try:
                step = PlanStep.model_validate(
                    {"step_id": place, "description": each} if isinstance(each, str) else each
                )
            except ValidationError as error:
                changes.append(f"step {place} was left out: {describe_problem(error)}")
                continue
            if step.step_id in steps:
                free = next(str(number) for number in count(place) if str(number) not in steps)
                changes.append(f"a second step {step.step_id!r} is now step {free!r}")
                step = step.model_copy(update={"step_id": free})
            named = known(step)
            if named is None:
                changes.append(f"step {step.step_id!r} goes to {instead}: there is no {step.name!r}")
                named = step.model_copy(update={"type": "handler", "name": instead})
            # Only steps that are already in: what comes later, or was left out, cannot be waited for.
            rests_on = {
                "depends_on": tuple(needed for needed in named.depends_on if needed in steps),
                "inputs": tuple(_without_bad_references(used, steps) for used in named.inputs),
            }
            for field, kept in rests_on.items():
                if kept != (written := getattr(named, field)):
                    became = ", ".join(kept) or "none"
                    changes.append(f"{field} of step {step.step_id!r}: {', '.join(written)} became {became}")
            steps[step.step_id] = named.model_copy(update=rests_on)
        return Plan(title=self.title, sections=self.sections, steps=tuple(steps.values())), changes


def _without_bad_references(text: str, earlier: Mapping[str, PlanStep]) -> str:
    """Return the input with references to earlier steps alone: to the whole result of one that does not list the
    output; what refers to nothing becomes plain text."""

    def mend(match: re.Match[str]) -> str:
        reference = match[1].strip()
        named, fits = (reference, True) if reference in earlier else _find_named(reference, earlier)
        if named is None:
            return f"({reference})"
        return match[0] if fits else f"${{{named}}}"

    parts = _REFERENCE.split(text)  # Text and references in turn.
    plain = [part.replace("${", "(") for part in parts[::2]]
    kept = [mend(match) for match in _REFERENCE.finditer(text)]
    return "".join(chain.from_iterable(zip_longest(plain, kept, fillvalue="")))


class PlanStatus(StrEnum):
    """What became of a plan at review.

    Attributes:
        MADE: nobody was asked to review it.
        PROPOSED: it was shown, and nobody has said anything yet.
        APPROVED: the user approved it.
        AUTO_APPROVED: it got more feedback than ``max_plan_iterations``, under ``planning.at_plan_limit: approve``.
        REJECTED: the user rejected it, and the run ended without work.
    """

    MADE = "made"
    PROPOSED = "proposed"
    APPROVED = "approved"
    AUTO_APPROVED = "auto_approved"
    REJECTED = "rejected"


class PlanVersion(BaseModel, frozen=True, defer_build=True):
    """An earlier version of a plan, and what the user said of it. ``edited``: it was edits of single steps."""

    plan: Plan
    feedback: str
    edited: bool = False


class ReviewedPlan(StoredValue, Plan):
    """A plan with what became of it: its earlier versions, oldest first, and where its review stands.

    ``remark`` is feedback that nothing was changed for: that after the last revision there may be, and that which the
    model did not manage to work in.
    """

    status: PlanStatus = PlanStatus.MADE
    version: int = 1
    history: tuple[PlanVersion, ...] = ()
    remark: str | None = None

    @classmethod
    def of(cls, plan: Plan, status: PlanStatus, history: Sequence[PlanVersion] = ()) -> Self:
        """Return the first version, or the next one after `history`."""
        return cls(
            title=plan.title,
            sections=plan.sections,
            steps=plan.steps,
            status=status,
            version=len(history) + 1,
            history=tuple(history),
        )

    @property
    def plan(self) -> Plan:
        """The present version alone."""
        return Plan(title=self.title, sections=self.sections, steps=self.steps)

    @property
    def feedback(self) -> tuple[str, ...]:
        """All that the user said of earlier versions, oldest first (S0-29)."""
        return tuple(version.feedback for version in self.history)

    def revise(self, plan: Plan, feedback: str, *, edited: bool = False) -> Self:
        """Return the next version, to be reviewed again."""
        history = (*self.history, PlanVersion(plan=self.plan, feedback=feedback, edited=edited))
        return type(self).of(plan, PlanStatus.PROPOSED, history)

    def trim_history(self) -> Self:
        """Return the plan as a message carries it: with the version before, not with all of them. Each message stays
        in the thread and in the state of every member, so that a whole history in each would grow with its square."""
        return self.model_copy(update={"history": self.history[-1:]})

    def after(self, before: ReviewedPlan | None) -> Self:
        """Return the plan that was passed on, with its whole history again; `before` is the plan that was passed on
        last."""
        if before is None:
            return self
        new = self.history if self.version > before.version else ()
        return self.model_copy(update={"history": (*before.history, *new)})

    def decide(self, status: PlanStatus, remark: str | None = None) -> Self:
        """Return the same version, its review over."""
        return self.model_copy(update={"status": status, "remark": remark})

    @property
    def approved(self) -> bool:
        """Whether the user approved it, or the cap on its revisions did (decision X7)."""
        return self.status in (PlanStatus.APPROVED, PlanStatus.AUTO_APPROVED)

    def get_approved_plan_context(self) -> str | None:
        """Return the approved plan as markdown; None for one that is not approved (S0-36)."""
        return self.as_markdown() if self.approved else None


class ApprovedPlan(StoredValue, frozen=True, defer_build=True):
    """A plan that a user approved, to be offered for a like task.

    Attributes:
        run_id: the run that it was made in.
        task: the task of that run.
        approved_at: when, in UTC.
        plan: the plan itself.
    """

    run_id: str
    task: str
    approved_at: datetime
    plan: Plan

    @classmethod
    def of(cls, run_id: str, task: str, plan: ReviewedPlan | None, at: datetime) -> Self | None:
        """Return what is kept of the plan of a run; None where the user did not approve it."""
        if plan is None or plan.status is not PlanStatus.APPROVED:
            return None
        return cls(run_id=run_id, task=task, approved_at=at, plan=plan.plan)

    def as_line(self) -> str:
        """Return whence it is, in a line: ``a plan that you approved on 2026-01-31 for "..."``."""
        day = f"{self.approved_at.astimezone():%Y-%m-%d}"
        return f'a plan that you approved on {day} for "{one_line(self.task, 200)}"'

    def as_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        return self.model_dump(mode="json")


class ClarifierResult(BaseModel, frozen=True, defer_build=True):
    """What clarification and planning came to (S0-31 to S0-37, X10).

    Attributes:
        clarifier_log: the dialog of the clarifier, as text.
        plan_title: that of the plan; None where the user was asked about none.
        plan_sections: its sections.
        plan_approved: whether it was approved.
        plan_rejected: whether the user rejected it.
        plan: the plan itself, with its earlier versions.
    """

    clarifier_log: str = ""
    plan_title: str | None = None
    plan_sections: tuple[str, ...] = ()
    plan_approved: bool = False
    plan_rejected: bool = False
    plan: ReviewedPlan | None = None

    @classmethod
    def of(cls, log: str, plan: ReviewedPlan | None) -> Self:
        """Return the result of a dialog with this log, and of the review of the plan that followed; without one it is
        the log alone (S0-13)."""
        if plan is None or plan.status is PlanStatus.MADE:
            return cls(clarifier_log=log)
        return cls(
            clarifier_log=log,
            plan_title=plan.title,
            plan_sections=plan.sections,
            plan_approved=plan.approved,
            plan_rejected=plan.status is PlanStatus.REJECTED,
            plan=plan,
        )

    def get_approved_plan_context(self) -> str | None:
        """Return the approved plan as markdown, for the prompt of who works it off; None unless it was approved
        (S0-36)."""
        return self.plan.get_approved_plan_context() if self.plan else None


def describe_problem(error: ValidationError) -> str:
    """Return the first thing that is wrong with a plan, and where."""
    first = error.errors()[0]
    where = f"{first['loc'][-1]}: " if first["loc"] else ""
    return where + first["msg"].removeprefix("Value error, ")
