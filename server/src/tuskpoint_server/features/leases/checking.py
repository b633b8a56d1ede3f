"""The check of a thread's lease in the transaction of a change."""

from __future__ import annotations

from ...core.leases import Lease, check_change, decode
from ...journal.database.thread_rows import ThreadCacheEntry, ThreadRow
from ...journal.database.unit_of_work import UnitOfWork


def lease_of(row: ThreadRow) -> Lease | None:
    """Return the thread's last lease, which may have ended; `None`: the row has none."""
    return decode(row.lease, row.lease_until_us)


def check_lease(batch: UnitOfWork, log: ThreadCacheEntry, lease_id: str) -> None:
    """Refuse a change that the lease of its thread excludes; the last check of a change.

    `lease_id`: the lease that the caller named, or "". A change without a lease removes a lease
    whose time is over, so that its holder can never change the thread again, whatever the clocks of
    other servers say: the caller MUST change the thread after this check.

    Raises:
        Refusal: `LEASE_LOST`, `THREAD_BUSY`.
    """
    row = log.row
    lease = lease_of(row)
    check_change(row.thread_id, lease, lease_id, batch.now_us)
    if lease is not None and not lease_id and not lease.holds(batch.now_us):
        row.lease = row.lease_until_us = None
