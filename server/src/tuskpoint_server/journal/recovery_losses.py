"""What a recovery had to leave out, so that the catalogs and manifests to come leave it out too."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

from sqlalchemy import Connection, and_, bindparam, delete, insert, literal, select, update

from ..domain.catalog import Catalog, encode_runs, runs_of
from ..domain.model import BlobLocation, CheckpointKey
from .recovering import UNLISTED
from .schema import catalogs, manifests, metadata_members, retractions, threads, tombstones
from .statements import EMPTY, Statement

_RETRACT = Statement(
    insert(retractions).values(
        {c.name: bindparam(c.name) for c in retractions.columns if not c.primary_key}
    )
)


def retract(
    connection: Connection, tenant: str, lost: Sequence[tuple[CheckpointKey, int]], now_us: int
) -> None:
    """See to it that manifests no longer tell of checkpoints that cannot be read.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        lost: The checkpoints, each with the incarnation of its thread.
        now_us: Time of the recovery.
    """
    _RETRACT.run_many(
        connection,
        [
            {
                "tenant": tenant,
                "thread_id": key.thread_id,
                "checkpoint_ns": key.checkpoint_ns,
                "checkpoint_id": key.checkpoint_id,
                "incarnation": incarnation,
                "created_us": now_us,
            }
            for key, incarnation in lost
        ],
    )


def drop_runs(
    connection: Connection,
    tenant: str,
    catalog: Catalog,
    location: BlobLocation,
    lost: Set[int],
    now_us: int,
) -> None:
    """Leave runs of which a piece cannot be read out of the catalogs to come.

    What the other pieces tell of is told anew.

    Args:
        connection: In a write transaction, after all threads were inserted.
        tenant: The tenant.
        catalog: The catalog that was recovered from.
        location: Where it lies.
        lost: Numbers of the runs.
        now_us: Time of the recovery.
    """
    runs = runs_of(catalog, location)
    kept = replace(
        runs, levels=tuple(tuple(r for r in level if r.run not in lost) for level in runs.levels)
    )
    connection.execute(
        update(catalogs).where(catalogs.c.tenant == tenant).values(runs=encode_runs(kept))
    )
    listed = and_(manifests.c.tenant == tenant, manifests.c.run.in_(sorted(lost)))
    ended = select(
        manifests.c.tenant, manifests.c.thread_id, manifests.c.incarnation, literal(now_us)
    ).where(listed, manifests.c.ended)
    connection.execute(insert(tombstones).from_select([c.name for c in tombstones.columns], ended))
    live = select(manifests.c.thread_id).where(listed, manifests.c.ended.is_(False))
    connection.execute(
        update(threads)
        .where(threads.c.tenant == tenant, threads.c.thread_id.in_(live))
        .values(untold=True)
    )
    connection.execute(update(manifests).where(listed).values(run=UNLISTED))
    connection.execute(
        delete(metadata_members).where(
            metadata_members.c.tenant == tenant,
            metadata_members.c.thread_id == EMPTY,
            metadata_members.c.run.in_(sorted(lost)),
        )
    )
