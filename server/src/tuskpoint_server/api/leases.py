"""`LeaseService` on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from google.protobuf.duration_pb2 import Duration

from tuskpoint.v1 import lease_service_pb2 as lease_pb

from ..core.leases import (
    DEFAULT_TTL_S,
    DEFAULT_WAIT_S,
    MAX_TTL_S,
    MAX_WAIT_S,
    MIN_TTL_S,
    LeaseRequest,
)
from ..core.limits import LIMITS
from ..features.leases.leases import Leases
from .messages.convert import lease
from .messages.validation import Check, Checks, is_within
from .middleware.pipeline import Call, Fields, mark_endless


def _within(checks: Checks, field: str, time: Duration, least_s: int, most_s: int) -> None:
    if not is_within(time, least_s, most_s):
        checks.fail(field, f"must be {least_s} to {most_s} seconds")


def _acquire(checks: Checks, request: lease_pb.AcquireLeaseRequest) -> None:
    checks.text("owner", request.owner, LIMITS.max_owner, required=True)
    if request.HasField("ttl"):
        _within(checks, "ttl", request.ttl, MIN_TTL_S, MAX_TTL_S)
    if request.HasField("wait"):
        _within(checks, "wait", request.wait, 0, MAX_WAIT_S)


def _keep(checks: Checks, request: lease_pb.KeepLeaseRequest) -> None:
    checks.text("lease_id", request.lease_id, LIMITS.max_lease_id, required=True)
    if request.HasField("ttl"):
        _within(checks, "ttl", request.ttl, MIN_TTL_S, MAX_TTL_S)


def _release(checks: Checks, request: lease_pb.ReleaseLeaseRequest) -> None:
    checks.text("lease_id", request.lease_id, LIMITS.max_lease_id, required=True)


@dataclass(frozen=True, slots=True)
class LeaseServicer:
    """`LeaseService`: gives one driver at a time the right to change a thread."""

    checks: ClassVar[Mapping[str, Check]] = {
        "AcquireLeaseRequest": _acquire,
        "KeepLeaseRequest": _keep,
        "ReleaseLeaseRequest": _release,
    }
    _leases: Leases

    @mark_endless  # a call may wait longer than the cap of other calls; a drain ends the wait
    async def AcquireLease(self, request: lease_pb.AcquireLeaseRequest, call: Call) -> Fields:
        ttl_us = DEFAULT_TTL_S * 1_000_000
        if request.HasField("ttl"):
            ttl_us = request.ttl.ToMicroseconds()
        wait_s: float | None = None
        if request.on_busy == lease_pb.ON_BUSY_WAIT:
            wait_s = DEFAULT_WAIT_S
            if request.HasField("wait"):
                wait_s = request.wait.ToNanoseconds() / 1e9
        wanted = LeaseRequest(
            owner=request.owner,
            ttl_us=ttl_us,
            advisory=request.advisory,
            request_id=request.request_id,
            takes_over=request.on_busy == lease_pb.ON_BUSY_TAKE_OVER,
        )
        held = await self._leases.acquire(call.tenant, request.thread_id, wanted, wait_s)
        return {"lease": lease(request.thread_id, held)}

    async def KeepLease(self, request: lease_pb.KeepLeaseRequest, call: Call) -> Fields:
        ttl_us = request.ttl.ToMicroseconds() if request.HasField("ttl") else None
        thread_id, lease_id = request.thread_id, request.lease_id
        held = await self._leases.keep(call.tenant, thread_id, lease_id, ttl_us)
        return {"lease": lease(thread_id, held)}

    async def ReleaseLease(self, request: lease_pb.ReleaseLeaseRequest, call: Call) -> Fields:
        released = await self._leases.release(call.tenant, request.thread_id, request.lease_id)
        return {"released": released}
