"""What the agents answer in: the models behind their structured output, lenient in reading, strict in meaning.

Every field has a default where a server without JSON schema may leave it out; the schema shown to a model hides the
defaults and the lengths, because strict JSON schema (OpenAI, Azure) does not know them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from posixpath import normpath
from typing import Annotated, Any, Self

from pydantic import (
    AliasChoices,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic.json_schema import SkipJsonSchema

from upcall.citations import (
    Checked,
    CitedSource,
    Counts,
    Library,
    Read,
    check,
    with_numbers,
)
from upcall.errors import one_line
from upcall.markdown import Claimed, markers, without_source_list
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
from upcall.sources.fences import shown_in

_NOT_READ = frozenset(
    {
        *("list_files", "read_file", "search_files", "write_file", "edit_file", "apply_patch", "delete_file"),
        *("show_diff", "run_command", "run_python"),
    }
)
"""Tools of ours whose results are no source of a research report."""

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


def _also(*names: str) -> AliasChoices:
    """What models call a field besides its name."""
    return AliasChoices(*names)


def _member(kind: type[StrEnum], otherwise: StrEnum | None = None) -> BeforeValidator:
    """A word is read in any case; an unknown one counts as `otherwise`."""

    def read(value: object) -> object:
        if not isinstance(value, str):
            return value
        word = value.strip().lower()
        return word if word in list(kind) else otherwise

    return BeforeValidator(read)


class IntentResult(BaseModel):
    """What the user wants, as a state update (S2-17)."""

    model_config = ConfigDict(frozen=True)

    intent: Intent


class DepthDecision(BaseModel):
    """How much work it is, as a state update (S2-19)."""

    model_config = ConfigDict(frozen=True)

    decision: Depth


class Classification(Reply):
    """The classifier's reply (S2-04). An unknown intent counts as research, an unknown depth as shallow (S2-39)."""

    intent: Annotated[Intent, _member(Intent, Intent.RESEARCH)]
    meta_response: Shown | None = Field(default=None, description="The reply to the user, only where intent is meta.")
    research_depth: Annotated[Depth | None, _member(Depth, Depth.SHALLOW)] = Field(
        default=None, description="Only where intent is research or coding."
    )

    @property
    def depth(self) -> Depth:
        """The depth, shallow where the model gave none."""
        return self.research_depth or Depth.SHALLOW

    @property
    def user_intent(self) -> IntentResult:
        """The intent, always there."""
        return IntentResult(intent=self.intent)

    @property
    def depth_decision(self) -> DepthDecision | None:
        """The depth; None for a meta query, which is answered at once."""
        return None if self.intent is Intent.META else DepthDecision(decision=self.depth)


def _labels(value: object) -> object:
    """Options as a list of texts, also where a model wrote a single one, or objects with a label."""
    entries = value if isinstance(value, list | tuple) else [value]
    read = [each.get("label", each) if isinstance(each, dict) else each for each in entries]
    return [each for each in read if each is not None]


Labels = Annotated[tuple[Shown, ...], BeforeValidator(_labels)]
"""Likely answers to a question."""


class KnownFrom(StrEnum):
    """Where the answer to the clarifier's candidate question is to be had."""

    REQUEST = "request"
    DEFAULT = "default"
    USER = "user"


