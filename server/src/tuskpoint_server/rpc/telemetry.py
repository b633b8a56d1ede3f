"""One span and one measurement per call, by OpenTelemetry's API alone.

Names follow OpenTelemetry's semantic conventions for RPC (`rpc.system.name`,
`rpc.method`, `rpc.response.status_code`, histogram `rpc.server.call.duration` in seconds).
Without an SDK every operation here is a no-op.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from opentelemetry import context as otel_context
from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import SpanKind, StatusCode

if TYPE_CHECKING:
    from .calls import Call

SCOPE = "tuskpoint_server"

_SERVER_ERRORS = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)
"""Codes that mark a server's span as failed, by the semantic conventions for gRPC."""


class Telemetry:
    """Measures each call to its end, however it ends."""

    def __init__(
        self,
        address: str = "",
        port: int = 0,
        *,
        tracer_provider: trace.TracerProvider | None = None,
        meter_provider: metrics.MeterProvider | None = None,
    ) -> None:
        self._server: dict[str, str | int] = {"rpc.system.name": "grpc"}
        if address:
            self._server |= {"server.address": address, "server.port": port}
        self._tracer = trace.get_tracer(SCOPE, tracer_provider=tracer_provider)
        self._propagated = propagate.get_global_textmap().fields
        meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._duration = meter.create_histogram(
            "rpc.server.call.duration",
            unit="s",
            description="Duration of calls, from the first byte to the last.",
            explicit_bucket_boundaries_advisory=[
                0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60
            ],
        )  # fmt: skip
        self._active = meter.create_up_down_counter(
            "tuskpoint.server.active_calls", unit="{call}", description="Calls in progress."
        )
        self._denied = meter.create_counter(
            "tuskpoint.server.denied_calls",
            unit="{call}",
            description="Calls refused or cut off for their credential, by reason.",
        )

    @contextmanager
    def measured(self, call: Call) -> Iterator[None]:
        """Measure a call that runs inside the context."""
        began = time.perf_counter()
        remaining: float | None = call.context.time_remaining()
        name = call.method.removeprefix("/")
        basic = {**self._server, "rpc.method": name}
        carrier: dict[str, list[str]] = {}
        for header, text in call.context.invocation_metadata() or ():
            if header in self._propagated and isinstance(text, str):
                carrier.setdefault(header, []).append(text)
        parent = propagate.extract(carrier) if carrier else None
        span = self._tracer.start_span(name, parent, SpanKind.SERVER, basic)
        token = otel_context.attach(trace.set_span_in_context(span, parent))
        self._active.add(1, basic)
        try:
            yield
        except asyncio.CancelledError:
            # A client cancels at its own deadline too, which may be seen a little before ours.
            slack = min(0.05, remaining / 2) if remaining is not None else 0
            late = remaining is not None and time.perf_counter() - began >= remaining - slack
            call.code = "DEADLINE_EXCEEDED" if late else "CANCELLED"
            raise
        finally:
            otel_context.detach(token)
            if call.denied:
                self._denied.add(1, {"reason": call.denied})
            self._active.add(-1, basic)
            ending = {"rpc.response.status_code": call.code}
            if call.code in _SERVER_ERRORS:
                ending["error.type"] = call.code
                span.set_status(StatusCode.ERROR)
            self._duration.record(time.perf_counter() - began, {**basic, **ending})
            span.set_attributes(ending)
            span.end()
