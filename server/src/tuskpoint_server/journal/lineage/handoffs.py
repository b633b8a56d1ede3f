"""Hand-offs: the bundles that were handed off, whose blobs must last.

A row makes the bundle's blobs needed until its thread's incarnation ends, or until the store has
lost them (`drop_lost`). It takes a number of the thread's log, so that the manifest lists the
bundles; readers of the thread see no event.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, delete, exists, select

from ...core.errors import checkpoint_not_found
from ...core.formats.stored_json import Kind
from ...core.model import BlobLocation, CheckpointKey
from ...core.threads import EventKind
from ...core.values import DIGEST_BYTES, split
from ..archiving.plan import StoredMember
from ..database.database import Database
from ..database.thread_rows import ThreadCacheEntry
from ..database.unit_of_work import UnitOfWork
from ..sql.schema import changes, handoffs, members, threads
from ..sql.statements import Statement, putting
from ..values.segment_refs import PLACE, location_of
from .answers import Request

_KEEP = Statement(putting(handoffs, ("tenant", "sha256", "thread"), ("seq", "content_seq")))
_PLACE = Statement(putting(members, ("tenant", "sha256"), ("blob_id", "identifier", "parts")))
_SINCE = exists().where(
    changes.c.thread == handoffs.c.thread,
    changes.c.seq > handoffs.c.content_seq,
    changes.c.kind != int(EventKind.HANDED_OFF),
)
_UNCHANGED = Statement(
    select(
        *(members.c[name] for name in PLACE),
        threads.c.seq,
    )
    .join(
        handoffs, (handoffs.c.tenant == members.c.tenant) & (handoffs.c.sha256 == members.c.sha256)
    )
    .join(threads, threads.c.number == handoffs.c.thread)
    .where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id == bindparam("of_thread_id"),
        threads.c.deleted.is_(False),
        handoffs.c.checkpoint_ns == bindparam("of_ns"),
        handoffs.c.checkpoint_id == bindparam("of_id"),
        handoffs.c.content_seq >= threads.c.compacted_seq,
        ~_SINCE,
    )
    .order_by(handoffs.c.seq.desc())
    .limit(1)
)


class Handoffs:
    """Bundles that were handed off; calls behave as those of `Lineage`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def first_answer(self, request: Request) -> bytes | None:
        """Return the answer that a request got before; `None` if it is new.

        Raises:
            Refusal: `REQUEST_ID_REUSED`.
        """
        return await self._database.query(request.first_answer)

    async def unchanged(self, tenant: str, key: CheckpointKey) -> tuple[BlobLocation, int] | None:
        """Return the bundle of a checkpoint whose thread is as it was when it was handed off.

        With the last change of the thread. `None`: there is none, and one has to be made.
        """
        of = {"of_thread_id": key.thread_id, "of_ns": key.checkpoint_ns, "of_id": key.checkpoint_id}
        rows = await self._database.rows(_UNCHANGED, of_tenant=tenant, **of)
        return (location_of(rows[0]), rows[0][5]) if rows else None

    async def keep_handoff(
        self,
        request: Request,
        key: CheckpointKey,
        bundle: BlobLocation,
        parts: Sequence[BlobLocation] | None,
        answer: bytes,
        *,
        content_seq: int,
    ) -> bytes:
        """Keep a bundle's blobs as long as its thread lives; return the answer, or the first one.

        `bundle` is its location, or that of the list of its `parts`: none if it is whole, `None` if
        it was kept before (`unchanged`). `content_seq` is the last change of the thread when its
        content was read.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND` if the thread was deleted meanwhile;
                `REQUEST_ID_REUSED`.
        """
        tenant = request.tenant

        def keep(batch: UnitOfWork) -> bytes:
            log = batch.find(tenant, key.thread_id)
            if log is None or log.row.deleted:
                raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
            if parts is not None:
                kind = Kind.PARTS if parts else Kind.SEGMENT
                members = [StoredMember(part, Kind.PART) for part in parts]
                listed = b"".join(part.sha256 for part in parts)
                members.append(StoredMember(bundle, kind, parts=listed))
                rows = [member.row(tenant, member.location) for member in members]
                _PLACE.run_many(batch.connection, rows)
            seq = batch.change(log, EventKind.HANDED_OFF)
            put(batch, log, key, bundle.sha256, seq, content_seq)
            return answer

        return await self._database.transact(lambda batch: request.once(batch, keep, bytes, bytes))


def put(
    batch: UnitOfWork,
    log: ThreadCacheEntry,
    key: CheckpointKey,
    sha256: bytes,
    seq: int,
    content_seq: int,
) -> None:
    """Record that a bundle was handed off with a change, and as of which one it was made."""
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
    """A bundle that cannot be fetched any more, and the checkpoint that it is of."""

    key: CheckpointKey
    sha256: bytes


def drop_lost(connection: Connection, tenant: str, blob_id: str) -> list[LostBundle]:
    """Forget the bundles that are in a blob, or have a part there; return them.

    They cannot be made again: others hold their hashes.
    """
    in_blob = select(members.c.sha256).where(
        members.c.tenant == tenant, members.c.blob_id == blob_id
    )
    here = set(connection.execute(in_blob).scalars())
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
    lost = [row for row in rows if here & {row[3], *split(row[5] or b"", DIGEST_BYTES)}]
    for *_, sha256, thread, _ in lost:
        connection.execute(
            delete(handoffs).where(
                handoffs.c.tenant == tenant,
                handoffs.c.sha256 == sha256,
                handoffs.c.thread == thread,
            )
        )
    return [LostBundle(CheckpointKey(*row[:3]), row[3]) for row in lost]
