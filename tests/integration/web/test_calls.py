"""Calls over HTTP are measured, masked, cancelled and ended like calls over gRPC."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from tests.integration.api.shapes import SERVICE, SHAPES, Behavior, Text, pipeline_of
from tests.integration.web.web_kit import (
    JSON,
    WEB,
    WIRES,
    Envelopes,
    Wire,
    enveloped,
    from_json,
)
from tests.kit.messages import ReportedError, reported
from tuskpoint_server.api.middleware.pipeline import Call, CallPipeline, mark_endless
from tuskpoint_server.api.web import listener

CODES = {"abort": grpc.StatusCode.NOT_FOUND, "exception": grpc.StatusCode.INTERNAL}
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def serving(behavior: object, pipeline: CallPipeline) -> AsyncIterator[int]:
    """Serve the shapes of calls over HTTP; yield the port."""
    served = listener.build(
        "127.0.0.1", 0, [(SERVICE, behavior)], pipeline, is_ready=lambda: True, max_connections=64
    )
    served.start()
    before = asyncio.all_tasks()
    try:
        yield int(served.url.rpartition(":")[2])
        while left := asyncio.all_tasks() - before - {asyncio.current_task()}:
            assert left
            await asyncio.sleep(0.01)
    finally:
        await served.stop()


@asynccontextmanager
async def begun(
    port: int, shape: str, wire: Wire, headers: str = "", *, ends: bool = True
) -> AsyncIterator[Connection]:
    """Send a call on a new connection, complete or without its end."""
    client, server = SHAPES[shape]
    streams = client or server
    body = wire.encoded(Text())
    if streams or wire.protocol == "grpc-web":
        body = enveloped(body)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(
        f"POST /tests.Shapes/{shape} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        f"content-type: {wire.kind(streams=streams)}\r\nconnect-protocol-version: 1\r\n"
        f"transfer-encoding: chunked\r\n{headers}\r\n"
        f"{len(body):x}\r\n".encode()
        + body
        + (b"\r\n0\r\n\r\n" if ends else b"\r\n")
    )
    try:
        yield reader, writer
    finally:
        writer.close()
        await writer.wait_closed()


async def ended(reader: asyncio.StreamReader, wire: Wire) -> tuple[int, ReportedError | None]:
    """Read an answer to its end; return its HTTP status and its error."""
    head, _, body = (await reader.read()).partition(b"\r\n\r\n")
    status, head = int(head.split()[1]), head.lower()
    if b"transfer-encoding: chunked" in head:
        body = unchunked(body)
    if b"content-type: application/json" in head:
        return status, None if status == 200 else reported(from_json(json.loads(body)))
    envelopes = Envelopes()
    list(envelopes.feed(body))
    if b"content-type: application/proto" in head:
        return status, None
    assert envelopes.is_ended
    return status, None if envelopes.error is None else reported(envelopes.error)


def unchunked(body: bytes) -> bytes:
    whole = b""
    while body:
        size, _, body = body.partition(b"\r\n")
        whole, body = whole + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return whole


def one_for_each(outcome: str) -> tuple[dict[str, Behavior], SimpleNamespace]:
    """Return a behavior for each shape, and a servicer of all of them."""
    behaviors = {shape: Behavior(outcome) for shape in SHAPES}
    methods = {shape: getattr(behavior, shape) for shape, behavior in behaviors.items()}
    return behaviors, SimpleNamespace(**methods)


@pytest.mark.parametrize("outcome", ["ok", *CODES])
@pytest.mark.parametrize("wire", WIRES, ids=str)
async def test_an_outcome_is_that_of_the_door(
    wire: Wire, outcome: str, caplog: pytest.LogCaptureFixture
) -> None:
    behaviors, servicer = one_for_each(outcome)
    async with serving(servicer, pipeline_of()) as port:
        for shape, behavior in behaviors.items():
            async with begun(port, shape, wire) as (reader, _):
                _, error = await ended(reader, wire)
            assert (error.code if error else None) == CODES.get(outcome), shape
            assert behavior.left.is_set()
            if outcome == "exception":
                assert error is not None
                assert "the agent's state" not in error.message + caplog.text
                assert error.metadata["incident"] in caplog.text


@pytest.mark.parametrize("wire", WIRES, ids=str)
async def test_a_client_that_goes_away_cancels_its_call(
    wire: Wire, caplog: pytest.LogCaptureFixture
) -> None:
    behaviors, servicer = one_for_each("cancel")
    pipeline = pipeline_of()
    async with serving(servicer, pipeline) as port:
        for shape, behavior in behaviors.items():
            async with begun(port, shape, wire) as (reader, _):
                if shape != "UnaryUnary":
                    await reader.readuntil(b"first")
                await behavior.entered.wait()
            await behavior.left.wait()
        assert await pipeline.drain(30)
    calls = [behavior.call for behavior in behaviors.values()]
    assert [call.code for call in calls if call is not None] == ["CANCELLED"] * len(SHAPES)
    assert not caplog.records


async def test_a_stream_of_requests_that_breaks_off_is_no_defect(
    caplog: pytest.LogCaptureFixture,
) -> None:
    calls: list[Call] = []

    class Reading:
        async def StreamStream(self, call: Call, pipeline: CallPipeline) -> None:
            calls.append(call)
            await call.context.read()
            await call.context.write(Text(value="first").SerializeToString())
            await call.context.read()

    async with serving(Reading(), pipeline_of()) as port:
        async with begun(port, "StreamStream", JSON, ends=False) as (reader, _):
            await reader.readuntil(b"first")
        async with begun(port, "StreamStream", JSON, ends=False) as (reader, writer):
            await reader.readuntil(b"first")
            writer.write(b"1\r\n\x0f\r\n4\r\n\0\0\0\0\r\n0\r\n\r\n")
            await reader.readuntil(b'"invalid_argument"')
    assert [call.code for call in calls] == ["CANCELLED", "CANCELLED"]
    assert not caplog.records


@pytest.mark.parametrize(
    ("wire", "header"), [(JSON, "connect-timeout-ms: 50\r\n"), (WEB, "grpc-timeout: 50m\r\n")]
)
async def test_the_clients_deadline_ends_a_call(wire: Wire, header: str) -> None:
    behaviors, servicer = one_for_each("deadline")
    async with serving(servicer, pipeline_of()) as port:
        for shape, behavior in behaviors.items():
            async with begun(port, shape, wire, header) as (reader, _):
                status, error = await ended(reader, wire)
            assert error is not None
            assert error.code is grpc.StatusCode.DEADLINE_EXCEEDED
            assert status == (504 if wire is JSON and shape == "UnaryUnary" else 200)
            assert behavior.left.is_set()
            assert behavior.call is not None
            assert behavior.call.code == "DEADLINE_EXCEEDED"


async def test_the_server_caps_the_time_of_a_call() -> None:
    behaviors, servicer = one_for_each("deadline")
    async with serving(servicer, pipeline_of(seconds=0.05)) as port:
        for shape in ("UnaryUnary", "UnaryStream"):
            async with begun(port, shape, JSON) as (reader, _):
                _, error = await ended(reader, JSON)
            assert error is not None
            assert error.reason == "DEADLINE_EXCEEDED"
            assert behaviors[shape].left.is_set()


async def test_a_drain_ends_what_has_no_end_and_waits_for_the_rest() -> None:
    pipeline, entered = pipeline_of(), asyncio.Event()
    waiting = Behavior("cancel")

    class Endless:
        UnaryUnary = waiting.UnaryUnary

        @mark_endless
        async def UnaryStream(self, request: Any, call: Call) -> AsyncIterator[Any]:
            yield Text(value="first")
            entered.set()
            await asyncio.Event().wait()

    async with serving(Endless(), pipeline) as port:
        async with (
            begun(port, "UnaryStream", JSON) as (watch, _),
            begun(port, "UnaryUnary", JSON),
        ):
            await entered.wait()
            await waiting.entered.wait()
            draining = asyncio.create_task(pipeline.drain(30))
            _, error = await ended(watch, JSON)
            assert error is not None
            assert error.reason == "DRAINING"
            assert not draining.done()
        assert await draining


async def test_stopping_cuts_off_what_still_runs(caplog: pytest.LogCaptureFixture) -> None:
    behavior = Behavior("cancel")
    served = listener.build(
        "127.0.0.1",
        0,
        [(SERVICE, behavior)],
        pipeline_of(),
        is_ready=lambda: True,
        max_connections=64,
    )
    served.start()
    port = int(served.url.rpartition(":")[2])
    async with begun(port, "UnaryStream", JSON) as (reader, _):
        await behavior.entered.wait()
        await served.stop()
        assert b'"canceled"' in await reader.read()
    assert behavior.left.is_set()
    assert "Traceback" not in caplog.text
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection("127.0.0.1", port)


async def test_a_listener_that_never_started_can_be_stopped() -> None:
    served = listener.build(
        "127.0.0.1",
        0,
        [(SERVICE, Behavior("ok"))],
        pipeline_of(),
        is_ready=lambda: True,
        max_connections=64,
    )
    await served.stop()


async def test_a_defect_of_the_listener_itself_is_hidden(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise ValueError("the agent's state")

    monkeypatch.setattr("tuskpoint_server.api.web.connect.read_form", fail)
    async with (
        serving(Behavior("ok"), pipeline_of()) as port,
        begun(port, "UnaryUnary", JSON) as (reader, _),
    ):
        status, error = await ended(reader, JSON)
    assert status == 500
    assert error is not None
    assert error.code is grpc.StatusCode.INTERNAL
    assert "the agent's state" not in error.message + caplog.text
    assert "incident" in caplog.text


async def test_an_answer_that_is_no_json_is_hidden(caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        async def UnaryUnary(self, request: Any, call: Call) -> Any:
            return Text(value="the agent's state")

    async def fail(*_: object, **__: object) -> bytes:
        raise ValueError("the agent's state")

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tuskpoint_server.api.web.connect.to_json", fail)
        async with (
            serving(Broken(), pipeline_of()) as port,
            begun(port, "UnaryUnary", JSON) as (reader, _),
        ):
            _, error = await ended(reader, JSON)
    assert error is not None
    assert (error.code, error.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL_ERROR")
    assert "the agent's state" not in error.message + caplog.text
