"""Capturing several threads together, and restoring them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from typing import Any

from .. import _snapshots as shots
from .._records import DurabilityName, Reference, reference_of
from .._snapshots import RestoreModeName, SnapshotRecord, snapshot_record
from ..v1.snapshot_service_pb2 import GetLatestSnapshotRequest, GetSnapshotRequest
from .base import AsyncFace, SyncFace, twin_of


class SyncSnapshots(SyncFace):
    """Capturing several threads together, and restoring them."""

    def create_snapshot(
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

        The snapshot keeps what it captured when the threads are pruned or deleted. Safe to be
        sent again: a retry gets the first answer.

        Args:
            thread_ids: The threads, 1 to 1,000.
            session_id: Session of the application.
            hostname: Host that it runs on.
            working_directory: Directory that it runs in.
            metadata: A JSON object to save with it.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: A thread does not exist, or has no root checkpoint.
        """
        request = shots.capturing(
            thread_ids, session_id, hostname, working_directory, metadata, durability
        )
        answer = self._calls.create_snapshot(request)
        return snapshot_record(answer.snapshot)

    def get_snapshot(self, snapshot_id: str) -> SnapshotRecord:
        """Return a snapshot.

        Raises:
            NotFound: There is no such snapshot.
        """
        answer = self._calls.get_snapshot(GetSnapshotRequest(snapshot_id=snapshot_id))
        return snapshot_record(answer.snapshot)

    def latest_snapshot(
        self, *, session_id: str = "", hostname: str = "", working_directory: str = ""
    ) -> SnapshotRecord:
        """Return the newest snapshot.

        Args:
            session_id: Only of this session.
            hostname: Only from this host.
            working_directory: Only from this directory.

        Raises:
            NotFound: There is none.
        """
        request = GetLatestSnapshotRequest(
            session_id=session_id, hostname=hostname, working_directory=working_directory
        )
        answer = self._calls.get_latest_snapshot(request)
        return snapshot_record(answer.snapshot)

    def list_snapshots(
        self, *, session_id: str = "", hostname: str = "", working_directory: str = ""
    ) -> Iterator[SnapshotRecord]:
        """Yield snapshots, newest first.

        Args:
            session_id: Only of this session.
            hostname: Only from this host.
            working_directory: Only from this directory.
        """
        request = shots.snapshot_listing(session_id, hostname, working_directory)
        while True:
            page = self._calls.list_snapshots(request)
            for one in page.snapshots:
                yield snapshot_record(one)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    def restore_snapshot(
        self,
        snapshot_id: str,
        *,
        mode: RestoreModeName = "new_threads",
        durability: DurabilityName = "journaled",
    ) -> tuple[Reference, ...]:
        """Restore every member of a snapshot, or none; return the restored checkpoints.

        They are in the order of the snapshot's members. Safe to be sent again: a retry gets the
        first answer.

        Args:
            snapshot_id: The snapshot.
            mode: "new_threads" makes a new thread of each member; "rollback" rolls each
                member's own thread back to it.
            durability: "journaled", or "certified" to wait for the blob store.

        Raises:
            NotFound: There is no such snapshot, or a thread to roll back was deleted.
        """
        request = shots.restoring(snapshot_id, mode, durability)
        answer = self._calls.restore_snapshot(request)
        restored = tuple(reference_of(one) for one in answer.restored)
        for one in restored:
            self._memory.forget(one.thread_id)
        return restored

    def delete_snapshot(
        self, snapshot_id: str, *, durability: DurabilityName = "journaled"
    ) -> bool:
        """Delete a snapshot and let go of what it captured; return whether there was one.

        Threads restored from it stay.
        """
        answer = self._calls.delete_snapshot(shots.dropping(snapshot_id, durability))
        return answer.deleted


class AsyncSnapshots(AsyncFace):
    """Capturing several threads together, and restoring them."""

    @twin_of(SyncSnapshots.create_snapshot)
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
        request = shots.capturing(
            thread_ids, session_id, hostname, working_directory, metadata, durability
        )
        answer = await self._calls.create_snapshot(request)
        return snapshot_record(answer.snapshot)

    @twin_of(SyncSnapshots.get_snapshot)
    async def get_snapshot(self, snapshot_id: str) -> SnapshotRecord:
        answer = await self._calls.get_snapshot(GetSnapshotRequest(snapshot_id=snapshot_id))
        return snapshot_record(answer.snapshot)

    @twin_of(SyncSnapshots.latest_snapshot)
    async def latest_snapshot(
        self, *, session_id: str = "", hostname: str = "", working_directory: str = ""
    ) -> SnapshotRecord:
        request = GetLatestSnapshotRequest(
            session_id=session_id, hostname=hostname, working_directory=working_directory
        )
        answer = await self._calls.get_latest_snapshot(request)
        return snapshot_record(answer.snapshot)

    @twin_of(SyncSnapshots.list_snapshots)
    async def list_snapshots(
        self, *, session_id: str = "", hostname: str = "", working_directory: str = ""
    ) -> AsyncIterator[SnapshotRecord]:
        request = shots.snapshot_listing(session_id, hostname, working_directory)
        while True:
            page = await self._calls.list_snapshots(request)
            for one in page.snapshots:
                yield snapshot_record(one)
            if not page.next_page_token:
                return
            request.page_token = page.next_page_token

    @twin_of(SyncSnapshots.restore_snapshot)
    async def restore_snapshot(
        self,
        snapshot_id: str,
        *,
        mode: RestoreModeName = "new_threads",
        durability: DurabilityName = "journaled",
    ) -> tuple[Reference, ...]:
        request = shots.restoring(snapshot_id, mode, durability)
        answer = await self._calls.restore_snapshot(request)
        restored = tuple(reference_of(one) for one in answer.restored)
        for one in restored:
            self._memory.forget(one.thread_id)
        return restored

    @twin_of(SyncSnapshots.delete_snapshot)
    async def delete_snapshot(
        self, snapshot_id: str, *, durability: DurabilityName = "journaled"
    ) -> bool:
        answer = await self._calls.delete_snapshot(shots.dropping(snapshot_id, durability))
        return answer.deleted
