"""One span and one measurement per call or frame of a stream, by OpenTelemetry's API alone.

Names follow OpenTelemetry's semantic conventions for RPC (`rpc.system.name`,
`rpc.method`, `rpc.response.status_code`, histogram `rpc.server.call.duration` in seconds).
Without an SDK nothing is recorded.
"""

from __future__ import annotations

import contextvars
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from opentelemetry import context as otel_context
from opentelemetry import metrics, propagate, trace
from opentelemetry.trace import SpanKind, StatusCode

SCOPE = "tuskpoint_server"

_SERVER_ERRORS = frozenset(
    {"UNKNOWN", "DEADLINE_EXCEEDED", "UNIMPLEMENTED", "INTERNAL", "UNAVAILABLE", "DATA_LOSS"}
)
"""Codes that mark a server's span as failed, by the semantic conventions for gRPC."""


@dataclass(slots=True)
class CallMeasurement:
    """A measured call or frame."""

    method: str
    began: float  # start, by `time.perf_counter`
    span: trace.Span | None
    token: contextvars.Token[otel_context.Context] | None
    within: otel_context.Context | None = None  # context with the span

    def context(self) -> contextvars.Context | None:
        """Return a context for a frame's task, in which the frame's span is current."""
        if self.within is None:
            return None
        context = contextvars.copy_context()
        context.run(otel_context.attach, self.within)
        return context

    def cancelled_code(self, remaining_s: float | None) -> str:
        """Return the code of a cancelled call, from the time until its deadline.

        A client also cancels at its own deadline, which may arrive a little before the server's.
        """
        if remaining_s is None:
            return "CANCELLED"
        allowed_s = remaining_s + time.perf_counter() - self.began
        return "DEADLINE_EXCEEDED" if remaining_s <= min(0.05, allowed_s / 2) else "CANCELLED"


class Telemetry:
    """Measures each call and each frame to its end."""

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
        provider = tracer_provider or trace.get_tracer_provider()
        self._tracer: trace.Tracer | None = None
        if not isinstance(provider, (trace.ProxyTracerProvider, trace.NoOpTracerProvider)):
            self._tracer = provider.get_tracer(SCOPE)
        self._propagated = frozenset(propagate.get_global_textmap().fields)
        self._attributes: dict[tuple[str, str], dict[str, str | int]] = {}
        # The API's own providers record nothing.
        meters = meter_provider or metrics.get_meter_provider()
        self._counts = not type(meters).__module__.startswith(metrics.__name__)
        self._meter = meter = metrics.get_meter(SCOPE, meter_provider=meter_provider)
        self._duration = meter.create_histogram(
            "rpc.server.call.duration",
            unit="s",
            description="Duration of calls, from the first byte to the last, and of frames.",
            explicit_bucket_boundaries_advisory=[
                0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60
            ],
        )  # fmt: skip
        self._active = meter.create_up_down_counter(
            "tuskpoint.server.active_calls",
            unit="{call}",
            description="Calls and frames in progress.",
        )
        self._denied = meter.create_counter(
            "tuskpoint.server.denied_calls",
            unit="{call}",
            description="Calls refused or cut off for their credential, by reason.",
        )

    def watch_memory(self, held_bytes: Callable[[], int]) -> None:
        """Report the memory that calls hold."""

        def observe(_: metrics.CallbackOptions) -> list[metrics.Observation]:
            return [metrics.Observation(held_bytes())]

        self._meter.create_observable_gauge(
            "tuskpoint.server.memory", [observe], "By", "Memory that calls hold, as it is bounded."
        )

    def begin(self, method: str, metadata: Iterable[tuple[str, object]]) -> CallMeasurement:
        """Start to measure a call; its logs and calls belong to its span."""
        measured = CallMeasurement(method, time.perf_counter(), None, None)
        if self._tracer is not None:
            carrier: dict[str, list[str]] = {}
            for header, text in metadata:
                if header in self._propagated and isinstance(text, str):
                    carrier.setdefault(header, []).append(text)
            context = self._start_span(self._tracer, measured, carrier)
            measured.token = otel_context.attach(context)
        if self._counts:
            self._active.add(1, self._attributes_of(method))
        return measured

    def begin_frame(self, method: str, traceparent: str) -> CallMeasurement:
        """Start to measure a frame of a stream, which counts as a call of this method."""
        measured = CallMeasurement(method, time.perf_counter(), None, None)
        if self._tracer is not None:
            self._start_span(
                self._tracer, measured, {"traceparent": [traceparent]} if traceparent else {}
            )
        if self._counts:
            self._active.add(1, self._attributes_of(method))
        return measured

    def end(self, measured: CallMeasurement, code: str, denied: str = "") -> None:
        """End the measurement of a call or a frame, with the name of its status.

        `denied`: why the credential was refused; empty if it was accepted.
        """
        if measured.token is not None:
            otel_context.detach(measured.token)
        if not self._counts and measured.span is None:
            return
        if denied:
            self._denied.add(1, {"reason": denied})
        self._active.add(-1, self._attributes_of(measured.method))
        attributes = self._attributes_of(measured.method, code)
        # The context makes the call's span an exemplar of the measurement.
        self._duration.record(time.perf_counter() - measured.began, attributes, measured.within)
        if measured.span is not None:
            if code in _SERVER_ERRORS:
                measured.span.set_status(StatusCode.ERROR)
            measured.span.set_attributes(attributes)
            measured.span.end()

    def _start_span(
        self, tracer: trace.Tracer, measured: CallMeasurement, carrier: dict[str, list[str]]
    ) -> otel_context.Context:
        parent = propagate.extract(carrier) if carrier else None
        name = measured.method.removeprefix("/")
        attributes = self._attributes_of(measured.method)
        measured.span = tracer.start_span(name, parent, SpanKind.SERVER, attributes)
        measured.within = trace.set_span_in_context(measured.span, parent)
        return measured.within

    def _attributes_of(self, method: str, code: str = "") -> dict[str, str | int]:
        """Return the attributes of calls of a method, with the final code if known."""
        attributes = self._attributes.get((method, code))
        if attributes is None:
            attributes = {**self._server, "rpc.method": method.removeprefix("/")}
            if code:
                attributes["rpc.response.status_code"] = code
            if code in _SERVER_ERRORS:
                attributes["error.type"] = code
            self._attributes[method, code] = attributes
        return attributes