class Weight(StrEnum):
    """How much of the result a wrong guess would spoil."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


def _one_of(kind: type[StrEnum]) -> WithJsonSchema:
    """A model must choose; a reply that leaves the field out is read all the same."""
    return WithJsonSchema({"type": "string", "enum": list(kind)})


class ClarificationResponse(Reply):
    """The clarifier's reply (S0-38, S0-39)."""

    # The fields come in the order in which a model is to work them out: one that is asked for the decision first says
    # "clear" to nearly everything (benchmarks/ask_well.py).

    clarification_question: Shown | None = Field(default=None, description="The one question most worth asking.")
    answer: Shown = Field(
        default="", description="What the request says about it, or the ordinary default, or unknown."
    )
    known_from: Annotated[KnownFrom | None, _member(KnownFrom), _one_of(KnownFrom)] = Field(
        default=None, description="Where the answer is known from."
    )
    weight: Annotated[Weight | None, _member(Weight), _one_of(Weight)] = Field(
        default=None, description="How much a wrong guess would spoil."
    )
    needs_clarification: bool = Field(description="Whether only the user can answer, and it matters.")
    options: Labels = Field(default=(), description="Likely answers, at most five; empty where open.")
    reason: SkipJsonSchema[Shown | None] = None

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.asks and not self.clarification_question:
            raise ValueError("needs_clarification is true but clarification_question is empty")
        return self

    @property
    def asks(self) -> bool:
        """The decision: from the fields that lead to it, or as the model said where it left them out."""
        if self.known_from is None:
            return self.needs_clarification
        return self.known_from is KnownFrom.USER and self.weight is not Weight.LOW

    def question(self, path: tuple[str, ...]) -> Question:
        """The open question this reply stands for."""
        return _question(self.clarification_question or "", self.options, self.reason, path)

    def said(self) -> str:
        """The reply as it stands in the dialog with the model."""
        return self.model_dump_json(exclude_defaults=True)


class FoundIn(StrEnum):
    """Where the answer to a question can be found before it is put to the user."""

    REQUEST = "request"
    KNOWLEDGE = "knowledge"
    CHOICE = "choice"
    USER = "user"


class QuestionCheck(Reply):
    """The reply to a second look at a question."""

    my_answer: Shown = Field(default="", description="Your own answer to the question, or: cannot know.")
    found_in: Annotated[FoundIn | None, _member(FoundIn), _one_of(FoundIn)] = Field(
        default=None, description="Where the answer is to be found."
    )
    ask: bool = Field(description="Whether only the user can tell.")

    @property
    def asks(self) -> bool:
        """The decision: from where the answer is to be found, or as the model said where it left that out."""
        return self.ask if self.found_in is None else self.found_in is FoundIn.USER


class KnownTo(StrEnum):
    """Where an agent has the answer to a nested agent's question from."""

    USER = "user"
    INSTRUCTIONS = "instructions"
    WORK = "work"
    NOWHERE = "nowhere"


class NestedAnswer(Reply):
    """What an agent makes of a question that one of its nested agents would put to the user (S4-23)."""

    # In this order for the same reason as in `ClarificationResponse`.

    quote: Shown = Field(default="", description="The words that answer it, as you were given them; empty if none do.")
    known_from: Annotated[KnownTo, _member(KnownTo, KnownTo.NOWHERE), _one_of(KnownTo)] = Field(
        default=KnownTo.NOWHERE, description="Where these words stand."
    )
    weight: Annotated[Weight, _member(Weight, Weight.HIGH), _one_of(Weight)] = Field(
        default=Weight.HIGH, description="How much of the work a wrong answer would spoil."
    )
    user_must_choose: bool = Field(default=True, description="Whether the choice is the user's own to make.")
    answer: Shown = Field(default="", description="The answer: an option's label if there are options; else short.")

    @property
    def answers(self) -> bool:
        """The decision: it is passed up where the information is lacking, the decision matters much, or the user must
        choose."""
        known = self.known_from is not KnownTo.NOWHERE and bool(self.quote) and bool(self.answer)
        return known and self.weight is not Weight.HIGH and not self.user_must_choose


class SameQuestion(Reply):
    """Which of the questions that were answered asks the same as a new one."""

    new_asks: Shown = Field(default="", description="What the new question asks, in a few words.")
    nearest_asks: Shown = Field(default="", description="What the listed question nearest to it asks.")
    number: int | None = Field(
        default=None, description="The number of the listed question that asks the same; null if none does."
    )


class Ambiguity(Reply):
    """One unclear aspect of a request (S3-09 to S3-12)."""

    aspect: Shown
    description: Shown = ""
    clarification_question: Annotated[Shown, Field(min_length=1)]
    possible_options: Labels = ()

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

    @field_validator("ambiguity_details", mode="before")
    @classmethod
    def _one_is_a_list_too(cls, value: object) -> object:
        return [value] if isinstance(value, dict) else value

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


