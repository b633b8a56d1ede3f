"""Lost segments that can be read again, as when a disk is mounted again or a bucket restored.

The journal forgets their gaps, and the next catalog records that these are closed.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from dataclasses import replace
from functools import partial

from ...blobs.api import BlobStore
from ...blobs.cache import origin
from ...core.errors import Reason, Refusal
from ...core.model import BlobLocation
from ...journal.database.database import Database
from ...journal.lease import Lease
from ...journal.values import segment_refs
from ..flush.assembling import Chores
from ..flush.flusher import TenantFlusher
from ..formats.catalogs import read_threads
from ..formats.manifests import fold
from ..formats.records import GapRecord
from ..read.read import DAMAGE, Segments, recorded_places
from ..rows import gaps, status

_log = logging.getLogger(__name__)

_LOOKED_FOR = 256  # at a time


async def look_again(
    flusher: TenantFlusher, database: Database, lease: Lease, blobs: BlobStore, now_us: int
) -> bool:
    """Look for the lost segments of a tenant that are due; return whether some stay lost.

    Raises:
        Refusal: The journal or the blob store does not answer, or a run cannot be read.
    """
    tenant = flusher.tenant
    lost_gaps = await database.query(partial(gaps.lost_segments, tenant=tenant))
    due = [gap for gap in lost_gaps if gap.retry_us <= now_us][:_LOOKED_FOR]
    hashes = [gap.segment for gap in due if gap.segment]
    locations = await database.query(partial(segment_refs.by_hash, tenant=tenant, hashes=hashes))
    segments = Segments(origin(blobs), 0, recorded_places(database, tenant))
    gap_numbers: dict[bytes, int] = {}  # numbers of the gaps by segment
    failures: list[tuple[int, str]] = []
    for gap in due:
        location = locations.get(gap.segment or b"")
        problem = await _problem(segments, location) if location is not None else gap.reason
        if problem:
            failures.append((gap.number, problem))
        elif location is not None:
            gap_numbers[location.sha256] = gap.number
    if gap_numbers:
        async with flusher.turn:
            await flusher.flush.settle()
            closed_gaps = await _close_gaps(database, segments, tenant, gap_numbers)
            if closed_gaps:
                await flusher.flush.record(Chores(closed_gaps))
        await lease.transact(lambda batch: gaps.forget(batch.connection, gap_numbers.values()))
        _log.warning("tenant %s: %d lost segments can be read again", tenant, len(gap_numbers))
    if failures:
        await lease.transact(lambda batch: gaps.postpone(batch.connection, failures, batch.now_us))
    return len(gap_numbers) < len(lost_gaps)


async def _problem(segments: Segments, location: BlobLocation) -> str:
    """Return why a segment cannot be read; empty if it can be read."""
    try:
        await segments.read([location])
    except Refusal as refusal:
        if refusal.reason not in (*DAMAGE, Reason.JOURNAL_DAMAGED):  # of the segment's key
            raise
        return refusal.message
    return ""


async def _close_gaps(
    database: Database, segments: Segments, tenant: str, hashes: Collection[bytes]
) -> list[GapRecord]:
    """Return the recorded gaps of segments, closed."""
    known = await database.query(partial(status.catalog, tenant=tenant))
    if known is None:
        return []

    async def fetch(location: BlobLocation) -> bytes:
        [data] = await segments.fetch([location])
        return data

    return [
        replace(gap, reason="")
        async for thread_id, records in read_threads(known.catalog.runs, fetch)
        for gap in fold(thread_id, records).gaps
        if gap.segment in hashes
    ]
