"""What is done around every call, from the outside in.

telemetry -> errors -> deadline -> drain gate -> authentication -> authorisation -> handler

Telemetry is outermost, so that it counts the final code of whatever the others refuse.
The last two, in modules of their own, stand before everything that looks something up.
`server.py` puts the layers together.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import grpc
from grpc_status import rpc_status  # type: ignore[import-untyped]

from ..domain.errors import Reason, Refusal
from .calls import Call
from .errors import incident, to_status


@asynccontextmanager
async def errors(call: Call) -> AsyncIterator[None]:
    """End a refused call with its status, and any other failure with an incident ID.

    gRPC would send the text of an unexpected exception to the client.
    """
    try:
        yield
    except grpc.aio.AbortError:
        raise
    except Refusal as refusal:
        await _abort(call, refusal)
    except Exception as error:  # noqa: BLE001 - everything else is a defect, told by its incident ID
        await _abort(call, incident(error, call.method))


async def _abort(call: Call, refusal: Refusal) -> None:
    await call.context.abort_with_status(rpc_status.to_status(to_status(refusal)))


class DeadlineCap:
    """Bounds the time of a call.

    The client's own deadline is kept by gRPC. A call without one, or with a longer one,
    ends after `max_seconds`. Streams of requests and endless streams of answers are exempt:
    they live as long as their client, and keep-alive pings find dead ones.
    """

    def __init__(self, max_seconds: float) -> None:
        self._max_seconds = max_seconds

    @asynccontextmanager
    async def __call__(self, call: Call) -> AsyncIterator[None]:
        """Run a call under the cap.

        Raises:
            Refusal: `DEADLINE_EXCEEDED`.
        """
        if call.request_streaming or call.endless:
            yield
            return
        try:
            async with asyncio.timeout(self._max_seconds) as cap:
                yield
        except TimeoutError:
            if cap.expired():
                raise Refusal(Reason.DEADLINE_EXCEEDED) from None
            raise


class DrainGate:
    """Lets calls in until the server drains, and knows when the last one left."""

    def __init__(self) -> None:
        self.draining = asyncio.Event()
        self._inside = 0
        self._empty = asyncio.Event()
        self._empty.set()

    @asynccontextmanager
    async def __call__(self, call: Call) -> AsyncIterator[None]:
        """Run a call inside the gate.

        Raises:
            Refusal: `DRAINING`.
        """
        if self.draining.is_set():
            raise Refusal(Reason.DRAINING)
        call.draining = self.draining
        self._inside += 1
        self._empty.clear()
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    async def drain(self, grace_s: float) -> bool:
        """Close the gate, wait for the calls inside; tell whether all left in time."""
        self.draining.set()
        try:
            async with asyncio.timeout(grace_s):
                await self._empty.wait()
        except TimeoutError:
            return False
        return True
