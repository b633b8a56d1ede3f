"""Health of the server and its services, by gRPC's health protocol. It asks for no credential."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

Context = grpc.aio.ServicerContext[Any, Any]


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # gRPC's class has no types
    """Whether the server takes calls: one answer for it and for its services, to everybody.

    gRPC's own servicer holds a lock while it writes to a watcher. One that stops reading, which
    takes no credential, would then keep all others waiting, and the server from draining.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._names = frozenset(("", *services))
        self._status = health_pb2.HealthCheckResponse.NOT_SERVING
        self._changed = asyncio.Event()

    def set(self, *, serving: bool) -> None:
        """Change the answer, and notify the watchers."""
        status = health_pb2.HealthCheckResponse
        self._status = status.SERVING if serving else status.NOT_SERVING
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()

    async def Check(self, request: Any, context: Context) -> Any:
        if request.service not in self._names:
            await context.abort(grpc.StatusCode.NOT_FOUND, "there is no such service")
        return self._answer(request.service)

    async def Watch(self, request: Any, context: Context) -> None:
        while True:
            changed = self._changed  # taken before the answer: no later change is missed
            await context.write(self._answer(request.service))
            await changed.wait()

    def _answer(self, service: str) -> Any:
        unknown = health_pb2.HealthCheckResponse.SERVICE_UNKNOWN
        status = self._status if service in self._names else unknown
        return health_pb2.HealthCheckResponse(status=status)
