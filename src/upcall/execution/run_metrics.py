"""What a change of a run says of the people who are asked, and of what was spent."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from upcall.execution.prices import Prices
from upcall.questions.answer import Outcome
from upcall.runs.run import Run, Usage
from upcall.runs.run_changes import walk_questions
from upcall.telemetry.metrics import record_spent, record_wait
from upcall.telemetry.spans import is_on

if TYPE_CHECKING:
    from upcall.settings import Settings


@dataclass(frozen=True)
class EndedQuestion:
    """A question that waited for the human and is over.

    Attributes:
        outcome: how it ended; see `Outcome`.
        seconds: how long it waited.
    """

    outcome: Outcome
    seconds: float


@dataclass(frozen=True)
class RunMeasures:
    """What a change of a run added.

    Attributes:
        asked: how many questions it put to the human.
        waits: the questions that ended.
        tokens: what model calls took in (``input``) and gave (``output``).
        cost: what they cost by the prices of the settings, in their currency.
    """

    asked: int
    waits: tuple[EndedQuestion, ...]
    tokens: Mapping[str, int]
    cost: float


def measure_change(settings: Settings, before: Run, after: Run) -> RunMeasures:
    """Measure what a change of a run added."""
    asked, waits = 0, list[EndedQuestion]()
    for record, is_new in walk_questions(before, after):
        if is_new:
            asked += record.answer is None
        elif record.answer is not None:
            waited = (record.answer.answered_at - record.question.asked_at).total_seconds()
            waits.append(EndedQuestion(record.answer.outcome, max(0.0, waited)))
    spent = _subtract(after.usage, before.usage)
    prices = Prices.of(settings, after) if spent else Prices()
    total = Usage.total(spent.values())
    cost = sum(prices.cost(path, used) or 0.0 for path, used in spent.items())
    return RunMeasures(asked, tuple(waits), {"input": total.prompt_tokens, "output": total.completion_tokens}, cost)


def _subtract(after: Mapping[str, Usage], before: Mapping[str, Usage]) -> dict[str, Usage]:
    """Return what each agent spent since; a run that went back to an older checkpoint has spent nothing anew."""
    spent = {}
    for path, now in after.items() if after is not before else ():
        was = before.get(path, Usage())
        if now.tokens > was.tokens:
            spent[path] = Usage(
                prompt_tokens=max(0, now.prompt_tokens - was.prompt_tokens),
                completion_tokens=max(0, now.completion_tokens - was.completion_tokens),
            )
    return spent


def record_change(settings: Settings, before: Run, after: Run) -> None:
    """Record a change of a run as OpenTelemetry metrics, where they are on."""
    if not is_on(settings.telemetry.tracing):
        return
    measured = measure_change(settings, before, after)
    for wait in measured.waits:
        record_wait(wait.outcome.value, wait.seconds)
    record_spent(measured.asked, measured.cost, settings.models.currency)
