"""Storing anew what lies in a blob that will not last, or is gone.

The archive's records of it are taken back, so that the normal flush stores it again: of a
checkpoint its envelopes, of a thread its manifest, which begins a new generation, of the
catalog the runs that the blob holds.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from sqlalchemy import (
    ColumnElement,
    CompoundSelect,
    Connection,
    Select,
    Update,
    and_,
    bindparam,
    case,
    delete,
    func,
    select,
    true,
    union,
    update,
)

from ..domain.catalog import Runs, decode_runs, encode_runs
from ..domain.model import BlobLocation, CheckpointKey
from ..domain.state import decode_channels
from .schema import (
    catalogs,
    checkpoints,
    contents,
    envelope_parts,
    envelopes,
    manifests,
    metadata_members,
    placements,
    references,
    threads,
    tombstones,
    writes,
)
from .statements import EMPTY, Statement, all_columns, of_checkpoint, of_thread, parameters_of

_BURY = Statement(
    lambda insert_into: (
        insert_into(tombstones).values(all_columns(tombstones)).on_conflict_do_nothing()
    )
)
_TELL = Statement(
    update(threads)
    .where(
        of_thread(threads),
        threads.c.incarnation == bindparam("of_incarnation"),
        threads.c.deleted.is_(False),
    )
    .values(untold=true())
)
_DROP_ENVELOPES = Statement(delete(envelopes).where(of_checkpoint(envelopes)))
_STATE = Statement(
    select(checkpoints.c.incarnation, checkpoints.c.state, checkpoints.c.metadata).where(
        of_checkpoint(checkpoints)
    )
)
_LOCATIONS = Statement(
    select(placements.c.sha256, placements.c.size, placements.c.blob_id, placements.c.identifier)
    .join(
        envelopes,
        and_(envelopes.c.tenant == placements.c.tenant, envelopes.c.sha256 == placements.c.sha256),
    )
    .where(of_checkpoint(envelopes))
    .order_by(envelopes.c.ordinal)
)
_LACKS_CONTENT = Statement(
    select(references.c.digest)
    .join(
        contents,
        and_(contents.c.tenant == references.c.tenant, contents.c.digest == references.c.digest),
    )
    .where(of_checkpoint(references), contents.c.data.is_(None))
    .limit(1)
)
_LACKS_WRITE = Statement(
    select(writes.c.task_id).where(of_checkpoint(writes), writes.c.data.is_(None)).limit(1)
)


@dataclass(frozen=True, slots=True)
class HeldCheckpoint:
    """A checkpoint that has an envelope, or a part of one, in a blob.

    Attributes:
        key: The checkpoint.
        incarnation: Incarnation of its thread.
        envelopes: Where all its envelopes lie, the full one first.
        evicted: The journal lacks values or writes of it.
    """

    key: CheckpointKey
    incarnation: int
    envelopes: tuple[BlobLocation, ...]
    evicted: bool


@dataclass(frozen=True, slots=True)
class Held:
    """What a blob holds that is needed.

    Attributes:
        checkpoints: Checkpoints.
        threads: Threads that have a segment there: (thread, incarnation).
        runs: Numbers of the catalog's runs that have a member there.
    """

    checkpoints: tuple[HeldCheckpoint, ...]
    threads: tuple[tuple[str, int], ...]
    runs: tuple[int, ...]


def held(connection: Connection, tenant: str, blob_id: str) -> Held:
    """Return what a blob holds that is needed."""
    here = select(placements.c.sha256).where(
        placements.c.tenant == tenant, placements.c.blob_id == blob_id
    )
    keys = connection.execute(_keys_of(tenant, here)).all()
    members = connection.execute(
        select(
            metadata_members.c.thread_id, metadata_members.c.incarnation, metadata_members.c.run
        ).where(metadata_members.c.tenant == tenant, metadata_members.c.sha256.in_(here))
    ).all()
    found = (_checkpoint(connection, tenant, CheckpointKey(*row)) for row in keys)
    return Held(
        checkpoints=tuple(checkpoint for checkpoint in found if checkpoint),
        threads=tuple(sorted({(row[0], row[1]) for row in members if row[0]})),
        runs=tuple(sorted({row[2] for row in members if not row[0]})),
    )


def _keys_of(tenant: str, hashes: Select[tuple[bytes]]) -> CompoundSelect[Any]:
    """Select the checkpoints that need some of the bytes."""
    key = (envelopes.c.thread_id, envelopes.c.checkpoint_ns, envelopes.c.checkpoint_id)
    in_parts = select(envelope_parts.c.envelope).where(
        envelope_parts.c.tenant == tenant, envelope_parts.c.sha256.in_(hashes)
    )
    return union(
        select(*key).where(envelopes.c.tenant == tenant, envelopes.c.sha256.in_(hashes)),
        select(*key).where(envelopes.c.tenant == tenant, envelopes.c.sha256.in_(in_parts)),
    )


def _checkpoint(connection: Connection, tenant: str, key: CheckpointKey) -> HeldCheckpoint | None:
    row = _STATE.run(connection, **parameters_of(tenant, key)).fetchone()
    if row is None:
        return None
    locations = _LOCATIONS.run(connection, **parameters_of(tenant, key)).fetchall()
    return HeldCheckpoint(
        key=key,
        incarnation=row[0],
        envelopes=tuple(BlobLocation(bytes(sha256), *rest) for sha256, *rest in locations),
        evicted=is_evicted(connection, tenant, key),
    )


def is_evicted(connection: Connection, tenant: str, key: CheckpointKey) -> bool:
    """Tell whether the journal lacks values or writes of a checkpoint."""
    return any(
        statement.run(connection, **parameters_of(tenant, key)).fetchone() is not None
        for statement in (_LACKS_CONTENT, _LACKS_WRITE)
    )


def store_anew(
    connection: Connection, tenant: str, key: CheckpointKey, incarnation: int, now_us: int
) -> bool:
    """Let the next flush build and store a checkpoint's envelope anew.

    Returns:
        False if it is gone, or if the journal lacks content of it.
    """
    row = _STATE.run(connection, **parameters_of(tenant, key)).fetchone()
    if row is None or row[0] != incarnation or is_evicted(connection, tenant, key):
        return False
    size = len(row[1]) + len(row[2]) + sum(channel.size for channel in decode_channels(row[1]))
    connection.execute(
        _tell_again(
            and_(
                checkpoints.c.tenant == tenant,
                checkpoints.c.thread_id == key.thread_id,
                checkpoints.c.checkpoint_ns == key.checkpoint_ns,
                checkpoints.c.checkpoint_id == key.checkpoint_id,
            ),
            now_us,
        ).values(dirty_bytes=checkpoints.c.dirty_bytes + size)
    )
    _DROP_ENVELOPES.run(connection, **parameters_of(tenant, key))
    return True


def restart_manifest(
    connection: Connection, tenant: str, thread_id: str, incarnation: int, now_us: int
) -> None:
    """Let the next flushes tell all checkpoints of a thread in a manifest without past."""
    of_incarnation = and_(
        manifests.c.tenant == tenant,
        manifests.c.thread_id == thread_id,
        manifests.c.incarnation == incarnation,
    )
    next_generation = case(
        (manifests.c.next_generation > manifests.c.generation, manifests.c.next_generation),
        else_=manifests.c.generation + 1,
    )
    connection.execute(
        update(manifests)
        .where(of_incarnation, manifests.c.ended.is_(False))
        .values(next_generation=next_generation, segment=0, records=0, open_segment=b"", sha256=b"")
    )
    connection.execute(
        delete(metadata_members).where(
            metadata_members.c.tenant == tenant,
            metadata_members.c.thread_id == thread_id,
            metadata_members.c.incarnation == incarnation,
        )
    )
    connection.execute(
        _tell_again(
            and_(
                checkpoints.c.tenant == tenant,
                checkpoints.c.thread_id == thread_id,
                checkpoints.c.incarnation == incarnation,
            ),
            now_us,
        )
    )
    # Also if it has no checkpoints any more, the catalog must let go of what is lost.
    _TELL.run(connection, of_tenant=tenant, of_thread=thread_id, of_incarnation=incarnation)
    _fence(connection, tenant)


def _tell_again(which: ColumnElement[bool], now_us: int) -> Update:
    return (
        update(checkpoints)
        .where(which)
        .values(
            packed_revision=0,
            certified_revision=0,
            dirty_us=func.coalesce(checkpoints.c.dirty_us, now_us),
        )
    )


def drop_runs(connection: Connection, tenant: str, lost: Sequence[int], now_us: int) -> None:
    """Take runs out of the catalog and let the next flushes tell their threads anew."""
    row = connection.execute(
        select(catalogs.c.runs).where(catalogs.c.tenant == tenant)
    ).one_or_none()
    if row is None:
        return
    connection.execute(
        update(catalogs)
        .where(catalogs.c.tenant == tenant)
        .values(runs=encode_runs(_without(decode_runs(row.runs), frozenset(lost))))
    )
    connection.execute(
        delete(metadata_members).where(
            metadata_members.c.tenant == tenant,
            metadata_members.c.thread_id == EMPTY,
            metadata_members.c.run.in_(lost),
        )
    )
    _tell_heads(connection, tenant, lost, now_us)
    _fence(connection, tenant)


def _without(runs: Runs, lost: frozenset[int]) -> Runs:
    return replace(
        runs,
        levels=tuple(tuple(ref for ref in level if ref.run not in lost) for level in runs.levels),
        merges={
            level: replace(merge, pages=(), index=None) if merge.run in lost else merge
            for level, merge in runs.merges.items()
        },
    )


def _tell_heads(connection: Connection, tenant: str, lost: Sequence[int], now_us: int) -> None:
    """Let the next flush tell the heads of runs; of some thread if they have none.

    So there is a next flush, and with it a catalog that lasts.
    """
    heads = select(manifests.c.thread_id, manifests.c.incarnation, manifests.c.ended).where(
        manifests.c.tenant == tenant
    )
    found = connection.execute(heads.where(manifests.c.run.in_(lost))).all()
    found = found or connection.execute(heads.limit(1)).all()
    _BURY.run_many(
        connection,
        [
            {
                "tenant": tenant,
                "thread_id": head.thread_id,
                "incarnation": head.incarnation,
                "created_us": now_us,
            }
            for head in found
            if head.ended
        ],
    )
    _TELL.run_many(
        connection,
        [
            {
                "of_tenant": tenant,
                "of_thread": head.thread_id,
                "of_incarnation": head.incarnation,
            }
            for head in found
            if not head.ended
        ],
    )


def _fence(connection: Connection, tenant: str) -> None:
    """Void packs on their way: they were built upon what is no more."""
    connection.execute(
        update(catalogs).where(catalogs.c.tenant == tenant).values(seq=catalogs.c.seq + 1)
    )
