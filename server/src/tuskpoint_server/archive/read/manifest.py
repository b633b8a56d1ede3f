"""From the newest catalog to the manifest of one thread."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from ...blobs.api import BlobStore
from ...domain.errors import Reason, Refusal
from ...domain.formats.catalogs import LiveRuns, read_thread
from ...domain.formats.manifests import Key, Manifest, ManifestEntry, encode_manifest, fold
from ...domain.formats.records import MemberRecord, Record
from ...domain.formats.stored_json import Kind
from ...domain.model import BlobLocation
from ...journal.archiving import status
from ...journal.archiving.lifetimes import Expiry, record_blobs
from ...journal.archiving.status import KnownCatalog
from ...journal.database.database import Database
from ..apart import ApartStore
from .segments import placed

FetchMany = Callable[[Sequence[BlobLocation]], Awaitable[Sequence[bytes]]]
"""Returns the bytes at locations, in order, hash checked."""

_RUNS_AT_ONCE = 8


async def manifest(
    database: Database, blobs: BlobStore, tenant: str, thread_id: str
) -> tuple[Manifest, KnownCatalog] | None:
    """Fold what the newest certified catalog leads to of a thread, which lives or was deleted.

    Returns:
        The manifest and that catalog; `None` if nothing is stored of it.

    Raises:
        Refusal: `BLOB_HASH_MISMATCH`, `BLOB_NOT_FOUND`, `BLOB_UNAVAILABLE`,
            `BLOB_MALFORMED`, `JOURNAL_UNAVAILABLE`.
    """
    places = placed(database, tenant)

    async def fetch(locations: Sequence[BlobLocation]) -> list[bytes]:
        return await blobs.get_many(await places(locations))

    failed: bytes | None = None
    while True:
        newest = await database.query(lambda connection: status.catalog(connection, tenant))
        if newest is None:
            return None
        try:
            records = await records_of(newest.catalog.runs, thread_id, fetch)
        except Refusal as refusal:
            # Once another catalog was certified, nothing keeps the runs that it dropped.
            gone = refusal.reason in (Reason.BLOB_NOT_FOUND, Reason.BLOB_HASH_MISMATCH)
            if not gone or newest.location.sha256 == failed:
                raise
            failed = newest.location.sha256
            continue
        if not records:
            return None
        return await asyncio.to_thread(fold, thread_id, records), newest


async def records_of(runs: LiveRuns, thread_id: str, fetch: FetchMany) -> list[Record]:
    """Return all records of a thread, those of older runs first; runs are fetched together.

    Raises:
        Refusal: `BLOB_MALFORMED`, and what `fetch` raises.
    """
    wanted = [
        ref.location for ref in runs.oldest_first() if ref.first[0] <= thread_id <= ref.last[0]
    ]
    order = {location.sha256: number for number, location in enumerate(wanted)}
    fetched: dict[bytes, bytes] = {}

    async def fetch_one(location: BlobLocation) -> bytes:
        if location.sha256 not in order:  # named by a branch
            [data] = await fetch([location])
            return data
        if location.sha256 not in fetched:
            number = order[location.sha256]
            some = wanted[number : number + _RUNS_AT_ONCE]
            fetched.clear()
            fetched.update(zip([one.sha256 for one in some], await fetch(some), strict=True))
        return fetched[location.sha256]

    return await read_thread(runs, thread_id, fetch_one)


def page_of(
    found: Manifest, after: Key | None, size: int
) -> tuple[list[tuple[Key, ManifestEntry]], bool]:
    """Return a page of the stored checkpoints, by namespace and ID, and whether more follow."""
    keys = sorted(key for key in found.entries if after is None or key > after)
    return [(key, found.entries[key]) for key in keys[:size]], len(keys) > size


async def store_manifest(
    database: Database, blobs: BlobStore, tenant: str, found: Manifest, expiry: Expiry
) -> BlobLocation:
    """Store a manifest as a blob of its own, which recovery takes in the place of a catalog.

    It lasts as long as the store keeps blobs; nothing renews it.

    Args:
        database: Says where the segments lie that it names.
        blobs: The blob store itself, no cache.
        tenant: The tenant.
        found: The manifest.
        expiry: Says how long a stored blob lasts.

    Returns:
        Where it lies, or the list of its parts.

    Raises:
        Refusal: `BLOB_UNAVAILABLE`, `BLOB_REJECTED`, `JOURNAL_UNAVAILABLE`.
    """
    members = [one for one in found.records if isinstance(one, MemberRecord)]
    places = await placed(database, tenant)([one.location for one in members])
    where = {place.sha256: place for place in places}
    records = tuple(
        replace(one, location=where[one.location.sha256]) if isinstance(one, MemberRecord) else one
        for one in found.records
    )
    data = await asyncio.to_thread(encode_manifest, replace(found, records=records), tenant)
    stored = await ApartStore(blobs).store(data, Kind.MANIFEST)
    if stored.blobs:
        await database.transact(
            lambda batch: record_blobs(batch.connection, tenant, stored.blobs, batch.now_us, expiry)
        )
    return stored.location
