"""Finds blobs that a store need not keep, while the server is stopped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

from ...blobs.packed import PackStore, StoredFile
from ...core.errors import Refusal
from ...core.model import BlobLocation
from ...journal.database.database import Database
from ...journal.database.unit_of_work import UnitOfWork
from ...keys.provider import KeyProvider
from ..formats.catalogs import Catalog, decode_catalog
from ..formats.sealing import open_member
from ..formats.stored_json import Kind
from ..read.read import Segments, recorded_places
from ..read.root_keys import with_root_key
from ..rows import lifetimes, plan, status
from .emptied import forget_emptied, note_emptied, read_emptied_blobs
from .repair import survey

MIN_AGE_S = 3600.0
"""A younger blob of another server stays: that server may not have recorded the blob yet."""


@dataclass(frozen=True, slots=True)
class UnneededBlobs:
    """Blobs of a store that a journal does not need."""

    removable: tuple[StoredFile, ...]
    others: int  # number of blobs that stay because another server may have stored them
    own: frozenset[str]  # IDs of the blobs that this journal has certainly stored
    # recorded members that are removed with the blobs, by tenant
    dead: Mapping[str, tuple[bytes, ...]]


async def find_unneeded(
    database: Database, store: PackStore, keys: KeyProvider | None, *, of_others: bool
) -> UnneededBlobs:
    """Return the blobs that nothing in the journal of a stopped server needs.

    With `of_others`, also return blobs that this journal did not store. Refuses as a blob store
    does, and with `JOURNAL_UNAVAILABLE`.
    """
    recorded, packs, noted = await database.query(
        lambda connection: (
            lifetimes.all_blobs(connection),
            plan.unfinished_packs(connection),
            read_emptied_blobs(connection),
        )
    )
    needed = {member.location.blob_id for pack in packs for member in pack.plan.members}
    segments: dict[str, BlobLocation] = {}
    dead: dict[str, list[BlobLocation]] = {}
    for tenant, blobs in recorded.items():
        report = await survey(database, store, tenant, blobs)
        for blob in report.blobs:
            if blob.is_needed:
                needed.add(blob.blob.blob_id)
            for member in blob.dead:
                dead.setdefault(tenant, []).append(member.location)
                if member.kind in (Kind.SEGMENT, Kind.PARTS):
                    segments[blob.blob.blob_id] = member.location
    own = {blob_id for blob_id in noted if blob_id not in needed}
    removable, other_count = [], 0
    async for file in store.blobs():
        if file.blob_id in needed:
            continue
        segment = segments.get(file.blob_id)
        if file.blob_id in own or await is_own(file.blob_id, segment, database, store, keys):
            own.add(file.blob_id)
            removable.append(file)
        elif file.age_s >= MIN_AGE_S:
            if of_others:
                removable.append(file)
            else:
                other_count += 1
    removable_ids = {file.blob_id for file in removable}
    members = {
        tenant: tuple(
            location.sha256 for location in locations if location.blob_id in removable_ids
        )
        for tenant, locations in dead.items()
    }
    return UnneededBlobs(tuple(removable), other_count, frozenset(own), members)


async def remove(database: Database, store: PackStore, unneeded: UnneededBlobs) -> list[StoredFile]:
    """Remove blobs; return the blobs that existed. After a refusal, some may be removed."""

    def forget(batch: UnitOfWork) -> None:
        for tenant, hashes in unneeded.dead.items():
            lifetimes.drop(batch, tenant, hashes)
        note_emptied(batch, unneeded.own)

    await database.transact(forget)
    removed = [
        file
        for file in unneeded.removable
        if await store.remove(
            file.blob_id, min_age_s=0.0 if file.blob_id in unneeded.own else MIN_AGE_S
        )
    ]
    await database.transact(forget_emptied)
    return removed


async def is_own(
    blob_id: str,
    segment: BlobLocation | None,
    database: Database,
    store: PackStore,
    keys: KeyProvider | None,
) -> bool:
    """Return whether this journal stored a blob, by the catalog or a segment in the blob.

    A recovered journal may have recorded blobs that another journal stored, in an earlier
    generation.
    """
    tenants = await database.query(status.catalog_tenants)
    try:
        for member in await store.list_blob(blob_id):
            if member.kind == Kind.CATALOG:
                data = await store.get(member.location)
                catalog = await _catalog(data, member.location, keys, tenants)
                return catalog is not None and catalog.journal_id == database.journal_id
        if segment is None:
            return False
        [stored] = await Segments(store, 0, recorded_places(database)).read([segment])
    except Refusal:
        return False  # the origin of the blob is not known
    return stored.segment.generation == database.generation


async def _catalog(
    data: bytes, location: BlobLocation, keys: KeyProvider | None, tenants: Iterable[str]
) -> Catalog | None:
    """Return a stored catalog of one of several tenants; `None` if no key opens the catalog."""
    for tenant in tenants:
        with suppress(Refusal):
            root = await with_root_key(keys, tenant, data, location)
            return decode_catalog(open_member(data, root), location.blob_id)
    return None
