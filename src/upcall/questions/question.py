"""What travels: a `Question` up to the human, an `Answer` back down to the call that asked."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import (
    AliasChoices,
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    ValidationInfo,
    field_validator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from upcall import identity
from upcall.errors import UnusableSchema
from upcall.lazy_pattern import LazyPattern
from upcall.questions.answer_form import AnswerForm
from upcall.questions.tool_call import PendingCall
from upcall.text import CONTROLS, one_line

MAX_QUESTION_CHARS = 4_000
"""A question longer than this is refused: nobody reads it, and it would be copied through every level."""

MAX_LABEL_CHARS = 400
"""An option's label longer than this is refused: it is a sentence to read, not a choice."""

MAX_OPTIONS = 50
"""More options than this are refused: a human cannot choose among them in a list."""

CAMEL_TOO = AliasGenerator(validation_alias=lambda name: AliasChoices(name, to_camel(name)))
"""Reads ``allowFreeText`` as ``allow_free_text`` (decision X8); what is written is always snake_case."""


class _Words(NamedTuple):
    """What stands around a question, in one language."""

    behalf: str
    needs_to_know: str
    reason: str
    fields: str
    no_fields: str
    own_words: str
    several: str
    skip: str
    default: str
    until: str
    secret: str
    secret_tool: str


_ENGLISH = _Words(
    behalf=" (for {})",
    needs_to_know=" needs to know",
    reason="Reason: ",
    fields="Answer with a JSON object of these fields:",
    no_fields="Answer with a JSON object by the schema of the question; its fields cannot be shown: {}.",
    own_words="Or answer in your own words.",
    several="Several may be chosen, separated by commas.",
    skip="This question may be skipped.",
    default="If nobody answers: ",
    until="Answer by {}.",
    secret="The answer is stored encrypted, and goes to who asks only.",
    secret_tool="The answer is stored encrypted, and goes to the tool {} only; no model reads it.",
)
_CHINESE = _Words(
    behalf="（代 {}）",
    needs_to_know="想知道",
    reason="原因：",
    fields="请用包含以下字段的 JSON 对象回答：",
    no_fields="请按问题的 JSON schema 用 JSON 对象回答；无法显示其字段：{}。",
    own_words="也可以用自己的话回答。",
    several="可以多选，用逗号分隔。",
    skip="这个问题可以跳过。",
    default="如果没有人回答：",
    until="请在 {} 之前回答。",
    secret="回答会加密保存，只交给提问者。",
    secret_tool="回答会加密保存，只交给工具 {}，模型不会读到。",
)
_HAN = LazyPattern("[\u4e00-\u9fff]")
_OTHER_WORDS = LazyPattern("[A-Za-z]+|[\u3040-\u30ff]|[\uac00-\ud7af]+")
"""A Chinese question may name a thing or two in Latin letters; kana make it a Japanese one."""


def _words_for(question: str) -> _Words:
    """Return the words of the question's own language, Chinese or English (S1-31)."""
    return _CHINESE if len(_HAN.findall(question)) > len(_OTHER_WORDS.findall(question)) else _ENGLISH


def format_time(at: datetime) -> str:
    """Write a time in the zone of this machine, which it names: ``2026-01-31 13:00 CET``."""
    return f"{at.astimezone():%Y-%m-%d %H:%M{':%S' if at.second else ''} %Z}"


def _visible(value: Any) -> Any:
    # What can be printed holds none of them, which is known ten times as fast.
    return value if not isinstance(value, str) or value.isprintable() else CONTROLS.sub("", value)


VisibleText = Annotated[str, BeforeValidator(_visible)]
"""Text from a model that a human is shown."""


class ClarificationType(StrEnum):
    """Why the agent asks (seed S1).

    Attributes:
        MISSING_INFO: it cannot continue without something that it does not know.
        AMBIGUOUS_REQUIREMENT: what it was given can be read in more than one way.
        APPROACH_CHOICE: there are several ways to do it.
        RISK_CONFIRMATION: it is about to do what cannot be taken back. Only the human's own choice answers it.
        SUGGESTION: it proposes something, and wants agreement.
    """

    MISSING_INFO = "missing_info"
    AMBIGUOUS_REQUIREMENT = "ambiguous_requirement"
    APPROACH_CHOICE = "approach_choice"
    RISK_CONFIRMATION = "risk_confirmation"
    SUGGESTION = "suggestion"


