"""Stored blobs: how long they last, their cost, their members, and which members are needed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import sqlalchemy as sa

from ...core.model import BlobLocation, StoredBlob
from ...core.values import DIGEST_BYTES, split
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import (
    blobs,
    checkpoints,
    contents,
    gaps,
    handoffs,
    members,
    packs,
    threads,
    uses,
)
from ...journal.sql.statements import EMPTY, LISTED, Statement, in_lists, insert_rows
from ...journal.values.segment_refs import PLACE, decode_held, location_of
from ..formats.stored_json import Kind

Expiry = Callable[[StoredBlob], int | None]
"""Returns the earliest time (us since the epoch) of a blob's expiry; `None`: it never expires."""


class DueBlob(NamedTuple):
    """Blob that must be stored again; unknown fields are `None`."""

    blob_id: str
    size_bytes: int
    end_epoch: int | None
    expire_us: int | None


@dataclass(frozen=True, slots=True)
class HeldMember:
    """Member of a blob."""

    location: BlobLocation
    kind: Kind
    ended: bool  # whether it contains the log of a deleted thread, or a part of such a segment
    owner: bytes  # for a part, the hash of the list that names it; else the member's own hash


@dataclass(frozen=True, slots=True)
class Facts:
    """Members of some blobs, and the threads that need them, as far as the journal knows."""

    held: Mapping[str, Sequence[HeldMember]]
    # names of the threads that need a segment, or may need it, by its hash
    users: Mapping[bytes, set[str]]
    needed: frozenset[bytes]  # hashes of members that are needed, even if no record needs them


def _upsert_blob() -> Statement:
    """Insert or update a blob: costs add up; the later end wins; epoch and time are one put's."""
    # One statement inserts many rows in PostgreSQL: its only parameters are the rows' values.
    statement = insert_rows(blobs)
    new, old = statement.excluded, blobs.c
    lasts_as_long = sa.or_(
        new.end_epoch.is_(None), sa.and_(old.end_epoch.is_not(None), new.end_epoch >= old.end_epoch)
    )
    unseen = sa.and_(new.epoch.is_(None), old.epoch.is_not(None))
    end_columns = {
        name: sa.case((lasts_as_long, new[name]), else_=old[name])
        for name in ("end_epoch", "expire_us")
    }
    epoch_columns = {
        name: sa.case((unseen, old[name]), else_=new[name]) for name in ("epoch", "stored_us")
    }
    changed = {
        "object_id": sa.case((new.object_id != EMPTY, new.object_id), else_=old.object_id),
        "size_bytes": sa.case(
            (new.size_bytes > sa.literal_column("0"), new.size_bytes), else_=old.size_bytes
        ),
        "billed_bytes": old.billed_bytes + new.billed_bytes,
        "cost": old.cost + new.cost,
        **end_columns,
        **epoch_columns,
    }
    key = ["tenant", "blob_id"]
    return Statement(statement.on_conflict_do_update(index_elements=key, set_=changed))


_RECORD = _upsert_blob()


def record_blobs(
    batch: UnitOfWork, tenant: str, made: Sequence[StoredBlob], expiry: Expiry
) -> None:
    """Record the blobs of puts; for a known blob the later end wins."""
    columns = ("blob_id", "object_id", "size_bytes", "billed_bytes", "cost", "epoch", "end_epoch")
    rows = [
        {
            "tenant": tenant,
            "stored_us": batch.now_us,
            "expire_us": expiry(blob),
            **{name: getattr(blob, name) for name in columns},
        }
        for blob in made
    ]
    _RECORD.run_many(batch.connection, rows)


def totals(connection: sa.Connection, tenant: str) -> tuple[int, int, int]:
    """Return the number of a tenant's blobs, the bytes they were billed for, and their cost."""
    billed = (
        sa.func.coalesce(sa.func.sum(column), 0) for column in (blobs.c.billed_bytes, blobs.c.cost)
    )
    statement = sa.select(sa.func.count(), *billed).where(blobs.c.tenant == tenant)
    count, billed_bytes, cost = connection.execute(statement).one()
    return int(count), int(billed_bytes), int(cost)


_HOLDS = sa.exists().where(members.c.tenant == blobs.c.tenant, members.c.blob_id == blobs.c.blob_id)


def earliest_expiry(connection: sa.Connection, tenant: str) -> int | None:
    """Return the earliest expiry of a blob with members; `None`: no blob expires."""
    statement = sa.select(sa.func.min(blobs.c.expire_us)).where(blobs.c.tenant == tenant, _HOLDS)
    expire_us: int | None = connection.execute(statement).scalar_one()
    return expire_us


