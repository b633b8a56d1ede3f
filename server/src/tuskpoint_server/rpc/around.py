"""What is done around every call: measured, refusals told, time capped, let in, allowed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import grpc
from grpc_status import rpc_status  # type: ignore[import-untyped]

from ..domain.credentials import Scope
from ..domain.errors import Reason, Refusal
from .authentication import POLICY, Authentication, check_scopes
from .calls import Call, late
from .errors import incident, to_status
from .telemetry import Telemetry


class Around:
    """What is done around every call, from the outside in.

    Telemetry is outermost, so that it counts the final code of whatever the others refuse.
    A refused call ends with its status, and any other failure with an incident ID: gRPC would
    send the text of an exception to the client. Then the time is capped, and nothing passes once
    the server drains. Authentication and scopes come last, before everything that looks
    something up.

    The client's own deadline is kept by gRPC. A call without one, or with a longer one, ends
    after `max_call_seconds`. Streams of requests and endless streams of answers are exempt:
    they live as long as their client, and keep-alive pings find dead ones.
    """

    def __init__(
        self,
        telemetry: Telemetry,
        authentication: Authentication,
        max_call_seconds: float,
        *,
        policy: Mapping[str, frozenset[Scope]] = POLICY,
    ) -> None:
        self._telemetry = telemetry
        self._authentication = authentication
        self._max_call_seconds = max_call_seconds
        self._policy = policy
        self.draining = asyncio.Event()
        self._inside: set[Call] = set()
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def __call__(self, call: Call) -> AsyncIterator[None]:
        """Run a call inside the context."""
        with self._telemetry.measured(call):
            try:
                async with call.lifetime:
                    if not (call.request_streaming or call.endless):
                        call.cap = asyncio.get_running_loop().time() + self._max_call_seconds
                        call.end_at(call.cap, late)
                    if self.draining.is_set():
                        raise Refusal(Reason.DRAINING)
                    call.draining = self.draining
                    self._inside.add(call)
                    self._empty.clear()
                    try:
                        self._authentication.admit(call)
                        check_scopes(call, self._policy.get(call.method))
                        yield
                    finally:
                        self._authentication.forget(call)
                        self._inside.discard(call)
                        if not self._inside:
                            self._empty.set()
                return
            except grpc.aio.AbortError:
                raise
            except Refusal as told:
                refusal = told
            except TimeoutError as error:
                if call.ended is not None and call.lifetime.expired():
                    refusal = call.ended()
                else:
                    refusal = incident(error, call.method)
            except Exception as error:  # noqa: BLE001 - a defect, told by its incident ID
                refusal = incident(error, call.method)
            await call.context.abort_with_status(rpc_status.to_status(to_status(refusal)))

    async def drain(self, grace_s: float) -> bool:
        """Let no call in, end what is endless, and wait; tell whether all calls left in time."""
        self.draining.set()
        for call in self._inside:
            if call.endless and not call.lifetime.expired():
                call.end_at(0, lambda: Refusal(Reason.DRAINING))
        try:
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
