"""What the agents answer in: the models behind their structured output, lenient in reading, strict in meaning.

Every field has a default where a server without JSON schema may leave it out; the schema shown to a model hides the
defaults and the lengths, because strict JSON schema (OpenAI, Azure) does not know them.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from upcall.lazy_pattern import LazyPattern
from upcall.questions.question import (
    CAMEL_TOO,
    MAX_LABEL_CHARS,
    MAX_OPTIONS,
    MAX_QUESTION_CHARS,
    ClarificationType,
    Detail,
    Option,
    Question,
    VisibleText,
)
from upcall.runs.shown_text import SHOWN
from upcall.text import one_line

_NOT_STRICT = ("default", "minLength", "maxLength", "minItems", "maxItems")


def _strict(schema: dict[str, Any]) -> None:
    """Drop what a strict schema may not hold; what a field is for stands in its description."""
    for definition in schema.get("properties", {}).values():
        for part in (definition, definition.get("items", {})):
            for keyword in _NOT_STRICT:
                part.pop(keyword, None)


class StructuredReply(BaseModel):
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
        defer_build=True,  # Most processes use few of them.
    )

    @model_validator(mode="before")
    @classmethod
    def _null_is_left_out(cls, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {name: each for name, each in value.items() if each is not None}

    def in_words(self) -> str:
        """Say in a line what the model decided."""
        return self.model_dump_json(exclude_defaults=True)


class Intent(StrEnum):
    """What the user wants: small talk or words about the team, something found out, or code or a file of any kind made,
    changed or fixed."""

    META = "meta"
    RESEARCH = "research"
    CODING = "coding"


class Depth(StrEnum):
    """How much work a task is: one agent at once, or clarified and planned first."""

    SHALLOW = "shallow"
    DEEP = "deep"


def _member(kind: type[StrEnum], otherwise: StrEnum | None = None) -> BeforeValidator:
    """Read a word in any case; an unknown one counts as `otherwise`."""

    def read(value: object) -> object:
        if not isinstance(value, str):
            return value
        word = value.strip().lower()
        return word if word in list(kind) else otherwise

    return BeforeValidator(read)


class IntentResult(BaseModel, frozen=True, defer_build=True):
    """What the user wants, as a state update (S2-17)."""

    intent: Intent


class DepthDecision(BaseModel, frozen=True, defer_build=True):
    """How much work it is, as a state update (S2-19)."""

    decision: Depth


NOTHING_MISSING = LazyPattern(
    r"(?i)\W*(((nothing|none|nichts|rien|nada)(\W.*)?|null|no|n/a|nil|false|unknown|keine[rs]?|\u65e0|\u6ca1\u6709|\u306a\u3057)\W*)?"
)
"""What a model writes where nothing is missing, instead of leaving it out: "Nothing; any style will do."."""

MAX_MISSING_CHARS = 120
"""How long what names a thing that a task lacks may be; what a classifier writes beyond that is cut off."""


def _read_missing(value: object) -> str | None:
    """Read what is missing, in whatever form it comes; what names nothing counts as nothing, and never as a broken
    reply."""
    texts = [each for each in (value if isinstance(value, list | tuple) else [value]) if isinstance(each, str)]
    named = [text for each in texts if not NOTHING_MISSING.fullmatch(text := one_line(each))]
    return ", ".join(named)[:MAX_MISSING_CHARS] or None


class Classification(StructuredReply):
    """What the team does with a message."""

    # The classifier's reply (S2-04), which reads the line above. An unknown intent counts as research, an unknown depth
    # as shallow (S2-39).
    intent: Annotated[Intent, _member(Intent, Intent.RESEARCH)]
    meta_response: Annotated[VisibleText | None, SHOWN] = Field(
        default=None, description="The reply to the user, only where intent is meta."
    )
    research_depth: Annotated[Depth | None, _member(Depth, Depth.SHALLOW)] = Field(
        default=None, description="Only where intent is research or coding."
    )
    missing: Annotated[VisibleText | None, BeforeValidator(_read_missing)] = Field(
        default=None,
        description="What only the user can tell and the result cannot be right without; else null.",
    )

    @property
    def depth(self) -> Depth:
        """The depth, shallow where the model gave none."""
        return self.research_depth or Depth.SHALLOW

    def in_words(self) -> str:
        """See `StructuredReply`."""
        if self.intent is Intent.META:
            return "a question about me"
        lacks = f" that may lack something: {self.missing}" if self.missing else ""
        return f"a {self.depth} {self.intent} task{lacks}"

    @property
    def user_intent(self) -> IntentResult:
        """The intent, always there."""
        return IntentResult(intent=self.intent)

    @property
    def depth_decision(self) -> DepthDecision | None:
        """The depth; None for a meta query, which is answered at once."""
        return None if self.intent is Intent.META else DepthDecision(decision=self.depth)


def _labels(value: object) -> object:
    """Read options as a list of texts, also where a model wrote a single one, or objects with a label."""
    entries = value if isinstance(value, list | tuple) else [value]
    read = [each.get("label", each) if isinstance(each, dict) else each for each in entries]
    return [each for each in read if each is not None]


Labels = Annotated[tuple[VisibleText, ...], BeforeValidator(_labels)]
"""Likely answers to a question."""


class KnownFrom(StrEnum):
    """Where the answer to the clarifier's candidate question is to be had."""

    REQUEST = "request"
    DEFAULT = "default"
    USER = "user"


