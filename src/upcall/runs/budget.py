"""What a run has used of its budget, and the question that it pauses with where it has reached a limit.

It is the human's own decision, like a risk confirmation: silence, a default or a model never extends a budget. No
agent asks it, so no answer goes to one: `settle` changes the limits of the run, or ends it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel

from upcall.budget import (
    MAX_AMOUNT,
    UsageLimits,
    format_amount,
    format_budget,
    format_part,
    parse_budget,
    show_example,
)
from upcall.questions.answer import Answer, AnsweredBy, Outcome
from upcall.questions.question import (
    BUDGET,
    MAX_QUESTION_CHARS,
    ClarificationType,
    ConsentSubject,
    Option,
    Question,
    Side,
)
from upcall.questions.record import QuestionRecord, QuestionRecords
from upcall.runs.states import RunEvent
from upcall.setting_types import MAX_DURATION_S
from upcall.text import shorten

if TYPE_CHECKING:
    from upcall.runs.run import Run

ASKER = "upcall"
"""Who asks: no agent does."""

AS_MUCH_AGAIN, STOP = "Continue with as much again", "Stop here"

NOTHING_FOUND = "The run was stopped at its budget. No agent had written anything."
"""The result of such a run; how often its agents called which tools comes next."""

_SHOWN_CHARS = 1_500


class Spent(BaseModel, frozen=True, defer_build=True):
    """What a run has used: replies of models, their tokens and cost, and the seconds that it was worked on. Replies
    that were replayed cost nothing; those that could not be used cost what they cost."""

    calls: int = 0
    tokens: int = 0
    cost: float = 0.0
    time: float = 0.0

    def latest(self, other: Spent) -> Spent:
        """Return what was used by the later one of two counts."""
        return Spent(**{name: max(value, getattr(other, name)) for name, value in self})


class SpentRecord(BaseModel, frozen=True, defer_build=True):
    """What a run has used, in its journal. A fork gets the journal of its run, and has spent nothing."""

    run: str
    spent: Spent

    @classmethod
    def read(cls, text: str | None, run_id: str) -> Spent | None:
        """Read what a run has used from the record in its journal, if it is its own."""
        record = None if text is None else cls.model_validate_json(text)
        return record.spent if record is not None and record.run == run_id else None


class RunBudget(BaseModel, frozen=True, defer_build=True):
    """The budget of a run as it stands.

    Attributes:
        start: the limits it was started with: what `AS_MUCH_AGAIN` adds.
        limits: the limits that hold, after what was added to them.
        spent: what was used. While a team works, its journal has the latest.
        currency: the currency of the cost.
        found: the last text that an agent had written when a limit was reached: the result where the run stops there.
    """

    start: UsageLimits
    limits: UsageLimits
    spent: Spent = Spent()
    currency: str = ""
    found: str = ""

    @classmethod
    def of(cls, budget: UsageLimits, currency: str) -> RunBudget:
        """Return the budget of a new run."""
        return cls(start=budget, limits=budget, currency=currency if budget.cost is not None else "")

    def begin_anew(self) -> RunBudget:
        """Return the budget of a fork, which has spent nothing of its own."""
        return RunBudget(start=self.start, limits=self.start, currency=self.currency)

    def list_reached(self) -> dict[str, float]:
        """Return the limits that are reached, by name."""
        return {name: limit for name, limit in self.limits.limits.items() if getattr(self.spent, name) >= limit}

    def add(self, more: UsageLimits) -> RunBudget:
        """Return the budget with amounts added to what was spent, so that there is as much to spend again."""
        raised: dict[str, Any] = {
            name: min(getattr(self.spent, name) + amount, MAX_DURATION_S if name == "time" else MAX_AMOUNT)
            for name, amount in more.limits.items()
        }
        return self.model_copy(update={"limits": self.limits.model_copy(update=raised)})

    def list_used(self) -> dict[str, float]:
        """Return what was used, of what is limited or never free: calls and tokens."""
        names: tuple[str, ...] = ("calls", "tokens", "cost", "time")
        return {name: getattr(self.spent, name) for name in names if name != "cost" or self.limits.cost is not None}

    def as_line(self) -> str:
        """Return what was used, and of how much: ``12 of 20 calls, 18,400 tokens, 41 s``."""
        limits = self.limits.limits
        return ", ".join(
            format_amount(name, amount, self.currency)
            if name not in limits
            else format_part(name, amount, limits[name], self.currency)
            for name, amount in self.list_used().items()
        )

    def as_json(self) -> dict[str, Any]:
        """Return the limits that hold and what was used, as plain JSON; time in seconds."""
        spent = {name: round(value, 6) for name, value in self.list_used().items()}
        return {"limits": dict(self.limits.limits), "spent": spent, "currency": self.currency or None}


def is_about_budget(question: Question) -> bool:
    """Return whether it is the question of a run at a limit of its budget."""
    return question.consent is not None and question.consent.act == BUDGET


def find_open(records: QuestionRecords) -> Question | None:
    """Find the open question about the budget, if a run has one."""
    return next((each.question for each in records.open if is_about_budget(each.question)), None)


def ask_about_budget(run: Run, found: str) -> Run:
    """Return a run at a limit of its budget as it waits, with the question whether it may continue.

    `found` is the last text that an agent wrote.
    """
    assert run.budget is not None
    budget = run.budget.model_copy(update={"found": found})
    asked = QuestionRecord(question=_question(budget), asked_since_checkpoint=True).publish()
    return run.apply(RunEvent.ASKED, records=run.records.add([asked]), budget=budget)


def settle(run: Run, answers: Iterable[Answer], event: RunEvent) -> Run:
    """Return a run after `event`, by which it continues; answers about its budget, which it has recorded, change its
    limits, or end it. While the question is open, the run waits."""
    if find_open(run.records) is not None:
        return run.apply(RunEvent.ASKED)
    for answer in answers:
        if run.budget is not None and is_about_budget(run.records[answer.question_id].question):
            more = _read(run.budget, answer)
            if more is None:
                return _stop(run.apply(event), run.budget)
            run = run.update(budget=run.budget.add(more))
    return run.apply(event)


def _read(budget: RunBudget, answer: Answer) -> UsageLimits | None:
    """Return how much is added; None if the run is to stop."""
    if answer.outcome is not Outcome.ANSWERED or answer.by is not AnsweredBy.HUMAN or answer.selected == (STOP,):
        return None
    if answer.selected:
        names = budget.list_reached()
        return UsageLimits(**{name: amount for name, amount in budget.start.limits.items() if name in names})
    return parse_budget(answer.text)


def _stop(run: Run, budget: RunBudget) -> Run:
    """End a run at its budget, with what there is."""
    dropped = [
        Answer(question_id=each.id, outcome=Outcome.CANCELLED, by=AnsweredBy.POLICY) for each in run.open_questions
    ]
    made = ", ".join(f"{tool} ({count})" for tool, count in run.tools.items())
    result = budget.found or (f"{NOTHING_FOUND} Calls made: {made}." if made else NOTHING_FOUND)
    return run.record_answers(dropped).apply(RunEvent.COMPLETED, result=result, stop_reason=BUDGET, error=None)


def _question(budget: RunBudget) -> Question:
    reached = budget.list_reached()
    again = {name: amount for name, amount in budget.start.limits.items() if name in reached}
    found = shorten(budget.found, _SHOWN_CHARS)
    context = f"Used so far: {budget.as_line()}." + (f"\nThe last text of its agents: {found}" if found else "")
    return Question(
        question=f"This run has reached its budget ({format_budget(reached, budget.currency)}). May it continue? "
        f"You can also write another amount, such as {show_example(reached)}.",
        header="Budget",
        clarification_type=ClarificationType.RISK_CONFIRMATION,
        context=context[:MAX_QUESTION_CHARS],
        options=(
            Option(
                label=AS_MUCH_AGAIN,
                description=f"{format_budget(again, budget.currency)} more.",
                side=Side.YES,
            ),
            Option(label=STOP, description="The run ends with what there is.", side=Side.NO),
        ),
        consent=ConsentSubject(act=BUDGET, subject=",".join(reached)),
        path=(ASKER,),
    )
