"""Which blobs may expire, what they hold, and what of it the journal itself needs."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import (
    BigInteger,
    Connection,
    and_,
    bindparam,
    delete,
    exists,
    false,
    func,
    literal,
    or_,
    select,
    update,
)

from ...domain.formats.stored_json import Kind
from ...domain.model import BlobLocation
from ...domain.values import DIGEST_BYTES
from ..checkpoints.located import decode_held
from ..database.schema import (
    blobs,
    catalogs,
    checkpoints,
    contents,
    handoffs,
    holes,
    members,
    packs,
    threads,
    uses,
)
from ..database.statements import Statement, in_lists
from .holding import split


class DueBlob(NamedTuple):
    """A blob that has to be stored again; what is `None` is not known."""

    blob_id: str
    size_bytes: int
    end_epoch: int | None
    expire_us: int | None


@dataclass(frozen=True, slots=True)
class HeldMember:
    """A member of a blob.

    Attributes:
        location: Where it lies.
        kind: What it is.
        ended: It holds the log of a thread that was deleted, or a part of one.
        owner: Of a part the hash of the list that names it, else its own hash.
    """

    location: BlobLocation
    kind: Kind
    ended: bool
    owner: bytes


@dataclass(frozen=True, slots=True)
class Facts:
    """What the journal says of some blobs.

    Attributes:
        held: By blob its members.
        users: By hash of a segment the names of the threads that need it, or may.
        needed: Hashes of what is needed whatever stored records say.
        catalog: Hash of the newest catalog.
    """

    held: Mapping[str, Sequence[HeldMember]]
    users: Mapping[bytes, set[str]]
    needed: frozenset[bytes]
    catalog: bytes


# --- epochs ------------------------------------------------------------------------------


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


def forget_ends(connection: Connection) -> None:
    """Forget all that is known of blobs: the network that had them is another one now."""
    connection.execute(delete(blobs))


# --- what is due -------------------------------------------------------------------------

_HOLDS = exists().where(members.c.tenant == blobs.c.tenant, members.c.blob_id == blobs.c.blob_id)


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

    Those of which no end is known come after them.

    Args:
        connection: In a transaction.
        tenant: The tenant.
        before_us: The time.
        limit: At most so many.
        below_epoch: Only those whose end is below this epoch; `None`: all.
        passed: Blobs to pass over.
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


def facts(connection: Connection, tenant: str, blob_ids: Sequence[str]) -> Facts:
    """Return what the journal says of some blobs."""
    known = connection.execute(
        select(catalogs.c.sha256).where(catalogs.c.tenant == tenant)
    ).scalar_one_or_none()
    owners = _owners(connection, tenant)
    held: dict[str, list[HeldMember]] = {blob_id: [] for blob_id in blob_ids}
    rows = [
        tuple(row)
        for some in in_lists(blob_ids)
        for row in connection.execute(
            select(
                members.c.sha256,
                members.c.size,
                members.c.blob_id,
                members.c.identifier,
                members.c.kind,
            ).where(members.c.tenant == tenant, members.c.blob_id.in_(some))
        )
    ]
    users, ended = _users(connection, tenant, {owners.get(row[0], row[0]) for row in rows})
    for *place, kind in rows:
        owner = owners.get(place[0], place[0])
        one = HeldMember(BlobLocation(*place), Kind(kind), owner in ended, owner)
        held[one.location.blob_id].append(one)
    needed = journal_needs(connection, tenant) | _bundles(connection, tenant)
    return Facts(held, users, needed, known or b"")


def _owners(connection: Connection, tenant: str) -> dict[bytes, bytes]:
    """Return by part the list that names it."""
    rows = connection.execute(
        select(members.c.sha256, members.c.parts).where(
            members.c.tenant == tenant, members.c.parts.is_not(None)
        )
    )
    return {part: sha256 for sha256, parts in rows for part in split(parts, DIGEST_BYTES)}


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


def journal_needs(connection: Connection, tenant: str) -> frozenset[bytes]:
    """Return the segments that hold evicted values or copies that are not certified yet.

    With what they name, and their parts.
    """
    rows = _EVICTED_INTO.run(connection, of_tenant=tenant).fetchall()
    direct = {bytes(row[0]) for row in rows}
    for row in _DIRTY_HELD.run(connection, of_tenant=tenant).fetchall():
        direct.update(decode_held(row[0]).segments)
    found = set(direct)
    for some in in_lists(direct):
        named = connection.execute(
            select(members.c.needs, members.c.parts).where(
                members.c.tenant == tenant, members.c.sha256.in_(some)
            )
        )
        for needs, parts in named:
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


# --- clean-up ----------------------------------------------------------------------------


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