def observations(connection: sa.Connection) -> list[tuple[int, int]]:
    """Return the seen epochs with the times of their first and last sighting, oldest first."""
    rows = connection.execute(
        sa.select(blobs.c.epoch, sa.func.min(blobs.c.stored_us), sa.func.max(blobs.c.stored_us))
        .where(blobs.c.epoch.is_not(None))
        .group_by(blobs.c.epoch)
    )
    pairs = {(epoch, time) for epoch, first, last in rows for time in (first, last)}
    return sorted(pairs, key=lambda pair: pair[1])


def reckon(batch: UnitOfWork, origin_us: int, length_us: int) -> None:
    """Recompute the expiry of every blob, given the earliest time at which epoch 0 started."""
    expire_us = origin_us + blobs.c.end_epoch * length_us
    conditions = (blobs.c.end_epoch.is_not(None), blobs.c.expire_us.is_distinct_from(expire_us))
    batch.connection.execute(sa.update(blobs).where(*conditions).values(expire_us=expire_us))


def forget_ends(batch: UnitOfWork) -> None:
    """Forget everything known about blobs, because they were stored in another network."""
    batch.connection.execute(sa.delete(blobs))


def read_due_blobs(
    connection: sa.Connection,
    tenant: str,
    before_us: int,
    limit: int,
    *,
    below_epoch: int | None = None,
    passed: Collection[str] = (),
) -> list[DueBlob]:
    """Return blobs with members, except `passed`, by expiry; blobs of unknown end come last."""
    names = sorted(passed)
    statement = (
        sa.select(blobs.c.blob_id, blobs.c.size_bytes, blobs.c.end_epoch, blobs.c.expire_us)
        .where(blobs.c.tenant == tenant, blobs.c.expire_us < before_us, _HOLDS)
        .where(blobs.c.blob_id.not_in(names))
        .order_by(blobs.c.expire_us, blobs.c.blob_id)
        .limit(limit)
    )
    if below_epoch is not None:
        statement = statement.where(blobs.c.end_epoch < below_epoch)
    due_blobs = [DueBlob(*row) for row in connection.execute(statement)]
    if len(due_blobs) < limit:
        recorded = sa.exists().where(blobs.c.tenant == tenant, blobs.c.blob_id == members.c.blob_id)
        unknown = (
            sa.select(members.c.blob_id, sa.func.sum(members.c.size))
            .where(members.c.tenant == tenant, members.c.blob_id.not_in(names), ~recorded)
            .group_by(members.c.blob_id)
            .limit(limit - len(due_blobs))
        )
        rows = connection.execute(unknown)
        due_blobs += [DueBlob(blob_id, int(size), None, None) for blob_id, size in rows]
    return due_blobs


_MEMBER = (*PLACE, "kind")
_IN_BLOBS = Statement(
    sa.select(*(members.c[name] for name in _MEMBER)).where(
        members.c.tenant == sa.bindparam("of_tenant"), members.c.blob_id.in_(LISTED)
    )
)


def facts(connection: sa.Connection, tenant: str, blob_ids: Sequence[str]) -> Facts:
    """Return the members of some blobs, and the threads that need them."""
    of_tenant = members.c.tenant == tenant
    in_parts = (of_tenant, members.c.parts.is_not(None))
    with_parts = sa.select(members.c.sha256, members.c.parts).where(*in_parts)
    owners: dict[bytes, bytes] = {
        part: sha256
        for sha256, parts in connection.execute(with_parts)
        for part in split(parts, DIGEST_BYTES)
    }

    def owner(sha256: bytes) -> bytes:
        return owners.get(sha256, sha256)

    rows = list(_IN_BLOBS.run_listed(connection, blob_ids, of_tenant=tenant))
    users, ended = _users(connection, tenant, {owner(row[0]) for row in rows})
    by_blob: dict[str, list[HeldMember]] = {blob_id: [] for blob_id in blob_ids}
    for row in rows:
        sha256 = owner(row[0])
        member = HeldMember(location_of(row[:-1]), Kind(row[-1]), sha256 in ended, sha256)
        by_blob[member.location.blob_id].append(member)
    handed = sa.select(handoffs.c.sha256).where(handoffs.c.tenant == tenant)
    bundles = set(connection.execute(handed).scalars())
    needed = journal_needs(connection, tenant) | bundles
    needed |= {part for part, sha256 in owners.items() if sha256 in bundles}
    return Facts(by_blob, users, needed)


