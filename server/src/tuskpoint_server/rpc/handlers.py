"""From a service of the contract to gRPC's handlers, with the layers around each call.

A servicer is an object with a coroutine (one answer) or an async generator (a stream of
answers) for each method that is built, taking the request (or an async iterator of
requests) and the `Call`. Methods that it lacks answer `NOT_IMPLEMENTED`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, aclosing
from typing import Any, NoReturn

import grpc
from google.protobuf import message_factory
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message

from ..domain.errors import Reason, Refusal, invalid_field
from ..domain.limits import LIMITS
from .calls import Call, Layer, is_endless
from .checks import limit_exceeded
from .validation import check

Context = grpc.aio.ServicerContext[Any, Any]
Behavior = Callable[[Any, Call], Any]


def service_handler(
    service: ServiceDescriptor, servicer: object, layers: Sequence[Layer]
) -> grpc.GenericRpcHandler:
    """Return the handler of a service."""
    handlers = {
        method.name: method_handler(method, getattr(servicer, method.name, None), layers)
        for method in service.methods
    }
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def built_methods(service: ServiceDescriptor, servicer: object) -> list[str]:
    """Return "package.Service/Method" of each method that the servicer has."""
    return [
        f"{service.full_name}/{method.name}"
        for method in service.methods
        if hasattr(servicer, method.name)
    ]


def method_handler(
    method: MethodDescriptor, behavior: Behavior | None, layers: Sequence[Layer]
) -> grpc.RpcMethodHandler[Any, Any]:
    """Return the handler of one method; without a behavior, one that refuses."""
    name = f"/{method.containing_service.full_name}/{method.name}"
    request_class = message_factory.GetMessageClass(method.input_type)
    around = _Around(name, method.client_streaming, is_endless(behavior), request_class, layers)
    if behavior is None:
        behavior = _refusing_stream if method.server_streaming else _refusing_answer
    if method.server_streaming:
        handle: Callable[..., Any] = around.stream(behavior)
        make = (
            grpc.stream_stream_rpc_method_handler
            if method.client_streaming
            else grpc.unary_stream_rpc_method_handler
        )
    else:
        handle = around.answer(behavior)
        make = (
            grpc.stream_unary_rpc_method_handler
            if method.client_streaming
            else grpc.unary_unary_rpc_method_handler
        )
    serialize = message_factory.GetMessageClass(method.output_type).SerializeToString
    # Requests are parsed inside the layers: gRPC answers a malformed one with its own error.
    return make(handle, request_deserializer=None, response_serializer=serialize)


class _Around:
    """Runs the behaviors of one method inside the layers."""

    def __init__(
        self,
        method: str,
        request_streaming: bool,
        endless: bool,
        request_class: type[Message],
        layers: Sequence[Layer],
    ) -> None:
        self._method = method
        self._request_streaming = request_streaming
        self._endless = endless
        self._request_class = request_class
        self._layers = layers

    def answer(self, behavior: Behavior) -> Callable[..., Any]:
        """Wrap a behavior that returns one answer."""

        async def handle(raw: Any, context: Context) -> Any:
            call = Call(self._method, context, self._request_streaming, self._endless)
            async with AsyncExitStack() as stack:
                for layer in self._layers:
                    await stack.enter_async_context(layer(call))
                return await behavior(self._request(raw), call)

        return handle

    def stream(self, behavior: Behavior) -> Callable[..., Any]:
        """Wrap a behavior that yields answers.

        Answers are written here and not yielded to gRPC: so a cancelled call is cancelled
        at this point, and the generators inside are closed before it ends.
        """

        async def handle(raw: Any, context: Context) -> None:
            call = Call(self._method, context, self._request_streaming, self._endless)
            async with AsyncExitStack() as stack:
                for layer in self._layers:
                    await stack.enter_async_context(layer(call))
                answers = await stack.enter_async_context(
                    aclosing(behavior(self._request(raw), call))
                )
                async for answer in answers:
                    await context.write(answer)

        return handle

    def _request(self, raw: Any) -> Any:
        return self._requests(raw) if self._request_streaming else self._parse(raw)

    async def _requests(self, raw: AsyncIterator[bytes]) -> AsyncIterator[Message]:
        async for piece in raw:
            yield self._parse(piece)

    def _parse(self, raw: bytes) -> Message:
        if len(raw) > LIMITS.max_message:
            raise limit_exceeded(
                f"a message of {len(raw)} bytes", "max_message_bytes", LIMITS.max_message
            )
        try:
            request = self._request_class.FromString(raw)
        except DecodeError:
            name = self._request_class.DESCRIPTOR.full_name
            raise invalid_field("request", f"is not a {name}") from None
        check(request)
        return request


async def _refusing_answer(request: object, call: Call) -> NoReturn:
    raise Refusal(Reason.NOT_IMPLEMENTED, method=call.method)


async def _refusing_stream(request: object, call: Call) -> AsyncIterator[None]:
    yield await _refusing_answer(request, call)
