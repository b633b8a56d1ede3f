"""Compares, at a start, the newest catalogs of journal, pointer files and blob store.

The comparison precedes all writes, so that a start with a wrong directory overwrites nothing. A
store that does not answer proves nothing; only the answer that a blob does not exist counts.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ...archive.flush.catalog_repair import require_catalog
from ...archive.flush.packs import Pointer
from ...archive.formats.catalogs import Catalog
from ...archive.formats.stored_json import Kind
from ...archive.read.read import DAMAGE
from ...archive.rows import status
from ...archive.rows.status import NewestCatalog
from ...blobs.api import BlobStore, StoreLostError, digest_of
from ...core.credentials import DEFAULT_TENANT
from ...core.errors import Reason, Refusal
from ...core.model import BlobLocation
from ...journal.database.database import Database
from ...keys.provider import KeyProvider
from .recovery import RecoverySource, UnclearReferenceError, find, read_source

YOUNG_US = 600 * 1_000_000
"""Age below which an aggregator's 404 does not prove that a blob is lost."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class EarlierCatalogs:
    """Catalogs of earlier runs, by tenant: in the pointer files, and in the journal.

    `given_up`: catalogs of the default tenant that were given up. Until the accepted journal
    certifies a catalog, nothing else distinguishes that journal from an older one.
    """

    named: Mapping[str, str]
    known: Mapping[str, NewestCatalog]
    damaged: Mapping[str, str]  # blob IDs of catalogs whose rows in the journal are damaged
    given_up: Sequence[str] = ()

    @property
    def needed(self) -> list[str]:
        """The blob IDs of the catalogs that the blob store must have."""
        known_ids = {tenant: catalog.location.blob_id for tenant, catalog in self.known.items()}
        return sorted({*({**self.named, **self.damaged, **known_ids}).values()} - {""})


@dataclass(frozen=True, slots=True)
class UnreachedCatalog:
    """A catalog that the journal does not lead to."""

    tenant: str
    blob_id: str
    generation: int  # 0 if the catalog cannot be read
    why: str  # explanation for people


async def read_earlier_catalogs(pointer: Pointer, journal: Database) -> EarlierCatalogs:
    """Return the catalogs of earlier runs.

    The pointer files are read first: another server of the journal may certify at the same time,
    and writes its file after the journal.

    Raises:
        OSError, UnicodeDecodeError: A pointer file cannot be read.
        Refusal: `JOURNAL_UNAVAILABLE`.
    """
    named = pointer.named()
    tenants = await journal.query(status.catalog_tenants)
    known: dict[str, NewestCatalog] = {}
    damaged: dict[str, str] = {}
    for tenant in tenants:
        try:
            catalog = await journal.query(partial(status.catalog, tenant=tenant))
        except Refusal as refusal:
            if refusal.reason is not Reason.JOURNAL_DAMAGED:
                raise
            place = await journal.query(partial(status.catalog_place, tenant=tenant))
            damaged[tenant] = place.location.blob_id if place is not None else ""
            continue
        if catalog is not None:
            known[tenant] = catalog
    return EarlierCatalogs(named, known, damaged, pointer.given_up(DEFAULT_TENANT))


async def find_missing_catalogs(
    found: EarlierCatalogs, blobs: BlobStore, now_us: int
) -> dict[str, str]:
    """Return the newest catalogs that the blob store certainly lacks, as tenants by blob ID.

    In stores with expiry, a young blob may not be served yet.
    """
    missing_catalogs: dict[str, str] = {}
    for tenant, known in found.known.items():
        try:
            await require_catalog(blobs, tenant, known.location)
        except StoreLostError as error:
            if blobs.epoch_s is not None and now_us - known.certified_us < YOUNG_US:
                _log.warning("tenant %s: %s", tenant, error)
            else:
                missing_catalogs[known.location.blob_id] = tenant
        except Refusal as refusal:
            _log.warning(
                "whether the blob store has the newest catalog of tenant %s is not known yet: %s",
                tenant,
                refusal,
            )
    return missing_catalogs


