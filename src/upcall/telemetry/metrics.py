"""What is counted and measured while runs are worked on: OpenTelemetry metrics, beside the spans.

They contain numbers and the names of kinds and models, never whose run it was or what was written. Without a metrics
provider they go nowhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.metrics import _Gauge as Gauge

_DURATION_BOUNDS_S = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
"""The bounds of the histogram: OpenTelemetry's defaults are for milliseconds."""

WAIT_BOUNDS_S = (10, 60, 300, 900, 3_600, 14_400, 43_200, 86_400, 259_200, 604_800, 2_592_000)
"""The bounds of waits for a human: from ten seconds to a month."""

_CALL_DURATION_BOUNDS_S = tuple(0.01 * 2**power for power in range(14))
"""The bounds that the GenAI conventions ask for, up to 81.92 seconds."""

_TOKENS = tuple(4**power for power in range(14))
"""The bounds that the GenAI conventions ask for, up to 67,108,864 tokens."""


@dataclass(frozen=True)
class Instruments:
    """All metrics.

    Attributes:
        waiting: runs in the queue that a worker could take.
        later: runs in the queue that are to be retried later.
        oldest: how long the longest-waiting run has been in the queue.
        delay: from a submission or an answer until a worker continues the run.
        busy: the share of a worker's slots in use since the last measurement.
        failures: runs that failed, by the kind of error.
        asked: questions that were put to the human.
        waits: how long questions waited, by how they ended.
        cost: what model calls cost by the prices of the settings.
        duration: how long model calls took; this and the next two are those of the GenAI conventions.
        tokens: how many tokens they took in and gave.
        first_chunk: how long streamed replies took to begin.
    """

    waiting: Gauge
    later: Gauge
    oldest: Gauge
    delay: Histogram
    busy: Gauge
    failures: Counter
    asked: Counter
    waits: Histogram
    cost: Counter
    duration: Histogram
    tokens: Histogram
    first_chunk: Histogram


@cache
def instruments() -> Instruments:
    """Return the instruments, which use the provider that is set, even if it is set later."""
    from opentelemetry import metrics

    meter = metrics.get_meter("upcall")
    return Instruments(
        waiting=meter.create_gauge("upcall.queue.waiting", "{run}", "Runs that wait for a free worker"),
        later=meter.create_gauge("upcall.queue.later", "{run}", "Runs that are tried again at a later time"),
        oldest=meter.create_gauge("upcall.queue.oldest", "s", "Age of the job that has waited the longest"),
        delay=meter.create_histogram(
            "upcall.run.delay",
            "s",
            "From a submission or an answer until the run continues",
            explicit_bucket_boundaries_advisory=_DURATION_BOUNDS_S,
        ),
        busy=meter.create_gauge("upcall.worker.busy", "1", "Share of a worker's slots that are used"),
        failures=meter.create_counter("upcall.run.failures", "{run}", "Runs that failed"),
        asked=meter.create_counter("upcall.questions.asked", "{question}", "Questions put to the human"),
        waits=meter.create_histogram(
            "upcall.question.wait",
            "s",
            "How long questions waited for an answer",
            explicit_bucket_boundaries_advisory=WAIT_BOUNDS_S,
        ),
        cost=meter.create_counter("upcall.cost", "1", "What model calls cost by the prices of the settings"),
        duration=meter.create_histogram(
            "gen_ai.client.operation.duration",
            "s",
            "GenAI operation duration",
            explicit_bucket_boundaries_advisory=_CALL_DURATION_BOUNDS_S,
        ),
        tokens=meter.create_histogram(
            "gen_ai.client.token.usage",
            "{token}",
            "Number of input and output tokens used",
            explicit_bucket_boundaries_advisory=_TOKENS,
        ),
        first_chunk=meter.create_histogram(
            "gen_ai.client.operation.time_to_first_chunk",
            "s",
            "Time to receive the first chunk of a streamed response",
            explicit_bucket_boundaries_advisory=_CALL_DURATION_BOUNDS_S,
        ),
    )


def count_failure(kind: str) -> None:
    """Count a run stored as failed. `kind` is the class name of the error, or of what replaced it."""
    instruments().failures.add(1, {"error.type": kind})


def record_wait(outcome: str, seconds: float) -> None:
    """Record how long a question waited, and how it ended."""
    instruments().waits.record(seconds, {"upcall.answer.outcome": outcome})


def record_spent(asked: int, cost: float, currency: str) -> None:
    """Count questions put to the human, and what model calls cost."""
    if asked:
        instruments().asked.add(asked)
    if cost:
        instruments().cost.add(cost, {"upcall.currency": currency})


@cache
def gauge(name: str, unit: str, description: str) -> Gauge:
    """Return the gauge of this name."""
    from opentelemetry import metrics

    return metrics.get_meter("upcall").create_gauge(name, unit, description)


@dataclass(frozen=True)
class CallMeasures:
    """What was measured of one model call.

    Attributes:
        seconds: how long it took.
        first_chunk: after how many seconds a streamed reply began.
        tokens: how many tokens it took in (``input``) and gave (``output``).
        error: the class of its error, if it failed.
    """

    seconds: float
    first_chunk: float | None = None
    tokens: Mapping[str, int] = field(default_factory=dict)
    error: str | None = None


def record_call(provider: str, model: str, measured: CallMeasures) -> None:
    """Record a model call."""
    named = {"gen_ai.operation.name": "chat", "gen_ai.provider.name": provider}
    named |= {"gen_ai.request.model": model} if model else {}
    failed = {"error.type": measured.error} if measured.error else {}
    made = instruments()
    made.duration.record(measured.seconds, {**named, **failed})
    if measured.first_chunk is not None:
        made.first_chunk.record(measured.first_chunk, named)
    for kind, count in measured.tokens.items():
        made.tokens.record(count, {**named, "gen_ai.token.type": kind})
