"""The call pipeline: maps methods to servicers, and runs the middleware of each call.

`method_handlers` yields both for gRPC and for HTTP, which differ in the `Context` that they pass.

A servicer is an object with a coroutine (one answer) or an async generator (a stream of answers)
for each method that it implements. It gets the parsed request and the `Call`. An answer is a
message, or a mapping of its fields; an answer without a durability gets the requested one. The
servicer's `checks` have, by the name of a request, the rules besides the limits of the fields.

A method with a stream of requests gets the `Call` and the `CallPipeline`. It reads and writes the
bytes of messages on `Call.context` itself and returns at the end of the stream. The time of the
stream is not capped; the time of its frames is, and the pipeline's telemetry measures the frames.

Methods that a servicer lacks answer `NOT_IMPLEMENTED`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NoReturn, Protocol, TypeAlias, TypeVar

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from grpc_status import rpc_status  # type: ignore[import-untyped]

from ...core.credentials import NOTHING, Grant, Presented, Scope
from ...core.errors import Reason, Refusal, invalid_field
from ...core.limits import KIB, LIMITS
from ...core.model import Durability
from ...features.call_memory import NOT_WRITING, CallMemory, Holder
from ...features.trail.trail import Trail
from ..messages.json_text import JsonText, from_json
from ..messages.validation import Check, check, limit_exceeded
from .authentication import Authentication
from .errors import incident, to_status
from .naming import threads_named
from .policy import POLICY, check_scopes
from .quotas import UNCOUNTED, Usage
from .telemetry import Telemetry

_COUNTED_BYTES = 64 * KIB  # size from which a unary request counts as memory that its call holds
WRITE_SECONDS = 1.0  # seconds in which a message must be sent after its call was ended

Fields = Mapping[str, object]  # fields of an answer
Frames = AsyncIterator[Fields]
Run = Callable[["Call", bytes], Awaitable[bytes | None]]
Take = Callable[[Any], object]  # checks a request, and returns the argument of the behavior
Behavior = TypeVar("Behavior", bound=Callable[..., Any])
MessageT = TypeVar("MessageT", bound=Message)
Handler: TypeAlias = "grpc.RpcMethodHandler[object, bytes | None]"


class CallerMetadata(Protocol):
    """The caller's part of a call, before the request is read."""

    def invocation_metadata(self) -> Iterable[tuple[str, str | bytes]] | None: ...

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        """Return the names in the client's certificate, by their kind."""

    def peer(self) -> str:
        """Return the client's address and port, as the transport writes them; "" if unnamed."""


class Context(CallerMetadata, Protocol):
    """The transport's side of a call: gRPC's `ServicerContext`, or `HttpContext`."""

    def time_remaining(self) -> float | None:
        """Return the seconds until the client's deadline; `None` without a deadline."""

    async def read(self) -> object:
        """Return the bytes of the next request of a stream, or `grpc.aio.EOF`."""

    async def write(self, message: bytes, /) -> None: ...

    async def abort_with_status(self, status: grpc.Status, /) -> NoReturn:
        """End the call with this status; raises."""


Handle = Callable[[object, Context], Awaitable[bytes | None]]
"""Answers a call: takes the bytes of its request, which a stream of requests has not, and its
context; returns the bytes of its answer, which a stream of answers has not. `UNREAD` in the place
of the request is read from the context once the caller is admitted."""

UNREAD = object()


