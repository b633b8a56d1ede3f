"""Instruments of the Walrus store (OpenTelemetry API; silent without an SDK)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider

from .answers import Stored
from .failures import PUTS, Failed, Operation


class Instruments:
    """What the Walrus store measures; the clock says monotonic time in seconds."""

    def __init__(self, provider: MeterProvider | None, clock: Callable[[], float]) -> None:
        self._clock = clock
        meter = metrics.get_meter("tuskpoint_server.blobs.walrus", meter_provider=provider)
        self._put_duration = meter.create_histogram(
            "tuskpoint.walrus.put.duration", "s", "Time of a put, its retries included.",
            explicit_bucket_boundaries_advisory=[
                0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 25, 30, 60, 120, 300
            ],
        )  # fmt: skip
        self._get_duration = meter.create_histogram(
            "tuskpoint.walrus.get.duration", "s", "Time of a read, its retries included.",
            explicit_bucket_boundaries_advisory=[
                0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120
            ],
        )  # fmt: skip
        self._puts = meter.create_counter(
            "tuskpoint.walrus.puts", "{put}", "Puts that stored or found a blob."
        )
        self._retries = meter.create_counter(
            "tuskpoint.walrus.retries",
            "{retry}",
            "Attempts that failed and were followed by another, by reason.",
        )
        self._billed = meter.create_counter(
            "tuskpoint.walrus.billed_bytes", "By", "Encoded bytes that puts were billed for."
        )

    @contextmanager
    def timed(self, operation: Operation) -> Iterator[dict[str, str]]:
        """Record how long a put or read takes; what is entered takes its outcome."""
        attributes = {"operation": operation.value, "outcome": "failed"}
        began = self._clock()
        try:
            yield attributes
        finally:
            histogram = self._put_duration if operation in PUTS else self._get_duration
            histogram.record(self._clock() - began, attributes)

    def stored(self, operation: Operation, stored: Stored, outcome: str) -> None:
        """Count a put that succeeded."""
        self._puts.add(1, {"operation": operation, "outcome": outcome})
        self._billed.add(stored.billed_bytes, {"operation": operation})

    def retry(self, failed: Failed) -> None:
        """Count an attempt that is followed by another."""
        self._retries.add(1, {"operation": failed.operation, "reason": failed.rule.name})
