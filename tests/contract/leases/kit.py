"""Short calls on leases."""

from __future__ import annotations

from tests.kit.drafts import TENANT
from tests.kit.journal import Journal
from tuskpoint_server.core.leases import Lease, LeaseRequest

TTL_S = 30


async def acquire(
    journal: Journal,
    owner: str = "me",
    *,
    thread_id: str = "t",
    ttl_s: float = TTL_S,
    wait_s: float | None = None,
    advisory: bool = False,
    request_id: str = "",
    takes_over: bool = False,
) -> Lease:
    request = LeaseRequest(owner, int(ttl_s * 1e6), advisory, request_id, takes_over)
    return await journal.leases.acquire(TENANT, thread_id, request, wait_s)


async def keep(journal: Journal, lease: Lease, ttl_s: float | None = None) -> Lease:
    ttl_us = None if ttl_s is None else int(ttl_s * 1e6)
    return await journal.leases.keep(TENANT, "t", lease.lease_id, ttl_us)


async def release(journal: Journal, lease: Lease) -> bool:
    return await journal.leases.release(TENANT, "t", lease.lease_id)
