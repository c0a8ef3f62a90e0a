"""Where spans and metrics go, for a program that leaves that to us: to where OpenTelemetry's own variables say."""

from __future__ import annotations

import logging
import os
import sys
from typing import TYPE_CHECKING

from upcall.errors import ConfigurationError, install_command

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource

SERVICE_NAME = "upcall"
"""The service of the spans and metrics, unless ``OTEL_SERVICE_NAME`` or ``OTEL_RESOURCE_ATTRIBUTES`` name another."""

EXPORT_TIMEOUT_S = 2.0
"""How long a program waits at exit for a missing collector; OpenTelemetry's default of ten seconds is long for a
command that somebody has typed."""


def export_spans() -> None:
    """Send spans to where ``OTEL_EXPORTER_OTLP_*`` says, or with ``OTEL_TRACES_EXPORTER`` to standard error
    (``console``) or nowhere (``none``), if nobody has set up OpenTelemetry in this process. For programs; a library
    leaves that to its program.

    Raises:
        ConfigurationError: a package it needs is not installed.
    """
    from opentelemetry import trace

    wanted = os.environ.get("OTEL_TRACES_EXPORTER", "")
    if wanted == "none" or not isinstance(trace.get_tracer_provider(), trace.ProxyTracerProvider):
        return
    try:
        from opentelemetry.sdk.trace import TracerProvider

        provider = TracerProvider(resource=_find_resource())
        if wanted == "console":
            from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

            provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(out=sys.stderr)))
        else:
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.trace.export import BatchSpanProcessor

            # It logs each failed try, even while a question is on the screen; we log once when it gives up.
            logging.getLogger("opentelemetry.exporter").setLevel(logging.ERROR)
            exporter = OTLPSpanExporter(timeout=_find_timeout("TRACES"))
            provider.add_span_processor(BatchSpanProcessor(exporter))
    except ImportError as error:
        raise _missing(error) from error
    trace.set_tracer_provider(provider)


def export_metrics() -> None:
    """Send metrics as `export_spans` does spans; ``OTEL_METRICS_EXPORTER`` takes the same values.

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

            reader = PeriodicExportingMetricReader(OTLPMetricExporter(timeout=_find_timeout("METRICS")))
    except ImportError as error:
        raise _missing(error) from error
    metrics.set_meter_provider(MeterProvider([reader], resource=_find_resource()))


def _find_timeout(signal: str) -> float | None:
    """Return the seconds that one attempt to send may take; None where OpenTelemetry's own variables say it."""
    own = any(os.environ.get(name) for name in (f"OTEL_EXPORTER_OTLP_{signal}_TIMEOUT", "OTEL_EXPORTER_OTLP_TIMEOUT"))
    return None if own else EXPORT_TIMEOUT_S


def _find_resource() -> Resource:
    from opentelemetry.sdk.resources import Resource

    found = Resource.create()
    is_named = not str(found.attributes.get("service.name", "")).startswith("unknown_service")
    return found if is_named else found.merge(Resource({"service.name": SERVICE_NAME}))


def _missing(error: ImportError) -> ConfigurationError:
    return ConfigurationError(
        f"tracing is on, but {error.name} is not installed. Say: {install_command('otel')}, or leave it out."
    )