@dataclass(slots=True, eq=False)
class Call(Holder):
    """A call of a method, for the servicer and the middleware."""

    method: str  # full name, such as "/tuskpoint.v1.CheckpointService/GetCheckpoint"
    context: Context
    endless: bool = False  # the call runs until one side ends it
    streams: bool = False  # the call has a stream of requests or of answers
    wanted: Durability = Durability.JOURNALED  # durability that the only request asks for
    draining: asyncio.Event = field(default_factory=asyncio.Event)  # set when the server drains
    presented: Presented = ()  # credential of the call; set by authentication
    grant: Grant = NOTHING  # grant of the credential
    usage: Usage = UNCOUNTED  # usage of the tenant
    named: tuple[str, ...] = ()  # threads in the only request, for the audit trail
    denied: str = ""  # why its credential was refused, for telemetry; empty if it was not
    code: str = "OK"  # name of the status that it ends with, as far as is known
    ended: Refusal | None = None  # reason why the server ended the running call
    task: asyncio.Task[object] | None = None  # task that runs the behavior

    @property
    def tenant(self) -> str:
        """The tenant of the call's data."""
        return self.grant.tenant

    @property
    def scopes(self) -> frozenset[Scope]:
        """The scopes of the call's credential."""
        return self.grant.scopes

    async def write(self, data: bytes) -> None:
        """Send a message as soon as the tenant's quota allows; return after gRPC has sent it."""
        self.writing_since = asyncio.get_running_loop().time()
        await self.usage.room()
        self.usage.take(0, len(data))
        try:
            await self.context.write(data)
        except grpc.aio.InternalError:
            # The client left, and gRPC has not cancelled this task yet.
            raise asyncio.CancelledError from None
        self.writing_since = NOT_WRITING

    def end(self, why: Refusal) -> None:
        """Cancel the behavior, so that the call ends with this refusal; the first refusal counts.

        A message that is being sent is sent first: gRPC accepts no status beside a message.
        """
        if self.ended is None and self.task is not None:
            self.ended = why
            self.code = why.status.name
            if self.writing_since != NOT_WRITING:
                asyncio.get_running_loop().call_later(WRITE_SECONDS, self._cancel)
            else:
                self.task.cancel()

    def _cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


def mark_endless(behavior: Behavior) -> Behavior:
    """Mark the behavior of a method that runs until one side ends the call.

    The call has no cap; a drain ends the call with `DRAINING`.
    """
    behavior.endless = True  # type: ignore[attr-defined]
    return behavior


class CallPipeline:
    """Handles every call.

    Drain, credential and scopes are checked before anything is parsed. Telemetry gets the final
    code of every call, refused calls included. An unexpected exception ends the call with an
    incident ID: gRPC would send the exception's text to the client.

    gRPC ends a call at the client's deadline. A call without one, or with a later one, ends after
    `max_call_seconds`. Endless calls and streams of requests have no cap: they live as long as
    their client and its credential, and keep-alive pings find dead clients.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        authentication: Authentication,
        max_call_seconds: float,
        memory: CallMemory | None = None,
        trail: Trail | None = None,
        policy: Mapping[str, frozenset[Scope]] = POLICY,
    ) -> None:
        self.telemetry = telemetry
        self.max_call_seconds = max_call_seconds
        self.memory = memory or CallMemory()
        telemetry.watch_memory(lambda: self.memory.held_bytes)
        self._authentication = authentication
        self.trail = trail
        self._policy = policy
        self._draining = asyncio.Event()
        self._emptied = asyncio.Event()

    async def handle(self, call: Call, run: Run, raw: object, *, capped: bool) -> bytes | None:
        """Return the answer of a call, or end it with its status."""
        measured = self.telemetry.begin(call.method, call.context.invocation_metadata() or ())
        call.draining, call.task = self._draining, asyncio.current_task()
        call.memory = self.memory
        cap = None
        try:
            if self._draining.is_set():
                raise Refusal(Reason.DRAINING)
            self._authentication.admit(call)
            check_scopes(call, self._policy.get(call.method))
            if capped:
                cap = self._cap(call)
            if raw is UNREAD:
                raw = await call.context.read()
                if raw is grpc.aio.EOF:
                    raise invalid_field("request", "must be sent")
            with _count_call(call, raw):
                return await run(call, raw if isinstance(raw, bytes) else b"")
        except asyncio.CancelledError:
            if call.ended is None or call.task is None:
                call.code = measured.cancelled_code(call.context.time_remaining())
                raise
            call.task.uncancel()
            refusal = call.ended
        except Refusal as refused:
            refusal = refused
            call.code = refusal.status.name
        except Exception as error:  # noqa: BLE001 - a defect, known by its incident ID
            refusal = incident(error, call.method)
            call.code = refusal.status.name
        finally:
            call.task = None
            if cap is not None:
                cap.cancel()
            self._authentication.dismiss(call)
            call.close()
            if self._draining.is_set() and not self._authentication.running:
                self._emptied.set()
            self.telemetry.end(measured, call.code, call.denied)
            if self.trail is not None and self.records(call):
                self.trail.note(call.grant, call.method, call.named, call.code)
        return await self._refuse(call, refusal)

    async def _refuse(self, call: Call, refusal: Refusal) -> NoReturn:
        """End a call with the status of a refusal; raises."""
        await call.context.abort_with_status(rpc_status.to_status(to_status(refusal)))

    def admits(self, context: CallerMetadata) -> bool:
        """Return whether the credential of a call is accepted, before the body is read."""
        try:
            self._authentication.grant(Call("", context))  # type: ignore[arg-type]
        except Refusal:
            return False
        return True

    def knows(self, metadata: Iterable[tuple[str, str | bytes]] | None) -> bool:
        """Return whether the metadata of a call has a known credential."""
        return self._authentication.knows(metadata or ())

    def records(self, call: Call) -> bool:
        """Return whether the audit trail records a call."""
        trail = self.trail
        return trail is not None and call.method in trail.records and bool(call.grant.tenant)

    def _cap(self, call: Call) -> asyncio.TimerHandle | None:
        """Start the timer that ends a call whose client sets no deadline, or a later one."""
        remaining: float | None = call.context.time_remaining()
        if remaining is not None and remaining <= self.max_call_seconds:
            return None
        loop, refusal = asyncio.get_running_loop(), Refusal(Reason.DEADLINE_EXCEEDED)
        return loop.call_later(self.max_call_seconds, call.end, refusal)

    async def drain(self, grace_s: float) -> bool:
        """Refuse new calls, end endless ones, and wait; return whether all calls ended in time."""
        self._draining.set()
        if not self._authentication.running:
            return True
        for call in self._authentication.running:
            if call.endless:
                call.end(Refusal(Reason.DRAINING))
        try:
            async with asyncio.timeout(grace_s):
                await self._emptied.wait()
        except TimeoutError:
            return False
        return True


@contextmanager
def _count_call(call: Call, raw: object) -> Iterator[None]:
    """Count a call and its request against the tenant's quota, or refuse the call."""
    usage = call.usage
    usage.admit()
    if isinstance(raw, bytes):  # frames of a stream are counted one by one
        usage.take(1, len(raw))
    if not call.streams:
        yield
        return
    usage.open_stream()
    try:
        yield
    finally:
        usage.streams -= 1


