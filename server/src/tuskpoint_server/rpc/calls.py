"""One call, the handlers that gRPC hands it to, and what is done around each.

A servicer is an object with a coroutine (one answer) or an async generator (a stream of
answers) for each method that is built, taking the request (or an async iterator of
requests) and the `Call`. An answer is a message, or a mapping of its fields; its durability is
the one asked for unless it says. Methods that a servicer lacks answer `NOT_IMPLEMENTED`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from grpc_status import rpc_status  # type: ignore[import-untyped]

from ..domain.credentials import Scope
from ..domain.errors import Reason, Refusal, invalid_field
from ..domain.limits import LIMITS
from ..domain.model import Durability
from .authentication import POLICY, Authentication, check_scopes
from .errors import incident, to_status
from .telemetry import Telemetry
from .validation import check, limit_exceeded

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
    wanted: Durability = Durability.JOURNALED  # what its only request asks for
    denied: str = ""  # why its credential was refused, for telemetry; empty if it was not
    draining: asyncio.Event = field(default_factory=asyncio.Event)  # set once the server drains
    cap: float | None = None  # time of the event loop at which the server ends it at the latest
    lifetime: asyncio.Timeout = field(default_factory=lambda: asyncio.timeout(None))
    ended: Callable[[], Refusal] | None = None  # why its lifetime is over; `None`: its time was up
    code: str = "OK"  # name of the status that it ends with, as far as is known

    def end_at(self, time: float | None, why: Callable[[], Refusal] | None = None) -> None:
        """Cut the call off at a time of the event loop, with this refusal; `None`: never."""
        self.ended = why
        self.lifetime.reschedule(time)


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
    streaming, is_endless = method.client_streaming, getattr(behavior, "endless", False)
    request_class = message_factory.GetMessageClass(method.input_type)
    answer_class = message_factory.GetMessageClass(method.output_type)
    sides = (method.input_type, method.output_type)
    durable = all("durability" in side.fields_by_name for side in sides)

    def answered(answer: Any) -> Message:
        return answer if isinstance(answer, Message) else answer_class(**answer)

    async def each(raw: AsyncIterator[bytes]) -> AsyncIterator[Message]:
        async for piece in raw:
            yield _parse(request_class, piece)

    async def run(raw: Any, call: Call) -> Any:
        if behavior is None:
            raise Refusal(Reason.NOT_IMPLEMENTED, method=name)
        request: Any = each(raw) if streaming else _parse(request_class, raw)
        if durable:
            call.wanted = Durability(request.durability)
        if not method.server_streaming:
            answer: Any = answered(await behavior(request, call))
            if durable and not answer.durability:
                answer.durability = call.wanted
            return answer
        # Written here and not yielded to gRPC: so a cancelled call is cancelled at this
        # point, and the generators inside are closed before it ends.
        async with aclosing(behavior(request, call)) as answers:
            async for answer in answers:
                await call.context.write(answered(answer))
        return None

    async def handle(raw: Any, context: Context) -> Any:
        call = Call(name, context, streaming, is_endless, draining=around.draining)
        return await around(call, partial(run, raw, call))

    streams = (streaming, method.server_streaming)
    shape = "_".join("stream" if many else "unary" for many in streams)
    make = getattr(grpc, f"{shape}_rpc_method_handler")
    # Requests are parsed around the call: gRPC answers a malformed one with its own error.
    handler: grpc.RpcMethodHandler[Any, Any] = make(handle, None, answer_class.SerializeToString)
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


@dataclass(frozen=True, slots=True)
class Around:
    """What is done around every call, from the outside in.

    Telemetry is outermost, so that it counts the final code of whatever the others refuse. A
    failure that is no refusal ends with an incident ID: gRPC would send its text to the client.

    The client's own deadline is kept by gRPC. A call without one, or with a longer one, ends
    after `max_call_seconds`. Streams of requests and endless streams of answers are exempt:
    they live as long as their client, and keep-alive pings find dead ones.
    """

    _telemetry: Telemetry
    _authentication: Authentication
    _max_call_seconds: float
    policy: Mapping[str, frozenset[Scope]] = field(default_factory=lambda: POLICY)
    draining: asyncio.Event = field(default_factory=asyncio.Event)
    _drained: asyncio.Event = field(default_factory=asyncio.Event)

    async def __call__(self, call: Call, run: Callable[[], Awaitable[Any]]) -> Any:
        """Return what a call answers, or end it with its status."""
        with self._telemetry.measured(call):
            try:
                async with call.lifetime:
                    if not (call.request_streaming or call.endless):
                        call.cap = asyncio.get_running_loop().time() + self._max_call_seconds
                    if self.draining.is_set():
                        raise Refusal(Reason.DRAINING)
                    try:
                        self._authentication.admit(call)
                        check_scopes(call, self.policy.get(call.method))
                        return await run()
                    finally:
                        self._authentication.running.pop(call, None)
                        if self.draining.is_set() and not self._authentication.running:
                            self._drained.set()
            except Refusal as told:
                refusal = told
            except TimeoutError as error:
                if not call.lifetime.expired():
                    refusal = incident(error, call.method)
                elif call.ended is not None:
                    refusal = call.ended()
                else:
                    refusal = Refusal(Reason.DEADLINE_EXCEEDED)
            except Exception as error:  # noqa: BLE001 - a defect, told by its incident ID
                refusal = incident(error, call.method)
            call.code = refusal.status.name
            return await call.context.abort_with_status(rpc_status.to_status(to_status(refusal)))

    async def drain(self, grace_s: float) -> bool:
        """Let no call in, end what is endless, and wait; tell whether all calls left in time."""
        self.draining.set()
        if not self._authentication.running:
            return True
        for call in self._authentication.running:
            if call.endless and not call.lifetime.expired():
                call.end_at(0, lambda: Refusal(Reason.DRAINING))
        try:
            async with asyncio.timeout(grace_s):
                await self._drained.wait()
        except TimeoutError:
            return False
        return True
