"""Snapshots, as the service calls them."""

from __future__ import annotations

import json

from ...domain.limits import KIB, LIMITS
from ...domain.lineage import Snapshot
from ...domain.model import Saved
from ..database.database import Database
from ..database.overlay import Batch
from . import answers, restoring, snapshots
from .answers import decode_saved, encode_saved
from .evicted import Supplied
from .lineage import NOTHING
from .snapshots import SnapshotDraft, SnapshotQuery

CREATE, RESTORE = "CreateSnapshot", "RestoreSnapshot"

_MEMBER_BYTES = 16 * KIB
"""What a member counts as in a batch of the writer, so that few large snapshots share one."""


class Snapshots:
    """Snapshots of several threads; calls behave as those of `Lineage`.

    Args:
        database: The journal's database.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def create_snapshot(
        self, tenant: str, draft: SnapshotDraft, request_id: str, supplied: Supplied = NOTHING
    ) -> Snapshot:
        """Capture the heads of threads at one instant.

        Args:
            tenant: The tenant.
            draft: What to capture.
            request_id: What a retry is known by; may be empty.
            supplied: Evicted values that have been read.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, `REQUEST_ID_REUSED`.
            ValuesEvicted: It needs values that are not here.
        """
        entropy = self._database.random_bits()
        asked = (*draft.thread_ids, draft.session_id, draft.hostname, draft.working_directory)
        request = answers.request(tenant, request_id, CREATE, *asked, draft.metadata.hex())

        def work(batch: Batch) -> Snapshot:
            answered = request.first_answer(batch.connection)
            if answered is not None:
                known = snapshots.read(batch.connection, tenant, answered.decode())
                if known is None:
                    raise snapshots.not_found(answered.decode())
                return known[0]
            created = snapshots.create(batch, tenant, draft, supplied, entropy)
            request.keep_answer(batch.connection, created.snapshot_id.encode(), batch.now_us)
            return created

        size = len(draft.metadata) + len(draft.thread_ids) * _MEMBER_BYTES
        return await self._database.transact(work, size)

    async def snapshot(self, tenant: str, snapshot_id: str) -> Snapshot | None:
        """Return a snapshot, or `None`."""
        found = await self._database.query(
            lambda connection: snapshots.read(connection, tenant, snapshot_id)
        )
        return found[0] if found is not None else None

    async def list_snapshots(
        self, tenant: str, query: SnapshotQuery, below: str, limit: int
    ) -> list[Snapshot]:
        """Return snapshots, newest first, whose ID is below `below` if that is not empty."""
        return await self._database.query(
            lambda connection: snapshots.read_below(connection, tenant, query, below, limit)
        )

    async def restore_snapshot(
        self,
        tenant: str,
        snapshot_id: str,
        *,
        rollback: bool,
        request_id: str,
        supplied: Supplied = NOTHING,
    ) -> tuple[Saved, ...]:
        """Make each member a new thread, or roll its own thread back to it; all or none.

        Args:
            tenant: The tenant.
            snapshot_id: The snapshot.
            rollback: Roll back.
            request_id: What a retry is known by; may be empty.
            supplied: Evicted values that have been read.

        Raises:
            Refusal: `SNAPSHOT_NOT_FOUND`, `THREAD_NOT_FOUND`, `REQUEST_ID_REUSED`.
            ValuesEvicted: It needs values that are not here.
        """
        entropy, more = self._database.random_bits(), self._database.random_bits()
        request = answers.request(tenant, request_id, RESTORE, snapshot_id, str(rollback))

        def work(batch: Batch) -> tuple[Saved, ...]:
            answered = request.first_answer(batch.connection)
            if answered is not None:
                return tuple(decode_saved(one.encode()) for one in json.loads(answered))
            if rollback:
                restored = restoring.roll_back(batch, tenant, snapshot_id, supplied, entropy)
            else:
                names = f"{entropy:016x}{more:016x}"
                restored = restoring.as_new_threads(batch, tenant, snapshot_id, supplied, names)
            answer = json.dumps([encode_saved(one).decode() for one in restored])
            request.keep_answer(batch.connection, answer.encode(), batch.now_us)
            return restored

        size = sum(len(value.data) for value in supplied.values())
        size += LIMITS.max_snapshot_members * _MEMBER_BYTES  # nobody has counted them yet
        return await self._database.transact(work, size)

    async def delete_snapshot(self, tenant: str, snapshot_id: str) -> bool:
        """Delete a snapshot; return whether there was one."""
        return await self._database.transact(
            lambda batch: snapshots.delete(batch, tenant, snapshot_id)
        )
