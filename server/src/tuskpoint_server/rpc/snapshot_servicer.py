"""`SnapshotService` on the wire."""

from __future__ import annotations

from tuskpoint.v1 import snapshot_service_pb2 as pb

from ..domain.metadata import parse_object
from ..domain.snapshots import Snapshot
from ..journal.lineage.snapshots import SnapshotDraft, SnapshotQuery
from ..service.snapshots import Snapshots
from . import convert
from .calls import Call


class SnapshotServicer:
    """Captures several threads together."""

    def __init__(self, snapshots: Snapshots) -> None:
        self._snapshots = snapshots

    async def CreateSnapshot(
        self, request: pb.CreateSnapshotRequest, call: Call
    ) -> pb.CreateSnapshotResponse:
        """Capture the heads of threads."""
        parse_object(request.metadata_json, "metadata_json")
        wanted = convert.durability(request.durability)
        draft = SnapshotDraft(
            tuple(request.thread_ids),
            request.session_id,
            request.hostname,
            request.working_directory,
            request.metadata_json or b"{}",
        )
        created = await self._snapshots.create(call.tenant, draft, request.request_id, wanted)
        return pb.CreateSnapshotResponse(
            snapshot=_snapshot(created), durability=convert.DURABILITIES[wanted]
        )

    async def GetSnapshot(
        self, request: pb.GetSnapshotRequest, call: Call
    ) -> pb.GetSnapshotResponse:
        """Return one snapshot."""
        found = await self._snapshots.get(call.tenant, request.snapshot_id)
        return pb.GetSnapshotResponse(snapshot=_snapshot(found))

    async def GetLatestSnapshot(
        self, request: pb.GetLatestSnapshotRequest, call: Call
    ) -> pb.GetLatestSnapshotResponse:
        """Return the newest snapshot that matches."""
        found = await self._snapshots.latest(call.tenant, _query(request))
        return pb.GetLatestSnapshotResponse(snapshot=_snapshot(found))

    async def ListSnapshots(
        self, request: pb.ListSnapshotsRequest, call: Call
    ) -> pb.ListSnapshotsResponse:
        """Return a page of snapshots."""
        page = await self._snapshots.list(
            call.tenant, _query(request), request.page_size, request.page_token
        )
        return pb.ListSnapshotsResponse(
            snapshots=map(_snapshot, page.snapshots), next_page_token=page.next_token
        )

    async def RestoreSnapshot(
        self, request: pb.RestoreSnapshotRequest, call: Call
    ) -> pb.RestoreSnapshotResponse:
        """Restore every member, or none."""
        wanted = convert.durability(request.durability)
        restored = await self._snapshots.restore(
            call.tenant,
            request.snapshot_id,
            rollback=request.mode == pb.RESTORE_MODE_ROLLBACK,
            request_id=request.request_id,
            wanted=wanted,
        )
        return pb.RestoreSnapshotResponse(
            restored=map(convert.ref, restored), durability=convert.DURABILITIES[wanted]
        )

    async def DeleteSnapshot(
        self, request: pb.DeleteSnapshotRequest, call: Call
    ) -> pb.DeleteSnapshotResponse:
        """Delete a snapshot."""
        wanted = convert.durability(request.durability)
        deleted = await self._snapshots.delete(call.tenant, request.snapshot_id, wanted)
        return pb.DeleteSnapshotResponse(deleted=deleted, durability=convert.DURABILITIES[wanted])


def _query(request: pb.GetLatestSnapshotRequest | pb.ListSnapshotsRequest) -> SnapshotQuery:
    return SnapshotQuery(request.session_id, request.hostname, request.working_directory)


def _snapshot(snapshot: Snapshot) -> pb.Snapshot:
    return pb.Snapshot(
        snapshot_id=snapshot.snapshot_id,
        session_id=snapshot.session_id,
        hostname=snapshot.hostname,
        working_directory=snapshot.working_directory,
        metadata_json=snapshot.metadata,
        members=map(convert.ref, snapshot.members),
        create_time=convert.timestamp(snapshot.created_us),
    )
