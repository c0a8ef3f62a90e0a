"""What the agents answer in: the models behind their structured output, lenient in reading, strict in meaning.

Every field has a default where a server without JSON schema may leave it out; the schema shown to a model hides the
defaults and the lengths, because strict JSON schema (OpenAI, Azure) does not know them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from posixpath import normpath
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from upcall.questions import (
    CAMEL_TOO,
    MAX_LABEL_CHARS,
    MAX_OPTIONS,
    MAX_QUESTION_CHARS,
    ClarificationType,
    Option,
    Question,
    Shown,
)

_NOT_STRICT = ("default", "minLength", "maxLength", "minItems", "maxItems")


def _strict(schema: dict[str, Any]) -> None:
    """Drop what a strict schema may not hold; what a field is for stands in its description."""
    for definition in schema.get("properties", {}).values():
        for part in (definition, definition.get("items", {})):
            for keyword in _NOT_STRICT:
                part.pop(keyword, None)


class Reply(BaseModel):
    """Base of everything a model is asked to answer in JSON.

    camelCase is read too (decision X8), numbers where text is wanted (step ids), and null as left out.
    """

    model_config = ConfigDict(
        frozen=True,
        str_strip_whitespace=True,
        populate_by_name=True,
        alias_generator=CAMEL_TOO,
        coerce_numbers_to_str=True,
        json_schema_extra=_strict,
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: each for name, each in value.items() if each is not None}


class Intent(StrEnum):
    """What the user wants: talk about the system itself, have something found out, or have code written."""

    META = "meta"
    RESEARCH = "research"
    CODING = "coding"


class Depth(StrEnum):
    """How much work a task is: one agent at once, or clarified and planned first."""

    SHALLOW = "shallow"
    DEEP = "deep"


class Classification(Reply):
    """The classifier's reply (S2-04). An unknown intent counts as research, an unknown depth as shallow (S2-39)."""

    intent: Intent
    meta_response: str | None = Field(default=None, description="The reply to the user, only where intent is meta.")
    research_depth: Depth | None = Field(default=None, description="Only where intent is research or coding.")

    @field_validator("intent", mode="before")
    @classmethod
    def _known_intent(cls, value: object) -> object:
        return _member(Intent, value, Intent.RESEARCH)

    @field_validator("research_depth", mode="before")
    @classmethod
    def _known_depth(cls, value: object) -> object:
        return _member(Depth, value, Depth.SHALLOW)

    @property
    def depth(self) -> Depth:
        """The depth, shallow where the model gave none."""
        return self.research_depth or Depth.SHALLOW


def _member(kind: type[StrEnum], value: object, otherwise: StrEnum) -> object:
    if not isinstance(value, str):
        return value
    word = value.strip().lower()
    return word if word in list(kind) else otherwise


class ClarificationResponse(Reply):
    """The clarifier's reply (S0-38, S0-39), with what makes the question easy to answer."""

    needs_clarification: bool
    clarification_question: Shown | None = None
    options: tuple[Shown, ...] = Field(default=(), description="Likely answers, at most five; empty where open.")
    reason: Shown | None = Field(default=None, description="Why the answer matters, one short sentence.")

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.needs_clarification and not self.clarification_question:
            raise ValueError("needs_clarification is true but clarification_question is empty")
        return self

    def question(self, path: tuple[str, ...]) -> Question:
        """The open question this reply stands for."""
        return _question(self.clarification_question or "", self.options, self.reason, path)


class Ambiguity(Reply):
    """One unclear aspect of a request (S3-09 to S3-12)."""

    aspect: Shown
    description: Shown = ""
    clarification_question: Annotated[Shown, Field(min_length=1)]
    possible_options: tuple[Shown, ...] = ()

    def question(self, path: tuple[str, ...]) -> Question:
        """The open question this aspect stands for."""
        asked = _question(self.clarification_question, self.possible_options, self.description or None, path)
        return asked.model_copy(
            update={"header": self.aspect[:80], "clarification_type": ClarificationType.AMBIGUOUS_REQUIREMENT}
        )


class AmbiguityCheck(Reply):
    """The planner's first reply (S3-07, S3-08): what keeps it from planning, if anything does."""

    needs_clarification: bool
    ambiguity_details: tuple[Ambiguity, ...] = ()

    @model_validator(mode="after")
    def _names_an_aspect(self) -> Self:
        if self.needs_clarification and not self.ambiguity_details:
            raise ValueError("needs_clarification is true but ambiguity_details is empty")
        return self


def _question(text: str, options: tuple[str, ...], reason: str | None, path: tuple[str, ...]) -> Question:
    """A question that can be put whatever the model wrote: too long texts are cut, equal options are one."""
    distinct: dict[str, str] = {}
    for label in (option[:MAX_LABEL_CHARS].strip() for option in options):
        distinct.setdefault(label.casefold(), label)
    return Question(
        question=text[:MAX_QUESTION_CHARS],
        options=tuple(Option(label=label) for label in distinct.values() if label)[:MAX_OPTIONS],
        context=reason[:MAX_QUESTION_CHARS] if reason else None,
        path=path,
    )


