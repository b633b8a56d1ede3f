"""Instruments of the Walrus store (OpenTelemetry API; silent without an SDK)."""

from __future__ import annotations

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider

from .failures import Failed
from .symptoms import Operation

_SCOPE = "tuskpoint_server.blobs.walrus"


class Instruments:
    """What the Walrus store measures.

    Args:
        provider: Where to measure; the global provider if none is given.
    """

    def __init__(self, provider: MeterProvider | None = None) -> None:
        meter = metrics.get_meter(_SCOPE, meter_provider=provider)
        self._put_duration = meter.create_histogram(
            "tuskpoint.walrus.put.duration",
            unit="s",
            description="Time of a put, its retries included.",
            explicit_bucket_boundaries_advisory=[
                0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 20, 25, 30, 60, 120, 300
            ],
        )  # fmt: skip
        self._get_duration = meter.create_histogram(
            "tuskpoint.walrus.get.duration",
            unit="s",
            description="Time of a read, its retries included.",
            explicit_bucket_boundaries_advisory=[
                0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 15, 30, 60, 120
            ],
        )  # fmt: skip
        self._puts = meter.create_counter(
            "tuskpoint.walrus.puts", unit="{put}", description="Puts that stored or found a blob."
        )
        self._retries = meter.create_counter(
            "tuskpoint.walrus.retries",
            unit="{retry}",
            description="Attempts that failed and were followed by another, by reason.",
        )
        self._billed = meter.create_counter(
            "tuskpoint.walrus.billed_bytes",
            unit="By",
            description="Encoded bytes that puts were billed for.",
        )

    def stored(
        self, operation: Operation, seconds: float, billed_bytes: int, *, found: bool
    ) -> None:
        """Count a put that succeeded; `found`: the blob was stored before."""
        outcome = "found" if found else "created"
        self._put_duration.record(seconds, {"operation": operation, "outcome": outcome})
        self._puts.add(1, {"operation": operation, "outcome": outcome})
        self._billed.add(billed_bytes, {"operation": operation})

    def not_stored(self, operation: Operation, seconds: float) -> None:
        """Count a put that failed."""
        self._put_duration.record(seconds, {"operation": operation, "outcome": "failed"})

    def read(self, operation: Operation, seconds: float, *, succeeded: bool) -> None:
        """Count a read."""
        outcome = "read" if succeeded else "failed"
        self._get_duration.record(seconds, {"operation": operation, "outcome": outcome})

    def retry(self, failed: Failed) -> None:
        """Count an attempt that is followed by another."""
        self._retries.add(1, {"operation": failed.operation, "reason": failed.rule.name})