class Weight(StrEnum):
    """What a wrong guess would spoil: all of the result, much of it, somebody's taste alone, or hardly anything."""

    HIGH = "high"
    MEDIUM = "medium"
    TASTE = "taste"
    LOW = "low"


def _one_of(kind: type[StrEnum]) -> WithJsonSchema:
    """Have a model choose one; a reply that leaves the field out is read all the same."""
    return WithJsonSchema({"type": "string", "enum": list(kind)})


class Candidate(StructuredReply):
    """One thing that the result of a task depends on, and whether it has to be asked."""

    # The fields come in the order in which a model is to work them out: one that is asked for the decision first says
    # "clear" to nearly everything (benchmarks/ask_well.py).

    detail: Annotated[Detail, _member(Detail, Detail.OTHER), _one_of(Detail)] = Field(
        default=Detail.OTHER, description="What it is about."
    )
    question: VisibleText = Field(default="", description="The question that would settle it.")
    options: Labels = Field(default=(), description="Two to four likely answers; empty where they cannot be guessed.")
    said: VisibleText = Field(default="", description="The words of the request that settle it; empty if none do.")
    assumed: VisibleText = Field(default="", description="What would be taken without asking.")
    known_from: Annotated[KnownFrom | None, _member(KnownFrom), _one_of(KnownFrom)] = Field(
        default=None, description="request: said there; default: the same for everybody; user: it differs."
    )
    weight: Annotated[Weight | None, _member(Weight), _one_of(Weight)] = Field(
        default=None, description="What a wrong guess would spoil."
    )

    def to_question(self, path: tuple[str, ...], weight: float, reason: str) -> Question:
        """Return the open question that settles it, what it is worth, and what is assumed where nobody answers."""
        assumed = self.assumed[:MAX_QUESTION_CHARS] if self.detail is not Detail.INPUT else None
        changes = {"detail": self.detail, "weight": round(weight, 2), "default": assumed or None}
        return _question(self.question, self.options, reason, path).model_copy(update=changes)


