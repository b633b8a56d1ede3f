"""Lost segments that can be read again, for instance after a disk is mounted again.

The journal forgets the gaps of these segments, and the next catalog records that the gaps are
closed.
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

_LOOKED_FOR = 256  # segments that are read at a time


async def look_again(
    flusher: TenantFlusher, database: Database, lease: Lease, blobs: BlobStore, now_us: int
) -> bool:
    """Read the lost segments of a tenant that are due; return whether some remain lost.

    Raises:
        Refusal: The journal or the blob store does not answer, or a run cannot be read.
    """
    tenant = flusher.tenant
    lost_gaps = await database.query(partial(gaps.lost_segments, tenant=tenant))
    due = [gap for gap in lost_gaps if gap.retry_us <= now_us][:_LOOKED_FOR]
    hashes = [gap.segment for gap in due if gap.segment]
    locations = await database.query(partial(segment_refs.by_hash, tenant=tenant, hashes=hashes))
    segments = Segments(origin(blobs), 0, recorded_places(database, tenant))
    gap_numbers: dict[bytes, int] = {}  # numbers of the gaps, by segment
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
    """Return why a segment cannot be read; empty if it is readable."""
    try:
        await segments.read([location])
    except Refusal as refusal:
        # refusals about the segment's key
        if refusal.reason not in (*DAMAGE, Reason.JOURNAL_DAMAGED):
            raise
        return refusal.message
    return ""


async def _close_gaps(
    database: Database, segments: Segments, tenant: str, hashes: Collection[bytes]
) -> list[GapRecord]:
    """Return records that close the gaps of segments."""
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
