"""What is done around every call: one span and one measurement, masked errors, deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import grpc
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, wrappers_pb2
from google.protobuf.descriptor import ServiceDescriptor
from opentelemetry import trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import SpanKind, StatusCode

from tests.kit.messages import Told, told
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.rpc.authentication import Authentication
from tuskpoint_server.rpc.calls import Call, Layer
from tuskpoint_server.rpc.handlers import service_handler
from tuskpoint_server.rpc.layers import DeadlineCap, DrainGate, errors
from tuskpoint_server.rpc.policy import Authorisation
from tuskpoint_server.rpc.server import layers
from tuskpoint_server.rpc.telemetry import Telemetry

Text = wrappers_pb2.StringValue
SHAPES = {
    "UnaryUnary": (False, False),
    "UnaryStream": (False, True),
    "StreamUnary": (True, False),
    "StreamStream": (True, True),
}
OUTCOMES = ["ok", "abort", "exception", "cancel", "deadline"]
CODES = {
    "ok": "OK",
    "abort": "NOT_FOUND",
    "exception": "INTERNAL",
    "cancel": "CANCELLED",
    "deadline": "DEADLINE_EXCEEDED",
}
TRACE_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def shapes_service() -> ServiceDescriptor:
    """A service with one method of each shape."""
    text = ".google.protobuf.StringValue"
    file = descriptor_pb2.FileDescriptorProto(
        name="tests/shapes.proto",
        package="tests",
        syntax="proto3",
        dependency=["google/protobuf/wrappers.proto"],
    )
    service = file.service.add(name="Shapes")
    for name, (client, server) in SHAPES.items():
        service.method.add(
            name=name,
            input_type=text,
            output_type=text,
            client_streaming=client,
            server_streaming=server,
        )
    pool: Any = descriptor_pool.Default()
    described: ServiceDescriptor = pool.AddSerializedFile(
        file.SerializeToString()
    ).services_by_name["Shapes"]
    return described


SERVICE = shapes_service()
OPEN = Authorisation({f"/tests.Shapes/{shape}": frozenset() for shape in SHAPES})


def all_layers(telemetry: Telemetry, gate: DrainGate) -> list[Layer]:
    return layers(telemetry, gate, Authentication(), OPEN, 60)


class Behavior:
    """Does in every shape what the test asks for, after one answer if it streams."""

    def __init__(self, outcome: str) -> None:
        self._outcome = outcome
        self.entered = asyncio.Event()
        self.left = asyncio.Event()
        self.call: Call | None = None

    async def _act(self, call: Call) -> wrappers_pb2.StringValue:
        self.call = call
        self.entered.set()
        try:
            if self._outcome == "abort":
                raise Refusal(Reason.THREAD_NOT_FOUND, thread_id="t")
            if self._outcome == "exception":
                raise ValueError("the agent's state")
            if self._outcome in ("cancel", "deadline"):
                await asyncio.Event().wait()
            return Text(value="done")
        finally:
            self.left.set()

    async def UnaryUnary(self, request: Any, call: Call) -> wrappers_pb2.StringValue:
        return await self._act(call)

    async def StreamUnary(self, requests: Any, call: Call) -> wrappers_pb2.StringValue:
        await anext(requests)
        return await self._act(call)

    async def UnaryStream(
        self, request: Any, call: Call
    ) -> AsyncIterator[wrappers_pb2.StringValue]:
        yield Text(value="first")
        yield await self._act(call)

    async def StreamStream(
        self, requests: Any, call: Call
    ) -> AsyncIterator[wrappers_pb2.StringValue]:
        await anext(requests)
        yield Text(value="first")
        yield await self._act(call)


class Ended(SpanProcessor):
    """Hands over spans as they end."""

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


@asynccontextmanager
async def serving(behavior: object, around: list[Any]) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((service_handler(SERVICE, behavior, around),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    try:
        async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
            yield channel
    finally:
        await server.stop(None)


def start_call(
    channel: grpc.aio.Channel,
    shape: str,
    timeout: float | None = None,
    metadata: Sequence[tuple[str, str]] = (("traceparent", TRACE_PARENT),),
) -> Any:
    client, server = SHAPES[shape]
    make: Any = getattr(
        channel, f"{'stream' if client else 'unary'}_{'stream' if server else 'unary'}"
    )
    callable_ = make(f"/tests.Shapes/{shape}", Text.SerializeToString, Text.FromString)
    request = iter([Text()]) if client else Text()
    return callable_(request, timeout=timeout, metadata=metadata)


async def end_of(call: Any) -> Told | None:
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return told(error)
    return None


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
    around = all_layers(measured.telemetry, DrainGate())
    async with serving(behavior, around) as channel:
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

    async with serving(Looking(), [measured.telemetry]) as channel:
        await start_call(channel, "UnaryUnary")
        span = await measured.spans.get()
    assert span.context is not None
    assert seen == [span.context.span_id]


@pytest.mark.parametrize("shape", SHAPES)
async def test_the_text_of_an_exception_never_leaves(
    shape: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Behavior("exception"), [errors]) as channel:
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
    async with serving(behavior, [errors, DeadlineCap(0.05)]) as channel:
        ended = await end_of(start_call(channel, shape))
    assert ended is not None
    assert (ended.code, ended.reason) == (
        grpc.StatusCode.DEADLINE_EXCEEDED,
        "DEADLINE_EXCEEDED",
    )
    assert behavior.left.is_set()


async def test_streams_of_requests_live_as_long_as_their_client() -> None:
    behavior = Behavior("cancel")
    async with serving(behavior, [errors, DeadlineCap(0.01)]) as channel:
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

    async with serving(Impatient(), [errors, DeadlineCap(60)]) as channel:
        ended = await end_of(start_call(channel, "UnaryUnary"))
    assert ended is not None
    assert ended.reason == "INTERNAL_ERROR"


async def test_the_gate_waits_for_the_calls_inside() -> None:
    gate = DrainGate()
    behavior = Behavior("cancel")
    async with serving(behavior, [errors, gate]) as channel:
        call = start_call(channel, "UnaryUnary")
        await behavior.entered.wait()
        assert not await gate.drain(0.01)
        refused = await end_of(start_call(channel, "UnaryUnary"))
        assert refused is not None
        assert refused.reason == "DRAINING"
        assert behavior.call is not None
        assert behavior.call.draining.is_set()
        call.cancel()
        assert await gate.drain(30)


def test_the_layers_stand_in_their_order() -> None:
    telemetry, gate, authentication = Telemetry(), DrainGate(), Authentication()
    first, second, third, *others = layers(telemetry, gate, authentication, OPEN, 1)
    assert (first, second) == (telemetry, errors)
    assert isinstance(third, DeadlineCap)
    assert others == [gate, authentication, OPEN]


async def test_the_first_layer_is_the_outermost(measured: SimpleNamespace) -> None:
    gate = DrainGate()
    gate.draining.set()
    around = all_layers(measured.telemetry, gate)
    async with serving(Behavior("ok"), around) as channel:
        refused = await end_of(start_call(channel, "UnaryUnary"))
    assert refused is not None
    assert refused.reason == "DRAINING", "errors are around the gate"
    span = await measured.spans.get()
    assert span.attributes is not None
    assert span.attributes["rpc.response.status_code"] == "UNAVAILABLE", "telemetry is around both"


@pytest.mark.parametrize("shape", SHAPES)
async def test_a_method_without_behavior_is_refused(shape: str) -> None:
    async with serving(object(), [errors]) as channel:
        ended = await end_of(start_call(channel, shape))
    assert ended is not None
    assert (ended.code, ended.metadata) == (
        grpc.StatusCode.UNIMPLEMENTED,
        {"method": f"/tests.Shapes/{shape}"},
    )


@pytest.mark.parametrize("shape", SHAPES)
async def test_calls_that_are_not_built_say_so(measured: SimpleNamespace, shape: str) -> None:
    around = all_layers(measured.telemetry, DrainGate())
    async with serving(object(), around) as channel:
        ended = await end_of(start_call(channel, shape))
    assert ended is not None
    assert (ended.code, ended.reason, ended.metadata) == (
        grpc.StatusCode.UNIMPLEMENTED,
        "NOT_IMPLEMENTED",
        {"method": f"/tests.Shapes/{shape}"},
    )