class ClarificationResponse(StructuredReply):
    """The clarifier's reply (S0-38, S0-39): what the task depends on, and the question, if one has to be put.

    Where it has `candidates`, they decide (`upcall.agents.asking.weights`); else the two fields of the seed do.
    """

    candidates: tuple[Candidate, ...] = Field(
        default=(), description="One to four things that the result depends on, the weightiest first."
    )
    needs_clarification: bool = Field(description="Whether one of them has to be asked.")
    clarification_question: VisibleText | None = Field(default=None, description="Its question.")
    options: Labels = ()
    reason: VisibleText = Field(
        default="", description="What depends on the answer, for the user; empty if none is asked."
    )

    @field_validator("candidates", mode="before")
    @classmethod
    def _take_what_can_be_read(cls, value: object) -> object:
        """Keep those that ask something: an odd one must not cost the others, nor the question of the seed."""
        entries = value if isinstance(value, list | tuple) else [value]
        read = [each if isinstance(each, Candidate) else _read_candidate(each) for each in entries]
        return tuple(each for each in read if each is not None and each.question)

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.needs_clarification and not (self.clarification_question or self.candidates):
            raise ValueError("needs_clarification is true but clarification_question is empty")
        return self

    def in_words(self) -> str:
        """See `StructuredReply`."""
        if self.needs_clarification:
            return f"would like to know: {self.clarification_question or self.candidates[0].question}"
        settled = [f"{each.question} - {known}" for each in self.candidates if (known := each.said or each.assumed)]
        return f"nothing has to be asked{f': {settled[0]}' if settled else ''}"

    def question(self, path: tuple[str, ...]) -> Question:
        """Return the open question of the seed's two fields."""
        return _question(self.clarification_question or "", self.options, self.reason, path)

    def to_reply(self) -> str:
        """Return the reply as it stands in the dialog with the model."""
        return self.model_dump_json(exclude_defaults=True)


def _read_candidate(value: object) -> Candidate | None:
    """Return a candidate without what is not text in it; None for what is none."""
    if not isinstance(value, dict):
        return None
    texts = {name: each for name, each in value.items() if isinstance(each, str)}
    try:
        return Candidate.model_validate({**texts, "options": value.get("options")})
    except ValidationError:
        return None


class WrittenQuestion(StructuredReply):
    """The question for what a task lacks, as a person is to read it."""

    # The subject decides whether there are options, and these what the default can be: hence the order.

    detail: Annotated[Detail, _member(Detail, Detail.OTHER), _one_of(Detail)] = Field(
        default=Detail.OTHER, description="What it is about."
    )
    question: VisibleText = Field(default="", description="One short question.")
    options: Labels = Field(default=(), description="Two to four short answers; empty where they cannot be guessed.")
    reason: VisibleText = Field(default="", description="What depends on the answer.")
    default: VisibleText = Field(default="", description="The likeliest option; empty if none is.")

    def in_words(self) -> str:
        """See `StructuredReply`."""
        return f"would like to know: {self.question}"

    def as_proposal(self) -> ClarificationResponse:
        """Return it as the reply of a model that lists this alone."""
        candidate = Candidate(
            detail=self.detail,
            question=self.question,
            options=self.options,
            assumed=self.default,
            known_from=KnownFrom.USER,
        )
        return ClarificationResponse(
            candidates=(candidate,), needs_clarification=True, clarification_question=self.question, reason=self.reason
        )


class Effect(StrEnum):
    """How much of the result differs between the two likeliest answers to a question."""

    ALL = "all"
    PART = "part"
    NOTHING = "nothing"


class QuestionCheck(StructuredReply):
    """The reply to a second look at a question: what its answer would change."""

    first: VisibleText = Field(default="", description="The likeliest answer.")
    second: VisibleText = Field(default="", description="The likeliest answer of somebody else who asks for the same.")
    effect: Annotated[Effect | None, _member(Effect), _one_of(Effect)] = Field(
        default=None, description="How much of the result differs between the two."
    )

    def in_words(self) -> str:
        """See `StructuredReply`."""
        if self.effect is Effect.NOTHING:
            return f"need not be asked: {self.first or 'nothing depends on it'}"
        return f"changes the result: {' or '.join(each for each in (self.first, self.second) if each) or 'unknown'}"


class KnownTo(StrEnum):
    """Where an agent has the answer to a nested agent's question from."""

    USER = "user"
    INSTRUCTIONS = "instructions"
    WORK = "work"
    NOWHERE = "nowhere"


