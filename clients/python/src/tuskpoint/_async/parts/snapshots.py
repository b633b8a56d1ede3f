"""Methods that capture several threads together and restore them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from ..._messages.arguments import check_texts
from ..._messages.lineage import snapshots as shots
from ..._messages.lineage.snapshots import RestoreModeName, SnapshotRecord, snapshot_record
from ..._messages.records import DurabilityName, Reference, reference_of
from ..._transport import methods
from ...v1.snapshot_service_pb2 import GetLatestSnapshotRequest, GetSnapshotRequest
from .part import AsyncPart


class AsyncSnapshots(AsyncPart):
    """Methods that capture several threads together and restore them."""

    async def create_snapshot(
        self,
        thread_ids: str | Iterable[str],
        *,
        session_id: str = "",
        hostname: str = "",
        working_directory: str = "",
        metadata: Mapping[str, Any] | None = None,
        durability: DurabilityName = "journaled",
    ) -> SnapshotRecord:
        """Capture the latest checkpoints of threads at one instant.

        The snapshot keeps the captured checkpoints even if the threads are pruned or deleted. The
        call is idempotent: a retry gets the first answer.

        Args:
            thread_ids: The threads, 1 to 1,000.
            session_id: Session of the application.
            hostname: Host of the application.
            working_directory: Working directory of the application.
            metadata: JSON object to save with the snapshot.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: A thread does not exist, or has no root checkpoint.
        """
        request = shots.capturing(
            thread_ids, session_id, hostname, working_directory, metadata, durability
        )
        answer = await self._calls.unary(methods.CREATE_SNAPSHOT, request)
        return snapshot_record(answer.snapshot)

    async def get_snapshot(self, snapshot_id: str) -> SnapshotRecord:
        """Return a snapshot.

        Raises:
            NotFound: There is no such snapshot.
        """
        check_texts(snapshot_id=snapshot_id)
        request = GetSnapshotRequest(snapshot_id=snapshot_id)
        answer = await self._calls.unary(methods.GET_SNAPSHOT, request)
        return snapshot_record(answer.snapshot)

    async def latest_snapshot(
        self, *, session_id: str = "", hostname: str = "", working_directory: str = ""
    ) -> SnapshotRecord:
        """Return the newest snapshot.

        Args:
            session_id: Only snapshots of this session.
            hostname: Only snapshots from this host.
            working_directory: Only snapshots from this directory.

        Raises:
            NotFound: No snapshot matches.
        """
        check_texts(session_id=session_id, hostname=hostname, working_directory=working_directory)
        request = GetLatestSnapshotRequest(
            session_id=session_id, hostname=hostname, working_directory=working_directory
        )
        answer = await self._calls.unary(methods.GET_LATEST_SNAPSHOT, request)
        return snapshot_record(answer.snapshot)

    async def list_snapshots(
        self, *, session_id: str = "", hostname: str = "", working_directory: str = ""
    ) -> AsyncIterator[SnapshotRecord]:
        """Yield snapshots, newest first.

        Args:
            session_id: Only snapshots of this session.
            hostname: Only snapshots from this host.
            working_directory: Only snapshots from this directory.
        """
        request = shots.snapshot_listing(session_id, hostname, working_directory)
        while True:
            page = await self._calls.unary(methods.LIST_SNAPSHOTS, request)
            for snapshot in page.snapshots:
                yield snapshot_record(snapshot)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    async def restore_snapshot(
        self,
        snapshot_id: str,
        *,
        mode: RestoreModeName = "new_threads",
        skip_deleted: bool = False,
        durability: DurabilityName = "journaled",
    ) -> tuple[Reference, ...]:
        """Restore all members of a snapshot, or none; return the restored checkpoints.

        The checkpoints are in the order of the snapshot's members. The call is idempotent: a retry
        gets the first answer.

        Args:
            snapshot_id: The snapshot.
            mode: "new_threads" creates a new thread for each member; "rollback" rolls each member's
                thread back to the captured checkpoint.
            skip_deleted: Whether the mode "rollback" leaves out members whose thread was deleted,
                instead of raising `NotFound`.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: There is no such snapshot, or a thread to roll back was deleted.
        """
        request = shots.restoring(snapshot_id, mode, durability, skip_deleted=skip_deleted)
        answer = await self._calls.unary(methods.RESTORE_SNAPSHOT, request)
        restored = tuple(reference_of(checkpoint) for checkpoint in answer.restored)
        for reference in restored:
            self._memory.forget(reference.thread_id)
        return restored

    async def delete_snapshot(
        self, snapshot_id: str, *, durability: DurabilityName = "journaled"
    ) -> bool:
        """Delete a snapshot and the data that only the snapshot needs; return whether it existed.

        Threads that were restored from the snapshot stay.
        """
        request = shots.dropping(snapshot_id, durability)
        return (await self._calls.unary(methods.DELETE_SNAPSHOT, request)).deleted
