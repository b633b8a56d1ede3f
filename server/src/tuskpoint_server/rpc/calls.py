"""One call, and the handlers that gRPC hands it to.

A servicer is an object with a coroutine (one answer) or an async generator (a stream of
answers) for each method that is built, taking the request (or an async iterator of
requests) and the `Call`. Methods that it lacks answer `NOT_IMPLEMENTED`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from dataclasses import dataclass, field
from typing import Any, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from ..domain.credentials import Scope
from ..domain.errors import Reason, Refusal, invalid_field
from ..domain.limits import LIMITS
from .checks import limit_exceeded
from .validation import check

Context = grpc.aio.ServicerContext[Any, Any]
Behavior = TypeVar("Behavior", bound=Callable[..., Any])


@dataclass(slots=True, eq=False)
class Call:
    """A call of a method, as its servicer and what is around it see it."""

    method: str  # full name, such as "/tuskpoint.v1.CheckpointService/GetCheckpoint"
    context: Context
    request_streaming: bool = False  # the client sends a stream, and may keep it open for long
    endless: bool = False  # the answers go on until one side ends the call
    tenant: str = ""  # whose data it is about; set by authentication, as the next is
    scopes: frozenset[Scope] = frozenset()
    denied: str = ""  # why its credential was refused, for telemetry; empty if it was not
    draining: asyncio.Event = field(default_factory=asyncio.Event)  # set once the server drains
    cap: float | None = None  # time of the event loop at which the server ends it at the latest
    lifetime: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    ended: Callable[[], Refusal] | None = None  # what tells why its lifetime is over

    def end_at(self, time: float | None, why: Callable[[], Refusal]) -> None:
        """Cut the call off at a time of the event loop, with this refusal; `None`: never."""
        self.ended = why
        self.lifetime.reschedule(time)


def late() -> Refusal:
    """Return the refusal of a call that took longer than the server lets one take."""
    return Refusal(Reason.DEADLINE_EXCEEDED)


Around = Callable[[Call], AbstractAsyncContextManager[None]]  # what is done around a call


def endless(behavior: Behavior) -> Behavior:
    """Mark the behavior of a method whose answers go on until one side ends the call."""
    behavior.endless = True  # type: ignore[attr-defined]
    return behavior


def service_handler(
    service: ServiceDescriptor, servicer: object, around: Around
) -> grpc.GenericRpcHandler:
    """Return the handler of a service."""
    handlers = {
        method.name: _method_handler(method, getattr(servicer, method.name, None), around)
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _method_handler(
    method: MethodDescriptor, behavior: Callable[..., Any] | None, around: Around
) -> grpc.RpcMethodHandler[Any, Any]:
    name = f"/{method.containing_service.full_name}/{method.name}"
    is_endless = getattr(behavior, "endless", False)
    request_class = message_factory.GetMessageClass(method.input_type)

    async def each(raw: AsyncIterator[bytes]) -> AsyncIterator[Message]:
        async for piece in raw:
            yield _parse(request_class, piece)

    async def handle(raw: Any, context: Context) -> Any:
        call = Call(name, context, method.client_streaming, is_endless)
        async with around(call):
            if behavior is None:
                raise Refusal(Reason.NOT_IMPLEMENTED, method=name)
            request = each(raw) if method.client_streaming else _parse(request_class, raw)
            if not method.server_streaming:
                return await behavior(request, call)
            # Written here and not yielded to gRPC: so a cancelled call is cancelled at this
            # point, and the generators inside are closed before it ends.
            async with aclosing(behavior(request, call)) as answers:
                async for answer in answers:
                    await context.write(answer)
            return None

    sides = (method.client_streaming, method.server_streaming)
    shape = "_".join("stream" if streams else "unary" for streams in sides)
    make = getattr(grpc, f"{shape}_rpc_method_handler")
    serialize = message_factory.GetMessageClass(method.output_type).SerializeToString
    # Requests are parsed around the call: gRPC answers a malformed one with its own error.
    handler: grpc.RpcMethodHandler[Any, Any] = make(handle, None, serialize)
    return handler


def _parse(request_class: type[Message], raw: bytes) -> Message:
    if len(raw) > LIMITS.max_message:
        what = f"a message of {len(raw)} bytes"
        raise limit_exceeded(what, "max_message_bytes", LIMITS.max_message)
    try:
        request = request_class.FromString(raw)
    except DecodeError:
        raise invalid_field("request", f"is not a {request_class.DESCRIPTOR.full_name}") from None
    check(request)
    return request