class PlanStep(Reply):
    """One step of a plan: who does what, from which inputs, after which steps."""

    step_id: Annotated[str, Field(min_length=1)]
    description: Annotated[str, Field(min_length=1)]
    agent: Literal["coder", "researcher", "lead"] = "lead"
    inputs: tuple[str, ...] = ()
    outputs: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = Field(default=(), description="The step_ids that must be done before this step.")


class Plan(Reply):
    """A plan that can be worked off: its steps have distinct ids and depend only on steps that come before them."""

    title: Annotated[str, Field(min_length=1)]
    sections: Annotated[tuple[str, ...], Field(min_length=1)]
    steps: tuple[PlanStep, ...] = ()

    @model_validator(mode="after")
    def _steps_can_be_done(self) -> Self:
        known: set[str] = set()
        ids = [step.step_id for step in self.steps]
        for step in self.steps:
            if ids.count(step.step_id) > 1:
                raise ValueError(f"step_id {step.step_id!r} is used twice")
            for needed in step.depends_on:
                if needed not in ids:
                    raise ValueError(f"step {step.step_id!r} depends on {needed!r}, which is no step of this plan")
                if needed not in known:
                    raise ValueError(f"step {step.step_id!r} depends on {needed!r}, which does not come before it")
            known.add(step.step_id)
        return self

    def as_markdown(self) -> str:
        """The plan as markdown: the text that the lead works from."""
        lines = [f"# {self.title}", "", *(f"- {section}" for section in self.sections)]
        if self.steps:
            lines += ["", "## Steps", ""]
        for step in self.steps:
            after = f" (after {', '.join(step.depends_on)})" if step.depends_on else ""
            lines.append(f"{step.step_id}. [{step.agent}] {step.description}{after}")
        return "\n".join(lines)


@dataclass(frozen=True)
class MadeCall:
    """A tool call that an agent made, with the text it gave back."""

    name: str
    arguments: Mapping[str, Any]
    result: str


class Report(Reply):
    """What an agent with tools ends its work with. The text is what the reader gets; the lists say what it rests on."""

    summary: Annotated[str, Field(min_length=1, description="The result for the reader, in markdown.")]
    assumptions: tuple[str, ...] = Field(default=(), description="What was assumed because nobody said it.")
    left_open: tuple[str, ...] = Field(default=(), description="What was not done or not found.")

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The fallback where a model will not answer in JSON: its words are the summary."""
        return cls(summary=text)

    def backed_by(self, made: Sequence[MadeCall]) -> Self:
        """The report without the claims that `made`, all calls of its agent that did not fail, does not bear out; what
        falls away is listed as left open."""
        return self

    def to_text(self) -> str:
        """The report as its reader sees it."""
        return "\n".join([self.summary, *self._lists()])

    def _without(self, field: str, missing: Sequence[str], why: str) -> Self:
        if not missing:
            return self
        kept = tuple(entry for entry in getattr(self, field) if entry not in missing)
        left_open = (*self.left_open, *(f"{entry} {why}." for entry in missing))
        return self.model_copy(update={field: kept, "left_open": left_open})

    def _lists(self) -> list[str]:
        return [*_listed("Assumed", self.assumptions), *_listed("Left open", self.left_open)]


class CodingReport(Report):
    """The coder's report, with the files it wrote."""

    files: tuple[str, ...] = Field(default=(), description="The files written, as paths in the workspace.")

    def backed_by(self, made: Sequence[MadeCall]) -> Self:
        """A file counts if ``write_file`` was called for it."""
        written = {normpath(str(call.arguments.get("path"))) for call in made if call.name == "write_file"}
        missing = [file for file in self.files if normpath(file) not in written]
        return self._without("files", missing, "was not written: no call of write_file succeeded for it")

    def _lists(self) -> list[str]:
        return [*_listed("Files", self.files), *super()._lists()]


class ResearchReport(Report):
    """The researcher's report, with the documents it read."""

    sources: tuple[str, ...] = Field(default=(), description="The documents the summary rests on, by name.")

    def backed_by(self, made: Sequence[MadeCall]) -> Self:
        """A source counts if the agent read it, or a search showed it lines of it."""
        seen = {str(call.arguments.get("name")) for call in made if call.name == "read_document"}
        hits = [call.result for call in made if call.name == "search_documents"]
        seen |= {line.partition(":")[0] for hit in hits for line in hit.splitlines()}
        missing = [source for source in self.sources if source not in seen]
        return self._without("sources", missing, "was not read")

    def _lists(self) -> list[str]:
        return [*_listed("Sources", self.sources), *super()._lists()]


def _listed(title: str, entries: tuple[str, ...]) -> list[str]:
    return ["", f"{title}:", *(f"- {entry}" for entry in entries)] if entries else []