async def find_newer_catalogs(
    found: EarlierCatalogs, blobs: BlobStore, keys: KeyProvider | None, *, is_shared: bool
) -> tuple[list[UnreachedCatalog], list[str]]:
    """Return the catalogs that pointer files name and the journal does not lead to.

    The journal is then older than the file, or another journal. Also return the tenants whose files
    name catalogs that cannot be compared. If servers share a journal (`is_shared`), these include
    catalogs that the store lacks: a server that was stopped for long has an old file, whose catalog
    was collected.
    """
    newer_catalogs: list[UnreachedCatalog] = []
    unclear: list[str] = []
    for tenant, blob_id in found.named.items():
        known = found.known.get(tenant)
        if known is not None and blob_id in _own_catalogs(known):
            continue
        source: RecoverySource | None = None
        try:
            if digest_of(blob_id) is not None:
                source = await _read(blobs, blob_id, tenant, keys)
            elif known is not None:
                _log.warning("the pointer file of tenant %s names no blob", tenant)
                unclear.append(tenant)
                continue
        except Refusal as refusal:
            if known is not None and (is_shared or refusal.reason not in DAMAGE):
                _log.warning(
                    "the pointer file of tenant %s names catalog %s, which cannot be compared "
                    "with the journal: %s",
                    tenant,
                    blob_id,
                    refusal,
                )
                unclear.append(tenant)
                continue
        if source is None and known is None and tenant != DEFAULT_TENANT:
            continue  # a file beside the pointer that may not belong to a tenant
        if problem := _how_behind(known, source):
            generation = source.content.generation if source is not None else 0
            newer_catalogs.append(UnreachedCatalog(tenant, blob_id, generation, problem))
    return newer_catalogs, unclear


async def find_returned_catalogs(
    found: EarlierCatalogs, blobs: BlobStore, keys: KeyProvider | None, generation: int
) -> list[UnreachedCatalog]:
    """Return the catalogs that were given up for a newer journal.

    The journal that was accepted in their place has a higher generation than the catalogs.
    """
    catalogs: list[UnreachedCatalog] = []
    for blob_id in found.given_up:
        try:
            source = await _read(blobs, blob_id, DEFAULT_TENANT, keys)
        except Refusal:
            continue  # the catalog was collected, or the store does not answer
        if source is not None and generation <= source.content.generation:
            problem = (
                f"the journal is of generation {generation}, and that catalog, of generation "
                f"{source.content.generation}, was given up for a later one"
            )
            catalogs.append(
                UnreachedCatalog(DEFAULT_TENANT, blob_id, source.content.generation, problem)
            )
    return catalogs


def _own_catalogs(known: NewestCatalog) -> tuple[str, ...]:
    """Return the newest two catalogs of a journal, because a crash may come in between."""
    previous = known.catalog.previous
    return (known.location.blob_id, *([previous.blob_id] if previous is not None else []))


async def _read(
    blobs: BlobStore, blob_id: str, tenant: str, keys: KeyProvider | None
) -> RecoverySource | None:
    """Return a tenant's catalog in a blob; `None` if the blob has none."""
    try:
        location = await find(blobs, BlobLocation(b"", 0, blob_id), Kind.CATALOG)
        source = await read_source(blobs, location, Kind.CATALOG, keys, tenant)
    except UnclearReferenceError:
        return None
    is_of = isinstance(source.content, Catalog) and source.content.tenant == tenant
    return source if is_of else None


def _how_behind(known: NewestCatalog | None, source: RecoverySource | None) -> str:
    """Return how a journal is behind a catalog; empty if it is up to date."""
    if known is None:
        return "the journal has certified nothing of that tenant"
    newest = known.catalog
    journal_end = f"the journal ends with number {newest.number} of generation {newest.generation}"
    if source is None:
        return f"{journal_end}, and the blob store does not have that catalog, which may be newer"
    if source.location.sha256 == known.location.sha256:
        return ""  # stored again, as another blob
    catalog = source.content
    assert isinstance(catalog, Catalog)  # noqa: S101 - of `_read`
    if newest.generation == catalog.generation and newest.journal_id != catalog.journal_id:
        return "the journal is another one than that which certified it"
    if (catalog.generation, catalog.number) < (newest.generation, newest.number):
        return ""
    catalog_end = f"number {catalog.number} of generation {catalog.generation}"
    return f"{journal_end}, and that catalog is {catalog_end}"