@dataclass(frozen=True)
class MadeCall:
    """A tool call that an agent made, with the text it gave back. ``of_source``: the tool is one of a
    `SourcesWorkbench`, so that its result names the sources itself; a text from elsewhere that looks so names none."""

    name: str
    arguments: Mapping[str, Any]
    result: str
    of_source: bool = False


def read_in(call: MadeCall) -> Iterator[Read]:
    """What a call gave its agent to read.

    The result of a tool that is none of ours is a source by the name of the tool.
    """
    if call.of_source:
        for shown in shown_in(call.result):
            yield Read(shown.ref, shown.text, shown.place)
    elif call.name not in _NOT_READ:
        yield Read(call.name, call.result)


class Report(Reply):
    """What an agent with tools ends its work with. The text is what the reader gets; the lists say what it rests on."""

    summary: Annotated[str, Field(min_length=1, description="The result for the reader, in markdown.")]
    assumptions: tuple[str, ...] = Field(default=(), description="What was assumed because nobody said it.")
    left_open: tuple[str, ...] = Field(default=(), description="What was not done or not found.")

    @classmethod
    def from_text(cls, text: str) -> Self:
        """The fallback where a model will not answer in JSON: its words are the summary."""
        return cls(summary=text)

    def backed_by(self, made: Sequence[MadeCall]) -> Report:
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
    """The coder's report, with the files it wrote and the commands it ran."""

    files: tuple[str, ...] = Field(default=(), description="The files written or changed, as paths in the workspace.")
    commands: tuple[str, ...] = Field(default=(), description="The shell commands that mattered, exactly as run.")
    tests: tuple[str, ...] = Field(default=(), description="The shell commands that ran tests, exactly as run.")

    def backed_by(self, made: Sequence[MadeCall]) -> Self:
        """A file counts if it was changed by a tool, a command if ``run_command`` ran it. To a test command the outcome
        of its last run is added, which is not the model's to say."""
        written = {normpath(path) for call in made for path in _changed_by(call)}
        missing = [file for file in self.files if normpath(file) not in written]
        report = self._without("files", missing, "was not written: no call that changes files succeeded for it")
        return report._with_outcomes(made) if self.commands or self.tests else report

    def _with_outcomes(self, made: Sequence[MadeCall]) -> Self:
        ran = {
            one_line(str(call.arguments.get("command"))): at
            for at, call in enumerate(made)
            if call.name == "run_command"
        }
        report = self
        for field in ("commands", "tests"):
            missing = [each for each in getattr(self, field) if one_line(each) not in ran]
            report = report._without(field, missing, "was not run")
        tests = tuple(_outcome(each, made, ran[one_line(each)]) for each in report.tests)
        return report.model_copy(update={"tests": tests})

    def _lists(self) -> list[str]:
        lists = [*_listed("Files", self.files), *_listed("Commands", self.commands), *_listed("Tests", self.tests)]
        return [*lists, *super()._lists()]


def _outcome(command: str, made: Sequence[MadeCall], at: int) -> str:
    """A command with how it ended the last time, and whether files were written after that."""
    lines = made[at].result.strip().splitlines()
    ended = lines[0].strip("[]") if lines else "no result"
    last = f": {lines[-1].strip()}" if len(lines) > 1 else ""
    later = any(call.name in _WRITING for call in made[at + 1 :])
    return f"{command} ({ended}){last}" + (" (files were changed after that)" if later else "")


_WRITING = ("apply_patch", "delete_file", "edit_file", "write_file")
"""The tools that change files."""


def _changed_by(call: MadeCall) -> list[str]:
    """The files that a call changed, as it named them."""
    if call.name == "apply_patch":
        patch = str(call.arguments.get("patch"))
        return [name for line in patch.splitlines() if (name := _PATCHED.sub("", line.split("\t")[0])) != line]
    return [str(call.arguments.get("path"))] if call.name in ("write_file", "edit_file", "delete_file") else []


_PATCHED = re.compile(r"^(?:--- (?:a/)?|\+\+\+ (?:b/)?)")


