"""Every method of the contract as an endpoint of the Connect protocol and of gRPC-Web."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import aclosing, contextmanager
from typing import Any, NoReturn

import grpc
from connectrpc.errors import ConnectError
from connectrpc.method import IdempotencyLevel, MethodInfo, StreamType
from connectrpc.request import RequestContext
from connectrpc.server import ConnectASGIApplication, Endpoint
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.rpc import status_pb2  # type: ignore[import-untyped]
from starlette.types import Message as AsgiMessage
from starlette.types import Receive, Scope, Send

from ...core.errors import Reason, Refusal
from ...core.limits import KIB, LIMITS
from ...features.call_memory import CallMemory, Holder
from ..messages.json_text import JsonText, to_json
from ..middleware.errors import incident
from ..middleware.pipeline import CallPipeline, Handle, method_handlers
from .errors import refusal_error, status_error
from .plain import ARRAY, LINES, EnvelopedRequest, ListRefusedError, PlainErrors, PlainList
from .requests import GRPC_WEB, PLAIN, STREAMS, UNARY, AnswerForm, MethodForms, read_form

HELD_BYTES = 64 * KIB  # bytes from which a body counts as memory
BODY_SECONDS = 10.0  # seconds for the first and for each further `HELD_BYTES` of a body

Request = RequestContext[bytes, bytes]
Written = tuple[bytes, asyncio.Future[None]]  # a message, and whether it is being sent


class _BytesCodec:
    """A codec of connectrpc that passes bytes on: the pipeline parses them after its checks.

    So the server parses nothing without a valid credential.
    """

    def __init__(self, name: str, kind: Callable[[bytes | bytearray], bytes]) -> None:
        self._name = name
        self._kind = kind

    def name(self) -> str:
        return self._name

    def encode(self, message: bytes) -> bytes:
        return message

    def decode(self, data: bytes | bytearray, message_class: type) -> bytes:
        return self._kind(data)


class _Endpoints(ConnectASGIApplication[None]):
    """The endpoints of the contract, as connectrpc serves them."""

    path = "/"

    def __init__(self, endpoints: Mapping[str, Any]) -> None:
        super().__init__(
            service=None,
            endpoints=lambda _: endpoints,
            # Above the limit, as for gRPC, so that the pipeline's refusal has a reason.
            read_max_bytes=2 * LIMITS.max_message,
            # Compression would block the event loop, and with it every other call.
            compressions=(),
            codecs=(_BytesCodec("proto", bytes), _BytesCodec("json", JsonText)),
        )


class ConnectApplication:
    """The contract as an ASGI application."""

    def __init__(
        self, contract: Sequence[tuple[ServiceDescriptor, object]], pipeline: CallPipeline
    ) -> None:
        self._pipeline = pipeline
        self._methods: dict[str, MethodForms] = {}
        self._bounded: set[str] = set()
        handlers = []
        for service, servicer in contract:
            for method, handle in method_handlers(service, servicer, pipeline):
                path = f"/{service.full_name}/{method.name}"
                behavior = getattr(servicer, method.name, None)
                is_endless = getattr(behavior, "endless", False)
                self._methods[path] = _forms(method, is_endless=is_endless)
                if not method.client_streaming:
                    self._bounded.add(path)
                handlers.append((path, method, handle))
        self._endpoints = {
            shows_values: _Endpoints(
                {
                    path: _endpoint(method, handle, shows_values=shows_values)
                    for path, method, handle in handlers
                }
            )
            for shows_values in (False, True)
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        form = read_form(scope, self._methods)
        if not isinstance(form, AnswerForm):
            await form(scope, receive, send)
        elif form.list_type:
            with PlainList(send, form.list_type, self._pipeline.memory) as plain:
                try:
                    await self._call(form, scope, receive, plain.send)
                except ListRefusedError as refused:
                    await plain.refuse(refused.refusal)
        elif form.has_plain_errors:
            await self._call(form, scope, receive, PlainErrors(send).send)
        else:
            await self._call(form, scope, receive, send)

    async def _call(self, form: AnswerForm, scope: Scope, receive: Receive, send: Send) -> None:
        endpoints = self._endpoints[form.shows_values]
        if not self._pipeline.admits(_Request(scope)):
            # The pipeline refuses the call with a reason, without reading the body.
            empty = b"" if dict(scope["headers"])[b"content-type"].decode() in UNARY else bytes(5)
            await endpoints(scope, _BodyReceiver(empty).receive, send)
            return
        is_bounded = scope["path"] in self._bounded
        with RequestBody(receive, self._pipeline.memory, bounded=is_bounded) as body:
            read = EnvelopedRequest(body.receive).receive if form.list_type else body.receive
            await endpoints(scope, read, send)


def _forms(method: MethodDescriptor, *, is_endless: bool) -> MethodForms:
    if method.client_streaming:
        return MethodForms(STREAMS + GRPC_WEB)
    if method.server_streaming:
        lists = (LINES,) if is_endless else (ARRAY, LINES)
        return MethodForms((PLAIN, *STREAMS, *GRPC_WEB), lists)
    return MethodForms(UNARY + GRPC_WEB)


class _BodyReceiver:
    """An ASGI `receive` of a client that has sent its body and waits for the answer."""

    def __init__(self, body: bytes) -> None:
        self._body: bytes | None = body

    async def receive(self) -> AsgiMessage:
        """Return the body; then wait until the call has its answer."""
        if self._body is None:
            # To return here would keep the event loop for ever: a call that watches for the end of
            # its client asks again at once.
            await asyncio.Event().wait()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}


class _Request:
    """A request whose headers are read, for the pipeline's checks."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    def invocation_metadata(self) -> Iterable[tuple[str, str]]:
        return [(name.decode(), value.decode()) for name, value in self._scope["headers"]]

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        return {}

    def peer(self) -> str:
        client = self._scope.get("client")
        return "" if client is None else f"{client[0]}:{client[1]}"


