"""The audit trail: caller, method, thread and status of calls, without payloads.

Calls are counted in memory, and every second the counts become one batch of each tenant's trail.
So a call costs an update of a dictionary, and a server that is killed loses the last second.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from ...core.credentials import Grant
from ...core.errors import Refusal
from .trail_rows import TrailBatch, TrailRows

FLUSH_SECONDS = 1.0
_MOST_KINDS = 10_000  # different entries of a tenant that are counted until the next flush
ENTRIES_AT_ONCE = 100  # entries of a batch, so that it stays below `LIMITS.max_metadata`

_log = logging.getLogger(__name__)

_Kind = tuple[str, str, str, str]  # caller, method, thread, status


@dataclass(slots=True)
class _Count:
    calls: int
    first_us: int
    last_us: int


class Trail:
    """Counts calls, and appends the counts to the trails.

    Attributes:
        records: The full names of the methods whose calls are counted.
    """

    def __init__(self, journal: TrailRows, records: Collection[str]) -> None:
        self.records = records
        self._journal = journal
        self._counts: dict[str, dict[_Kind, _Count]] = {}
        self._flushing = asyncio.Lock()

    def note(self, grant: Grant, method: str, named: Sequence[str], code: str) -> None:
        """Count a call of a method on the threads in its request."""
        now_us = time.time_ns() // 1000
        counts = self._counts.setdefault(grant.tenant, {})
        for thread_id in named or ("",):
            kind = (grant.name, method.rpartition("/")[2], thread_id, code)
            if kind not in counts and len(counts) >= _MOST_KINDS:
                kind = (grant.name, kind[1], "", code)  # too many threads for separate entries
            count = counts.get(kind)
            if count is None:
                counts[kind] = _Count(1, now_us, now_us)
            else:
                count.calls += 1
                count.last_us = now_us

    async def flush(self) -> None:
        """Append the new counts to the trails; after a failure, the next flush retries.

        A cancelled caller loses nothing: the flush continues, and the next flush waits for it.
        """
        await asyncio.shield(self._flush())

    async def _flush(self) -> None:
        async with self._flushing:
            await self._append()

    async def _append(self) -> None:
        counts_by_tenant, self._counts = self._counts, {}
        for tenant, counts in counts_by_tenant.items():
            pairs = list(counts.items())
            try:
                while pairs:
                    entries = [_entry(*pair) for pair in pairs[:ENTRIES_AT_ONCE]]
                    await self._journal.append(tenant, entries)
                    del pairs[:ENTRIES_AT_ONCE]
            except Refusal as refusal:
                _log.error("the trail of tenant %s cannot be written: %s", tenant, refusal)
                self._count_again(tenant, dict(pairs))

    def _count_again(self, tenant: str, counts: dict[_Kind, _Count]) -> None:
        for kind, count in self._counts.get(tenant, {}).items():
            earlier = counts.get(kind)
            if earlier is None:
                counts[kind] = count
            else:
                earlier.calls += count.calls
                earlier.last_us = count.last_us
        self._counts[tenant] = counts

    async def read(self, tenant: str, after: str, most: int) -> list[TrailBatch]:
        """Return the batches of a tenant's trail after a batch, oldest first."""
        return await self._journal.read(tenant, after, most)


def _entry(kind: _Kind, count: _Count) -> dict[str, object]:
    caller, method, thread_id, code = kind
    return {
        "who": caller,
        "method": method,
        "thread_id": thread_id,
        "status": code,
        "calls": count.calls,
        "first": _time(count.first_us),
        "last": _time(count.last_us),
    }


def _time(at_us: int) -> str:
    return datetime.fromtimestamp(at_us / 1e6, UTC).isoformat(timespec="milliseconds")
