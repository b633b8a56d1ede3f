"""Certification: one transaction moves watermarks after a flush is stored and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import bindparam, delete, select, update

from ...core.model import BlobLocation
from ...core.webhooks import WebhookEvent
from ...journal.database.thread_rows import first_above
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import catalogs, checkpoints, members, removed, uses
from ...journal.sql.statements import LISTED, Statement, of_checkpoint, of_thread, put_rows
from ..formats.catalogs import Catalog, decode_catalog, encode_catalog
from ..formats.sealing import open_member, wrapped_key
from ..rows import gaps, segment_index, status
from ..rows.plan import Plan, PlannedThread, drop_pack
from ..rows.status import CatalogPlace


class VoidPackError(Exception):
    """The pack is void, and nothing of it is recorded; the text gives the reason."""


_CATALOG = Statement(select(catalogs.c.sha256).where(catalogs.c.tenant == bindparam("of_tenant")))
_PUT_CATALOG = Statement(put_rows(catalogs, ("tenant",)))
_PUT_MEMBER = Statement(put_rows(members, ("tenant", "sha256")))
_THROUGH = removed.c.seq <= bindparam("through")
_DROP_REMOVED = Statement(delete(removed).where(of_thread(removed), _THROUGH))
_HOLD = Statement(
    update(checkpoints).where(of_checkpoint(checkpoints)).values(held=bindparam("new_held"))
)
_OF_TENANT = members.c.tenant == bindparam("of_tenant")
_OF_MEMBER = (_OF_TENANT, members.c.sha256 == bindparam("of_sha256"))
_NAMED = Statement(select(members.c.sha256).where(_OF_TENANT, members.c.sha256.in_(LISTED)))
_USED = select(uses.c.segment).where(uses.c.tenant == bindparam("of_tenant"))
_FORGET_KEYS = Statement(
    update(members)
    .where(_OF_TENANT, of_thread(members), members.c.sha256.not_in(_USED))
    .values(key=None)
)
_DROP_MEMBER = Statement(delete(members).where(*_OF_MEMBER))
_MOVE_MEMBER = Statement(
    update(members)
    .where(*_OF_MEMBER)
    .values(blob_id=bindparam("new_blob"), identifier=bindparam("new_identifier"))
)


def certify(
    batch: UnitOfWork,
    tenant: str,
    pack: int,
    plan: Plan,
    catalog: bytes,
    locations: Mapping[bytes, BlobLocation],
) -> bool:
    """Record a flush that was read back; return whether it was new, or raise `VoidPackError`."""
    connection = batch.connection
    if not drop_pack(connection, pack):
        return False
    row = _CATALOG.run(connection, of_tenant=tenant).fetchone()
    if (row[0] if row is not None else b"") != plan.previous:
        raise VoidPackError("another catalog was certified first")
    if len(list(_NAMED.run_listed(connection, plan.named, of_tenant=tenant))) < len(plan.named):
        raise VoidPackError("a segment that it names was removed")
    move(batch, tenant, plan.threads)
    placed = [
        (member, locations.get(member.location.sha256, member.location)) for member in plan.members
    ]
    _PUT_MEMBER.run_many(connection, [member.row(tenant, place) for member, place in placed])
    ended_threads = [thread.number for thread in plan.threads if thread.ended]
    segment_index.restart_threads(connection, tenant, ended_threads)
    segment_index.add_uses(connection, tenant, plan.uses)
    _FORGET_KEYS.run_rows(
        connection, ("of_tenant", "of_thread"), [(tenant, number) for number in ended_threads]
    )
    _HOLD.run_rows(connection, ("of_thread", "of_ns", "of_id", "new_held"), plan.holds)
    gaps.forget(connection, plan.filled)
    gaps.record(connection, tenant, plan.gaps, batch.now_us)
    dropped = [(tenant, sha256) for sha256 in plan.dropped]
    _DROP_MEMBER.run_rows(connection, ("of_tenant", "of_sha256"), dropped)
    moved = [
        (location.blob_id, location.identifier, tenant, location.sha256) for location in plan.moved
    ]
    names = ("new_blob", "new_identifier", "of_tenant", "of_sha256")
    _MOVE_MEMBER.run_rows(connection, names, moved)
    place = locations[plan.catalog]
    root = wrapped_key(catalog, place.blob_id)
    put_catalog(batch, tenant, _catalog(plan, catalog, place), plan.catalog, root)
    return True


def _catalog(plan: Plan, data: bytes, place: BlobLocation) -> Catalog:
    """Return the catalog of a pack from its stored bytes."""
    [location] = [
        member.location for member in plan.members if member.location.sha256 == plan.catalog
    ]
    return decode_catalog(open_member(data, location.moved(place)), place.blob_id)


def put_catalog(
    batch: UnitOfWork,
    tenant: str,
    catalog: Catalog,
    sha256: bytes,
    root: bytes,
    certified_us: int | None = None,
) -> None:
    """Make a catalog the newest one, which the next catalog names as its predecessor.

    `root` is the wrapped key of the catalog; `certified_us` is the time of its certification,
    `None` for now.
    """
    _PUT_CATALOG.run(
        batch.connection,
        tenant=tenant,
        generation=catalog.generation,
        number=catalog.number,
        sha256=sha256,
        content=encode_catalog(catalog),
        root=root or None,
        certified_us=batch.now_us if certified_us is None else certified_us,
    )


def put_catalog_back(
    batch: UnitOfWork, tenant: str, catalog: Catalog, place: CatalogPlace, root: bytes
) -> None:
    """Replace the damaged row of the newest catalog, unless a newer catalog is recorded."""
    sha256 = place.location.sha256
    if status.catalog_place(batch.connection, tenant) == place:
        put_catalog(batch, tenant, catalog, sha256, root, place.certified_us)


def move(batch: UnitOfWork, tenant: str, moved: Sequence[PlannedThread]) -> None:
    """Move the watermarks of threads, and update what waits above them.

    Raises:
        VoidPackError: A watermark has moved, or the row of a thread was damaged after it was read.
    """
    batch.lock((tenant, thread.thread_id) for thread in moved)
    for thread in moved:
        log = batch.find_any(tenant, thread.thread_id)
        if log is not None and log.damage is not None:
            raise VoidPackError(
                str(log.damage)
            )  # the pack that is built instead leaves the damaged thread out
        if log is None or log.row.certified_seq != thread.after:
            raise VoidPackError("the watermark of a thread has changed")
        row = log.row
        row.certified_seq = thread.through
        row.dirty_since_us = first_above(batch.connection, row, thread.through)
        more = row.seq > thread.through
        row.dirty_bytes = max(0, row.dirty_bytes - thread.size_bytes) if more else 0
        batch.store(log)
        batch.outbox.add(row, WebhookEvent.THREAD_CERTIFIED, batch.now_us)
        batch.changed[tenant, thread.thread_id] = ("", "")
    watermarks = [(thread.number, thread.through) for thread in moved]
    _DROP_REMOVED.run_rows(batch.connection, ("of_thread", "through"), watermarks)
