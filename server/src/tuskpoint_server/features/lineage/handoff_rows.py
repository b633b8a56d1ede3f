"""Hand-offs in the journal: bundles, whose blobs must last.

A bundle is pinned (`archive.rows.pinned_bundles`). The row of a bundle has a number of the thread's
log, so that the manifest lists the bundles; readers of the thread see no event.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import bindparam, exists, select

from ...archive.formats.stored_json import Kind
from ...archive.rows import pinned_bundles
from ...archive.rows.plan import StoredMember
from ...core.errors import Reason, Refusal, checkpoint_not_found
from ...core.lineage import Descriptor, encode_offered
from ...core.model import BlobLocation, CheckpointKey
from ...core.threads import EventKind
from ...core.webhooks import WebhookEvent
from ...journal.database.database import Database
from ...journal.database.thread_rows import ThreadRow
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import changes, handoffs, members, threads
from ...journal.sql.statements import Statement, put_rows
from ...journal.values.segment_refs import PLACE, location_of
from ..inbox.offer_rows import LAYOUT, OFFERS, make
from ..inbox.offers import inbox_of
from .first_answers import Request

_PLACE = Statement(put_rows(members, ("tenant", "sha256"), ("blob_id", "identifier", "parts")))
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


@dataclass(frozen=True, slots=True)
class OfferDraft:
    """An offer to make: its descriptor, and microseconds until it expires; 0: never."""

    descriptor: Descriptor
    ttl_us: int = 0


class HandoffRows:
    """Handed off bundles; calls behave like the calls of `LineageRows`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def first_answer(self, request: Request) -> bytes | None:
        """Return the earlier answer to a request; `None` if the request is new.

        Raises:
            Refusal: `REQUEST_ID_REUSED`.
        """
        return await self._database.query(request.first_answer)

    async def unchanged(self, tenant: str, key: CheckpointKey) -> tuple[BlobLocation, int] | None:
        """Return the bundle of a checkpoint whose thread has not changed since the hand-off.

        The result has the last change of the thread. `None`: a bundle must be created.
        """
        parameters = {
            "of_thread_id": key.thread_id,
            "of_ns": key.checkpoint_ns,
            "of_id": key.checkpoint_id,
        }
        rows = await self._database.rows(_UNCHANGED, of_tenant=tenant, **parameters)
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
        draft: OfferDraft | None = None,
    ) -> bytes:
        """Keep a bundle's blobs as long as its thread exists; return the first answer.

        With a `draft` the same transaction offers the hand-off, and the answer has the offer's ID;
        the answer has none if older servers use the journal, too.

        `bundle` is the location of the bundle, or of the list of its `parts`: no parts if it is
        whole, `None` if the bundle is kept already (`unchanged`). `content_seq` is the last change
        of the thread at the read of its content.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND` if the thread was deleted in between;
                `REQUEST_ID_REUSED`.
        """
        tenant = request.tenant
        entropy = self._database.random_bits()

        def offer(batch: UnitOfWork, draft: OfferDraft, row: ThreadRow) -> bytes:
            try:
                self._database.require_layout(batch.connection, LAYOUT, OFFERS)
            except Refusal as refusal:
                if refusal.reason is not Reason.OLDER_SERVERS:
                    raise
                return answer
            descriptor = draft.descriptor
            made_id = make(batch, tenant, descriptor, row.incarnation, entropy, draft.ttl_us)
            event, to_agent = WebhookEvent.HANDOFF_OFFERED, descriptor.to_agent
            batch.outbox.add(row, event, batch.now_us, ("", made_id), agent_id=to_agent)
            return encode_offered(answer, made_id)

        def keep(batch: UnitOfWork) -> bytes:
            names = [key.thread_id]
            names += [inbox_of(draft.descriptor.to_agent)] if draft is not None else []
            batch.lock((tenant, name) for name in names)
            log = batch.find(tenant, key.thread_id)
            if log is None or log.row.deleted:
                raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
            if parts is not None:
                kind = Kind.PARTS if parts else Kind.SEGMENT
                members = [StoredMember(part, Kind.PART) for part in parts]
                hashes = b"".join(part.sha256 for part in parts)
                members.append(StoredMember(bundle, kind, parts=hashes))
                rows = [member.row(tenant, member.location) for member in members]
                _PLACE.run_many(batch.connection, rows)
            seq = batch.change(log, EventKind.HANDED_OFF)
            pinned_bundles.put(batch, log, key, bundle.sha256, seq, content_seq)
            return offer(batch, draft, log.row) if draft is not None else answer

        return await self._database.transact(lambda batch: request.once(batch, keep, bytes, bytes))
