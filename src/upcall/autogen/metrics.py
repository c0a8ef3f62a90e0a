"""What is counted and measured while workers continue runs: OpenTelemetry metrics, beside the spans of `tracing`.

They contain numbers and the names of kinds, never whose run it was or what was said. Without a metrics provider they go
nowhere.
"""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from upcall.autogen.tracing import SECONDS_TO_SEND, missing_opentelemetry

if TYPE_CHECKING:
    from opentelemetry.metrics import Counter, Histogram
    from opentelemetry.metrics import _Gauge as Gauge

_TIMEOUTS = ("OTEL_EXPORTER_OTLP_METRICS_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT")

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 3600)
"""The bounds of the histogram: OpenTelemetry's defaults are for milliseconds."""


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
    """

    waiting: Gauge
    later: Gauge
    oldest: Gauge
    delay: Histogram
    busy: Gauge
    failures: Counter


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
            explicit_bucket_boundaries_advisory=_SECONDS,
        ),
        busy=meter.create_gauge("upcall.worker.busy", "1", "Share of a worker's slots that are used"),
        failures=meter.create_counter("upcall.run.failures", "{run}", "Runs that failed"),
    )


def count_failure(kind: str) -> None:
    """Count a run stored as failed. `kind` is the class name of the error, or of what replaced it."""
    instruments().failures.add(1, {"error.type": kind})


def export() -> None:
    """Send metrics to where ``OTEL_EXPORTER_OTLP_*`` says, or with ``OTEL_METRICS_EXPORTER`` to standard error
    (``console``) or nowhere (``none``), as `tracing.export` does with spans.

    Raises:
        ConfigurationError: a package it needs is not installed.
    """
    from opentelemetry import metrics

    wanted = os.environ.get("OTEL_METRICS_EXPORTER", "")
    if wanted == "none" or os.environ.get("OTEL_SDK_DISABLED") == "true":
        return
    try:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader

        if isinstance(metrics.get_meter_provider(), MeterProvider):
            return
        if wanted == "console":
            reader = PeriodicExportingMetricReader(ConsoleMetricExporter(out=sys.stderr))
        else:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            own = any(os.environ.get(name) for name in _TIMEOUTS)
            reader = PeriodicExportingMetricReader(OTLPMetricExporter(timeout=None if own else SECONDS_TO_SEND))
    except ImportError as error:
        raise missing_opentelemetry(error) from error
    metrics.set_meter_provider(MeterProvider([reader]))
