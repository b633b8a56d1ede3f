"""Spans and measurements that a client recorded."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tuskpoint._transport import telemetry


class Recorded:
    """The spans and measurements so far."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._spans = InMemorySpanExporter()
        self._reader = InMemoryMetricReader()
        tracing = TracerProvider()
        tracing.add_span_processor(SimpleSpanProcessor(self._spans))
        meter = MeterProvider(metric_readers=[self._reader]).get_meter("test")
        monkeypatch.setattr(telemetry, "_TRACER", tracing.get_tracer("test"))
        duration = meter.create_histogram("rpc.client.call.duration", unit="s")
        monkeypatch.setattr(telemetry, "_DURATION", duration)

    def spans(self) -> Sequence[ReadableSpan]:
        return self._spans.get_finished_spans()

    def span(self) -> ReadableSpan:
        (span,) = self.spans()
        return span

    def point(self) -> Any:
        data: Any = self._reader.get_metrics_data()
        (point,) = data.resource_metrics[0].scope_metrics[0].metrics[0].data.data_points
        return point
