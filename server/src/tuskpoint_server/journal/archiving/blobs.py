"""Blobs that puts made: how long they last and what they cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, and_, case, exists, func, or_, select
from sqlalchemy.sql.elements import ClauseElement

from ...domain.model import StoredBlob
from ..database.schema import blobs, members
from ..database.statements import Statement, inserting

Expiry = Callable[[StoredBlob], int | None]
"""Returns the time, in microseconds since the epoch, before which a blob is not gone."""


@dataclass(frozen=True, slots=True)
class Totals:
    """Blobs of a tenant: their number, what they were billed for, what they cost."""

    blobs: int = 0
    billed_bytes: int = 0
    cost: int = 0


def _upsert_blob() -> ClauseElement:
    """What was paid adds up; the later end wins; epoch and time are seen together."""
    statement = inserting(blobs)
    new, old = statement.excluded, blobs.c
    lasts_as_long = or_(
        new.end_epoch.is_(None),
        and_(old.end_epoch.is_not(None), new.end_epoch >= old.end_epoch),
    )
    unseen = and_(new.epoch.is_(None), old.epoch.is_not(None))
    kept = {
        name: case((lasts_as_long, new[name]), else_=old[name])
        for name in ("end_epoch", "expire_us")
    }
    seen = {name: case((unseen, old[name]), else_=new[name]) for name in ("epoch", "stored_us")}
    return statement.on_conflict_do_update(
        index_elements=["tenant", "blob_id"],
        set_={
            "object_id": case((new.object_id != "", new.object_id), else_=old.object_id),
            "size_bytes": case((new.size_bytes > 0, new.size_bytes), else_=old.size_bytes),
            "billed_bytes": old.billed_bytes + new.billed_bytes,
            "cost": old.cost + new.cost,
            **kept,
            **seen,
        },
    )


_RECORD = Statement(_upsert_blob())


def record(
    connection: Connection,
    tenant: str,
    made: Sequence[StoredBlob],
    now_us: int,
    expiry: Expiry,
) -> None:
    """Record what puts made; of a blob that is known, the later end wins.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        made: The blobs.
        now_us: Time of the puts.
        expiry: Returns the time before which a blob is not gone; `None`: it never is.
    """
    _RECORD.run_many(
        connection,
        [
            {
                "tenant": tenant,
                "blob_id": blob.blob_id,
                "object_id": blob.object_id,
                "size_bytes": blob.size_bytes,
                "billed_bytes": blob.billed_bytes,
                "cost": blob.cost,
                "epoch": blob.epoch,
                "end_epoch": blob.end_epoch,
                "stored_us": now_us,
                "expire_us": expiry(blob),
            }
            for blob in made
        ],
    )


def totals(connection: Connection, tenant: str) -> Totals:
    """Return what the blobs of a tenant are and cost together."""
    row = connection.execute(
        select(
            func.count(),
            func.coalesce(func.sum(blobs.c.billed_bytes), 0),
            func.coalesce(func.sum(blobs.c.cost), 0),
        ).where(blobs.c.tenant == tenant)
    ).one()
    return Totals(int(row[0]), int(row[1]), int(row[2]))


def earliest_expiry(connection: Connection, tenant: str) -> int | None:
    """Return the earliest time at which a blob with members may be gone; `None`: none ever is."""
    holds = exists().where(members.c.tenant == tenant, members.c.blob_id == blobs.c.blob_id)
    statement = select(func.min(blobs.c.expire_us)).where(blobs.c.tenant == tenant, holds)
    found = connection.execute(statement).scalar_one()
    return None if found is None else int(found)
