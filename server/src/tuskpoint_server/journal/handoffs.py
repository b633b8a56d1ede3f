"""Hand-offs in a journal: which bundles were handed off, and what must last for them.

A row keeps the bundle's blobs needed (`archive_blobs`) until its thread's incarnation
ends (`removals`), or until the store has lost them (`drop_lost`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, delete, or_, select

from ..domain.errors import checkpoint_not_found
from ..domain.model import BlobLocation, CheckpointKey, StoredBlob
from . import answers, archive_blobs, archive_packs, threads
from .journal import SqlJournal
from .schema import envelope_parts, handoffs, placements
from .statements import Statement, all_columns

METHOD = "CreateHandoff"

Expiry = Callable[[StoredBlob], int | None]
"""Returns the time, in microseconds since the epoch, before which a blob is not gone."""

_KEEP = Statement(
    lambda insert_into: insert_into(handoffs).values(all_columns(handoffs)).on_conflict_do_nothing()
)


class Handoffs:
    """Hand-offs in a `SqlJournal`; satisfies `lineage_api.HandoffJournal`.

    Args:
        journal: The journal.
        expiry: Says how long a stored blob lasts.
    """

    def __init__(self, journal: SqlJournal, expiry: Expiry) -> None:
        self._journal = journal
        self._expiry = expiry

    async def handed_off(self, tenant: str, request_id: str, fingerprint: bytes) -> bytes | None:
        """Return the first answer; see `lineage_api.HandoffJournal.handed_off`."""
        return await self._journal.query(
            lambda connection: answers.first_answer(
                connection, tenant, request_id, METHOD, fingerprint
            )
        )

    async def keep_handoff(
        self,
        tenant: str,
        key: CheckpointKey,
        bundle: BlobLocation,
        parts: Sequence[BlobLocation],
        blobs: Sequence[StoredBlob],
        request_id: str,
        fingerprint: bytes,
        answer: bytes,
    ) -> bytes:
        """Keep a bundle and the answer; see `lineage_api.HandoffJournal.keep_handoff`."""
        now_us = self._journal.now_us()

        def keep(connection: Connection) -> bytes:
            first = answers.first_answer(connection, tenant, request_id, METHOD, fingerprint)
            if first is not None:
                return first
            _keep(connection, tenant, key, bundle, parts, now_us)
            archive_blobs.record(connection, tenant, blobs, now_us, self._expiry)
            answers.keep_answer(connection, tenant, request_id, METHOD, fingerprint, answer, now_us)
            return answer

        return await self._journal.transact(keep)


def _keep(
    connection: Connection,
    tenant: str,
    key: CheckpointKey,
    bundle: BlobLocation,
    parts: Sequence[BlobLocation],
    now_us: int,
) -> None:
    thread = threads.lock(connection, tenant, key.thread_id)
    if thread is None or thread.deleted:
        raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
    archive_packs.place(connection, tenant, [bundle, *parts])
    archive_packs.add_parts(connection, tenant, bundle.sha256, [part.sha256 for part in parts])
    _KEEP.run(
        connection,
        tenant=tenant,
        sha256=bundle.sha256,
        thread_id=key.thread_id,
        checkpoint_ns=key.checkpoint_ns,
        checkpoint_id=key.checkpoint_id,
        created_us=now_us,
    )


@dataclass(frozen=True, slots=True)
class LostBundle:
    """A bundle that cannot be fetched any more, and the checkpoint that it is of."""

    key: CheckpointKey
    sha256: bytes


def drop_lost(connection: Connection, tenant: str, blob_id: str) -> list[LostBundle]:
    """Forget the bundles that lie in a blob, or have a part there; return them.

    They cannot be made anew: their hashes were given to others.
    """
    here = select(placements.c.sha256).where(
        placements.c.tenant == tenant, placements.c.blob_id == blob_id
    )
    listed = select(envelope_parts.c.envelope).where(
        envelope_parts.c.tenant == tenant, envelope_parts.c.sha256.in_(here)
    )
    lost = (
        handoffs.c.tenant == tenant,
        or_(handoffs.c.sha256.in_(here), handoffs.c.sha256.in_(listed)),
    )
    rows = connection.execute(
        select(
            handoffs.c.thread_id,
            handoffs.c.checkpoint_ns,
            handoffs.c.checkpoint_id,
            handoffs.c.sha256,
        ).where(*lost)
    ).all()
    if rows:
        connection.execute(delete(handoffs).where(*lost))
    return [LostBundle(CheckpointKey(*row[:3]), bytes(row[3])) for row in rows]
