"""Spans and instruments of the archive (OpenTelemetry API; silent without an SDK)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

_SCOPE = "tuskpoint_server.archive"

tracer = trace.get_tracer(_SCOPE)


class BacklogReading(NamedTuple):
    """Backlog of one tenant: bytes that wait, and seconds since the oldest change."""

    tenant: str
    size_bytes: int
    age_s: float


class Instruments:
    """What the archive measures; the global provider is used if none is given."""

    def __init__(
        self,
        read_backlog: Callable[[], Iterable[BacklogReading]],
        provider: MeterProvider | None = None,
    ) -> None:
        meter = metrics.get_meter(_SCOPE, meter_provider=provider)
        self._flushes = meter.create_histogram(
            "tuskpoint.archive.flush.duration",
            unit="s",
            description="Time from collecting a pack to its certification.",
            explicit_bucket_boundaries_advisory=[
                0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300
            ],
        )  # fmt: skip
        self._certified = meter.create_counter(
            "tuskpoint.archive.certified", unit="{checkpoint}", description="Checkpoints certified."
        )
        described = "Blobs whose SHA-256 was not the recorded one."
        self._mismatches = meter.create_counter(
            "tuskpoint.archive.hash_mismatches", "{blob}", described
        )
        described = "Flushes that failed and are tried again, by reason."
        self._retries = meter.create_counter("tuskpoint.archive.retries", "{flush}", described)

        def sizes(_: CallbackOptions) -> list[Observation]:
            return [Observation(one.size_bytes, {"tenant": one.tenant}) for one in read_backlog()]

        def ages(_: CallbackOptions) -> list[Observation]:
            return [Observation(one.age_s, {"tenant": one.tenant}) for one in read_backlog()]

        described = "Bytes of values and writes that wait for certification."
        meter.create_observable_gauge("tuskpoint.archive.backlog.size", [sizes], "By", described)
        described = "Time since the oldest change that is not certified."
        meter.create_observable_gauge("tuskpoint.archive.backlog.age", [ages], "s", described)

    def flushed(self, tenant: str, seconds: float, certified: int) -> None:
        """Count a flush that certified something."""
        self._flushes.record(seconds, {"tenant": tenant})
        self._certified.add(certified, {"tenant": tenant})

    def mismatch(self) -> None:
        """Count a blob with another hash than recorded."""
        self._mismatches.add(1)

    def retry(self, reason: str) -> None:
        """Count a flush that failed."""
        self._retries.add(1, {"reason": reason})
