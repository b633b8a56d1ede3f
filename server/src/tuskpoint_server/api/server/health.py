"""Health of the server and its services, by gRPC's health protocol, without a credential."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable

import grpc
from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped]

DELETIONS = "tuskpoint.deletions"
"""Service name for deletions by time, which have a health of their own."""

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[object, object]


_NAME = "grpc.health.v1.Health"
_READS = 4  # requests that are read at once: gRPC buffers up to 16 MiB of each
_READ_SECONDS = 10.0


class Health:
    """Answers whether the server accepts calls: the same for the server and all services.

    A request needs no credential, so strangers may send endless requests. Few requests are read at
    once; one more ends the oldest of them.

    gRPC's own servicer holds a lock while it writes to a watcher. A watcher that stops reading,
    which needs no credential, would block all other watchers and the drain.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._names = frozenset(("", DELETIONS, *services))
        self._deletions_stopped = False
        self._serving = False
        self._problems: dict[str, str] = {}
        self._status = health_pb2.HealthCheckResponse.NOT_SERVING
        self._changed = asyncio.Event()
        self._reading: dict[asyncio.Task[object], None] = {}  # readers, oldest first

    def handler(self) -> grpc.GenericRpcHandler:
        """Return gRPC's handler of the service."""
        # A stream of requests, because gRPC otherwise reads a request before it calls a handler.
        handlers: dict[str, grpc.RpcMethodHandler[object, object]] = {
            "Check": grpc.stream_unary_rpc_method_handler(self.check),
            "Watch": grpc.stream_stream_rpc_method_handler(self.watch),
        }
        return grpc.method_handlers_generic_handler(_NAME, handlers)

    def set(self, *, serving: bool) -> None:
        """Set whether the server accepts calls, and notify the watchers."""
        self._serving = serving
        self._change()

    @property
    def is_serving(self) -> bool:
        """Whether the answer for the server is `SERVING`."""
        return bool(self._status == health_pb2.HealthCheckResponse.SERVING)

    def report(self, part: str, problem: str) -> None:
        """Set the problem of a part of the server; an empty text means that the part works.

        With a problem of any part the answer is `NOT_SERVING`. The log has the problem.
        """
        if problem == self._problems.get(part, ""):
            return
        if problem:
            if part not in self._problems:
                _log.error("not serving: the %s cannot be used: %s", part, problem)
            self._problems[part] = problem
        else:
            del self._problems[part]
            _log.info("the %s can be used again", part)
        self._change()

    def report_deletions(self, *, stopped: bool) -> None:
        """Set whether deletions by time are stopped, while everything else works."""
        if stopped is not self._deletions_stopped:
            self._deletions_stopped = stopped
            self._notify()

    def _change(self) -> None:
        status = health_pb2.HealthCheckResponse
        works = self._serving and not self._problems
        old_status, self._status = self._status, status.SERVING if works else status.NOT_SERVING
        if self._status != old_status:
            self._notify()

    def _notify(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    async def check(self, _: object, context: Context) -> bytes:
        """Answer once."""
        service = await self._asked(context)
        if service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return self._answer(service)

    async def watch(self, _: object, context: Context) -> None:
        """Answer once, and again after each change."""
        service = await self._asked(context)
        while True:
            event = self._changed  # read before the answer, so that no later change is missed
            await context.write(self._answer(service))
            await event.wait()

    async def _asked(self, context: Context) -> str:
        """Read the request of a call; return the name of the service."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in one
        if len(self._reading) >= _READS:
            oldest = next(iter(self._reading))
            del self._reading[oldest]
            oldest.cancel()
        self._reading[task] = None
        raw: object = None
        try:
            async with asyncio.timeout(_READ_SECONDS):
                raw = await context.read()
        except TimeoutError:
            pass
        except asyncio.CancelledError:
            if task in self._reading:
                raise
            task.uncancel()
        finally:
            self._reading.pop(task, None)
        if not isinstance(raw, bytes):
            problem = "the request did not arrive; send it at once and try again"
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, problem)
        try:
            return str(health_pb2.HealthCheckRequest.FromString(raw).service)
        except DecodeError:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "is not a HealthCheckRequest")
            raise

    def _answer(self, service: str) -> bytes:
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        status = self._status if service in self._names else unknown
        if service == DELETIONS and self._deletions_stopped:
            status = health_pb2.HealthCheckResponse.NOT_SERVING
        answer: bytes = health_pb2.HealthCheckResponse(status=status).SerializeToString()
        return answer
