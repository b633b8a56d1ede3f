"""Instruments of webhooks (OpenTelemetry API; silent without an SDK)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from opentelemetry import metrics
from opentelemetry.metrics import MeterProvider, Observation

Totals = list[tuple[str, str, bool, int, int]]


class WebhookInstruments:
    """Instruments of webhooks; `read_totals` returns what `DeliveryRows.totals` returned last."""

    def __init__(
        self,
        read_totals: Callable[[], Totals],
        clock_us: Callable[[], int],
        provider: MeterProvider | None = None,
    ) -> None:
        meter = metrics.get_meter("tuskpoint_server.webhooks", meter_provider=provider)
        self._attempts = meter.create_counter(
            "tuskpoint.webhooks.attempts",
            "{attempt}",
            "Attempts to post an event, by webhook and outcome: accepted, failed, parked.",
        )

        def sizes(_: object) -> Iterable[Observation]:
            for tenant, webhook, parked, count, _since in read_totals():
                state = "parked" if parked else "waiting"
                yield Observation(count, {"tenant": tenant, "webhook": webhook, "state": state})

        def ages(_: object) -> Iterable[Observation]:
            for tenant, webhook, parked, _count, since_us in read_totals():
                if not parked:
                    age_s = max(0.0, (clock_us() - since_us) / 1e6)
                    yield Observation(age_s, {"tenant": tenant, "webhook": webhook})

        waiting = "Events that a webhook has not accepted, by state: waiting, parked."
        meter.create_observable_gauge("tuskpoint.webhooks.events", [sizes], "{event}", waiting)
        oldest = "Time since the oldest waiting event of a webhook."
        meter.create_observable_gauge("tuskpoint.webhooks.age", [ages], "s", oldest)

    def attempted(self, webhook: str, outcome: str) -> None:
        """Count an attempt."""
        self._attempts.add(1, {"webhook": webhook, "outcome": outcome})
