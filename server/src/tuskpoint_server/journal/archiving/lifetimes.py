"""Blobs that puts made: how long they last, what they cost and hold, and what of it is needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Connection,
    and_,
    bindparam,
    case,
    delete,
    exists,
    false,
    func,
    literal,
    or_,
    select,
    update,
)
from sqlalchemy.sql.elements import ClauseElement

from ...domain.formats.stored_json import Kind
from ...domain.model import BlobLocation, StoredBlob
from ...domain.values import DIGEST_BYTES
from ..checkpoints.located import decode_held
from ..database.schema import (
    blobs,
    checkpoints,
    contents,
    handoffs,
    holes,
    members,
    packs,
    threads,
    uses,
)
from ..database.statements import LISTED, Statement, in_lists, inserting
from .plan import split

Expiry = Callable[[StoredBlob], int | None]
"""Returns the time, in microseconds since the epoch, before which a blob is not gone."""


class Totals(NamedTuple):
    """Blobs of a tenant: their number, what they were billed for, what they cost."""

    blobs: int
    billed_bytes: int
    cost: int


class DueBlob(NamedTuple):
    """A blob that has to be stored again; what is `None` is not known."""

    blob_id: str
    size_bytes: int
    end_epoch: int | None
    expire_us: int | None


@dataclass(frozen=True, slots=True)
class HeldMember:
    """A member of a blob."""

    location: BlobLocation
    kind: Kind
    ended: bool  # it holds the log of a thread that was deleted, or a part of one
    owner: bytes  # of a part the hash of the list that names it, else its own hash


@dataclass(frozen=True, slots=True)
class Facts:
    """What the journal says of some blobs."""

    held: Mapping[str, Sequence[HeldMember]]
    # by hash of a segment the names of the threads that need it, or may
    users: Mapping[bytes, set[str]]
    needed: frozenset[bytes]  # hashes of what is needed whatever stored records say


def _upsert_blob() -> ClauseElement:
    """What was paid adds up; the later end wins; epoch and time are seen together."""
    statement = inserting(blobs)
    new, old = statement.excluded, blobs.c
    lasts_as_long = or_(
        new.end_epoch.is_(None), and_(old.end_epoch.is_not(None), new.end_epoch >= old.end_epoch)
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


def record_blobs(
    connection: Connection, tenant: str, made: Sequence[StoredBlob], now_us: int, expiry: Expiry
) -> None:
    """Record what puts made, in a write transaction; of a blob that is known the later end wins.

    `expiry` returns the time before which a blob is not gone; `None`: it never is.
    """
    told = ("blob_id", "object_id", "size_bytes", "billed_bytes", "cost", "epoch", "end_epoch")
    rows = [
        {
            "tenant": tenant,
            "stored_us": now_us,
            "expire_us": expiry(blob),
            **{name: getattr(blob, name) for name in told},
        }
        for blob in made
    ]
    _RECORD.run_many(connection, rows)


def totals(connection: Connection, tenant: str) -> Totals:
    """Return what the blobs of a tenant are and cost together."""
    billed = (func.coalesce(func.sum(column), 0) for column in (blobs.c.billed_bytes, blobs.c.cost))
    statement = select(func.count(), *billed).where(blobs.c.tenant == tenant)
    return Totals(*map(int, connection.execute(statement).one()))


_HOLDS = exists().where(members.c.tenant == blobs.c.tenant, members.c.blob_id == blobs.c.blob_id)


def earliest_expiry(connection: Connection, tenant: str) -> int | None:
    """Return the earliest time at which a blob with members may be gone; `None`: none ever is."""
    statement = select(func.min(blobs.c.expire_us)).where(blobs.c.tenant == tenant, _HOLDS)
    found = connection.execute(statement).scalar_one()
    return None if found is None else int(found)


def observations(connection: Connection) -> list[tuple[int, int]]:
    """Return which epoch was seen when (its first and last time), the oldest first."""
    rows = connection.execute(
        select(blobs.c.epoch, func.min(blobs.c.stored_us), func.max(blobs.c.stored_us))
        .where(blobs.c.epoch.is_not(None))
        .group_by(blobs.c.epoch)
    )
    seen = {(epoch, time) for epoch, first, last in rows for time in (first, last)}
    return sorted(seen, key=lambda one: one[1])


def reckon(connection: Connection, origin_us: int, length_us: int) -> None:
    """Reckon anew when every blob expires: epoch 0 began at the origin at the earliest."""
    expire_us = literal(origin_us, BigInteger) + blobs.c.end_epoch * literal(length_us, BigInteger)
    connection.execute(
        update(blobs)
        .where(blobs.c.end_epoch.is_not(None), blobs.c.expire_us.is_distinct_from(expire_us))
        .values(expire_us=expire_us)
    )


def forget_ends(connection: Connection) -> None:
    """Forget all that is known of blobs: the network that had them is another one now."""
    connection.execute(delete(blobs))


def due(
    connection: Connection,
    tenant: str,
    before_us: int,
    limit: int,
    *,
    below_epoch: int | None = None,
    passed: Collection[str] = (),
) -> list[DueBlob]:
    """Return blobs with members that may expire before a time, the first to expire first.

    Those of which no end is known come after them. `below_epoch`: only those that end before it;
    `passed`: blobs to pass over.
    """
    names = sorted(passed)
    wanted = (
        select(blobs.c.blob_id, blobs.c.size_bytes, blobs.c.end_epoch, blobs.c.expire_us)
        .where(
            blobs.c.tenant == tenant,
            blobs.c.expire_us < before_us,
            blobs.c.blob_id.not_in(names),
            _HOLDS,
        )
        .order_by(blobs.c.expire_us, blobs.c.blob_id)
        .limit(limit)
    )
    if below_epoch is not None:
        wanted = wanted.where(blobs.c.end_epoch < below_epoch)
    found = [DueBlob(*row) for row in connection.execute(wanted)]
    if len(found) < limit:
        recorded = exists().where(blobs.c.tenant == tenant, blobs.c.blob_id == members.c.blob_id)
        unknown = (
            select(members.c.blob_id, func.sum(members.c.size))
            .where(members.c.tenant == tenant, members.c.blob_id.not_in(names), ~recorded)
            .group_by(members.c.blob_id)
            .limit(limit - len(found))
        )
        rows = connection.execute(unknown)
        found += [DueBlob(blob_id, int(size), None, None) for blob_id, size in rows]
    return found


_IN_BLOBS = Statement(
    select(
        members.c.sha256, members.c.size, members.c.blob_id, members.c.identifier, members.c.kind
    ).where(members.c.tenant == bindparam("of_tenant"), members.c.blob_id.in_(LISTED))
)


def facts(connection: Connection, tenant: str, blob_ids: Sequence[str]) -> Facts:
    """Return what the journal says of some blobs."""
    with_parts = select(members.c.sha256, members.c.parts).where(
        members.c.tenant == tenant, members.c.parts.is_not(None)
    )
    owners = {
        part: sha256
        for sha256, parts in connection.execute(with_parts)
        for part in split(parts, DIGEST_BYTES)
    }
    rows = list(_IN_BLOBS.run_listed(connection, blob_ids, of_tenant=tenant))
    users, ended = _users(connection, tenant, {owners.get(row[0], row[0]) for row in rows})
    held: dict[str, list[HeldMember]] = {blob_id: [] for blob_id in blob_ids}
    for *place, kind in rows:
        owner = owners.get(place[0], place[0])
        one = HeldMember(BlobLocation(*place), Kind(kind), owner in ended, owner)
        held[one.location.blob_id].append(one)
    needed = journal_needs(connection, tenant) | _bundles(connection, tenant)
    return Facts(held, users, needed)


def _users(
    connection: Connection, tenant: str, hashes: Collection[bytes]
) -> tuple[dict[bytes, set[str]], set[bytes]]:
    """Return by segment the threads that need it, or whose log it holds.

    And the segments that hold the log of a deleted thread.
    """
    found: dict[bytes, set[str]] = {}
    ended: set[bytes] = set()
    is_ended = or_(threads.c.deleted, threads.c.incarnation > members.c.incarnation)
    for some in in_lists(hashes):
        own = (
            select(members.c.sha256, threads.c.thread_id, is_ended)
            .join(threads, threads.c.number == members.c.thread)
            .where(members.c.tenant == tenant, members.c.sha256.in_(some))
        )
        others = (
            select(uses.c.segment, threads.c.thread_id, false())
            .join(threads, threads.c.number == uses.c.thread)
            .where(uses.c.tenant == tenant, uses.c.segment.in_(some))
        )
        for sha256, thread_id, ends in connection.execute(own.union_all(others)):
            found.setdefault(sha256, set()).add(thread_id)
            if ends:
                ended.add(sha256)
    return found, ended


def _bundles(connection: Connection, tenant: str) -> set[bytes]:
    """Return the bundles that were handed off, and their parts."""
    rows = connection.execute(
        select(handoffs.c.sha256, members.c.parts)
        .outerjoin(
            members,
            and_(members.c.tenant == handoffs.c.tenant, members.c.sha256 == handoffs.c.sha256),
        )
        .where(handoffs.c.tenant == tenant)
    )
    found: set[bytes] = set()
    for sha256, parts in rows:
        found.update((sha256, *split(parts or b"", DIGEST_BYTES)))
    return found


_DIRTY_HELD = Statement(
    select(checkpoints.c.held)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.dirty_since_us.is_not(None),
        checkpoints.c.held.is_not(None),
    )
)
_EVICTED_INTO = Statement(
    select(contents.c.segment)
    .join(
        members,
        and_(members.c.sha256 == contents.c.segment, members.c.tenant == bindparam("of_tenant")),
    )
    .where(
        contents.c.segment.is_not(None),
        exists().where(threads.c.family == contents.c.family, threads.c.deleted.is_(False)),
    )
    .distinct()
)
_NAMED_BY = Statement(
    select(members.c.needs, members.c.parts).where(
        members.c.tenant == bindparam("of_tenant"), members.c.sha256.in_(LISTED)
    )
)


def journal_needs(connection: Connection, tenant: str) -> frozenset[bytes]:
    """Return the segments of evicted values and of copies that are not certified yet.

    With what they name, and their parts.
    """
    direct = {row[0] for row in _EVICTED_INTO.run(connection, of_tenant=tenant).fetchall()}
    for row in _DIRTY_HELD.run(connection, of_tenant=tenant).fetchall():
        direct.update(decode_held(row[0]).segments)
    found = set(direct)
    for needs, parts in _NAMED_BY.run_listed(connection, direct, of_tenant=tenant):
        found.update(split((needs or b"") + (parts or b""), DIGEST_BYTES))
    return frozenset(found)


def every(connection: Connection) -> dict[str, list[DueBlob]]:
    """Return by tenant all blobs that have members."""
    found: dict[str, list[DueBlob]] = {}
    rows = connection.execute(
        select(members.c.tenant, members.c.blob_id, func.sum(members.c.size)).group_by(
            members.c.tenant, members.c.blob_id
        )
    )
    for tenant, blob_id, size in rows:
        found.setdefault(tenant, []).append(DueBlob(blob_id, int(size), None, None))
    return found


def drop(connection: Connection, tenant: str, hashes: Collection[bytes]) -> None:
    """Forget stored bytes that no stored record needs, unless the journal needs them by now."""
    gone = set(hashes) - journal_needs(connection, tenant)
    for some in in_lists(gone):
        for table, column in ((members, members.c.sha256), (uses, uses.c.segment)):
            connection.execute(delete(table).where(table.c.tenant == tenant, column.in_(some)))
        connection.execute(delete(holes).where(holes.c.tenant == tenant, holes.c.segment.in_(some)))


def drop_expired(connection: Connection, tenant: str, before_us: int) -> None:
    """Forget blobs without members that expired before a time.

    Waits while packs are on their way: they may refer to what they have stored.
    """
    waiting = select(packs.c.number).where(packs.c.tenant == tenant).limit(1)
    if connection.execute(waiting).first() is None:
        connection.execute(
            delete(blobs).where(blobs.c.tenant == tenant, blobs.c.expire_us < before_us, ~_HOLDS)
        )


def runs(connection: Connection, tenant: str) -> list[bytes]:
    """Return the hashes of all members of runs that are recorded."""
    statement = select(members.c.sha256).where(
        members.c.tenant == tenant, members.c.kind == Kind.RUN.value
    )
    return list(connection.execute(statement).scalars())
