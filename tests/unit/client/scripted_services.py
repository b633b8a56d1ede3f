"""A server on a real socket whose answers a test scripts."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import grpc
from google.protobuf.descriptor_pool import Default
from google.protobuf.duration_pb2 import Duration
from google.rpc import error_details_pb2, status_pb2  # type: ignore[import-untyped]
from grpc_status import rpc_status  # type: ignore[import-untyped]

from tuskpoint._transport import methods
from tuskpoint._transport.methods import Method

METHODS = [method for method in vars(methods).values() if isinstance(method, Method)]
WAIT_SECONDS = 20


@dataclass(frozen=True)
class Refuse:
    """Ends a call with a refusal of the service."""

    code: grpc.StatusCode
    reason: str
    metadata: dict[str, str] = field(default_factory=dict)
    retry_after_s: int | None = None


class Hold:
    """Keeps a call open until the client cancels the call.

    Attributes:
        arrived: Set when the call arrives.
        left: Set when the client cancels the call.
    """

    def __init__(self) -> None:
        self.arrived = threading.Event()
        self.left = threading.Event()

    def watch(self, context: grpc.ServicerContext) -> None:
        if not context.add_callback(self.left.set):
            self.left.set()
        self.arrived.set()


class ScriptedServices:
    """Answers each call as the script of its method says, in the order of the scripts."""

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self._scripts: dict[str, deque[tuple[Any, ...]]] = {}

    def on(self, name: str, *steps: Any) -> None:
        """Script the next unscripted call of a method: these messages are sent.

        A `Refuse` or a `Hold` at the end of the script ends the call.
        """
        self._scripts.setdefault(name, deque()).append(steps)

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        """Return the handlers of the methods in the client's table."""
        services: dict[str, dict[str, grpc.RpcMethodHandler[Any, Any]]] = {}
        for method in METHODS:
            service, name = method.path[1:].split("/")
            described = Default().FindServiceByName(service).methods_by_name[name]
            if described.client_streaming:
                continue
            make = (
                grpc.unary_stream_rpc_method_handler
                if described.server_streaming
                else grpc.unary_unary_rpc_method_handler
            )
            services.setdefault(service, {})[name] = make(
                self._stream(name) if described.server_streaming else self._unary(name),
                request_deserializer=method.request.FromString,
                response_serializer=method.answer.SerializeToString,
            )
        return [
            grpc.method_handlers_generic_handler(service, methods)
            for service, methods in services.items()
        ]

    def _stream(self, name: str) -> Any:
        def serve(request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
            self.requests.append(request)
            steps = self._scripts[name].popleft()
            # Watch before the first message: a client that cancels later stops this generator.
            for hold in [step for step in steps if isinstance(step, Hold)]:
                hold.watch(context)
            for step in steps:
                if isinstance(step, Refuse):
                    refuse(context, step)
                elif isinstance(step, Hold):
                    step.left.wait(WAIT_SECONDS)
                else:
                    yield step

        return serve

    def _unary(self, name: str) -> Any:
        def serve(request: Any, context: grpc.ServicerContext) -> Any:
            self.requests.append(request)
            (step,) = self._scripts[name].popleft()
            if isinstance(step, Refuse):
                refuse(context, step)
            if isinstance(step, Hold):
                step.watch(context)
                step.left.wait(WAIT_SECONDS)
            return step

        return serve


def refuse(context: grpc.ServicerContext, refusal: Refuse) -> None:
    """End a call as the service ends a refused call."""
    status = status_pb2.Status(code=refusal.code.value[0], message=f"refused: {refusal.reason}")
    status.details.add().Pack(
        error_details_pb2.ErrorInfo(
            reason=refusal.reason, domain="tuskpoint.dev", metadata=refusal.metadata
        )
    )
    if refusal.retry_after_s is not None:
        delay = Duration(seconds=refusal.retry_after_s)
        status.details.add().Pack(error_details_pb2.RetryInfo(retry_delay=delay))
    context.abort_with_status(rpc_status.to_status(status))


@contextmanager
def serving(
    services: ScriptedServices,
    *layers: grpc.ServerInterceptor,
    credentials: grpc.ServerCredentials | None = None,
    address: str = "127.0.0.1:0",
) -> Iterator[str]:
    """Serve behind these layers; return the target.

    Args:
        services: Services to run.
        layers: Interceptors that calls pass through first.
        credentials: Credentials for TLS. Default: plaintext.
        address: Listening address. Default: a free port. The default is an IP address, because for
        a name with two addresses gRPC reports only one error.
    """
    server = grpc.server(
        ThreadPoolExecutor(8),
        handlers=services.handlers(),
        interceptors=[*layers],
        options=[("grpc.so_reuseport", 0)],
    )
    port = (
        server.add_insecure_port(address)
        if credentials is None
        else server.add_secure_port(address, credentials)
    )
    server.start()
    try:
        yield f"{address.rpartition(':')[0]}:{port}"
    finally:
        server.stop(None).wait(WAIT_SECONDS)
