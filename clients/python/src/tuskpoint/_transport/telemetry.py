"""One client span and one duration per RPC, if `opentelemetry-api` is installed.

Names follow the RPC semantic conventions of OpenTelemetry
(opentelemetry.io/docs/specs/semconv/rpc). Without the package, or without a configured SDK, nothing
is recorded.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from functools import lru_cache
from types import TracebackType
from typing import Protocol

import grpc

from ..errors import TuskPointError
from .settings.target import host_and_port
from .settings.token import Headers

try:
    from opentelemetry import metrics, propagate, trace
except ImportError:
    _PRESENT = False
else:
    _PRESENT = True
    # Instruments that are created before the SDK is configured delegate to it later.
    _TRACER = trace.get_tracer("tuskpoint")
    _DURATION = metrics.get_meter("tuskpoint").create_histogram(
        "rpc.client.call.duration",
        unit="s",
        description="Duration of outbound RPCs.",
        explicit_bucket_boundaries_advisory=[
            0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60
        ],
    )  # fmt: skip


class Observation(Protocol):
    """A context manager around one RPC."""

    headers: Headers
    """Metadata to send with the RPC, such as `traceparent`."""

    def __enter__(self) -> Observation: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None: ...


class _NoObservation:
    """The observation that records nothing."""

    __slots__ = ("headers",)

    def __init__(self) -> None:
        self.headers: Headers = ()

    def __enter__(self) -> _NoObservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None


_UNOBSERVED = _NoObservation()


@lru_cache(maxsize=256)
def _known_before(path: str, target: str) -> Mapping[str, str | int]:
    """Return the attributes that are known before an RPC."""
    host, port = host_and_port(target)
    attributes: dict[str, str | int] = {
        "rpc.system.name": "grpc",
        "rpc.method": path.removeprefix("/"),
        "server.address": host,
    }
    if port is not None:
        attributes["server.port"] = port
    return attributes


class _RpcObservation:
    """Span and duration of one RPC."""

    __slots__ = ("_attributes", "_span", "_start", "headers")

    def __init__(self, path: str, target: str) -> None:
        self._attributes = _known_before(path, target)
        self._span = _TRACER.start_span(
            path.removeprefix("/"), kind=trace.SpanKind.CLIENT, attributes=self._attributes
        )
        self.headers: Headers = ()
        if self._span.get_span_context().is_valid:
            carrier: dict[str, str] = {}
            propagate.inject(carrier, context=trace.set_span_in_context(self._span))
            self.headers = tuple(carrier.items())
        self._start = time.perf_counter()

    def __enter__(self) -> _RpcObservation:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        duration = time.perf_counter() - self._start
        status = _status_of(error)
        outcome = {"rpc.response.status_code": status}
        if status != "OK":
            is_status = isinstance(error, grpc.RpcError | TuskPointError)
            outcome["error.type"] = status if is_status else type(error).__qualname__
            self._span.set_status(trace.StatusCode.ERROR)
        self._span.set_attributes(outcome)
        self._span.end()
        _DURATION.record(duration, {**self._attributes, **outcome})


def _status_of(error: BaseException | None) -> str:
    """Return the canonical status of an RPC in the view of the client."""
    if error is None:
        return "OK"
    if isinstance(error, grpc.RpcError):
        return error.code().name
    if isinstance(error, TuskPointError):
        return error.status
    # A reader that stops, and a task that is cancelled, cancel the call.
    if isinstance(error, GeneratorExit | asyncio.CancelledError):
        return "CANCELLED"
    return "UNKNOWN"


def observe(path: str, target: str) -> Observation:
    """Return the observation of one RPC that is about to start.

    Args:
        path: Path of the method on the wire.
        target: Normalized target.
    """
    return _RpcObservation(path, target) if _PRESENT else _UNOBSERVED
