"""Health of the server and its services, by gRPC's health protocol. It asks for no credential."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable
from typing import Any

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

DELETIONS = "tuskpoint.deletions"
"""Name of what the server deletes by time, as a service that has a health of its own."""

_log = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[Any, Any]


class Health(health_pb2_grpc.HealthServicer):  # type: ignore[misc] # gRPC's class has no types
    """Whether the server takes calls: one answer for it and for its services, to everybody.

    gRPC's own servicer holds a lock while it writes to a watcher. One that stops reading, which
    takes no credential, would then keep all others waiting, and the server from draining.
    """

    def __init__(self, services: Iterable[str]) -> None:
        self._names = frozenset(("", DELETIONS, *services))
        self._deletions_stopped = False
        self._serving = False
        self._problems: dict[str, str] = {}
        self._status = health_pb2.HealthCheckResponse.NOT_SERVING
        self._changed = asyncio.Event()

    def set(self, *, serving: bool) -> None:
        """Say whether the server takes calls, and notify the watchers."""
        self._serving = serving
        self._change()

    def report(self, part: str, problem: str) -> None:
        """Say what keeps a part of the server from working; the empty text: it works.

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
        """Say whether deletions by time are stopped; everything else works then."""
        if stopped is not self._deletions_stopped:
            self._deletions_stopped = stopped
            self._notify()

    def _change(self) -> None:
        status = health_pb2.HealthCheckResponse
        works = self._serving and not self._problems
        before, self._status = self._status, status.SERVING if works else status.NOT_SERVING
        if self._status != before:
            self._notify()

    def _notify(self) -> None:
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
        if service == DELETIONS and self._deletions_stopped:
            status = health_pb2.HealthCheckResponse.NOT_SERVING
        return health_pb2.HealthCheckResponse(status=status)
