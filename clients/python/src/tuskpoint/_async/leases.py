"""Leases of threads: acquire with a wait, extend in the background, release."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial

from .._messages.leases import keeping, releasing
from .._messages.records import LeaseRecord, lease_record
from .._transport import methods
from .._transport.loops import Heartbeat
from .._transport.policy import with_request_id
from ..errors import LeaseLost, TuskPointError, Unavailable
from ..v1 import lease_service_pb2 as leases
from .calls import AsyncCalls

_BEATS = 3  # extensions in the time of a lease
_PAUSE_S = 0.2

_log = logging.getLogger(__name__)


async def acquire(calls: AsyncCalls, request: leases.AcquireLeaseRequest) -> LeaseRecord:
    """Acquire a lease. A wait that ends with its server continues on the next server.

    Raises:
        ThreadBusy: Another lease of the thread holds.
    """
    request = with_request_id(request)
    ends_s = time.monotonic() + request.wait.ToNanoseconds() / 1e9
    while True:
        try:
            return lease_record((await calls.unary(methods.ACQUIRE_LEASE, request)).lease)
        except Unavailable as error:
            left_s = ends_s - time.monotonic()
            if request.on_busy != leases.ON_BUSY_WAIT or left_s <= 0:
                raise
            pause_s = min(left_s, error.retry_after_s or _PAUSE_S)
        await asyncio.sleep(pause_s)
        request.wait.FromNanoseconds(int(max(0.0, ends_s - time.monotonic()) * 1e9))


async def keep(calls: AsyncCalls, lease: LeaseRecord, ttl_s: float | None) -> LeaseRecord:
    """Extend a lease.

    Raises:
        LeaseLost: The lease has ended.
    """
    return lease_record((await calls.unary(methods.KEEP_LEASE, keeping(lease, ttl_s))).lease)


async def release(calls: AsyncCalls, lease: LeaseRecord) -> bool:
    """End a lease; return whether it held until now."""
    return (await calls.unary(methods.RELEASE_LEASE, releasing(lease))).released


@asynccontextmanager
async def held(
    calls: AsyncCalls,
    request: leases.AcquireLeaseRequest,
    on_lost: Callable[[], object] | None = None,
) -> AsyncIterator[LeaseRecord]:
    """Hold a lease inside the context: all changes of the thread by these calls are under it.

    Args:
        calls: The calls of the client.
        request: The request of the lease.
        on_lost: Called once, by the heartbeats, if the lease was lost.

    Raises:
        ThreadBusy: Another lease of the thread holds.
    """
    lease = await acquire(calls, request)
    calls.leases.enter(lease)
    try:
        beat = partial(_beat, calls, lease, on_lost)
        async with Heartbeat(beat, lease.ttl.total_seconds() / _BEATS):
            yield lease
    finally:
        calls.leases.leave(lease)
        await _end(calls, lease)


async def _beat(
    calls: AsyncCalls, lease: LeaseRecord, on_lost: Callable[[], object] | None
) -> bool:
    """Extend a lease; return whether a later extension may succeed."""
    try:
        await keep(calls, lease, None)
    except LeaseLost as error:
        calls.leases.note(error)
        _log.warning("%s", error)
        if on_lost is not None:
            on_lost()
        return False
    except TuskPointError as error:
        _log.warning("the lease of thread %r was not extended: %s", lease.thread_id, error)
    return True


async def _end(calls: AsyncCalls, lease: LeaseRecord) -> None:
    """End a lease. A failure is logged: the work under the lease is done, and its time ends it."""
    try:
        await release(calls, lease)
    except TuskPointError as error:
        _log.warning("the lease of thread %r ends by its time: %s", lease.thread_id, error)
