"""Leases of threads: their stored form, and the decisions that need no journal.

A lease gives one driver the right to change a thread. The lease is in the thread's row, and the
server compares it in the transaction of each change.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from ..errors import Reason, Refusal

MIN_TTL_S, MAX_TTL_S, DEFAULT_TTL_S = 1, 3600, 30
"""Bounds of the time of a lease, and the time of a lease for which the caller names none."""

MAX_WAIT_S, DEFAULT_WAIT_S = 3600, 30
"""Longest wait for a lease, and the wait of a caller who names none."""

MAX_WAITING = 100
"""Most callers that wait for the lease of a thread at once, on each server."""

_SEQ_BITS = 40  # bits of a fence for the number of a change; the generation has the bits above


@dataclass(frozen=True, slots=True)
class LeaseRequest:
    """The lease that a caller asks for."""

    owner: str
    ttl_us: int
    advisory: bool = False
    request_id: str = ""  # recognises a retry; empty: a retry is a new request
    takes_over: bool = False  # whether to end the lease of another caller


@dataclass(frozen=True, slots=True)
class Lease:
    """A lease of a thread, as the thread's row has it. Times are microseconds since the epoch."""

    lease_id: str
    owner: str
    advisory: bool  # whether changes without a lease are accepted
    ttl_us: int
    request_id: str
    acquired_us: int
    until_us: int

    @property
    def fence(self) -> int:
        """Number that is greater than the fences of all earlier leases of the thread."""
        return int(self.lease_id.partition("-")[0])

    def holds(self, now_us: int) -> bool:
        """Return whether the lease has not ended yet."""
        return now_us < self.until_us

    def encode(self) -> str:
        """Return the lease as the thread's row has it, without its end."""
        columns = asdict(self)
        del columns["until_us"]
        return json.dumps(columns, ensure_ascii=False, separators=(",", ":"))


def decode(text: str | None, until_us: int | None) -> Lease | None:
    """Return the lease in the columns of a thread's row; `None`: the row has no lease."""
    if text is None:
        return None
    return Lease(**json.loads(text), until_us=until_us or 0)


def fence_of(generation: int, seq: int) -> int:
    """Return the fence of a lease that a change of the thread acquires.

    Recovery may give a thread numbers again, and raises the journal's generation.
    """
    return generation << _SEQ_BITS | seq


def check_change(thread_id: str, lease: Lease | None, lease_id: str, now_us: int) -> None:
    """Refuse a change that the lease of its thread excludes.

    `lease`: the thread's last lease, if it was not removed; `lease_id`: the lease that the caller
    named, or "".

    Raises:
        Refusal: `LEASE_LOST`, `THREAD_BUSY`.
    """
    if lease_id:
        if lease is None or lease.lease_id != lease_id or not lease.holds(now_us):
            raise lost(thread_id, lease, lease_id, now_us)
    elif lease is not None and lease.holds(now_us) and not lease.advisory:
        raise busy(thread_id, lease, now_us)


def is_repeat(lease: Lease, request: LeaseRequest) -> bool:
    """Return whether the same request acquired a lease."""
    known = (lease.request_id, lease.owner) == (request.request_id, request.owner)
    return known and bool(request.request_id)


def busy(thread_id: str, lease: Lease, now_us: int) -> Refusal:
    """Return the refusal of a call that a lease excludes."""
    until = datetime.fromtimestamp(lease.until_us / 1e6, UTC).isoformat(timespec="milliseconds")
    return Refusal(
        Reason.THREAD_BUSY,
        retry_after_s=max(0.0, (lease.until_us - now_us) / 1e6),
        thread_id=thread_id,
        owner=lease.owner,
        until=until.replace("+00:00", "Z"),
    )


def lost(thread_id: str, lease: Lease | None, lease_id: str, now_us: int) -> Refusal:
    """Return the refusal of a call with a lease that has ended."""
    owner = ""
    if lease is not None and lease.lease_id != lease_id and lease.holds(now_us):
        owner = lease.owner
    cause = f"'{owner}' drives the thread now" if owner else ""
    named: dict[str, Any] = {"owner": owner} if owner else {}
    return Refusal(Reason.LEASE_LOST, cause=cause, thread_id=thread_id, lease_id=lease_id, **named)
