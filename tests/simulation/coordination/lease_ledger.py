"""The leases that drivers were told of: the journal must have exactly these, and obey them.

A call is decided at some moment between its start and its end. So an answer is wrong only if it is
wrong at each moment of the call.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.simulation.at_rest.damage import concerns
from tests.simulation.promises.violation import check
from tests.simulation.server import Server
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.leases import Lease, LeaseRequest, decode

_LEASES = "SELECT thread_id, lease, lease_until_us, deleted FROM threads WHERE lease IS NOT NULL"


class During(NamedTuple):
    """The time of a call, in microseconds of the server's clock."""

    start_us: int
    end_us: int

    def may_hold(self, lease: Lease | None) -> bool:
        """Return whether a lease held at some moment of the call."""
        return lease is not None and self.start_us < lease.until_us

    def must_hold(self, lease: Lease | None) -> bool:
        """Return whether a lease held at each moment of the call."""
        return lease is not None and self.end_us < lease.until_us


@dataclass
class LeaseLedger:
    """The leases of a server's threads, as its answers say.

    Attributes:
        held: The last lease of each thread, unless it was ended; its time may be over.
        fences: Greatest fence of each thread so far.
        unclear: Threads whose lease must be read from the journal, because a call has no answer or
            their rows were edited.
        is_read: Whether the leases of the journal were read since it was replaced.
    """

    held: dict[str, Lease] = field(default_factory=dict)
    fences: dict[str, int] = field(default_factory=dict)
    unclear: set[str] = field(default_factory=set)
    is_read: bool = False

    def acquired(self, name: str, request: LeaseRequest, lease: Lease, during: During) -> None:
        """Record a lease that a driver acquired."""
        before = self.held.get(name)
        if before is not None and lease.lease_id == before.lease_id:
            check(lease.request_id == request.request_id != "", name, "has two drivers:", lease)
        else:
            alone = request.takes_over or not during.must_hold(before)
            check(alone, name, "has two drivers:", before, "and", lease)
            newest = self.fences.get(name, 0)
            check(lease.fence > newest, name, "has fence", lease.fence, "after", newest)
        self.held[name], self.fences[name] = lease, max(lease.fence, self.fences.get(name, 0))

    def kept(self, name: str, lease: Lease, extended: Lease, during: During) -> None:
        """Record that a lease was extended."""
        held = self.held.get(name)
        holds = self._is(name, lease.lease_id) and during.may_hold(held)
        check(holds, name, "kept", lease, "although", held, "was the lease")
        least = extended.ttl_us + during.start_us
        check(extended.until_us >= least, name, "kept its lease for less than asked:", extended)
        self.held[name] = extended

    def released(self, name: str, lease: Lease, during: During, *, held: bool) -> None:
        """Record the answer to a release."""
        mine, last = self._is(name, lease.lease_id), self.held.get(name)
        check(not held or (mine and during.may_hold(last)), name, "released an ended lease")
        check(held or not (mine and during.must_hold(last)), name, "did not release its lease")
        if held:
            del self.held[name]

    def changed(self, name: str, lease_id: str, during: During) -> None:
        """Check a change that was accepted; `lease_id`: the lease that the caller named, or ""."""
        last = self.held.get(name)
        if lease_id:
            holds = self._is(name, lease_id) and during.may_hold(last)
            check(holds, name, "was changed under an old fence:", lease_id, "after", last)
            return
        free = last is None or last.advisory or not during.must_hold(last)
        check(free, name, "was changed beside its driver", last)

    def refused(self, name: str, lease_id: str, reason: Reason, during: During) -> None:
        """Check a refusal."""
        last = self.held.get(name)
        if reason is Reason.THREAD_BUSY:
            check(during.may_hold(last), name, "is busy, and nobody drives it:", last)
        elif reason is Reason.LEASE_LOST:
            holds = self._is(name, lease_id) and during.must_hold(last)
            check(not holds, name, "lost the lease that was acknowledged:", last)

    def forget(self, name: str) -> None:
        """Record the end of a thread, which ends its lease."""
        self.held.pop(name, None)

    def compare(self, server: Server) -> None:
        """Compare the leases with the rows of the threads."""
        rows: dict[str, Lease] = {}
        for name, text, until_us, deleted in server.disk.journal.ask(_LEASES):
            check(not deleted, name, "was deleted, and has the lease", text)
            lease = decode(text, until_us)
            assert lease is not None
            rows[name] = lease
        edited = {name for name, concern in concerns(server).items() if concern.whole}
        now_us = server.now_us()
        for name in rows.keys() | self.held.keys():
            row, held = rows.get(name), self.held.get(name)
            if name in self.unclear | edited or not self.is_read:
                self._believe(name, row)
            elif row is None and held is not None and not held.holds(now_us):
                self.forget(name)  # a change without a lease removed it
            else:
                check(row == held, name, "has the lease", row, "and not", held)
        self.unclear, self.is_read = edited, True

    def is_sure(self, name: str) -> bool:
        """Return whether the answers say which lease a thread has."""
        return self.is_read and name not in self.unclear

    def _believe(self, name: str, row: Lease | None) -> None:
        self.forget(name)
        if row is not None:
            self.held[name] = row
            self.fences[name] = max(row.fence, self.fences.get(name, 0))

    def _is(self, name: str, lease_id: str) -> bool:
        held = self.held.get(name)
        return held is not None and held.lease_id == lease_id
