"""Certification: one transaction moves watermarks once a flush is stored and read back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, bindparam, delete, func, select, update

from ...domain.formats.catalogs import decode_catalog, encode_catalog
from ...domain.model import BlobLocation
from ..database.overlay import Batch
from ..database.schema import catalogs, changes, checkpoints, members, removed
from ..database.statements import (
    Statement,
    in_lists,
    of_checkpoint,
    putting,
)
from . import holes, packs, uses
from .plan import Plan, PlannedMember, PlannedThread


class Void(Exception):
    """The pack is void; the text says why.

    Another catalog was certified, a watermark has moved, or what it names is gone.
    """


_CATALOG = Statement(select(catalogs.c.sha256).where(catalogs.c.tenant == bindparam("of_tenant")))
_PUT_CATALOG = Statement(putting(catalogs, ("tenant",)))
_PUT_MEMBER = Statement(putting(members, ("tenant", "sha256")))
_FIRST_LEFT = Statement(
    select(changes.c.created_us)
    .where(changes.c.thread == bindparam("of_thread"), changes.c.seq > bindparam("through"))
    .order_by(changes.c.seq)
    .limit(1)
)
_DROP_REMOVED = Statement(
    delete(removed).where(
        removed.c.thread == bindparam("of_thread"), removed.c.seq <= bindparam("through")
    )
)
_HOLD = Statement(
    update(checkpoints).where(of_checkpoint(checkpoints)).values(held=bindparam("new_held"))
)
_OF_MEMBER = (
    members.c.tenant == bindparam("of_tenant"),
    members.c.sha256 == bindparam("of_sha256"),
)
_DROP_MEMBER = Statement(delete(members).where(*_OF_MEMBER))
_MOVE_MEMBER = Statement(
    update(members)
    .where(*_OF_MEMBER)
    .values(blob_id=bindparam("new_blob"), identifier=bindparam("new_identifier"))
)


def certify(
    batch: Batch,
    tenant: str,
    pack: int,
    plan: Plan,
    catalog: bytes,
    locations: Mapping[bytes, BlobLocation],
) -> bool:
    """Record a flush that was read back.

    Args:
        batch: In a change of its own.
        tenant: The tenant.
        pack: Number of its pack.
        plan: Its plan.
        catalog: Bytes of its catalog.
        locations: Where the members of its pack lie, by hash.

    Returns:
        Whether it was recorded now; not if it had been before.

    Raises:
        Void: Nothing is recorded; what the flush was to store has to be read again.
    """
    connection = batch.connection
    if not packs.drop(connection, pack):
        return False
    _follow(connection, tenant, plan)
    _check_named(connection, tenant, plan.named)
    move(batch, tenant, plan.threads)
    placed = [(one, locations.get(one.location.sha256, one.location)) for one in plan.members]
    _PUT_MEMBER.run_many(connection, [member_row(tenant, *one) for one in placed])
    uses.begin_anew(connection, tenant, [thread.number for thread in plan.threads if thread.ended])
    uses.add(connection, tenant, ((use.segment, use.thread) for use in plan.uses))
    _HOLD.run_many(
        connection,
        [
            {
                "of_thread": hold.thread,
                "of_ns": hold.checkpoint_ns,
                "of_id": hold.checkpoint_id,
                "new_held": hold.held,
            }
            for hold in plan.holds
        ],
    )
    holes.forget(connection, plan.filled)
    holes.record(connection, tenant, plan.holes, batch.now_us)
    _DROP_MEMBER.run_many(
        connection, [{"of_tenant": tenant, "of_sha256": sha256} for sha256 in plan.dropped]
    )
    _MOVE_MEMBER.run_many(
        connection,
        [
            {
                "of_tenant": tenant,
                "of_sha256": one.sha256,
                "new_blob": one.blob_id,
                "new_identifier": one.identifier,
            }
            for one in plan.moved
        ],
    )
    place = locations[plan.catalog]
    _PUT_CATALOG.run(
        connection,
        tenant=tenant,
        generation=plan.generation,
        number=plan.number,
        sha256=plan.catalog,
        content=encode_catalog(decode_catalog(catalog, place.blob_id)),
        certified_us=batch.now_us,
    )
    return True


def move(batch: Batch, tenant: str, moved: Sequence[PlannedThread]) -> None:
    """Move the watermarks of threads, and find what waits above them.

    Raises:
        Void: Another flush has moved one of them.
    """
    for one in moved:
        log = batch.find(tenant, one.thread_id)
        if log is None or log.row.certified_seq != one.after:
            raise Void("the watermark of a thread has moved")
        row = log.row
        row.certified_seq = one.through
        if row.seq <= one.through:
            row.dirty_since_us, row.dirty_bytes = None, 0
        else:
            left = _FIRST_LEFT.run(
                batch.connection, of_thread=row.number, through=one.through
            ).fetchone()
            row.dirty_since_us = left[0] if left is not None else None
            row.dirty_bytes = max(0, row.dirty_bytes - one.size_bytes)
        batch.store(log)
        batch.changed.add((tenant, one.thread_id))
    _DROP_REMOVED.run_many(
        batch.connection,
        [{"of_thread": one.number, "through": one.through} for one in moved],
    )


def _follow(connection: Connection, tenant: str, plan: Plan) -> None:
    """Check that the newest catalog is the one that the plan's follows."""
    row = _CATALOG.run(connection, of_tenant=tenant).fetchone()
    if (row[0] if row is not None else b"") != plan.previous:
        raise Void("another catalog was certified first")


def _check_named(connection: Connection, tenant: str, named: Sequence[bytes]) -> None:
    for some in in_lists(named):
        statement = (
            select(func.count())
            .select_from(members)
            .where(members.c.tenant == tenant, members.c.sha256.in_(some))
        )
        if connection.execute(statement).scalar_one() != len(set(some)):
            raise Void("a segment that it names is not kept any more")


def member_row(tenant: str, one: PlannedMember, location: BlobLocation) -> dict[str, object]:
    """Return the row of a member that lies at a location."""
    return {
        "tenant": tenant,
        "sha256": location.sha256,
        "kind": one.kind,
        "size": location.size,
        "blob_id": location.blob_id,
        "identifier": location.identifier,
        "parts": one.parts or None,
        "thread": one.thread,
        "incarnation": one.incarnation,
        "first_seq": one.first_seq,
        "last_seq": one.last_seq,
        "needs": one.needs or None,
        "digests": one.digests or None,
        "patched": one.patched or None,
    }
