"""Bundles of hand-offs, whose blobs must last.

A row makes the bundle's blobs needed until the thread's incarnation ends, or until the store has
lost the blobs (`drop_lost`).
"""

from __future__ import annotations

from typing import NamedTuple

from sqlalchemy import Connection, delete, select

from ...core.model import CheckpointKey
from ...core.values import DIGEST_BYTES, split
from ...journal.database.thread_rows import ThreadCacheEntry
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import handoffs, members, threads
from ...journal.sql.statements import Statement, put_rows

_KEEP = Statement(put_rows(handoffs, ("tenant", "sha256", "thread"), ("seq", "content_seq")))


def put(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    key: CheckpointKey,
    sha256: bytes,
    seq: int,
    content_seq: int,
) -> None:
    """Record that a bundle was handed off, with its change and the change it was built from."""
    _KEEP.run(
        batch.connection,
        tenant=log.row.tenant,
        sha256=sha256,
        thread=log.row.number,
        checkpoint_ns=key.checkpoint_ns,
        checkpoint_id=key.checkpoint_id,
        seq=seq,
        content_seq=content_seq,
        created_us=batch.now_us,
    )


class LostBundle(NamedTuple):
    """A bundle that can no longer be fetched, and its checkpoint."""

    key: CheckpointKey
    sha256: bytes


def drop_lost(connection: Connection, tenant: str, blob_id: str) -> list[LostBundle]:
    """Forget the bundles that are in a blob, or have a part there; return the bundles.

    These bundles cannot be built again: other parties have their hashes.
    """
    in_blob = select(members.c.sha256).where(
        members.c.tenant == tenant, members.c.blob_id == blob_id
    )
    hashes = set(connection.execute(in_blob).scalars())
    columns = (handoffs.c.checkpoint_ns, handoffs.c.checkpoint_id)
    rows = connection.execute(
        select(threads.c.thread_id, *columns, handoffs.c.sha256, handoffs.c.thread, members.c.parts)
        .join(
            members,
            (members.c.tenant == handoffs.c.tenant) & (members.c.sha256 == handoffs.c.sha256),
        )
        .join(threads, threads.c.number == handoffs.c.thread)
        .where(handoffs.c.tenant == tenant)
    ).all()
    lost_rows = [row for row in rows if hashes & {row[3], *split(row[5] or b"", DIGEST_BYTES)}]
    for *_, sha256, thread, _ in lost_rows:
        connection.execute(
            delete(handoffs).where(
                handoffs.c.tenant == tenant,
                handoffs.c.sha256 == sha256,
                handoffs.c.thread == thread,
            )
        )
    return [LostBundle(CheckpointKey(*row[:3]), row[3]) for row in lost_rows]
