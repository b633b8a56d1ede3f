"""Instruments of how long blobs last (OpenTelemetry API; silent without an SDK)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider, Observation

_SCOPE = "tuskpoint_server.archive"


@dataclass(frozen=True, slots=True)
class LifetimeReading:
    """How the blobs of a tenant last.

    Attributes:
        tenant: The tenant.
        failing: Blobs that are due and whose last renewal failed.
        expiry_s: Seconds to the earliest expiry of a needed blob; `None` if none expires.
    """

    tenant: str
    failing: int
    expiry_s: float | None


class LifetimeInstruments:
    """What is measured of how long blobs last.

    Args:
        read: Returns a reading for every tenant; called at each collection.
        provider: Where to measure; the global provider if none is given.
    """

    def __init__(
        self,
        read: Callable[[], Iterable[LifetimeReading]],
        provider: MeterProvider | None = None,
    ) -> None:
        meter = metrics.get_meter(_SCOPE, meter_provider=provider)
        self._renewals = meter.create_counter(
            "tuskpoint.archive.renewals",
            unit="{blob}",
            description="Renewals of stored blobs, by outcome: renewed, unchanged, failed, gone.",
        )
        self._again = meter.create_counter(
            "tuskpoint.archive.rehydrated",
            unit="{checkpoint}",
            description="Checkpoints that are stored again because their blob will not last.",
        )
        self._losses = meter.create_counter(
            "tuskpoint.archive.losses",
            unit="{checkpoint}",
            description="Checkpoints whose only copy was in a blob that is gone or damaged.",
        )
        meter.create_observable_gauge(
            "tuskpoint.archive.expiry",
            [
                lambda _: [
                    Observation(reading.expiry_s, {"tenant": reading.tenant})
                    for reading in read()
                    if reading.expiry_s is not None
                ]
            ],
            unit="s",
            description="Time to the earliest expiry of a blob that is needed.",
        )
        meter.create_observable_gauge(
            "tuskpoint.archive.renewals.failing",
            [
                lambda _: [
                    Observation(reading.failing, {"tenant": reading.tenant}) for reading in read()
                ]
            ],
            unit="{blob}",
            description="Blobs that are due for renewal and whose last renewal failed.",
        )

    def renewal(self, outcome: str) -> None:
        """Count a renewal."""
        self._renewals.add(1, {"outcome": outcome})

    def stored_again(self, count: int) -> None:
        """Count checkpoints that are stored again."""
        self._again.add(count)

    def lost(self, count: int) -> None:
        """Count checkpoints that are lost."""
        self._losses.add(count)
