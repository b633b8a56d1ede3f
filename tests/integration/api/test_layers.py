"""The layers around every call add a span and a measurement, mask errors, and end late calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf import wrappers_pb2
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

from tests.integration.access.tls_kit import bearer
from tests.integration.api.shapes import (
    SHAPES,
    TRACE_PARENT,
    Behavior,
    Text,
    end_of,
    pipeline_of,
    serving,
    start_call,
)
from tests.kit.messages import refused
from tuskpoint_server.api.middleware.authentication import Authentication
from tuskpoint_server.api.middleware.pipeline import Call, mark_endless
from tuskpoint_server.api.middleware.telemetry import Telemetry
from tuskpoint_server.core.credentials import Credentials, Grant, Scope, token_digest

OUTCOMES = ["ok", "abort", "exception", "cancel", "deadline"]
CODES = {
    "ok": "OK",
    "abort": "NOT_FOUND",
    "exception": "INTERNAL",
    "cancel": "CANCELLED",
    "deadline": "DEADLINE_EXCEEDED",
}


class Ended(SpanProcessor):
    """Passes spans on as they end."""

    def __init__(self) -> None:
        self.spans: asyncio.Queue[ReadableSpan] = asyncio.Queue()

    def on_end(self, span: ReadableSpan) -> None:
        self.spans.put_nowait(span)


@pytest.fixture
def measured() -> SimpleNamespace:
    ended, reader = Ended(), InMemoryMetricReader()
    tracers = TracerProvider()
    tracers.add_span_processor(ended)
    meters = MeterProvider([reader])
    return SimpleNamespace(
        spans=ended.spans,
        reader=reader,
        telemetry=Telemetry("127.0.0.1", 7390, tracer_provider=tracers, meter_provider=meters),
    )


def points(measured: SimpleNamespace, name: str) -> list[Any]:
    data = measured.reader.get_metrics_data()
    return [
        point
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
        if metric.name == name
        for point in metric.data.data_points
    ]


@pytest.mark.parametrize("outcome", OUTCOMES)
@pytest.mark.parametrize("shape", SHAPES)
async def test_every_call_has_one_span_with_its_final_code(
    measured: SimpleNamespace, shape: str, outcome: str
) -> None:
    behavior = Behavior(outcome)
    pipeline = pipeline_of(measured.telemetry)
    async with serving(behavior, pipeline) as channel:
        call = start_call(channel, shape, 0.3 if outcome == "deadline" else None)
        ending = asyncio.create_task(end_of(call))
        if outcome == "cancel":
            await behavior.entered.wait()
            call.cancel()
            await asyncio.wait({ending})
        else:
            ended = await ending
            assert (ended.code.name if ended else "OK") == CODES[outcome]
        span = await asyncio.wait_for(measured.spans.get(), 30)
        assert behavior.left.is_set(), "the behavior is closed before the call ends"
    assert measured.spans.empty()

    code = CODES[outcome]
    failed = outcome in ("exception", "deadline")
    expected = {
        "rpc.system.name": "grpc",
        "rpc.method": f"tests.Shapes/{shape}",
        "server.address": "127.0.0.1",
        "server.port": 7390,
        "rpc.response.status_code": code,
    } | ({"error.type": code} if failed else {})
    assert span.name == f"tests.Shapes/{shape}"
    assert span.kind is SpanKind.SERVER
    assert dict(span.attributes or {}) == expected
    assert span.status.status_code is (StatusCode.ERROR if failed else StatusCode.UNSET)
    assert not span.events, "no exception text"
    assert span.parent is not None
    assert trace.format_span_id(span.parent.span_id) == TRACE_PARENT.split("-")[2]
    [duration] = points(measured, "rpc.server.call.duration")
    assert (duration.count, dict(duration.attributes)) == (1, expected)
    assert duration.sum > 0
    [active] = points(measured, "tuskpoint.server.active_calls")
    assert active.value == 0


async def test_a_handler_runs_inside_its_span(measured: SimpleNamespace) -> None:
    seen: list[int] = []

    class Looking:
        async def UnaryUnary(self, request: Any, call: Call) -> wrappers_pb2.StringValue:
            seen.append(trace.get_current_span().get_span_context().span_id)
            return Text()

    async with serving(Looking(), pipeline_of(measured.telemetry)) as channel:
        await start_call(channel, "UnaryUnary")
        span = await measured.spans.get()
    assert span.context is not None
    assert seen == [span.context.span_id]


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_text_of_an_exception_never_leaves(
    shape: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Behavior("exception"), pipeline_of()) as channel:
        ended = await end_of(start_call(channel, shape))
    assert ended is not None
    assert (ended.code, ended.reason) == (grpc.StatusCode.INTERNAL, "INTERNAL_ERROR")
    assert "the agent's state" not in ended.message
    assert "the agent's state" not in caplog.text
    assert ended.metadata["incident"] in caplog.text
    assert ended.metadata["incident"] in ended.message


@pytest.mark.parametrize("shape", ["UnaryUnary", "UnaryStream"])
async def test_the_server_caps_the_time_of_a_call(shape: str) -> None:
    behavior = Behavior("deadline")
    async with serving(behavior, pipeline_of(seconds=0.05)) as channel:
        ended = await end_of(start_call(channel, shape))
    assert ended is not None
    assert (ended.code, ended.reason) == (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "DEADLINE_EXCEEDED",
    )
    assert behavior.left.is_set()


async def test_streams_of_requests_live_as_long_as_their_client() -> None:
    behavior = Behavior("cancel")
    async with serving(behavior, pipeline_of(seconds=0.01)) as channel:
        call = start_call(channel, "StreamStream")
        assert (await call.read()).value == "first"
        await behavior.entered.wait()
        waiting = asyncio.create_task(call.read())
        done, _ = await asyncio.wait({waiting}, timeout=0.1)
        assert not done
        call.cancel()
        await asyncio.wait({waiting})


async def test_a_timeout_of_the_handlers_own_is_a_defect() -> None:
    class Impatient:
        async def UnaryUnary(self, request: Any, call: Call) -> None:
            raise TimeoutError

    async with serving(Impatient(), pipeline_of()) as channel:
        ended = await end_of(start_call(channel, "UnaryUnary"))
    assert ended is not None
    assert ended.reason == "INTERNAL_ERROR"


async def test_a_drain_waits_for_the_calls_inside() -> None:
    pipeline = pipeline_of()
    behavior = Behavior("cancel")
    async with serving(behavior, pipeline) as channel:
        call = start_call(channel, "UnaryUnary")
        await behavior.entered.wait()
        assert not await pipeline.drain(0.01)
        refused = await end_of(start_call(channel, "UnaryUnary"))
        assert refused is not None
        assert refused.reason == "DRAINING"
        assert behavior.call is not None
        assert behavior.call.draining.is_set()
        call.cancel()
        assert await pipeline.drain(30)


async def test_a_drain_ends_calls_that_would_never_end() -> None:
    pipeline = pipeline_of(seconds=0.01)

    entered = asyncio.Event()

    class Endless:
        @mark_endless
        async def UnaryStream(self, request: Any, call: Call) -> AsyncIterator[Any]:
            yield Text(value="first")
            entered.set()
            await asyncio.Event().wait()

    async with serving(Endless(), pipeline) as channel:
        ending = asyncio.create_task(end_of(start_call(channel, "UnaryStream")))
        await entered.wait()
        done, _ = await asyncio.wait({ending}, timeout=0.1)
        assert not done, "no cap on its time"
        assert await pipeline.drain(30)
        ended = await ending
    assert ended is not None
    assert ended.reason == "DRAINING"


async def test_a_drain_does_not_cut_off_a_message_on_its_way() -> None:
    pipeline, passed_on = pipeline_of(), asyncio.Event()
    writing: asyncio.Future[Call] = asyncio.get_running_loop().create_future()

    class Slow:
        def __init__(self, call: Call) -> None:
            self._call, self._context = call, call.context

        async def write(self, message: bytes) -> None:
            writing.set_result(self._call)
            await passed_on.wait()
            await self._context.write(message)

        def __getattr__(self, name: str) -> Any:
            return getattr(self._context, name)

    class Endless:
        @mark_endless
        async def UnaryStream(self, request: Any, call: Call) -> AsyncIterator[Any]:
            call.context = Slow(call)
            while True:
                yield Text(value="next")

    async with serving(Endless(), pipeline) as channel:
        watch = start_call(channel, "UnaryStream")
        call = await writing
        draining = asyncio.create_task(pipeline.drain(30))
        await call.draining.wait()
        passed_on.set()
        assert (await anext(aiter(watch))).value == "next"
        ended = await end_of(watch)
        assert await draining
    assert ended is not None
    assert ended.reason == "DRAINING"


async def test_telemetry_and_errors_are_around_the_gate(measured: SimpleNamespace) -> None:
    pipeline = pipeline_of(measured.telemetry)
    await pipeline.drain(0)
    async with serving(Behavior("ok"), pipeline) as channel:
        refused = await end_of(start_call(channel, "UnaryUnary"))
    assert refused is not None
    assert refused.reason == "DRAINING"
    span = await measured.spans.get()
    assert span.attributes is not None
    assert span.attributes["rpc.response.status_code"] == "UNAVAILABLE"


async def test_drain_credential_and_scope_come_before_parsing_in_this_order() -> None:
    granted = {
        token_digest("none"): Grant("none", "default", frozenset()),
        token_digest("all"): Grant("all", "default", frozenset(Scope)),
    }
    policy = {"/tests.Shapes/UnaryUnary": frozenset({Scope.READ})}
    pipeline = pipeline_of(authentication=Authentication(Credentials(granted)), policy=policy)
    reasons = []
    async with serving(Behavior("ok"), pipeline) as channel:
        call: Any = channel.unary_unary("/tests.Shapes/UnaryUnary")
        for token in ("unknown", "none", "all", "drain"):
            if token == "drain":
                await pipeline.drain(0)
            answer = await refused(call(b"\xff", metadata=bearer(token)))
            reasons.append(answer.reason)
    assert reasons == ["CREDENTIAL_INVALID", "SCOPE_MISSING", "INVALID_FIELD", "DRAINING"]


@pytest.mark.parametrize("shape", SHAPES)
async def test_calls_that_are_not_built_say_so(measured: SimpleNamespace, shape: str) -> None:
    pipeline = pipeline_of(measured.telemetry)
    async with serving(object(), pipeline) as channel:
        ended = await end_of(start_call(channel, shape))
    assert ended is not None
    assert (ended.code, ended.reason, ended.metadata) == (
        grpc.StatusCode.UNIMPLEMENTED,
        "NOT_IMPLEMENTED",
        {"method": f"/tests.Shapes/{shape}"},
    )
