"""Where the spans and metrics of our own programs come from, and what they are called."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

PROGRAM = """
import json, os, sys
os.environ["OTEL_TRACES_EXPORTER"] = os.environ["OTEL_METRICS_EXPORTER"] = "console"
from opentelemetry import metrics, trace
from upcall.telemetry.export import export_metrics, export_spans
export_spans()
export_metrics()
resources = (trace.get_tracer_provider().resource, metrics.get_meter_provider()._sdk_config.resource)
print(json.dumps([each.attributes["service.name"] for each in resources]))
"""


@pytest.mark.parametrize(
    ("environment", "service"),
    [
        ({}, "upcall"),
        ({"OTEL_SERVICE_NAME": "shop"}, "shop"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=shop,service.version=2"}, "shop"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.version=2"}, "upcall"),
        ({"OTEL_SERVICE_NAME": ""}, "upcall"),
    ],
    ids=["default", "name", "resource", "other resource", "empty"],
)
def test_service_name_is_ours_unless_somebody_says_otherwise(environment: dict[str, str], service: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert json.loads(done.stdout or "null") == [service, service], done.stderr
