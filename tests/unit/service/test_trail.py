"""The audit trail counts calls in small batches, and loses or repeats no call."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Sequence
from typing import Any

from tuskpoint_server.core.credentials import Grant, Scope
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.features.trail.trail import Trail
from tuskpoint_server.features.trail.trail_rows import TrailRows

GRANT = Grant("n" * 100, "acme", frozenset(Scope))
SAVE = "/tuskpoint.v1.CheckpointService/SaveCheckpoint"


class Journal(TrailRows):
    """Keeps batches in memory; fails at the calls with these numbers."""

    def __init__(self, *failing: int) -> None:
        self.batches: list[Sequence[dict[str, Any]]] = []
        self._failing = failing
        self._calls = 0

    async def append(self, tenant: str, entries: Sequence[dict[str, Any]]) -> None:
        assert tenant == "acme"
        self._calls += 1
        if self._calls in self._failing:
            raise Refusal(Reason.JOURNAL_UNAVAILABLE, problem="the disk is full")
        self.batches.append(entries)

    def counted(self) -> Counter[str]:
        """Return the counted calls of each thread."""
        counts: Counter[str] = Counter()
        for entry in (entry for entries in self.batches for entry in entries):
            counts[entry["thread_id"]] += entry["calls"]
        return counts


async def test_no_batch_is_larger_than_metadata_may_be() -> None:
    journal = Journal()
    trail = Trail(journal, {SAVE})
    names = [f"{number:04}".ljust(LIMITS.max_thread_id, "\1") for number in range(950)]
    for name in names:
        trail.note(GRANT, SAVE, (name,), "OK")
    await trail.flush()
    sizes = [len(json.dumps(entries).encode()) for entries in journal.batches]
    assert sum(sizes) > 2 * LIMITS.max_metadata
    assert max(sizes) < LIMITS.max_metadata / 2
    assert journal.counted() == Counter(names)


async def test_a_failed_flush_is_made_up_for_by_the_next() -> None:
    journal = Journal(2, 4)
    trail = Trail(journal, {SAVE})
    names = [f"{number:04}" for number in range(250)]
    expected: Counter[str] = Counter()
    for _ in range(4):
        for name in names:
            trail.note(GRANT, SAVE, (name,), "OK")
        expected.update(names)
        await trail.flush()
    assert journal.counted() == expected


async def test_a_flush_that_is_cancelled_loses_nothing() -> None:
    begun, release = asyncio.Event(), asyncio.Event()

    class Slow(Journal):
        async def append(self, tenant: str, entries: Sequence[dict[str, Any]]) -> None:
            begun.set()
            await release.wait()
            await super().append(tenant, entries)

    journal = Slow()
    trail = Trail(journal, {SAVE})
    trail.note(GRANT, SAVE, ("before",), "OK")
    flushing = asyncio.create_task(trail.flush())
    await begun.wait()
    flushing.cancel()
    await asyncio.wait([flushing])
    trail.note(GRANT, SAVE, ("after",), "OK")
    last = asyncio.create_task(trail.flush())
    release.set()
    await last
    assert journal.counted() == Counter(["before", "after"])