def method_handlers(
    service: ServiceDescriptor, servicer: object, pipeline: CallPipeline
) -> Iterator[tuple[MethodDescriptor, Handle]]:
    """Yield every method of a service, with the function that answers its calls."""
    checks: Mapping[str, Check] = getattr(servicer, "checks", {})
    takes: Mapping[str, Take] = getattr(servicer, "takes", {})
    for method in service.methods:
        behavior, input_name = getattr(servicer, method.name, None), method.input_type.name
        take = takes.get(input_name) or partial(_check_request, checks.get(input_name))
        run = _not_built if behavior is None else _run(method, behavior, take, pipeline)
        is_endless = getattr(behavior, "endless", False)
        yield method, _handle(method, run, pipeline, is_endless=is_endless)


def service_handler(
    service: ServiceDescriptor, servicer: object, pipeline: CallPipeline
) -> grpc.GenericRpcHandler:
    """Return gRPC's handler of a service."""
    handlers = {}
    for method, handle in method_handlers(service, servicer, pipeline):
        shape = "stream" if method.server_streaming else "unary"
        # The pipeline parses requests, because gRPC answers malformed requests with its own error.
        later = getattr(grpc, f"stream_{shape}_rpc_method_handler")
        at_once = later
        if not method.client_streaming:
            at_once = getattr(grpc, f"unary_{shape}_rpc_method_handler")
        unread_handle = handle if method.client_streaming else _reading_later(handle)
        handlers[f"/{service.full_name}/{method.name}"] = at_once(handle), later(unread_handle)
    return _ServiceHandler(handlers, pipeline)


