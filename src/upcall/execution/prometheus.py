"""The metrics of a service or a worker as Prometheus reads them: people and spending, in numbers alone."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from upcall.execution.run_metrics import measure_change
from upcall.runs.run import Run
from upcall.settings import Settings
from upcall.storage.gauges import Gauge
from upcall.telemetry.metrics import WAIT_BOUNDS_S

MEDIA_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_UNITS = {"s": "_seconds"}


class PrometheusMetrics:
    """What this process counts of the changes that it makes to runs, beside what the store has at the moment.

    Args:
        settings: its prices, for what model calls cost.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._registry = made = CollectorRegistry()
        self._asked = Counter("upcall_questions_asked", "Questions put to the human", registry=made)
        self._waits = Histogram(
            "upcall_question_wait_seconds",
            "How long questions waited, by how they ended",
            ["outcome"],
            buckets=WAIT_BOUNDS_S,
            registry=made,
        )
        self._tokens = Counter("upcall_tokens", "Tokens of model calls", ["type"], registry=made)
        self._cost = Counter("upcall_cost", "What model calls cost by the prices", ["currency"], registry=made)

    def observe(self, before: Run, after: Run) -> None:
        """Count what a change of a run adds."""
        measured = measure_change(self._settings, before, after)
        self._asked.inc(measured.asked)
        for wait in measured.waits:
            self._waits.labels(wait.outcome.value).observe(wait.seconds)
        for kind, count in measured.tokens.items():
            if count:
                self._tokens.labels(kind).inc(count)
        if measured.cost:
            self._cost.labels(self._settings.models.currency).inc(measured.cost)

    def render(self, gauges: Iterable[Gauge]) -> bytes:
        """Return all metrics as Prometheus' text."""
        now = CollectorRegistry()
        now.register(_Gauges([*gauges]))
        return generate_latest(now) + generate_latest(self._registry)


class _Gauges(Collector):
    """What a store has at the moment."""

    def __init__(self, gauges: Sequence[Gauge]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[Metric]:
        families: dict[str, GaugeMetricFamily] = {}
        for each in self._gauges:
            name = each.name.replace(".", "_") + _UNITS.get(each.unit, "")
            family = families.get(name)
            if family is None:
                labels = [key.replace(".", "_") for key in each.attributes]
                family = families[name] = GaugeMetricFamily(name, each.description, labels=labels)
            family.add_metric([*each.attributes.values()], each.value)
        yield from families.values()