OnAsk: TypeAlias = Literal["wait", "assume"]
"""What an agent does that asks: it waits for the answer, or continues with an assumption meanwhile."""


class Side(StrEnum):
    """What an option of a consent says to what is asked."""

    YES = "yes"
    NO = "no"


BUDGET = "budget"
"""What a run at a limit of its budget asks consent for, and why it ended where that was refused."""


class ConsentSubject(BaseModel, frozen=True, defer_build=True):
    """What one yes of the human is about. It holds for this and nothing else.

    Attributes:
        act: the kind of thing that is asked, such as ``change`` or ``network``.
        subject: a digest of the whole of it: of each name, kind, mode and content of a change, or of a command.
        grants: what the option for the whole run allows, such as ``("delete", "/folder", "a.txt")``.
    """

    act: str
    subject: str
    grants: tuple[tuple[str, ...], ...] = ()


class Option(BaseModel, frozen=True, str_strip_whitespace=True, coerce_numbers_to_str=True, defer_build=True):
    """One choice. A plain string or number is accepted as a label.

    Attributes:
        label: what the human sees and an answer names, at most 400 characters.
        description: what it means.
        id: for programs; a person never sees it.
        side: whether "yes" or "no" means this option, where the question asks for consent. What allows more than the
            one thing that is asked has none: nobody agrees to it by a word.
    """

    label: Annotated[VisibleText, Field(min_length=1, max_length=MAX_LABEL_CHARS)]
    description: Annotated[VisibleText, Field(max_length=MAX_QUESTION_CHARS)] | None = None
    id: str | None = None
    side: Side | None = None

    @model_validator(mode="before")
    @classmethod
    def _from_label(cls, value: Any) -> Any:
        return {"label": value} if isinstance(value, str | int | float) else value

    def as_line(self) -> str:
        """Return the option as one line, whatever is in it: a second line could pass for another option."""
        return one_line(f"{self.label} - {self.description}" if self.description else self.label)


class Detail(StrEnum):
    """What of a task a question is about."""

    INPUT = "input"
    MEANING = "meaning"
    PLACE = "place"
    PERIOD = "period"
    PURPOSE = "purpose"
    AUDIENCE = "audience"
    LEVEL = "level"
    BUDGET = "budget"
    PLATFORM = "platform"
    FORMAT = "format"
    STYLE = "style"
    OTHER = "other"


