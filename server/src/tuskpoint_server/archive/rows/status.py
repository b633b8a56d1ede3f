"""Progress of the archive of a tenant, as the journal knows it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

import sqlalchemy as sa

from ...core.errors import Reason, Refusal
from ...core.model import BlobLocation, CheckpointKey
from ...core.values import UnopenedBytes
from ...journal.database.thread_rows import find_thread
from ...journal.sql.schema import (
    catalogs,
    changes,
    checkpoints,
    contents,
    gaps,
    journal_info,
    members,
    packs,
    threads,
    writes,
)
from ...journal.sql.statements import (
    LISTED,
    Statement,
    of_checkpoint,
    parameters_of,
    same_checkpoint,
)
from ..formats.catalogs import Catalog, decode_catalog


class CertificationBacklog(NamedTuple):
    """Backlog of certification, without gaps: threads, bytes, and the time of the oldest change."""

    threads: int
    size_bytes: int
    oldest_us: int | None


@dataclass(frozen=True, slots=True)
class NewestCatalog:
    """Newest certified catalog of a tenant, and its location."""

    catalog: Catalog
    location: BlobLocation
    certified_us: int
    # key of the catalog, wrapped by the key provider; empty if the catalog is not sealed
    root: bytes


class CatalogPlace(NamedTuple):
    """Location and numbers of a tenant's newest catalog, without its content."""

    generation: int
    number: int
    certified_us: int
    location: BlobLocation


class AwaitedChange(NamedTuple):
    """Change that a caller waits for; without a checkpoint, all changes of the thread up to it."""

    thread: int
    seq: int
    checkpoint_ns: str
    checkpoint_id: str


_DIRTY = sa.and_(
    threads.c.tenant == sa.bindparam("of_tenant"), threads.c.dirty_since_us.is_not(None)
)
_BACKLOG = Statement(
    sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(threads.c.dirty_bytes), 0))
    .add_columns(sa.func.min(threads.c.dirty_since_us))
    .where(_DIRTY)
)
_BACKLOGS = Statement(
    sa.select(threads.c.tenant, sa.func.count())
    .add_columns(sa.func.coalesce(sa.func.sum(threads.c.dirty_bytes), 0))
    .add_columns(sa.func.min(threads.c.dirty_since_us))
    .where(threads.c.dirty_since_us.is_not(None))
    .group_by(threads.c.tenant)
)
_WAITING_AMONG = Statement(
    sa.select(threads.c.tenant).where(
        threads.c.number.in_(LISTED), threads.c.dirty_since_us.is_not(None)
    )
)
_WAITING = Statement(sa.select(threads.c.number, threads.c.seq, threads.c.thread_id).where(_DIRTY))
_MARKS = Statement(
    sa.select(threads.c.number, threads.c.certified_seq).where(threads.c.number.in_(LISTED))
)
_EXISTS = Statement(sa.select(checkpoints.c.seq).where(of_checkpoint(checkpoints)))


def _newest_catalog(*columns: sa.Column[object]) -> Statement:
    """Return a statement that reads columns of a tenant's newest catalog, its hash and location."""
    is_of = sa.and_(members.c.tenant == catalogs.c.tenant, members.c.sha256 == catalogs.c.sha256)
    place = (members.c.size, members.c.blob_id, members.c.identifier, members.c.key)
    return Statement(
        sa.select(*columns, catalogs.c.sha256, *place)
        .select_from(catalogs.outerjoin(members, is_of))
        .where(catalogs.c.tenant == sa.bindparam("of_tenant"))
    )


_CATALOG = _newest_catalog(
    *(catalogs.c.content, catalogs.c.certified_us, catalogs.c.root),
    *(catalogs.c.generation, catalogs.c.number),
)
_CATALOG_PLACE = _newest_catalog(catalogs.c.generation, catalogs.c.number, catalogs.c.certified_us)


