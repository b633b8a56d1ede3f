"""Spans and instruments of the archive (OpenTelemetry API; silent without an SDK)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry import metrics, trace
from opentelemetry.metrics import CallbackOptions, MeterProvider, Observation

_SCOPE = "tuskpoint_server.archive"

tracer = trace.get_tracer(_SCOPE)


class FlushInstruments:
    """Instruments of the archive; the global provider is used if none is given."""

    def __init__(self, provider: MeterProvider | None = None) -> None:
        self._meter = meter = metrics.get_meter(_SCOPE, meter_provider=provider)
        self.flushes = meter.create_histogram(
            "tuskpoint.archive.flush.duration",
            unit="s",
            description="Time from collecting a pack to its certification.",
            explicit_bucket_boundaries_advisory=[
                0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 120, 300
            ],
        )  # fmt: skip
        self.certified = meter.create_counter(
            "tuskpoint.archive.certified", "{checkpoint}", "Checkpoints certified."
        )
        self.mismatches = meter.create_counter(
            "tuskpoint.archive.hash_mismatches",
            "{blob}",
            "Blobs whose SHA-256 was not the recorded one.",
        )
        self.retries = meter.create_counter(
            "tuskpoint.archive.retries",
            "{flush}",
            "Flushes that failed and are tried again, by reason.",
        )
        self.renewals = meter.create_counter(
            "tuskpoint.archive.renewals",
            "{blob}",
            "Renewals of stored blobs, by outcome: renewed, unchanged, failed, gone.",
        )
        self.stored_again = meter.create_counter(
            "tuskpoint.archive.rehydrated",
            "{checkpoint}",
            "Checkpoints that are stored again because their blob will not last.",
        )
        self.losses = meter.create_counter(
            "tuskpoint.archive.losses",
            "{checkpoint}",
            "Checkpoints whose only copy was in a blob that is gone or damaged.",
        )
        self.damages = meter.create_counter(
            "tuskpoint.journal.damaged_values",
            "{value}",
            "Values of the journal that did not have their digest when they were read, by outcome: "
            "repaired, lost.",
        )
        self.damaged_keys = meter.create_counter(
            "tuskpoint.journal.damaged_keys",
            "{key}",
            "Keys of segments that did not open in the journal when a catalog was rebuilt.",
        )
        self.scrubbed = meter.create_counter(
            "tuskpoint.journal.scrubbed", "By", "Bytes of the journal that the scrub has checked."
        )
        self.scrub_problems = meter.create_counter(
            "tuskpoint.journal.scrub.problems",
            "{problem}",
            "Damaged rows and values that the scrub has found, by outcome: repaired, found.",
        )

    def gauge(
        self, name: str, unit: str, described: str, read: Callable[[], Iterable[tuple[str, float]]]
    ) -> None:
        """Create a gauge with a value for each tenant."""

        def observe(_: CallbackOptions) -> list[Observation]:
            return [Observation(value, {"tenant": tenant}) for tenant, value in read()]

        self._meter.create_observable_gauge(name, [observe], unit, described)
