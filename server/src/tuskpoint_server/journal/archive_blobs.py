"""How long stored blobs last, what they cost, and which of them are still needed.

A blob is needed as long as one of its members is: an envelope of a checkpoint that exists
(or a part of one), a segment of a manifest, a member of the catalog, a bundle of a thread
that exists (or a part of one). What was superseded or deleted is not; blobs that hold
nothing else lapse.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

from sqlalchemy import (
    CTE,
    BigInteger,
    Connection,
    Select,
    Table,
    and_,
    case,
    cast,
    delete,
    exists,
    func,
    literal,
    or_,
    select,
    union,
    update,
)
from sqlalchemy.sql.elements import ColumnElement

from ..domain.model import BlobLocation, StoredBlob
from .schema import (
    blobs,
    envelope_parts,
    envelopes,
    handoffs,
    metadata_members,
    packs,
    placements,
    threads,
)
from .statements import Insert, InsertInto, Statement, all_columns

_IN_LIST = 500


@dataclass(frozen=True, slots=True)
class DueBlob:
    """A needed blob that has to be renewed. Its ends are `None` if they are not known."""

    blob_id: str
    end_epoch: int | None
    expire_us: int | None


@dataclass(frozen=True, slots=True)
class Totals:
    """Blobs of a tenant: their number, what they were billed for, what they cost."""

    blobs: int = 0
    billed_bytes: int = 0
    cost: int = 0


def _upsert_blob(insert_into: InsertInto) -> Insert:
    """What was paid adds up; the later end wins; epoch and time are seen together."""
    statement = insert_into(blobs).values(all_columns(blobs))
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


_RECORD = Statement(_upsert_blob)


def _needed(tenant: ColumnElement[str], sha256: ColumnElement[bytes]) -> ColumnElement[bool]:
    """Tell whether stored bytes are needed.

    Whatever else must keep bytes in the store joins here and in `_needed_by_thread`.
    """
    part = envelope_parts.c
    # Nested, so that no database looks through all envelopes for the few that have parts.
    of_part = or_(
        exists().where(envelopes.c.tenant == part.tenant, envelopes.c.sha256 == part.envelope),
        exists().where(handoffs.c.tenant == part.tenant, handoffs.c.sha256 == part.envelope),
    )
    return or_(
        exists().where(envelopes.c.tenant == tenant, envelopes.c.sha256 == sha256),
        exists().where(metadata_members.c.tenant == tenant, metadata_members.c.sha256 == sha256),
        exists().where(handoffs.c.tenant == tenant, handoffs.c.sha256 == sha256),
        exists().where(part.tenant == tenant, part.sha256 == sha256, of_part),
    )


def _needed_by_thread(tenant: str, thread_id: str) -> Select[tuple[bytes]]:
    """Select the hashes of what a thread needs."""
    found = union(
        *_own_and_parts(envelopes, tenant, thread_id),
        *_own_and_parts(handoffs, tenant, thread_id),
        select(metadata_members.c.sha256)
        .join(
            threads,
            and_(
                threads.c.tenant == metadata_members.c.tenant,
                threads.c.thread_id == metadata_members.c.thread_id,
                threads.c.incarnation == metadata_members.c.incarnation,
            ),
        )
        .where(metadata_members.c.tenant == tenant, metadata_members.c.thread_id == thread_id),
    ).subquery()
    return select(found.c.sha256)


def _own_and_parts(table: Table, tenant: str, thread_id: str) -> list[Select[tuple[bytes]]]:
    """Select the hashes that a thread's rows of a table name, and those of their parts."""
    own = select(table.c.sha256).where(table.c.tenant == tenant, table.c.thread_id == thread_id)
    # Nested, so that no database looks through all parts for the few that are the thread's.
    parts = select(envelope_parts.c.sha256).where(
        envelope_parts.c.tenant == tenant, envelope_parts.c.envelope.in_(own)
    )
    return [own, parts]


_HOLDS_NEEDED = exists().where(
    placements.c.tenant == blobs.c.tenant,
    placements.c.blob_id == blobs.c.blob_id,
    _needed(placements.c.tenant, placements.c.sha256),
)


# --- what puts and renewals tell -------------------------------------------------------