class NestedAnswer(StructuredReply):
    """What an agent makes of a question that one of its nested agents would ask the user (S4-23)."""

    # In this order for the same reason as in `ClarificationResponse`.

    quote: VisibleText = Field(
        default="", description="The words that answer it, as you were given them; empty if none do."
    )
    known_from: Annotated[KnownTo, _member(KnownTo, KnownTo.NOWHERE), _one_of(KnownTo)] = Field(
        default=KnownTo.NOWHERE, description="Where these words stand."
    )
    weight: Annotated[Weight, _member(Weight, Weight.HIGH), _one_of(Weight)] = Field(
        default=Weight.HIGH, description="How much of the work a wrong answer would spoil."
    )
    user_must_choose: bool = Field(default=True, description="Whether the choice is the user's own to make.")
    answer: VisibleText = Field(
        default="", description="The answer: an option's label if there are options; else short."
    )

    @property
    def answers(self) -> bool:
        """The decision: it is passed up where the information is lacking, the decision matters much, or the user must
        choose."""
        known = self.known_from is not KnownTo.NOWHERE and bool(self.quote) and bool(self.answer)
        return known and self.weight is not Weight.HIGH and not self.user_must_choose


class SimulatedAnswer(StructuredReply):
    """What a model that plays the user of an experiment says."""

    known: bool = Field(default=False, description="Whether what the user knows answers the question.")
    answer: VisibleText = Field(default="", description="What the user says; an option's label if one is meant.")


class Verdict(StructuredReply):
    """What a model that checks the result of an experiment's task makes of it."""

    reason: VisibleText = Field(default="", description="What is right or wrong, in one sentence.")
    is_right: bool = Field(default=False, description="Whether the result is right.")


class SameQuestion(StructuredReply):
    """Which of the questions that were answered asks the same as a new one."""

    new_asks: VisibleText = Field(default="", description="What the new question asks, in a few words.")
    nearest_asks: VisibleText = Field(default="", description="What the listed question nearest to it asks.")
    number: int | None = Field(
        default=None, description="The number of the listed question that asks the same; null if none does."
    )


class Ambiguity(StructuredReply):
    """One unclear aspect of a request (S3-09 to S3-12)."""

    aspect: VisibleText
    description: VisibleText = ""
    clarification_question: Annotated[VisibleText, Field(min_length=1)]
    possible_options: Labels = ()

    def question(self, path: tuple[str, ...]) -> Question:
        """Return the open question this aspect stands for."""
        asked = _question(self.clarification_question, self.possible_options, self.description or None, path)
        return asked.model_copy(
            update={"header": self.aspect[:80], "clarification_type": ClarificationType.AMBIGUOUS_REQUIREMENT}
        )


class AmbiguityCheck(StructuredReply):
    """The planner's first reply (S3-07, S3-08): what keeps it from planning, if anything does."""

    needs_clarification: bool
    ambiguity_details: tuple[Ambiguity, ...] = ()

    @field_validator("ambiguity_details", mode="before")
    @classmethod
    def _one_is_a_list_too(cls, value: object) -> object:
        return [value] if isinstance(value, dict) else value

    @model_validator(mode="after")
    def _names_an_aspect(self) -> Self:
        if self.needs_clarification and not self.ambiguity_details:
            raise ValueError("needs_clarification is true but ambiguity_details is empty")
        return self

    def in_words(self) -> str:
        """See `StructuredReply`."""
        aspects = ", ".join(each.aspect for each in self.ambiguity_details)
        return f"unclear: {aspects}" if self.needs_clarification else "nothing is unclear"


def _question(text: str, options: tuple[str, ...], reason: str | None, path: tuple[str, ...]) -> Question:
    """Return a question that can be put whatever the model wrote: too long texts are cut, equal options are one."""
    distinct: dict[str, str] = {}
    for label in (option[:MAX_LABEL_CHARS].strip() for option in options):
        distinct.setdefault(label.casefold(), label)
    return Question(
        question=text[:MAX_QUESTION_CHARS],
        options=tuple(Option(label=label) for label in distinct.values() if label)[:MAX_OPTIONS],
        context=reason[:MAX_QUESTION_CHARS] if reason else None,
        path=path,
    )