class RequestBody(Holder):
    """A body that is being received: counted as memory, and bounded in time.

    A stream of requests has neither bound: it may pause, and messages are read one by one.
    """

    def __init__(self, receive: Receive, memory: CallMemory, *, bounded: bool) -> None:
        super().__init__(memory=memory)
        self._receive = receive
        self._bounded = bounded
        self._size = 0
        self._since = asyncio.get_running_loop().time()

    def __enter__(self) -> RequestBody:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def receive(self) -> AsgiMessage:
        """Return the next part in ASGI's form, or end the call."""
        if not self._bounded:
            return await self._receive()
        limit_s = BODY_SECONDS * (1 + self._size // HELD_BYTES)
        try:
            async with asyncio.timeout_at(self._since + limit_s):
                part = await self._receive()
        except TimeoutError:
            raise refusal_error(Refusal(Reason.DEADLINE_EXCEEDED)) from None
        self._size += len(part.get("body", b""))
        self._bounded = part.get("more_body", False)
        if self._size > HELD_BYTES:
            self.keep(self._size)
            if self.memory.is_full:
                full = Refusal(Reason.MEMORY_FULL, maximum=self.memory.max_bytes)
                raise refusal_error(full)
        return part


class HttpContext:
    """A call over HTTP, for the pipeline.

    A written message is passed to connectrpc, and counts as written when connectrpc asks for the
    next message. So a slow reader slows its writer down, as over gRPC.
    """

    def __init__(self, request: Request, requests: AsyncIterator[bytes] | None = None) -> None:
        self._request = request
        self._requests = requests
        self._broken: ConnectError | None = None  # reason for the end of the requests
        self._written: asyncio.Queue[Written | None] = asyncio.Queue()

    def invocation_metadata(self) -> Iterable[tuple[str, str]]:
        return tuple(self._request.request_headers.allitems())

    def time_remaining(self) -> float | None:
        milliseconds = self._request.timeout_ms
        return None if milliseconds is None else max(0.0, milliseconds / 1000)

    def auth_context(self) -> Mapping[str, Iterable[bytes]]:
        return {}  # uvicorn passes no certificate on: over HTTP only tokens identify callers

    def peer(self) -> str:
        return self._request.client_address or ""

    async def read(self) -> object:
        if self._requests is None:
            return grpc.aio.EOF
        try:
            return await anext(self._requests, grpc.aio.EOF)
        except ConnectError as error:
            # The client left, or sent something other than a message: gRPC cancels such calls, too.
            self._broken = error
            raise asyncio.CancelledError from None

    async def write(self, message: bytes, /) -> None:
        delivery: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._written.put_nowait((message, delivery))
        await delivery

    async def abort_with_status(self, status: grpc.Status, /) -> NoReturn:
        packed = dict(status.trailing_metadata)["grpc-status-details-bin"]
        raise status_error(status_pb2.Status.FromString(packed))

    async def answers(self, handle: Handle, raw: bytes | None) -> AsyncGenerator[bytes]:
        """Answer a call, and yield its messages; closing the generator cancels the call."""
        task = asyncio.ensure_future(handle(raw, self))
        task.add_done_callback(lambda _: self._written.put_nowait(None))
        try:
            while (item := await self._written.get()) is not None:
                message, delivery = item
                yield message
                if not delivery.done():
                    delivery.set_result(None)
            if task.cancelled() and self._broken is not None:
                raise self._broken
            await task
        finally:
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.exception()  # no client is left for the error


def _endpoint(method: MethodDescriptor, handle: Handle, *, shows_values: bool) -> Any:
    """Return the endpoint of a method, which the library calls with the bytes of a request.

    The library does not export the endpoint's class.
    """
    answer_class = message_factory.GetMessageClass(method.output_type)
    name = f"{method.containing_service.full_name}/{method.name}"

    @contextmanager
    def masking() -> Iterator[None]:
        """Pass refusals on, and hide other exceptions, whose text connectrpc would send."""
        try:
            yield
        except ConnectError:
            raise
        except Exception as error:  # noqa: BLE001 - a defect, known by its incident ID
            raise refusal_error(incident(error, name)) from None

    async def encoded(answer: bytes, request: Request) -> bytes:
        is_json = request.request_headers["content-type"].endswith("json")
        if not is_json:
            return answer
        return await to_json(answer_class, answer, shows_values=shows_values)

    async def unary(raw: bytes, request: Request) -> bytes:
        with masking():
            answer = await handle(raw, HttpContext(request))
            return await encoded(answer or b"", request)

    async def answers(raw: bytes, request: Request) -> AsyncIterator[bytes]:
        with masking():
            async with aclosing(HttpContext(request).answers(handle, raw)) as messages:
                async for answer in messages:
                    yield await encoded(answer, request)

    async def exchanged(raws: AsyncIterator[bytes], request: Request) -> AsyncIterator[bytes]:
        with masking():
            async with aclosing(HttpContext(request, raws).answers(handle, None)) as messages:
                async for answer in messages:
                    yield await encoded(answer, request)

    if method.client_streaming:
        return Endpoint.bidi_stream(_info(method, StreamType.BIDI_STREAM), exchanged)
    if method.server_streaming:
        return Endpoint.server_stream(_info(method, StreamType.SERVER_STREAM), answers)
    return Endpoint.unary(_info(method, StreamType.UNARY), unary)


def _info(method: MethodDescriptor, kind: StreamType) -> MethodInfo[bytes, bytes]:
    return MethodInfo(
        name=method.name,
        service_name=method.containing_service.full_name,
        input=bytes,
        output=bytes,
        # A level without side effects would let any page on the web call the method with GET.
        idempotency_level=IdempotencyLevel.UNKNOWN,
        stream_type=kind,
    )
