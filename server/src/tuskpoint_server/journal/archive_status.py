"""What the journal knows of the archive's progress."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sqlalchemy import Connection, and_, exists, func, select, union

from ..domain.catalog import Runs, decode_runs
from ..domain.manifest import ManifestHead
from ..domain.model import BlobLocation, CheckpointKey
from .schema import (
    UNTOLD,
    catalogs,
    checkpoints,
    manifests,
    packs,
    placements,
    retractions,
    threads,
    tombstones,
)
from .statements import Statement, of_checkpoint


@dataclass(frozen=True, slots=True)
class Backlog:
    """What waits for certification.

    Attributes:
        checkpoints: Number of checkpoints whose current revision is not certified.
        size_bytes: Bytes of values and writes that wait.
        oldest_us: Time of the oldest change, or `None`.
        others: Number of retractions, tombstones and threads with untold facts.
    """

    checkpoints: int = 0
    size_bytes: int = 0
    oldest_us: int | None = None
    others: int = 0


@dataclass(frozen=True, slots=True)
class KnownCatalog:
    """The newest certified catalog of a tenant, its own changes among its runs."""

    generation: int
    seq: int
    location: BlobLocation
    runs: Runs
    certified_us: int


@dataclass(frozen=True, slots=True)
class Standing:
    """Revisions of a checkpoint."""

    revision: int
    certified_revision: int


_STANDING = Statement(
    select(checkpoints.c.revision, checkpoints.c.certified_revision).where(
        of_checkpoint(checkpoints), checkpoints.c.hidden.is_(False)
    )
)


_UNTOLD = and_(
    UNTOLD,
    threads.c.deleted.is_(False),
    exists().where(
        manifests.c.tenant == threads.c.tenant,
        manifests.c.thread_id == threads.c.thread_id,
        manifests.c.incarnation == threads.c.incarnation,
        manifests.c.ended.is_(False),
    ),
)
"""Facts of a thread wait to be told; those of one without manifest wait for its first."""


def backlog(connection: Connection, tenant: str) -> Backlog:
    """Return what waits; takes time in proportion to that."""
    row = connection.execute(
        select(
            func.count(),
            func.coalesce(func.sum(checkpoints.c.dirty_bytes), 0),
            func.min(checkpoints.c.dirty_us),
        ).where(checkpoints.c.tenant == tenant, checkpoints.c.dirty_us.is_not(None))
    ).one()
    others = sum(
        connection.execute(
            select(func.count()).select_from(table).where(table.c.tenant == tenant, *untold)
        ).scalar_one()
        for table, *untold in (
            (retractions,),
            (tombstones,),
            (threads, _UNTOLD),
        )
    )
    return Backlog(row[0], int(row[1]), row[2], others)


def oldest_waiting_us(connection: Connection, tenant: str) -> int | None:
    """Return the time of the oldest change that is not certified, deletions included."""
    oldest = [
        connection.execute(select(func.min(time)).where(*of)).scalar_one()
        for time, *of in (
            (
                checkpoints.c.dirty_us,
                checkpoints.c.tenant == tenant,
                checkpoints.c.dirty_us.is_not(None),
            ),
            (retractions.c.created_us, retractions.c.tenant == tenant),
            (tombstones.c.created_us, tombstones.c.tenant == tenant),
            (
                threads.c.updated_us,
                threads.c.tenant == tenant,
                _UNTOLD,
            ),
        )
    ]
    return min((time for time in oldest if time is not None), default=None)


def waiting_tenants(connection: Connection) -> list[str]:
    """Return the tenants that have something to store or a pack on its way."""
    rows = connection.execute(
        union(
            select(checkpoints.c.tenant).where(checkpoints.c.dirty_us.is_not(None)),
            select(retractions.c.tenant),
            select(tombstones.c.tenant),
            select(threads.c.tenant).where(_UNTOLD),
            select(packs.c.tenant),
        )
    )
    return sorted(row[0] for row in rows)


def catalog_tenants(connection: Connection) -> list[str]:
    """Return the tenants that have a certified catalog."""
    return list(connection.execute(select(catalogs.c.tenant)).scalars())


def standing(
    connection: Connection, tenant: str, keys: Iterable[CheckpointKey]
) -> dict[CheckpointKey, Standing]:
    """Return the revisions of those checkpoints that exist."""
    found: dict[CheckpointKey, Standing] = {}
    for key in keys:
        row = _STANDING.run(
            connection,
            of_tenant=tenant,
            of_thread=key.thread_id,
            of_ns=key.checkpoint_ns,
            of_id=key.checkpoint_id,
        ).fetchone()
        if row is not None:
            found[key] = Standing(row[0], row[1])
    return found


def certified_count(connection: Connection, tenant: str) -> int:
    """Return the number of checkpoints that have a certified revision."""
    count = connection.execute(
        select(func.count()).where(
            checkpoints.c.tenant == tenant,
            checkpoints.c.certified_revision > 0,
            checkpoints.c.hidden.is_(False),
        )
    ).scalar_one()
    return int(count)


def catalog(connection: Connection, tenant: str) -> KnownCatalog | None:
    """Return the newest certified catalog, or `None` before the first flush."""
    row = connection.execute(
        select(catalogs, placements.c.size, placements.c.blob_id, placements.c.identifier)
        .join(
            placements,
            (placements.c.tenant == catalogs.c.tenant) & (placements.c.sha256 == catalogs.c.sha256),
        )
        .where(catalogs.c.tenant == tenant)
    ).one_or_none()
    if row is None:
        return None
    return KnownCatalog(
        generation=row.generation,
        seq=row.seq,
        location=BlobLocation(row.sha256, row.size, row.blob_id, row.identifier),
        runs=decode_runs(row.runs),
        certified_us=row.certified_us,
    )


@dataclass(frozen=True, slots=True)
class CertifiedHead:
    """Head of a thread's manifest and the time at which it was certified."""

    head: ManifestHead
    incarnation: int
    certified_us: int


def manifest_head(connection: Connection, tenant: str, thread_id: str) -> CertifiedHead | None:
    """Return the head of the current incarnation's manifest, if anything is certified."""
    row = connection.execute(
        select(manifests, placements.c.size, placements.c.blob_id, placements.c.identifier)
        .join(
            threads,
            (threads.c.tenant == manifests.c.tenant)
            & (threads.c.thread_id == manifests.c.thread_id)
            & (threads.c.incarnation == manifests.c.incarnation),
        )
        .join(
            placements,
            (placements.c.tenant == manifests.c.tenant)
            & (placements.c.sha256 == manifests.c.sha256),
        )
        .where(
            manifests.c.tenant == tenant,
            manifests.c.thread_id == thread_id,
            threads.c.deleted.is_(False),
        )
    ).one_or_none()
    if row is None:
        return None
    return CertifiedHead(
        ManifestHead(
            BlobLocation(row.sha256, row.size, row.blob_id, row.identifier),
            row.segment,
            row.generation,
            row.records,
        ),
        row.incarnation,
        row.certified_us,
    )
