"""Newest catalog of a tenant: the check that the store has it, and its repair in the journal."""

from __future__ import annotations

import logging
from functools import partial

from ...blobs.api import BlobStore, StoreLostError
from ...core.errors import Reason, Refusal
from ...core.model import BlobLocation
from ...journal.database.database import Database
from ...keys.provider import KeyProvider
from ..formats.catalogs import decode_catalog
from ..formats.sealing import open_member, wrapped_key
from ..read.read import DAMAGE
from ..read.root_keys import with_root_key
from ..rows import status
from .certify import put_catalog_back

_log = logging.getLogger(__name__)


async def repair_catalog(
    database: Database, blobs: BlobStore, keys: KeyProvider | None, tenant: str
) -> bool:
    """Store a tenant's newest catalog again if its row is damaged; return whether it was.

    The bytes come from the catalog's blob, whose SHA-256 is in the row.

    Raises:
        Refusal: `JOURNAL_DAMAGED` if the catalog's blob does not have the bytes either;
            `BLOB_UNAVAILABLE`; any refusal of the key provider.
    """
    try:
        await database.query(partial(status.catalog, tenant=tenant))
    except Refusal as refusal:
        if refusal.reason is not Reason.JOURNAL_DAMAGED:
            raise
        damage = refusal
    else:
        return False
    place = await database.query(partial(status.catalog_place, tenant=tenant))
    if place is None:
        return False
    location = place.location
    if not location.blob_id:
        raise _catalog_lost(damage, "", "the journal does not say which blob has it")
    try:
        data = await blobs.get(location)
        location = await with_root_key(keys, tenant, data, location)
        catalog = decode_catalog(open_member(data, location), location.blob_id)
    except Refusal as refusal:
        if refusal.reason not in DAMAGE:
            raise
        raise _catalog_lost(damage, location.blob_id, refusal.message) from refusal
    if (catalog.generation, catalog.number) != (place.generation, place.number):
        raise _catalog_lost(damage, location.blob_id, "it has another catalog than the row says")
    root = wrapped_key(data, location.blob_id)
    store = partial(put_catalog_back, tenant=tenant, catalog=catalog, place=place, root=root)
    await database.transact(store)
    _log.error(
        "the newest catalog of tenant %s was damaged in the journal (%s): it was read from blob %s "
        "and stored again",
        *(tenant, damage.metadata["problem"], location.blob_id),
    )
    return True


def _catalog_lost(damage: Refusal, blob_id: str, problem: str) -> Refusal:
    """Return the refusal to continue without a catalog that its blob does not have either."""
    blob = f"blob {blob_id}" if blob_id else "its blob"
    why = f"{damage.metadata['problem']}, and {blob} cannot take its place: {problem}"
    return Refusal(Reason.JOURNAL_DAMAGED, what=damage.metadata["what"], problem=why)


async def require_catalog(blobs: BlobStore, tenant: str, catalog: BlobLocation) -> None:
    """Check that a store has a catalog, damaged or not.

    Raises:
        StoreLostError: The store does not have the catalog.
        Refusal: The store cannot be used.
    """
    if not catalog.blob_id:  # the catalog's location is no longer known
        return
    try:
        await blobs.get(catalog)
    except Refusal as refusal:
        if refusal.reason is Reason.BLOB_NOT_FOUND:
            raise StoreLostError(
                blobs.backend,
                f"it lacks catalog {catalog.blob_id}, the newest of tenant {tenant}, so it is "
                "another store or has lost its blobs; bring them back and nothing is lost, or "
                f"restart the server with --accept-missing-blobs={catalog.blob_id}",
            ) from refusal
        if refusal.reason not in DAMAGE:
            raise
        _log.error("the newest catalog of tenant %s is damaged: %s", tenant, refusal)