def record(
    connection: Connection,
    tenant: str,
    blobs: Sequence[StoredBlob],
    now_us: int,
    expiry: Callable[[StoredBlob], int | None],
) -> None:
    """Record what puts made; of a blob that is known, the later end wins.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        blobs: The blobs.
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
            for blob in blobs
        ],
    )


def move(
    connection: Connection, tenant: str, blob_id: str, locations: Iterable[BlobLocation]
) -> None:
    """Record where the members of a renewed blob lie, as far as that has changed."""
    for location in locations:
        connection.execute(
            update(placements)
            .where(
                placements.c.tenant == tenant,
                placements.c.sha256 == location.sha256,
                placements.c.blob_id == blob_id,
                or_(
                    placements.c.blob_id != location.blob_id,
                    placements.c.identifier != location.identifier,
                ),
            )
            .values(blob_id=location.blob_id, identifier=location.identifier)
        )


def reckon(connection: Connection, origin_us: int, length_us: int) -> None:
    """Reckon anew when every blob expires.

    Args:
        connection: In a write transaction.
        origin_us: Earliest time at which epoch 0 would have begun.
        length_us: Length of an epoch.
    """
    expire_us = literal(origin_us, BigInteger) + blobs.c.end_epoch * literal(length_us, BigInteger)
    connection.execute(
        update(blobs)
        .where(blobs.c.end_epoch.is_not(None), blobs.c.expire_us.is_distinct_from(expire_us))
        .values(expire_us=expire_us)
    )


def observations(connection: Connection) -> list[tuple[int, int]]:
    """Return which epoch was seen when (its first and last time), the oldest first."""
    rows = connection.execute(
        select(blobs.c.epoch, func.min(blobs.c.stored_us), func.max(blobs.c.stored_us))
        .where(blobs.c.epoch.is_not(None))
        .group_by(blobs.c.epoch)
    )
    seen = {(epoch, time) for epoch, first, last in rows for time in (first, last)}
    return sorted(seen, key=lambda one: one[1])


# --- what is due -----------------------------------------------------------------------


def tenants(connection: Connection) -> list[str]:
    """Return the tenants that have stored anything."""
    names = _distinct(placements.c.tenant)
    found = connection.execute(select(names.c.name).where(names.c.name.is_not(None)))
    return list(found.scalars())


def due(
    connection: Connection,
    tenant: str,
    before_us: int,
    limit: int,
    *,
    below_epoch: int | None = None,
    passed: Sequence[str] = (),
) -> list[DueBlob]:
    """Return needed blobs that may expire before a time, the first to expire first.

    Those of which no end is known come after them: a renewal will tell.

    Args:
        connection: A snapshot.
        tenant: The tenant.
        before_us: The time.
        limit: At most so many.
        below_epoch: Only those whose end is below this epoch; `None` does not ask.
        passed: Blobs to pass over.
    """
    statement = (
        select(blobs.c.blob_id, blobs.c.end_epoch, blobs.c.expire_us)
        .where(
            blobs.c.tenant == tenant,
            blobs.c.expire_us < before_us,
            blobs.c.blob_id.not_in(passed),
            _HOLDS_NEEDED,
        )
        .order_by(blobs.c.expire_us, blobs.c.blob_id)
        .limit(limit)
    )
    if below_epoch is not None:
        statement = statement.where(blobs.c.end_epoch < below_epoch)
    found = [DueBlob(*row) for row in connection.execute(statement)]
    if len(found) < limit:
        found += _of_unknown_end(connection, tenant, limit - len(found), passed)
    return found


def _of_unknown_end(
    connection: Connection, tenant: str, limit: int, passed: Sequence[str]
) -> list[DueBlob]:
    names = _distinct(
        placements.c.blob_id, placements.c.tenant == tenant, placements.c.blob_id > ""
    )
    recorded = exists().where(blobs.c.tenant == tenant, blobs.c.blob_id == names.c.name)
    holds_needed = exists().where(
        placements.c.tenant == tenant,
        placements.c.blob_id == names.c.name,
        _needed(placements.c.tenant, placements.c.sha256),
    )
    rows = connection.execute(
        select(names.c.name)
        .where(
            names.c.name.is_not(None),
            names.c.name.not_in(passed),
            ~recorded,
            holds_needed,
        )
        .limit(limit)
    )
    return [DueBlob(blob_id, None, None) for blob_id in rows.scalars()]


def _distinct(column: ColumnElement[str], *of: ColumnElement[bool]) -> CTE:
    """Select the names in a column of placements, each looked up by the one before.

    A blob has hundreds of placements; going through all of them would take as much longer.
    The last name is null.
    """
    names = select(func.min(column).label("name")).where(*of).cte("names", recursive=True)
    following = select(func.min(column)).where(*of, column > names.c.name).scalar_subquery()
    return names.union_all(select(following).where(names.c.name.is_not(None)))


def is_needed(connection: Connection, tenant: str, blob_id: str) -> bool:
    """Tell whether a blob still holds something that is needed."""
    found = connection.execute(
        select(placements.c.sha256)
        .where(
            placements.c.tenant == tenant,
            placements.c.blob_id == blob_id,
            _needed(placements.c.tenant, placements.c.sha256),
        )
        .limit(1)
    ).first()
    return found is not None


def lasts(connection: Connection, tenant: str, blob_id: str, beyond_us: int) -> bool:
    """Tell whether a blob is known not to expire before a time."""
    found = connection.execute(
        select(blobs.c.blob_id).where(
            blobs.c.tenant == tenant,
            blobs.c.blob_id == blob_id,
            blobs.c.expire_us >= beyond_us,
        )
    ).first()
    return found is not None


# --- what is told ----------------------------------------------------------------------


def earliest_expiry(connection: Connection, tenant: str) -> int | None:
    """Return the earliest time at which a blob that the tenant needs may expire."""
    found: int | None = connection.execute(
        select(blobs.c.expire_us)
        .where(blobs.c.tenant == tenant, blobs.c.expire_us.is_not(None), _HOLDS_NEEDED)
        .order_by(blobs.c.expire_us)
        .limit(1)
    ).scalar_one_or_none()
    return found


def earliest_expiry_of_thread(connection: Connection, tenant: str, thread_id: str) -> int | None:
    """Return the earliest time at which a blob that a thread needs may expire."""
    any_expires = select(blobs.c.blob_id).where(
        blobs.c.tenant == tenant, blobs.c.expire_us.is_not(None)
    )
    if connection.execute(any_expires.limit(1)).first() is None:
        return None
    found: int | None = connection.execute(
        select(func.min(blobs.c.expire_us))
        .join(
            placements,
            and_(placements.c.tenant == blobs.c.tenant, placements.c.blob_id == blobs.c.blob_id),
        )
        .where(
            blobs.c.tenant == tenant,
            placements.c.sha256.in_(_needed_by_thread(tenant, thread_id)),
        )
    ).scalar_one()
    return found


def totals(connection: Connection, tenant: str) -> Totals:
    """Return number, billed bytes and cost of the blobs that are recorded."""
    row = connection.execute(
        select(
            func.count(),
            cast(func.coalesce(func.sum(blobs.c.billed_bytes), 0), BigInteger),
            cast(func.coalesce(func.sum(blobs.c.cost), 0), BigInteger),
        ).where(blobs.c.tenant == tenant)
    ).one()
    return Totals(row[0], row[1], row[2])


# --- clean-up --------------------------------------------------------------------------


def drop_expired(connection: Connection, tenant: str, before_us: int, limit: int) -> int:
    """Forget blobs that nothing needs and that expired before a time; return how many.

    Waits while packs are on their way: they may refer to what they have stored.
    """
    waiting = select(packs.c.pack_id).where(packs.c.tenant == tenant).limit(1)
    if connection.execute(waiting).first() is not None:
        return 0
    gone = list(
        connection.execute(
            select(blobs.c.blob_id)
            .where(blobs.c.tenant == tenant, blobs.c.expire_us < before_us, ~_HOLDS_NEEDED)
            .order_by(blobs.c.expire_us)
            .limit(limit)
        ).scalars()
    )
    names = iter(gone)
    while some := list(islice(names, _IN_LIST)):
        for table in (placements, blobs):
            connection.execute(
                delete(table).where(table.c.tenant == tenant, table.c.blob_id.in_(some))
            )
    return len(gone)
