"""What travels: a `Question` up to the human, an `Answer` back down to the call that asked."""

from __future__ import annotations

from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, field_validator, model_validator

from upcall import identity

MAX_QUESTION_CHARS = 4_000
"""A question longer than this is refused: nobody reads it, and it would be copied through every level."""

MAX_OPTIONS = 50
"""More options than this are refused: a human cannot choose among them in a list."""


class ClarificationType(StrEnum):
    """Why the agent asks (seed S1)."""

    MISSING_INFO = "missing_info"
    AMBIGUOUS_REQUIREMENT = "ambiguous_requirement"
    APPROACH_CHOICE = "approach_choice"
    RISK_CONFIRMATION = "risk_confirmation"
    SUGGESTION = "suggestion"


class Outcome(StrEnum):
    """How a question ended."""

    ANSWERED = "answered"
    SKIPPED = "skipped"
    DECLINED = "declined"
    EXPIRED = "expired"
    CANCELLED = "cancelled"
    ASSUMED = "assumed"


class AnsweredBy(StrEnum):
    """Who gave the answer."""

    HUMAN = "human"
    FACTS = "facts"
    LEDGER = "ledger"
    PARENT = "parent"
    POLICY = "policy"


class Option(BaseModel):
    """One choice: a label that the human sees, and what it means. A plain string is accepted as a label."""

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True)

    label: Annotated[str, Field(min_length=1, max_length=400)]
    description: str | None = None
    id: str | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_label(cls, value: Any) -> Any:
        return {"label": value} if isinstance(value, str) else value


class Question(BaseModel):
    """Something one agent wants to know from the human.

    ``path`` names the agents from the outermost down to the asker; ``calls`` holds the tool call id at each level of
    the path, so that two calls of one agent are told apart. The last entry of ``calls`` is missing where the asker
    needed no tool call to ask (classifier, clarifier and planner ask in structured output).
    """

    model_config = ConfigDict(frozen=True, str_strip_whitespace=True, populate_by_name=True, extra="forbid")

    id: str = Field(default_factory=lambda: identity.new_id())
    question: Annotated[str, Field(min_length=1, max_length=MAX_QUESTION_CHARS)]
    header: Annotated[str, Field(max_length=80)] | None = None
    clarification_type: Annotated[
        ClarificationType, Field(validation_alias=AliasChoices("clarification_type", "clarificationType"))
    ] = ClarificationType.MISSING_INFO
    context: Annotated[str, Field(max_length=MAX_QUESTION_CHARS)] | None = None
    options: Annotated[tuple[Option, ...], Field(max_length=MAX_OPTIONS)] = ()
    allow_free_text: Annotated[
        bool, Field(validation_alias=AliasChoices("allow_free_text", "allowFreeText"))
    ] = True
    multi_select: Annotated[bool, Field(validation_alias=AliasChoices("multi_select", "multiSelect"))] = False
    required: bool = True
    default: str | None = None
    secret: bool = False
    path: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    asked_at: datetime = Field(default_factory=lambda: identity.now())
    expires_at: datetime | None = None

    @field_validator("options", mode="before")
    @classmethod
    def _without_empty_options(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return value or ()
        return tuple(option for option in value if not (isinstance(option, str) and not option.strip()))

    @model_validator(mode="after")
    def _answerable(self) -> Question:
        labels = [option.label.casefold() for option in self.options]
        twice = sorted({option.label for option in self.options if labels.count(option.label.casefold()) > 1})
        if twice:
            raise ValueError(f"two options have the same label: {', '.join(twice)}")
        if not self.options and not self.allow_free_text:
            raise ValueError("without options, allow_free_text must be true")
        return self

    @property
    def asker(self) -> str:
        """The name of the agent that asks."""
        return self.path[-1] if self.path else "agent"

    def raised_through(self, agent: str, call_id: str) -> Question:
        """The same question one level further up: asked on behalf of `agent`'s tool call `call_id`."""
        return self.model_copy(update={"path": (agent, *self.path), "calls": (call_id, *self.calls)})

    def as_text(self) -> str:
        """The question as plain text that stands alone: who asks for whom, why, the numbered options."""
        return "\n".join([f"{self.asked_by()}: {self.question}", *self.details()])

    def asked_by(self) -> str:
        """Who asks, and on whose behalf: ``coder (for lead) needs to know``."""
        behalf = f" (for {' > '.join(self.path[:-1])})" if len(self.path) > 1 else ""
        return f"{self.asker}{behalf} needs to know"

    def details(self) -> list[str]:
        """The lines below the question: reason, numbered options, and how it may be answered."""
        lines = [f"  Reason: {self.context}"] if self.context else []
        lines += [
            f"  {number}. {option.label}" + (f" - {option.description}" if option.description else "")
            for number, option in enumerate(self.options, start=1)
        ]
        if self.options and self.allow_free_text:
            lines.append("  Or answer in your own words.")
        if self.multi_select:
            lines.append("  Several may be chosen, separated by commas.")
        if not self.required:
            lines.append("  This question may be skipped.")
        if self.default:
            lines.append(f"  If nobody answers: {self.default}")
        return lines


class Answer(BaseModel):
    """What came back to a question: by whom, when, and with which outcome. ``selected`` holds option labels."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    question_id: str
    outcome: Outcome = Outcome.ANSWERED
    text: str = ""
    selected: tuple[str, ...] = ()
    by: AnsweredBy = AnsweredBy.HUMAN
    user: str | None = None
    answered_at: datetime = Field(default_factory=lambda: identity.now())

    def says_the_same(self, other: Answer) -> bool:
        """Whether both answers mean the same to the asker; who gave them and when does not count."""
        return (self.outcome, self.text, self.selected) == (other.outcome, other.text, other.selected)

    def as_text(self) -> str:
        """What the asking model reads as the result of its call: for every outcome text that it can act on."""
        match self.outcome:
            case Outcome.ANSWERED:
                return self.text
            case Outcome.SKIPPED:
                return "The user skipped this question. Go on with your best judgement and say what you assumed."
            case Outcome.DECLINED:
                reason = f" They said: {self.text}" if self.text else ""
                return f"The user declined to answer.{reason} Do not ask again; do without, or say what cannot be done."
            case Outcome.EXPIRED:
                return "Nobody answered in time. Do not take this as consent; do without, or say what stays open."
            case Outcome.CANCELLED:
                return "The question was cancelled. Do not ask again; end your work and say what stays open."
            case Outcome.ASSUMED:
                return f"Nobody answered; assumed: {self.text}. Go on with this and list it as an assumption."
