"""Each RPC has one span and one duration, which end correctly however the RPC ends."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from opentelemetry import trace

from tests.unit.client.recorded import Recorded
from tuskpoint import errors
from tuskpoint._transport import telemetry
from tuskpoint._transport.telemetry import observe

PATH = "/tuskpoint.v1.CheckpointService/SaveCheckpoint"


class Failed(grpc.RpcError):
    def __init__(self, code: grpc.StatusCode) -> None:
        super().__init__()
        self._code = code

    def code(self) -> grpc.StatusCode:
        return self._code


@pytest.fixture
def recorded(monkeypatch: pytest.MonkeyPatch) -> Recorded:
    return Recorded(monkeypatch)


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (None, "OK", None),
        (Failed(grpc.StatusCode.ABORTED), "ABORTED", "ABORTED"),
        (Failed(grpc.StatusCode.DEADLINE_EXCEEDED), "DEADLINE_EXCEEDED", "DEADLINE_EXCEEDED"),
        (errors.Conflict("m", status="ABORTED"), "ABORTED", "ABORTED"),
        (asyncio.CancelledError(), "CANCELLED", "CancelledError"),
        (GeneratorExit(), "CANCELLED", "GeneratorExit"),
        (KeyError("x"), "UNKNOWN", "KeyError"),
    ],
)
def test_every_outcome_ends_the_span_and_is_counted(
    recorded: Recorded, error: BaseException | None, status: str, kind: str | None
) -> None:
    def call() -> None:
        with observe(PATH, "127.0.0.1:7390"):
            if error is not None:
                raise error

    if error is None:
        call()
    else:
        with pytest.raises(type(error)):
            call()
    expected: dict[str, str | int] = {
        "rpc.system.name": "grpc",
        "rpc.method": PATH[1:],
        "server.address": "127.0.0.1",
        "server.port": 7390,
        "rpc.response.status_code": status,
    }
    if kind is not None:
        expected["error.type"] = kind
    span, point = recorded.span(), recorded.point()
    assert span.name == PATH[1:]
    assert span.kind is trace.SpanKind.CLIENT
    assert dict(span.attributes or {}) == expected
    assert span.status.is_ok == (error is None)
    assert (dict(point.attributes), point.count) == (expected, 1)


def test_the_trace_is_sent_along(recorded: Recorded) -> None:
    with observe(PATH, "h:1") as rpc:
        headers = dict(rpc.headers)
    context = recorded.span().get_span_context()
    assert context is not None
    assert headers["traceparent"].split("-")[1:3] == [
        f"{context.trace_id:032x}",
        f"{context.span_id:016x}",
    ]


def test_without_the_package_nothing_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telemetry, "_PRESENT", False)
    first, second = observe(PATH, "h:1"), observe(PATH, "h:1")
    assert first is second
    with first as rpc:
        assert rpc.headers == ()