class Citation(Reply):
    """A place that a report cites: the source's name as the tools give it, where in it, and its words."""

    ref: Shown = Field(
        default="",
        description="the source's name, as your tools gave it",
        validation_alias=_also("ref", "source", "document", "file", "name", "title", "url"),
    )
    place: Shown = Field(
        default="",
        description="page or lines",
        validation_alias=_also("place", "page", "pages", "line", "lines", "section"),
    )
    quote: Shown = Field(
        default="",
        description="its own words, copied",
        validation_alias=_also("quote", "text", "excerpt", "passage", "content"),
    )
    number: SkipJsonSchema[int | None] = Field(default=None, validation_alias=_also("number", "id", "n"))

    @model_validator(mode="before")
    @classmethod
    def _name_alone(cls, value: Any) -> Any:
        return {"ref": value} if isinstance(value, str) else value

    @field_validator("number", mode="before")
    @classmethod
    def _any_number(cls, value: object) -> object:
        """What is none is left out: by default a citation has the number of its place in the list."""
        digits = re.search(r"\d{1,4}", str(value))
        return int(digits[0]) if digits else None


class ResearchReport(Report):
    """The researcher's report: its numbers in brackets stand for the citations, counted from 1."""

    citations: tuple[Citation, ...] = Field(
        default=(), description="What each [n] of the summary rests on, in the order of the numbers."
    )
    not_found: tuple[str, ...] = Field(default=(), description="What was looked for and not found.")
    left_open: SkipJsonSchema[tuple[str, ...]] = ()

    @model_validator(mode="before")
    @classmethod
    def _sources_are_citations(cls, value: Any) -> Any:
        """A list of names, under the name that models like best, and one entry where a list should be."""
        if not isinstance(value, dict):
            return value
        named = value.get("citations") or value.get("sources") or value.get("references") or ()
        listed = list(named) if isinstance(named, list | tuple) else [named]
        return {**value, "citations": [each for each in listed if isinstance(each, str | dict | Citation)]}

    def backed_by(self, made: Sequence[MadeCall]) -> Report:
        """Each citation is looked up in what `made` gave the agent to read. A report that rests on nothing and claims
        nothing stays as it is."""
        summary, listed = without_source_list(self.summary)
        claimed = [
            Claimed(each.number or number, each.ref, each.place, each.quote)
            for number, each in enumerate(self.citations, start=1)
        ] or listed
        if not (claimed or markers(summary) or any(call.of_source for call in made)):
            return self
        library = Library(read for call in made for read in read_in(call))
        return CheckedReport.of(self, check(summary, claimed, library), not_found=self.not_found)

    def _lists(self) -> list[str]:
        return [*_listed("Not found", self.not_found), *super()._lists()]


class CheckedReport(Report):
    """A report whose citations code has checked: no model writes one. ``cited`` is its source list."""

    cited: tuple[CitedSource, ...] = ()
    counts: Counts = Counts()
    not_found: tuple[str, ...] = ()

    @classmethod
    def of(cls, report: Report, checked: Checked, *, not_found: Sequence[str] = ()) -> Self:
        """The report with the text that was checked; what fell away is listed as left open."""
        return cls(
            summary=checked.text,
            assumptions=report.assumptions,
            left_open=(*report.left_open, *checked.problems),
            cited=checked.cited,
            counts=checked.counts,
            not_found=tuple(not_found),
        )

    def renumbered(self, numbers: Mapping[str, int]) -> Self:
        """The same report with the numbers that its sources have in another list, by ref."""
        cited = tuple(each.model_copy(update={"number": numbers[each.ref]}) for each in self.cited)
        held = {before.number: after for before, after in zip(self.cited, cited, strict=True)}
        return self.model_copy(update={"cited": cited, "summary": with_numbers(self.summary, held)})

    def outcome(self) -> str:
        """What it says of its work, without what it quotes."""
        return "\n".join([self.summary, *_listed("Not found", self.not_found), *super()._lists()])

    def _lists(self) -> list[str]:
        return [
            *_listed("Sources", tuple(each.as_text() for each in self.cited)),
            *_listed("Not found", self.not_found),
            *super()._lists(),
            f"\n{self.counts.as_text()}",
        ]


def _listed(title: str, entries: tuple[str, ...]) -> list[str]:
    return ["", f"{title}:", *(f"- {entry}" for entry in entries)] if entries else []