class _ServiceHandler(grpc.GenericRpcHandler):
    """The methods of a service.

    gRPC reads a single request of any caller before it calls a handler. So a request whose metadata
    has no known credential is a stream to gRPC, and the pipeline admits the caller before it reads
    the stream. That costs another turn of the event loop, which known callers do not pay.
    """

    def __init__(
        self,
        handlers: Mapping[str, tuple[Handler, Handler]],
        pipeline: CallPipeline,
    ) -> None:
        self._handlers = handlers
        self._pipeline = pipeline

    def service(self, details: grpc.HandlerCallDetails) -> Handler | None:
        """Return the handler of a call; `None` if the method belongs to another service."""
        handlers = self._handlers.get(details.method)
        if handlers is None:
            return None
        at_once, later = handlers
        return at_once if self._pipeline.knows(details.invocation_metadata) else later


def _reading_later(handle: Handle) -> Handle:
    async def read_later(_: object, context: Context) -> bytes | None:
        return await handle(UNREAD, context)

    return read_later


def _handle(
    method: MethodDescriptor, run: Run, pipeline: CallPipeline, *, is_endless: bool
) -> Handle:
    name = f"/{method.containing_service.full_name}/{method.name}"
    capped = not (is_endless or method.client_streaming)
    streams = method.client_streaming or method.server_streaming

    async def handle(raw: object, context: Context) -> bytes | None:
        call = Call(name, context, is_endless, streams)
        return await pipeline.handle(call, run, raw, capped=capped)

    return handle


async def _not_built(call: Call, raw: bytes) -> bytes | None:
    raise Refusal(Reason.NOT_IMPLEMENTED, method=call.method)


def _check_request(further: Check | None, request: Message) -> Message:
    check(request, further)
    return request


def _run(
    method: MethodDescriptor, behavior: Callable[..., Any], take: Take, pipeline: CallPipeline
) -> Run:
    """Return the function that parses a request, runs the behavior and serializes the answers."""
    request_class = message_factory.GetMessageClass(method.input_type)
    answer_class = message_factory.GetMessageClass(method.output_type)
    sides = (method.input_type, method.output_type)
    durable = all("durability" in side.fields_by_name for side in sides)

    async def requested(raw: bytes, call: Call) -> object:
        if len(raw) >= _COUNTED_BYTES:
            if call.memory.is_full:
                raise Refusal(Reason.MEMORY_FULL, maximum=call.memory.max_bytes)
            call.keep(len(raw))
        request: Any = await parse_received(request_class, raw)
        if pipeline.records(call):
            call.named = threads_named(request)
        argument = take(request)
        if durable:
            call.wanted = Durability(request.durability)
        return argument

    def answered(answer: Message | Fields) -> Any:  # a message of the answer's class
        return answer if isinstance(answer, Message) else answer_class(**answer)

    async def unary(call: Call, raw: bytes) -> bytes:
        answer = answered(await behavior(await requested(raw, call), call))
        if durable and not answer.durability:
            answer.durability = call.wanted
        data: bytes = answer.SerializeToString()
        call.usage.take(0, len(data))
        return data

    async def streaming(call: Call, raw: bytes) -> None:
        # Messages are written here instead of yielded to gRPC, so that a cancelled call stops
        # at this point and closes its generators before the call ends.
        async with aclosing(behavior(await requested(raw, call), call)) as answers:
            async for answer in answers:
                await call.write(answered(answer).SerializeToString())
                if call.ended is not None:
                    raise call.ended

    async def both(call: Call, raw: object) -> None:
        await behavior(call, pipeline)

    if method.client_streaming:
        return both
    return streaming if method.server_streaming else unary


async def parse_received(request_class: type[MessageT], raw: bytes) -> MessageT:
    """Return a message that a client sent in either format; refuse as `parse_message` does."""
    if not isinstance(raw, JsonText):
        return parse_message(request_class, raw)
    _refuse_large(raw)
    return await from_json(request_class, raw)


def parse_message(request_class: type[MessageT], raw: bytes) -> MessageT:
    """Return the message in some bytes; refuse bytes that are too large or malformed."""
    _refuse_large(raw)
    try:
        return request_class.FromString(raw)
    except DecodeError:
        raise invalid_field("request", f"must be a {request_class.DESCRIPTOR.full_name}") from None


def _refuse_large(raw: bytes) -> None:
    if len(raw) > LIMITS.max_message:
        subject = f"a message of {len(raw)} bytes"
        raise limit_exceeded(subject, "max_message_bytes", LIMITS.max_message)