def backlog(
    connection: sa.Connection, tenant: str, damaged: Iterable[int] = ()
) -> CertificationBacklog:
    """Return the backlog; the cost is proportional to the number of waiting threads.

    Threads in `damaged`, by number, are not counted, because a flush does not store them. Their
    bytes are counted.
    """
    total = CertificationBacklog(*_BACKLOG.run(connection, of_tenant=tenant).fetchall()[0])
    among = sum(1 for _ in _WAITING_AMONG.run_listed(connection, damaged))
    return total._replace(threads=total.threads - among)


def backlogs(
    connection: sa.Connection, damaged: Iterable[int] = ()
) -> dict[str, CertificationBacklog]:
    """Return the backlogs of all tenants that have one, as `backlog` does."""
    totals = {
        tenant: CertificationBacklog(*row) for tenant, *row in _BACKLOGS.run(connection).fetchall()
    }
    for (tenant,) in _WAITING_AMONG.run_listed(connection, damaged):
        if tenant in totals:  # a thread may have become dirty after the backlogs were counted
            totals[tenant] = totals[tenant]._replace(threads=totals[tenant].threads - 1)
    return totals


def waiting_threads(
    connection: sa.Connection, tenant: str, concerns: Callable[[str], bool]
) -> dict[int, int]:
    """Return the last change of each chosen thread that has changes above its watermark."""
    rows = _WAITING.run(connection, of_tenant=tenant).fetchall()
    return {number: seq for number, seq, thread_id in rows if concerns(thread_id)}


def waiting_tenants(connection: sa.Connection) -> list[str]:
    """Return the tenants that have changes to store or a pack in flight."""
    dirty = sa.select(threads.c.tenant).where(threads.c.dirty_since_us.is_not(None))
    result = connection.execute(sa.union(dirty, sa.select(packs.c.tenant)))
    return sorted(result.scalars())


def catalog_tenants(connection: sa.Connection) -> list[str]:
    """Return the tenants that have a certified catalog."""
    return sorted(connection.execute(sa.select(catalogs.c.tenant)).scalars())