class Question(BaseModel, defer_build=True):
    """Something an agent wants to know from the human.

    A ``risk_confirmation`` is always ``required`` and never has a ``default``: it needs the human's own choice, and
    skipping it would tell the asker to continue.

    Attributes:
        id: its id, by which answers are matched.
        question: the question, at most 4,000 characters.
        header: a short label.
        clarification_type: why the agent asks.
        context: the reason, in the agent's words.
        options: the choices, at most 50.
        allow_free_text: whether an answer may be in the human's own words.
        multi_select: whether several options may be chosen.
        required: whether it cannot be skipped.
        default: the assumption if nobody answers.
        secret: whether the answer is stored encrypted, for its asker alone (`Answer.unseal`).
        tool: the function tool that asks and gets the answer, if any.
        approval: the tool call that the answer allows, changes or forbids, if it is about one.
        consent: what a yes is about, where a tool of ours asks for it.
        path: the agents from the outermost to the asker: ``("lead", "coder")``.
        calls: the tool call id at each level of ``path``, so that two calls of one agent are distinguished. The last is
            missing if the asker needed no tool call (classifier, clarifier and planner ask in structured output).
        asked_at: when it was asked, in UTC.
        expires_at: when it expires, in UTC; None means never.
        assignee: who should answer it: a user's name or ``role:NAME``; None means the owner of the run. The driver
            sets it by the rules of the settings, whatever a model or a message says.
        detail: the part of the task it is about, if the asker says so.
        answer_schema: the JSON schema of an answer of several fields, whose text is the JSON object then.
        answer_draft: what stands in its fields at first, where it was answered before and is asked again.
        on_ask: whether its asker waits or assumes its default (or first option), if the tool that asks says so.
        weight: how much asking is worth, between 0 and 1, if the asker weighs that (`upcall.agents.asking.weights`).
    """

    model_config = ConfigDict(
        frozen=True,
        str_strip_whitespace=True,
        populate_by_name=True,
        alias_generator=CAMEL_TOO,
        extra="forbid",
    )

    id: Annotated[str, Field(min_length=1)] = Field(default_factory=lambda: identity.new_id())
    question: Annotated[VisibleText, Field(min_length=1, max_length=MAX_QUESTION_CHARS)]
    header: Annotated[VisibleText, Field(max_length=80)] | None = None
    clarification_type: ClarificationType = ClarificationType.MISSING_INFO
    context: Annotated[VisibleText, Field(max_length=MAX_QUESTION_CHARS)] | None = None
    options: Annotated[tuple[Option, ...], Field(max_length=MAX_OPTIONS)] = ()
    allow_free_text: bool = True
    multi_select: bool = False
    required: bool = True
    default: Annotated[VisibleText, Field(max_length=MAX_QUESTION_CHARS)] | None = None
    secret: bool = False
    tool: str | None = None
    approval: PendingCall | None = None
    consent: ConsentSubject | None = None
    path: tuple[str, ...] = ()
    calls: tuple[str, ...] = ()
    asked_at: datetime = Field(default_factory=lambda: identity.now())
    expires_at: datetime | None = None
    assignee: str | None = None
    detail: Detail | None = None
    weight: Annotated[float, Field(ge=0, le=1)] | None = None
    answer_schema: dict[str, JsonValue] | None = None
    answer_draft: dict[str, JsonValue] | None = None
    on_ask: OnAsk | None = None

    @field_validator("options", mode="before")
    @classmethod
    def _without_empty_options(cls, value: Any) -> Any:
        if not isinstance(value, list | tuple):
            return () if value is None else value
        return tuple(option for option in value if not _is_empty_option(option))

    @field_validator("asked_at", "expires_at")
    @classmethod
    def _in_utc(cls, value: datetime | None) -> datetime | None:
        """Return a moment, whatever zone it was given in; without one it is in UTC."""
        return value and (value.astimezone(UTC) if value.tzinfo else value.replace(tzinfo=UTC))

    @field_validator("required", "default")
    @classmethod
    def _own_choice_for_a_risk(cls, value: Any, info: ValidationInfo) -> Any:
        if info.data.get("clarification_type") is not ClarificationType.RISK_CONFIRMATION:
            return value
        return True if info.field_name == "required" else None

    @model_validator(mode="after")
    def _answerable(self) -> Question:
        labels = [option.label.casefold() for option in self.options]
        twice = sorted({option.label for option in self.options if labels.count(option.label.casefold()) > 1})
        if twice:
            raise ValueError(f"two options have the same label: {', '.join(twice)}")
        ids = [option.id for option in self.options if option.id is not None]
        if len(ids) > len(set(ids)):
            raise ValueError(f"two options have the same id: {', '.join(sorted(ids))}")
        others = self.options or self.multi_select or self.secret or self.approval or self.consent
        if self.answer_schema is not None and others:
            raise ValueError("an answer of several fields goes with no options, secret, approval or consent")
        if not self.options and not self.allow_free_text:
            raise ValueError("without options, allow_free_text must be true")
        return self

    @property
    def asker(self) -> str:
        """The name of the agent that asks."""
        return self.path[-1] if self.path else "agent"

    @property
    def is_risk(self) -> bool:
        """Whether only the human's own choice answers it."""
        return self.clarification_type is ClarificationType.RISK_CONFIRMATION

    @property
    def answer_form(self) -> AnswerForm | None:
        """The fields of its answer, if that has several, and they can be shown."""
        try:
            form = None if self.answer_schema is None else AnswerForm.of(self.answer_schema)
        except UnusableSchema:  # An earlier version of the library took it.
            return None
        return form.begin_with(self.answer_draft) if form is not None and self.answer_draft else form

    @property
    def form_problem(self) -> str | None:
        """Why the fields of its answer cannot be shown, if it has some: it is answered with a JSON object then."""
        try:
            self.require_form()
        except UnusableSchema as error:
            return str(error)
        return None

    @property
    def schema_text(self) -> str:
        """The schema of its answer as one text, in which true is not 1; empty if it has none."""
        return "" if self.answer_schema is None else json.dumps(self.answer_schema, sort_keys=True)

    def require_form(self) -> None:
        """Check that the fields of its answer can be shown, if it has some.

        Raises:
            UnusableSchema: they cannot.
        """
        if self.answer_schema is not None:
            AnswerForm.of(self.answer_schema)

    def without_fields(self) -> Question:
        """Return it as it stands above its fields, where these are drawn."""
        return self if self.answer_form is None else self.model_copy(update={"answer_schema": None})

    def raise_through(self, agent: str, call_id: str) -> Question:
        """Return the same question one level further up: asked on behalf of `agent`'s tool call `call_id`."""
        return self.model_copy(update={"path": (agent, *self.path), "calls": (call_id, *self.calls)})

    def as_text(self) -> str:
        """Return the question as self-contained plain text: who asks for whom, why, the numbered options."""
        return "\n".join([f"{self.introduce()}: {self.question}", *self.details()])

    def introduce(self) -> str:
        """Say who asks, and on whose behalf: ``coder (for lead) needs to know``."""
        return f"{self.asker_for_whom()}{_words_for(self.question).needs_to_know}"

    def asker_for_whom(self) -> str:
        """Return the asker, and on whose behalf: ``coder (for lead)``."""
        behalf = _words_for(self.question).behalf.format(" > ".join(self.path[:-1])) if len(self.path) > 1 else ""
        return f"{self.asker}{behalf}"

    def who_waits(self, also: Sequence[Question] = ()) -> list[str]:
        """Say who waits for its answer, `also` among them, and who is to give it: a line each."""
        chain = [f"{above} waits for {below}" for above, below in zip(self.path, self.path[1:], strict=False)]
        lines = [f"Until it is answered, {', '.join(chain)}."] if chain else []
        lines += [f"{', '.join(each.asker_for_whom() for each in also)} waits for this too."] if also else []
        return lines + ([f"For {self.assignee}."] if self.assignee else [])

    def details(self) -> list[str]:
        """Return the lines below the question: reason, numbered options, and how it may be answered."""
        words = _words_for(self.question)
        lines = [f"  {words.reason}{self.context}"] if self.context else []
        if (form := self.answer_form) is not None:
            lines += [f"  {words.fields}", *(f"  - {line}" for line in form.describe())]
        elif (problem := self.form_problem) is not None:
            lines.append(f"  {words.no_fields.format(problem)}")
        lines += [f"  {number}. {option.as_line()}" for number, option in enumerate(self.options, start=1)]
        if self.options and self.allow_free_text:
            lines.append(f"  {words.own_words}")
        if self.multi_select:
            lines.append(f"  {words.several}")
        if not self.required:
            lines.append(f"  {words.skip}")
        if self.default:
            lines.append(f"  {words.default}{self.default}")
        if self.expires_at:
            lines.append(f"  {words.until.format(format_time(self.expires_at))}")
        if self.secret:
            lines.append(f"  {words.secret_tool.format(self.tool) if self.tool else words.secret}")
        return lines

    def as_json(self) -> dict[str, Any]:
        """Return the object that the command line prints."""
        return self.model_dump(mode="json", exclude_none=True)

    def as_arguments(self) -> dict[str, Any]:
        """Return the question as the arguments of a call that asks it (S1-11 to S1-16); options are their labels."""
        return {
            "question": self.question,
            "clarification_type": self.clarification_type.value,
            **({"context": self.context} if self.context else {}),
            "options": [option.label for option in self.options],
            "allow_free_text": self.allow_free_text,
            "required": self.required,
        }

    def as_clarification(self) -> dict[str, Any]:
        """Return the question as seed S1 describes it to richer interfaces (S1-22, S1-27), in snake_case (decision
        X8)."""
        return {"version": "v1", "kind": "clarification", **self.as_arguments()}


def _is_empty_option(option: Any) -> bool:
    """Return whether a model left this entry of the options blank: ``""``, ``null``, ``{}``, ``{"label": ""}``."""
    parts = option.values() if isinstance(option, dict) else [option]
    return all(part is None or (isinstance(part, str) and not part.strip()) for part in parts)
