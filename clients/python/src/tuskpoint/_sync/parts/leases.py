# Written by `make sync` from _async/parts/leases.py; do not edit.
"""Methods that acquire, extend and release leases of threads."""

from __future__ import annotations

from contextlib import AbstractContextManager

from ..._messages.leases import TTL_S, OnBusy, acquiring
from ..._messages.records import LeaseRecord
from .. import leases
from .part import SyncPart


class SyncLeases(SyncPart):
    """Methods that acquire, extend and release leases of threads."""

    def lease(
        self,
        thread_id: str,
        *,
        owner: str | None = None,
        ttl_s: float = TTL_S,
        on_busy: OnBusy | None = None,
        wait_s: float | None = None,
        advisory: bool = False,
    ) -> AbstractContextManager[LeaseRecord]:
        """Return a context in which only this client changes a thread.

        Inside the context, the client extends the lease in the background, and names the lease in
        each save, write and rollback of the thread. If the lease was lost, the next of these calls
        raises `LeaseLost`. The end of the context releases the lease.

        Args:
            thread_id: The thread, which need not exist.
            owner: Name of the driver, for people. Default: this machine and process.
            ttl_s: Seconds after which the lease ends if this process no longer extends it, 1 to
                3600.
            on_busy: What to do if another driver has the thread: "reject" raises `ThreadBusy`;
                "wait" waits for the end of its lease; "take_over" ends its lease: its run ends with
                `LeaseLost` at its next save. Default: "wait" if `wait_s` is given, else "reject".
            wait_s: Longest wait in seconds, with "wait". Default: 30.
            advisory: Whether the server accepts changes of callers without a lease.

        Raises:
            ThreadBusy: Another driver has the thread, on entry.
        """
        request = acquiring(thread_id, owner, ttl_s, on_busy, wait_s, advisory=advisory)
        return leases.held(self._calls, request)

    def acquire_lease(
        self,
        thread_id: str,
        *,
        owner: str | None = None,
        ttl_s: float = TTL_S,
        on_busy: OnBusy | None = None,
        wait_s: float | None = None,
        advisory: bool = False,
    ) -> LeaseRecord:
        """Acquire a lease; the caller extends it with `keep_lease`. Prefer `lease`.

        Until `release_lease`, the client names the lease in each save, write and rollback of the
        thread. See `lease` for the arguments.

        Raises:
            ThreadBusy: Another driver has the thread.
        """
        request = acquiring(thread_id, owner, ttl_s, on_busy, wait_s, advisory=advisory)
        lease = leases.acquire(self._calls, request)
        self._calls.leases.enter(lease)
        return lease

    def keep_lease(self, lease: LeaseRecord, *, ttl_s: float | None = None) -> LeaseRecord:
        """Extend a lease: its time starts again. Call this whenever a third of the time is over.

        Args:
            lease: The lease.
            ttl_s: New time of the lease in seconds. Default: its time so far.

        Raises:
            LeaseLost: The lease has ended.
        """
        return leases.keep(self._calls, lease, ttl_s)

    def release_lease(self, lease: LeaseRecord) -> bool:
        """End a lease; return whether it held until now."""
        self._calls.leases.leave(lease)
        return leases.release(self._calls, lease)
