"""Random drivers on one thread: what the journal accepts is what a model of the lease accepts."""

from __future__ import annotations

import os
import random
import secrets
from dataclasses import dataclass

from tests.contract.leases.kit import acquire, keep, release
from tests.kit.drafts import TENANT, draft, key, write
from tests.kit.journal import Clock, Journal
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.leases import Lease

STEPS = 15 * int(os.environ.get("TUSKPOINT_EXAMPLES", "10"))
SEED = os.environ.get("TUSKPOINT_LEASE_SEED") or secrets.token_hex(4)


@dataclass
class Model:
    """The lease of the thread, as the specification describes it."""

    lease: Lease | None = None
    until_us: int = 0

    def holds(self, now_us: int) -> bool:
        return self.lease is not None and now_us < self.until_us

    def is_lost(self, lease: Lease, now_us: int) -> bool:
        return self.lease is None or lease.lease_id != self.lease.lease_id or not self.holds(now_us)

    def allows(self, lease: Lease | None, now_us: int) -> Reason | None:
        """Return the refusal of a change, and end a lease whose time is over."""
        if lease is not None:
            return Reason.LEASE_LOST if self.is_lost(lease, now_us) else None
        if self.lease is not None and self.holds(now_us):
            return None if self.lease.advisory else Reason.THREAD_BUSY
        self.lease = None
        return None


async def test_the_journal_accepts_what_the_specification_says(
    journal: Journal, clock: Clock
) -> None:
    print(f"TUSKPOINT_LEASE_SEED={SEED}")
    source, model = random.Random(SEED), Model()
    known: list[Lease] = []  # all leases so far
    for number in range(STEPS):
        clock.advance(source.choice((0, 0.5, 1, 5, -1)))
        now_us = clock.now_us
        action = source.choice(
            ("acquire", "take over", "keep", "release", "save", "write", "delete")
        )
        lease = source.choice([*known[-3:], None])
        refused: Reason | None = None
        expected: Reason | None = None
        try:
            if action in ("acquire", "take over"):
                took = action == "take over"
                busy = model.holds(now_us) and not took
                expected = Reason.THREAD_BUSY if busy else None
                ttl_s, advisory = source.choice((1, 3)), source.random() < 0.3
                new = await acquire(journal, ttl_s=ttl_s, advisory=advisory, takes_over=took)
                assert all(new.fence > old.fence for old in known)
                known.append(new)
                model.lease, model.until_us = new, now_us + ttl_s * 1_000_000
                assert new.until_us == model.until_us
            elif action == "keep" and lease is not None:
                expected = Reason.LEASE_LOST if model.is_lost(lease, now_us) else None
                kept = await keep(journal, lease)
                model.until_us = max(model.until_us, now_us + lease.ttl_us)
                assert kept.until_us == model.until_us
            elif action == "release" and lease is not None:
                held = not model.is_lost(lease, now_us)
                assert await release(journal, lease) is held
                model.lease = None if held else model.lease
            elif action == "save":
                expected = model.allows(lease, now_us)
                named = lease.lease_id if lease is not None else ""
                await journal.save_checkpoint(TENANT, draft(f"{number:04}", lease_id=named))
            elif action == "write":
                expected = model.allows(lease, now_us)
                named = lease.lease_id if lease is not None else ""
                writes = [write("c", b"w", task=f"{number}")]
                await journal.save_writes(TENANT, key("9999"), writes, named)
            elif action == "delete" and source.random() < 0.2:
                await journal.removal.delete_thread(TENANT, "t")
                model.lease = None
        except Refusal as refusal:
            refused = refusal.reason
        assert refused is expected, f"step {number}: {action} under {lease} at {now_us}"
