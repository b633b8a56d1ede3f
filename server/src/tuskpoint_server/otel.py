"""OpenTelemetry's SDK, for those who ask for it. Nobody else pays for its import."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Literal

SERVICE_NAME = "tuskpoint-server"


class ExporterMissingError(Exception):
    """The exporter asked for is not installed; the text says how to get it."""


def start(exporter: Literal["console", "otlp"], version: str) -> Callable[[], None]:
    """Send traces and metrics to an exporter; return what flushes and ends it.

    `OTEL_*` variables work as OpenTelemetry documents them.

    Raises:
        ExporterMissingError: The OTLP exporter is not installed.
    """
    from opentelemetry import metrics, trace
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import (
        ConsoleMetricExporter,
        MetricExporter,
        PeriodicExportingMetricReader,
    )
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import (
        BatchSpanProcessor,
        ConsoleSpanExporter,
        SpanExporter,
    )

    span_exporter: SpanExporter
    metric_exporter: MetricExporter
    if exporter == "otlp":
        try:
            from opentelemetry.exporter.otlp.proto.grpc.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
        except ImportError:
            raise ExporterMissingError(
                "the OTLP exporter is not installed; pip install 'tuskpoint-server[otlp]'"
            ) from None
        span_exporter, metric_exporter = OTLPSpanExporter(), OTLPMetricExporter()
    else:
        # stdout belongs to the line that names the address.
        import sys

        span_exporter = ConsoleSpanExporter(out=sys.stderr)
        metric_exporter = ConsoleMetricExporter(out=sys.stderr)
    named = {"service.version": version}
    if not os.environ.get("OTEL_SERVICE_NAME"):
        named["service.name"] = SERVICE_NAME
    resource = Resource.create(named)
    tracer_provider = TracerProvider(resource=resource)
    tracer_provider.add_span_processor(BatchSpanProcessor(span_exporter))
    meter_provider = MeterProvider([PeriodicExportingMetricReader(metric_exporter)], resource)
    trace.set_tracer_provider(tracer_provider)
    metrics.set_meter_provider(meter_provider)

    def stop() -> None:
        tracer_provider.shutdown()
        meter_provider.shutdown()

    return stop
