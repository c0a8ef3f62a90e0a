"""The bodies of the HTTP API's requests and responses, as in its OpenAPI description."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, Field, JsonValue

from upcall.budget import UsageLimits
from upcall.options import OnExpiry
from upcall.policy.authorization import OpenQuestions
from upcall.questions.answer import Answer, Outcome
from upcall.questions.answer_form import clean_message
from upcall.questions.matching import AnswerValue
from upcall.questions.question import OnAsk
from upcall.runs.config import RunId
from upcall.runs.file_changes import Change
from upcall.runs.holds import Hold
from upcall.runs.plan_steps import find_basis
from upcall.runs.run import Run
from upcall.runs.run_page import DamagedRun


class Body(BaseModel, extra="forbid"):
    """The body of a request: unknown fields are refused."""


class Start(Body):
    """A task and the options of its run.

    Attributes:
        task: what to do.
        follows: the run that this one follows, in a conversation.
        facts: standing answers for this run.
        unattended: whether questions get their own default.
        on_ask: whether agents that ask wait for the answer, or assume it and continue.
        open: whether everybody who is let in may read the run.
        expires_after: how long each question waits: seconds, or a text like ``2h``.
        on_expiry: what happens then.
        budget: how much the run may use before it asks: ``50 calls, 200k tokens, 30m, cost 2.50``, or the limits by
            name.
        user_info: name and email, given to the classifier.
        data_sources: ids of the tools that may be used.
        review_plan: whether the plan is shown for approval before work begins. Where the service does that anyway,
            nobody can go without.
        model: one of the models that the service lists.
        team: one of the teams that it lists, by its name there.
        workspace: one of the folders that it lists, by its name there.
    """

    task: str
    follows: RunId | None = None
    facts: dict[str, str] | None = None
    unattended: bool | None = None
    on_ask: OnAsk | None = None
    open: bool | None = None
    expires_after: float | str | None = None
    on_expiry: OnExpiry | None = None
    budget: str | UsageLimits | None = None
    user_info: dict[str, str] | None = None
    data_sources: list[str] | None = None
    review_plan: bool | None = None
    model: str | None = None
    team: str | None = None
    workspace: str | None = None

    def as_content(self) -> dict[str, Any]:
        """Return what a request with the same key has to say again, as earlier versions noted it."""
        return self.model_dump(exclude={each for each in (*OF_SERVICE, "budget") if getattr(self, each) is None})


OF_SERVICE = ("review_plan", "model", "team", "workspace")
"""The fields of a start that choose the application, and are no options of `Upcall.start` as they stand."""


class Without(Body):
    """A reply without an answer: skip a question, or decline it, with a reason."""

    outcome: Literal["skipped", "declined"]
    text: str = ""

    def as_answer(self, question_id: str) -> Answer:
        """Return it as an answer to a question."""
        return Answer(question_id=question_id, outcome=Outcome(self.outcome), text=self.text)


class Fields(Body):
    """The object of an answer with several fields, where these have such names that it could be a `Without`."""

    outcome: Literal["answered"]
    fields: dict[str, JsonValue]


def _refuse_outcome(value: dict[str, JsonValue]) -> dict[str, JsonValue]:
    if "outcome" in value and value.keys() <= {"outcome", "text"}:
        raise ValueError(
            "outcome is skipped or declined; to fill in fields of these names, send them as the fields of "
            '{"outcome": "answered", "fields": {}}'
        )
    if value.keys() == {"outcome", "fields"} and value["outcome"] == "answered" and isinstance(value["fields"], dict):
        raise ValueError("these are the fields of an answer")
    return value


Value = (
    str | int | list[str | int] | Without | Fields | Annotated[dict[str, JsonValue], AfterValidator(_refuse_outcome)]
)
"""An option (label, number or id), several of them, own words, none of it, or the object of an answer with several
fields: as it is, or as the ``fields`` of one with the outcome ``answered``, which nothing else can be meant by."""


class Answers(Body):
    """Answers to questions of a run, by the ids of the questions."""

    answers: Annotated[dict[str, Value], Field(min_length=1)]

    def read(self) -> Mapping[str, AnswerValue]:
        """Return them as the application takes them."""
        return {name: read_value(value, name) for name, value in self.answers.items()}


class Fork(Body):
    """Another answer to one of a run's questions.

    Attributes:
        replace: whether the branch takes the place of the run.
        keep_effects: the ``bill`` that was shown, where its effects, which cannot be taken back, may stay.
        also: where it does, other answers to further questions, by their ids.
    """

    question: str
    answer: Value
    replace: bool = False
    keep_effects: Literal[False] | str = False
    also: dict[str, Value] = Field(default_factory=dict)


class MessageBody(Body):
    """A message to the agents of a run, to one of them by its name or path, or to the next that calls its model."""

    text: str
    to: str | None = None


class SentBody(BaseModel):
    """A message that is stored, and in one line what becomes of it."""

    run_id: str
    id: str
    to: str | None
    note: str


class Undo(Body):
    """What to undo: a change and all after it, or the last one if none is named."""

    change: str | None = None


class RunBody(BaseModel):
    """A run. ``status`` is `damaged` if it cannot be read; then ``error`` says why. Everybody may read one that is
    ``open``; ``name`` is what its owner calls it."""

    run_id: str
    status: str
    interrupted: bool
    task: str | None = None
    name: str | None = None
    user: str | None = None
    open: bool = False
    created_at: datetime
    updated_at: datetime | None = None
    follows: str | None = None
    forked_from: str | None = None
    forked_at: str | None = None
    replacing: list[str] = []
    replaced_by: str | None = None
    plan: dict[str, JsonValue] | None = None
    result: str | None
    stop_reason: str | None = None
    error: str | None
    questions: list[dict[str, JsonValue]]
    assumptions: list[dict[str, JsonValue]]
    warnings: list[str] = []
    usage: dict[str, dict[str, int]] = {}
    budget: dict[str, JsonValue] | None = None

    @classmethod
    def of(cls, run: Run | DamagedRun, name: str | None = None) -> Self:
        """Return the object of a run, with the name that somebody gave it."""
        if isinstance(run, DamagedRun):
            return cls(**run.as_json(), created_at=run.created_at)
        more = {name: getattr(run, name) for name in ("task", "user", "created_at", "updated_at", "follows")}
        more |= {"open": run.config.open, "forked_from": run.forked_from, "forked_at": run.forked_at}
        plan = run.plan.model_dump(mode="json") if run.plan else None
        basis = find_basis(run)
        for step in plan["steps"] if plan else ():
            found = basis.get(step["step_id"], ())
            step["rests_on"] = [{"question": each.id, "state": each.state.value} for each in found]
        usage = {path: used.model_dump() for path, used in run.usage.items()}
        return cls(**run.as_json(), **more, name=name, plan=plan, usage=usage)


class HoldSubject(Body):
    """What is held: a user, a team (``MODULE:FUNCTION``, or ``root``) or a model by name; the queue is all."""

    kind: Literal["user", "team", "model", "queue"]
    name: str = ""


class HoldStart(HoldSubject):
    """What to hold, and why: whoever waits is shown it."""

    reason: str


class HoldBody(BaseModel):
    """What is held, why, by whom (null is the operator), and since when."""

    kind: str
    name: str
    reason: str
    placed_by: str | None
    at: datetime

    @classmethod
    def of(cls, hold: Hold) -> Self:
        """Return the object of a hold."""
        return cls(**hold.as_json())


class RunList(BaseModel):
    """A page of runs, newest first; pass ``next`` as ``before`` for the following page. With a filter a page may have
    fewer runs than its limit, even none, and a next one all the same. ``holds`` are what the caller's runs may wait
    for."""

    runs: list[RunBody]
    next: str | None
    holds: list[HoldBody] = []


class QuestionList(BaseModel):
    """Open questions, oldest first, each with its run and the run's task; and the runs that cannot be read. Pass
    ``next`` as ``after`` for the following page."""

    questions: list[dict[str, JsonValue]]
    damaged: list[RunBody]
    next: str | None = None

    @classmethod
    def of(cls, found: OpenQuestions) -> Self:
        """Return the object of an inbox."""
        questions = [each.as_json() for each in found]
        return cls(questions=questions, damaged=[RunBody.of(each) for each in found.damaged], next=found.next)


class Entry(BaseModel):
    """One thing that was written or done; see `upcall.runs.transcript.TranscriptEntry`."""

    kind: str
    path: list[str]
    at: datetime
    text: str
    name: str
    failed: bool


class Changes(BaseModel):
    """The files that a run changed, oldest change first."""

    changes: list[Change]


def read_value(value: Value, question_id: str) -> AnswerValue:
    """Return a value as the application takes it."""
    if isinstance(value, Without):
        return value.as_answer(question_id)
    return value.fields if isinstance(value, Fields) else value


def explain_validation(errors: Any) -> str:
    """Say in one line what is wrong with a body; only one error: ours, which knows what was meant, or the first."""
    first = next((each for each in errors if each["type"] == "value_error"), errors[0])
    names = [str(each) for each in first["loc"] if each not in ("body", "query", "header", "path")]
    where = ".".join(each for each in names if "[" not in each)  # The kind that a union tried is no place.
    return f"{where or 'The body'}: {clean_message(first['msg'])}."