def _users(
    connection: sa.Connection, tenant: str, hashes: Collection[bytes]
) -> tuple[dict[bytes, set[str]], set[bytes]]:
    """Return, by segment, threads that need it or own its log; also segments of ended threads."""
    users: dict[bytes, set[str]] = {}
    ended: set[bytes] = set()
    # The row of a thread that was deleted long ago no longer exists (`removal.forgetting`).
    is_ended = sa.or_(
        threads.c.number.is_(None),
        threads.c.deleted,
        threads.c.incarnation > members.c.incarnation,
    )
    for batch in in_lists(hashes):
        log_owners = (
            sa.select(members.c.sha256, threads.c.thread_id, is_ended)
            .outerjoin(threads, threads.c.number == members.c.thread)
            .where(
                members.c.tenant == tenant,
                members.c.sha256.in_(batch),
                members.c.thread.is_not(None),
            )
        )
        segment_users = (
            sa.select(uses.c.segment, threads.c.thread_id, sa.false())
            .join(threads, threads.c.number == uses.c.thread)
            .where(uses.c.tenant == tenant, uses.c.segment.in_(batch))
        )
        for sha256, thread_id, ends in connection.execute(log_owners.union_all(segment_users)):
            if thread_id is not None:
                users.setdefault(sha256, set()).add(thread_id)
            if ends:
                ended.add(sha256)
    return users, ended


_DIRTY_HELD = Statement(
    sa.select(checkpoints.c.held)
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(
        threads.c.tenant == sa.bindparam("of_tenant"),
        threads.c.dirty_since_us.is_not(None),
        checkpoints.c.held.is_not(None),
    )
)
_EVICTED_INTO = Statement(
    sa.select(contents.c.segment)
    .join(
        members,
        (members.c.sha256 == contents.c.segment) & (members.c.tenant == sa.bindparam("of_tenant")),
    )
    .where(
        contents.c.segment.is_not(None),
        sa.exists().where(threads.c.family == contents.c.family, threads.c.deleted.is_(False)),
    )
    .distinct()
)
_NAMED_BY = Statement(
    sa.select(members.c.needs, members.c.parts).where(
        members.c.tenant == sa.bindparam("of_tenant"), members.c.sha256.in_(LISTED)
    )
)


def journal_needs(connection: sa.Connection, tenant: str) -> frozenset[bytes]:
    """Return segments of evicted values and uncertified copies, segments they need, and parts."""
    direct = {row[0] for row in _EVICTED_INTO.run(connection, of_tenant=tenant).fetchall()}
    for row in _DIRTY_HELD.run(connection, of_tenant=tenant).fetchall():
        direct.update(decode_held(row[0]).segments)
    segments = set(direct)
    for needs, parts in _NAMED_BY.run_listed(connection, direct, of_tenant=tenant):
        segments.update(split((needs or b"") + (parts or b""), DIGEST_BYTES))
    return frozenset(segments)


def all_blobs(connection: sa.Connection) -> dict[str, list[DueBlob]]:
    """Return all blobs that have members, by tenant."""
    by_tenant: dict[str, list[DueBlob]] = {}
    of_blob = (members.c.tenant, members.c.blob_id)
    sizes = sa.select(*of_blob, sa.func.sum(members.c.size)).group_by(*of_blob)
    for tenant, blob_id, size in connection.execute(sizes):
        by_tenant.setdefault(tenant, []).append(DueBlob(blob_id, int(size), None, None))
    return by_tenant


def drop(batch: UnitOfWork, tenant: str, hashes: Collection[bytes]) -> None:
    """Forget stored bytes that no stored record needs, unless the journal needs them meanwhile."""
    unneeded = set(hashes) - journal_needs(batch.connection, tenant)
    for batch_hashes in in_lists(unneeded):
        for column in (members.c.sha256, uses.c.segment, gaps.c.segment):
            conditions = (column.table.c.tenant == tenant, column.in_(batch_hashes))
            batch.connection.execute(sa.delete(column.table).where(*conditions))


def drop_expired(batch: UnitOfWork, tenant: str, before_us: int) -> None:
    """Forget expired blobs without members, unless an in-flight pack may refer to them."""
    waiting = sa.exists().where(packs.c.tenant == tenant)
    conditions = (blobs.c.tenant == tenant, blobs.c.expire_us < before_us, ~_HOLDS, ~waiting)
    batch.connection.execute(sa.delete(blobs).where(*conditions))


def runs(connection: sa.Connection, tenant: str) -> list[bytes]:
    """Return the hashes of all recorded members that are runs."""
    of_runs = (members.c.tenant == tenant, members.c.kind == Kind.RUN.value)
    return list(connection.execute(sa.select(members.c.sha256).where(*of_runs)).scalars())
