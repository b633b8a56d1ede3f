"""Calls of every shape on a bare server, and the ways in which they end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, wrappers_pb2
from google.protobuf.descriptor import ServiceDescriptor

from tests.kit.messages import ReportedError, reported
from tuskpoint_server.api.middleware.authentication import Authentication
from tuskpoint_server.api.middleware.pipeline import Call, CallPipeline, service_handler
from tuskpoint_server.api.middleware.telemetry import Telemetry
from tuskpoint_server.core.credentials import Scope
from tuskpoint_server.core.errors import Reason, Refusal

SHAPES = {
    "UnaryUnary": (False, False),
    "UnaryStream": (False, True),
    "StreamStream": (True, True),
}


TRACE_PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


Text = wrappers_pb2.StringValue


def shapes_service() -> ServiceDescriptor:
    """Return a service with one method of each shape in the contract."""
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


OPEN: dict[str, frozenset[Scope]] = {f"/tests.Shapes/{shape}": frozenset() for shape in SHAPES}


def pipeline_of(
    telemetry: Telemetry | None = None,
    authentication: Authentication | None = None,
    *,
    seconds: float = 60,
    policy: dict[str, frozenset[Scope]] = OPEN,
) -> CallPipeline:
    return CallPipeline(
        telemetry or Telemetry(), authentication or Authentication(), seconds, policy=policy
    )


class Behavior:
    """Acts in every shape as the test wants, after one answer if the shape streams."""

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

    async def UnaryStream(
        self, request: Any, call: Call
    ) -> AsyncIterator[wrappers_pb2.StringValue]:
        yield Text(value="first")
        yield await self._act(call)

    async def StreamStream(self, call: Call, pipeline: CallPipeline) -> None:
        await call.context.read()
        await call.context.write(Text(value="first").SerializeToString())
        await call.context.write((await self._act(call)).SerializeToString())


@asynccontextmanager
async def serving(behavior: object, pipeline: CallPipeline) -> AsyncIterator[grpc.aio.Channel]:
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers((service_handler(SERVICE, behavior, pipeline),))
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


async def end_of(call: Any) -> ReportedError | None:
    try:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    except grpc.aio.AioRpcError as error:
        return reported(error)
    return None
