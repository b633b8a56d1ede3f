"""The trail of a tenant in the journal, a thread that only the server writes.

Each batch of entries is a checkpoint whose metadata names the SHA-256 of the batch before. So the
trail is stored, certified and recovered like any thread, and nobody can change or leave out a
batch unnoticed. Servers that share a journal append to one trail: the writer orders them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from sqlalchemy import bindparam, select

from tuskpoint.v1 import checkpoint_pb2

from ...core.lineage import mint_checkpoint_id
from ...core.state import encode_names
from ...core.threads import TRAIL, EventKind
from ...journal.database.database import Database
from ...journal.database.thread_rows import CachedCheckpoint
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import checkpoints, threads
from ...journal.sql.statements import EMPTY, Statement
from ..lineage.snapshot_state import STATE_VERSION

THREAD = TRAIL + "calls"
"""The thread of the trail."""

_STATE = checkpoint_pb2.CheckpointState(schema_version=STATE_VERSION).SerializeToString()
_BATCHES = Statement(
    select(
        checkpoints.c.checkpoint_id,
        checkpoints.c.metadata,
        checkpoints.c.created_us,
        checkpoints.c.seq <= threads.c.certified_seq,
    )
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id == THREAD,
        checkpoints.c.checkpoint_ns == EMPTY,
        checkpoints.c.checkpoint_id > bindparam("after"),
    )
    .order_by(checkpoints.c.checkpoint_id)
    .limit(bindparam("most"))
)


class TrailBatch(NamedTuple):
    """Entries that were appended together."""

    batch_id: str
    content: bytes  # a JSON object with `previous` and `entries`
    created_us: int
    certified: bool


class TrailRows:
    """Appends to the trails of tenants, and reads them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def append(self, tenant: str, entries: Sequence[dict[str, object]]) -> None:
        """Append a batch, which is durable on return."""
        work = partial(
            _append, tenant=tenant, entries=entries, entropy=self._database.random_bits()
        )
        await self._database.transact(work)

    async def read(self, tenant: str, after: str, most: int) -> list[TrailBatch]:
        """Return the batches after a batch, oldest first."""
        rows = await self._database.rows(_BATCHES, of_tenant=tenant, after=after, most=most)
        return [TrailBatch(row[0], row[1], row[2], bool(row[3])) for row in rows]


def _append(
    batch: UnitOfWork, tenant: str, entries: Sequence[dict[str, object]], entropy: int
) -> None:
    log = batch.find(tenant, THREAD)
    if log is None:
        log = batch.begin(tenant, THREAD)
        log.row.unsearchable = True
    head_id = log.row.head_id
    head = batch.checkpoint(log, ("", head_id)) if head_id else None
    previous = hashlib.sha256(head.metadata).hexdigest() if head is not None else ""
    document = {"previous": previous, "entries": entries}
    metadata = json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode()
    place = ("", mint_checkpoint_id(batch.now_us, entropy, head_id))
    size = len(metadata) + len(_STATE)
    seq = batch.change(log, EventKind.CHECKPOINT_SAVED, place, size_bytes=size)
    if head is None:
        log.row.settings_seq = seq
    fields = (seq, head_id, _STATE, metadata, "", "", encode_names(()), "", "", batch.now_us)
    batch.put_checkpoint(log, place, CachedCheckpoint(*fields))
    log.row.head_id = place[1]
    log.row.checkpoint_count += 1
