"""Leases in the rows of threads: acquire, extend, release, in the writer."""

from __future__ import annotations

from dataclasses import replace

from ...core.leases import Lease, LeaseRequest, busy, fence_of, is_repeat, lost
from ...core.threads import EventKind
from ...core.webhooks import WebhookEvent
from ...journal.database.thread_rows import ThreadCacheEntry
from ...journal.database.unit_of_work import UnitOfWork
from .checking import lease_of


def acquire(
    batch: UnitOfWork,
    tenant: str,
    thread_id: str,
    request: LeaseRequest,
    generation: int,
    entropy: int,
) -> tuple[Lease, bool]:
    """Acquire the lease of a thread; start the thread if there is none.

    A deleted thread starts its next incarnation, because changes after a deletion would move the
    time of the deletion.

    Returns:
        The lease, and whether another lease that held was ended.

    Raises:
        Refusal: `THREAD_BUSY`, `QUOTA_EXCEEDED`.
    """
    log, now_us = batch.find(tenant, thread_id), batch.now_us
    before = lease_of(log.row) if log is not None else None
    if before is not None and not before.holds(now_us):
        before = None
    if before is not None and is_repeat(before, request):
        return before, False
    if before is not None and not request.takes_over:
        raise busy(thread_id, before, now_us)
    if log is None:
        log = batch.begin(tenant, thread_id)
    elif log.row.deleted:
        log.row.begin_next(batch.new_family(), now_us)
    seq = batch.change(log, EventKind.LEASE_CHANGED)
    lease = Lease(
        lease_id=f"{fence_of(generation, seq)}-{entropy % (1 << 48):012x}",
        owner=request.owner,
        advisory=request.advisory,
        ttl_us=request.ttl_us,
        request_id=request.request_id,
        acquired_us=now_us,
        until_us=now_us + request.ttl_us,
    )
    _set(log, lease)
    if before is not None:
        batch.outbox.add(log.row, WebhookEvent.LEASE_TAKEN_OVER, now_us)
        batch.outbox.hurry(log.row, WebhookEvent.EFFECT_UNKNOWN, now_us)
    return lease, before is not None


def keep(
    batch: UnitOfWork, tenant: str, thread_id: str, lease_id: str, ttl_us: int | None
) -> Lease:
    """Move the end of a lease; `ttl_us`: the new time of the lease, or `None` for its time.

    Only the row changes: a heartbeat takes no number of the thread.

    Raises:
        Refusal: `LEASE_LOST`.
    """
    log = batch.find(tenant, thread_id)
    lease = lease_of(log.row) if log is not None else None
    held = lease is not None and lease.lease_id == lease_id and lease.holds(batch.now_us)
    if log is None or lease is None or not held:
        raise lost(thread_id, lease, lease_id, batch.now_us)
    ttl_us = ttl_us or lease.ttl_us
    until_us = batch.now_us + ttl_us
    if ttl_us >= lease.ttl_us:  # the clock of the server of the last extension may be ahead
        until_us = max(until_us, lease.until_us)
    lease = replace(lease, ttl_us=ttl_us, until_us=until_us)
    _set(log, lease)
    batch.store(log)
    return lease


def release(batch: UnitOfWork, tenant: str, thread_id: str, lease_id: str) -> bool:
    """End a lease; return whether the lease held until now."""
    log = batch.find(tenant, thread_id)
    lease = lease_of(log.row) if log is not None else None
    if log is None or lease is None or lease.lease_id != lease_id:
        return False
    if not lease.holds(batch.now_us):
        return False
    batch.change(log, EventKind.LEASE_CHANGED)
    log.row.lease = log.row.lease_until_us = None
    batch.outbox.hurry(log.row, WebhookEvent.EFFECT_UNKNOWN, batch.now_us)
    return True


def _set(log: ThreadCacheEntry, lease: Lease) -> None:
    log.row.lease, log.row.lease_until_us = lease.encode(), lease.until_us