def catalog(connection: sa.Connection, tenant: str) -> NewestCatalog | None:
    """Return the newest certified catalog, or `None` before the first flush.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    row = _CATALOG.run(connection, of_tenant=tenant).fetchone()
    if row is None:
        return None
    content, certified_us, root, generation, number, *place = row
    sha256, size, blob_id, identifier, key = place
    if isinstance(content, UnopenedBytes):
        raise _damage_refusal(tenant, content.problem)
    # The location may be unknown by now; the next catalog names this one by its hash anyway.
    location = BlobLocation(
        sha256, size or 0, blob_id or "", identifier or "", b"" if key is None else key
    )
    try:
        catalog = decode_catalog(content, location.blob_id)
    except Refusal as refusal:
        raise _damage_refusal(tenant, str(refusal.metadata["problem"])) from refusal
    # A recovery may have stored a catalog of another tenant in this row.
    if (catalog.generation, catalog.number) != (generation, number):
        raise _damage_refusal(tenant, "another catalog is in its place")
    return NewestCatalog(catalog, location, certified_us, root or b"")


def _damage_refusal(tenant: str, problem: str) -> Refusal:
    what = f"the newest catalog of tenant {tenant}"
    return Refusal(Reason.JOURNAL_DAMAGED, what=what, problem=problem)


def catalog_place(connection: sa.Connection, tenant: str) -> CatalogPlace | None:
    """Return the location of the newest certified catalog, whatever its row contains."""
    row = _CATALOG_PLACE.run(connection, of_tenant=tenant).fetchone()
    if row is None:
        return None
    generation, number, certified_us, sha256, size, blob_id, identifier, key = row
    is_known = isinstance(key, bytes)
    location = BlobLocation(
        sha256, size or 0, blob_id or "", identifier or "", key if is_known else b""
    )
    return CatalogPlace(generation, number, certified_us, location)


def awaited_change(
    connection: sa.Connection, tenant: str, key: CheckpointKey, seq: int
) -> tuple[AwaitedChange, int] | None:
    """Return the change that a caller waits for, if it exists, and the thread's watermark.

    Raises:
        Refusal: `JOURNAL_DAMAGED`: the row of the thread is damaged, so its watermark proves
            nothing.
    """
    row = find_thread(connection, tenant, key.thread_id)
    if row is None or row.seq < seq:
        return None
    change = AwaitedChange(row.number, seq, key.checkpoint_ns, key.checkpoint_id)
    return (change, row.certified_seq) if _is_there(connection, change) else None


def watermarks(connection: sa.Connection, numbers: Iterable[int]) -> dict[int, int]:
    """Return the watermarks of threads."""
    return dict(_MARKS.run_listed(connection, numbers))


def missing_changes(
    connection: sa.Connection, changes_wanted: Iterable[AwaitedChange]
) -> set[AwaitedChange]:
    """Return the changes whose checkpoint no longer exists."""
    return {change for change in changes_wanted if not _is_there(connection, change)}


def _is_there(connection: sa.Connection, change: AwaitedChange) -> bool:
    if not change.checkpoint_id:
        return True
    parameters = parameters_of(change.thread, change.checkpoint_ns, change.checkpoint_id)
    return _EXISTS.run(connection, **parameters).fetchone() is not None


def counts(connection: sa.Connection, tenant: str) -> tuple[int, int]:
    """Count the checkpoints whose last change is certified, and the other checkpoints."""

    def count(statement: sa.Select[Any]) -> int:
        return int(connection.execute(statement).scalar_one())

    saved = sa.func.coalesce(sa.func.sum(threads.c.checkpoint_count), 0)
    total = count(sa.select(saved).where(threads.c.tenant == tenant))
    place = (changes.c.thread, changes.c.checkpoint_ns, changes.c.checkpoint_id)
    changed = (
        sa.select(*place)
        .join(threads, threads.c.number == changes.c.thread)
        .where(
            threads.c.tenant == tenant,
            threads.c.dirty_since_us.is_not(None),
            changes.c.seq > threads.c.certified_seq,
        )
        .distinct()
        .subquery()
    )
    is_stored = sa.exists().where(same_checkpoint(checkpoints, changed))
    waiting = count(sa.select(sa.func.count()).select_from(changed).where(is_stored))
    waiting += count(
        sa.select(sa.func.count()).where(gaps.c.tenant == tenant, gaps.c.segment.is_(None))
    )
    return max(0, total - waiting), waiting


def evicted_bytes(connection: sa.Connection, tenant: str) -> int:
    """Return the bytes of values and pending writes that only the blob store has."""
    families = sa.select(threads.c.family).where(threads.c.tenant == tenant)
    numbers = sa.select(threads.c.number).where(threads.c.tenant == tenant)
    of_values = sa.select(sa.func.coalesce(sa.func.sum(contents.c.size), 0)).where(
        contents.c.data.is_(None), contents.c.family.in_(families)
    )
    of_writes = sa.select(sa.func.coalesce(sa.func.sum(writes.c.size), 0)).where(
        writes.c.data.is_(None), writes.c.thread.in_(numbers)
    )
    return sum(
        int(connection.execute(statement).scalar_one()) for statement in (of_values, of_writes)
    )


def store_kind(connection: sa.Connection) -> str | None:
    """Return the kind of store that has all blobs; `None` before the first blob is stored."""
    is_backend = journal_info.c.name == "blob_backend"
    backend = connection.execute(
        sa.select(journal_info.c.value).where(is_backend)
    ).scalar_one_or_none()
    member = connection.execute(sa.select(members.c.sha256).limit(1)).first()
    return None if backend is None or member is None else str(backend)


def claim_home(connection: sa.Connection, backend: str) -> str:
    """Make a kind of store the home of all blobs, unless there is a home; return the home."""
    is_backend = journal_info.c.name == "blob_backend"
    current_home = store_kind(connection)
    if current_home is not None:
        return current_home
    connection.execute(sa.delete(journal_info).where(is_backend))
    connection.execute(sa.insert(journal_info).values(name="blob_backend", value=backend))
    return backend
