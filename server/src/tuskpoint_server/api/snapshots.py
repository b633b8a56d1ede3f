"""`SnapshotService` on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from tuskpoint.v1 import snapshot_service_pb2 as snap_pb

from ..core.limits import LIMITS
from ..core.state import parse_object
from ..features.lineage.snapshot_rows import SnapshotDraft, SnapshotQuery
from ..features.lineage.snapshot_state import Snapshot
from ..features.lineage.snapshots import Snapshots
from .messages.convert import fill_fields, ref, timestamp
from .messages.validation import Check, Checks, limit_exceeded
from .middleware.pipeline import Call, Fields


def _create_snapshot(checks: Checks, request: snap_pb.CreateSnapshotRequest) -> None:
    if not request.thread_ids:
        checks.fail("thread_ids", "must not be empty")
    if len(set(request.thread_ids)) < len(request.thread_ids):
        checks.fail("thread_ids", "must not name a thread twice")
    size = len(request.metadata_json)
    if size > LIMITS.max_metadata:
        raise limit_exceeded(f"metadata of {size} bytes", "max_metadata_bytes", LIMITS.max_metadata)


@dataclass(frozen=True, slots=True)
class SnapshotServicer:
    """`SnapshotService`: captures several threads together."""

    checks: ClassVar[Mapping[str, Check]] = {"CreateSnapshotRequest": _create_snapshot}
    _snapshots: Snapshots

    async def CreateSnapshot(self, request: snap_pb.CreateSnapshotRequest, call: Call) -> Fields:
        parse_object(request.metadata_json, "metadata_json")
        draft = SnapshotDraft(
            tuple(request.thread_ids),
            request.session_id,
            request.hostname,
            request.working_directory,
            request.metadata_json or b"{}",
        )
        creation = self._snapshots.create(call.tenant, draft, request.request_id, call.wanted)
        return {"snapshot": _snapshot(await creation)}

    async def GetSnapshot(self, request: snap_pb.GetSnapshotRequest, call: Call) -> Fields:
        snapshot = await self._snapshots.get(call.tenant, request.snapshot_id)
        return {"snapshot": _snapshot(snapshot)}

    async def GetLatestSnapshot(
        self, request: snap_pb.GetLatestSnapshotRequest, call: Call
    ) -> Fields:
        query = SnapshotQuery(request.session_id, request.hostname, request.working_directory)
        snapshot = await self._snapshots.latest(call.tenant, query)
        return {"snapshot": _snapshot(snapshot)}

    async def ListSnapshots(self, request: snap_pb.ListSnapshotsRequest, call: Call) -> Fields:
        query = SnapshotQuery(request.session_id, request.hostname, request.working_directory)
        arguments = (query, request.page_size, request.page_token)
        snapshots, token = await self._snapshots.list(call.tenant, *arguments)
        return {"snapshots": map(_snapshot, snapshots), "next_page_token": token}

    async def RestoreSnapshot(self, request: snap_pb.RestoreSnapshotRequest, call: Call) -> Fields:
        restored = await self._snapshots.restore(
            call.tenant,
            request.snapshot_id,
            rollback=request.mode == snap_pb.RESTORE_MODE_ROLLBACK,
            skip_deleted=request.skip_deleted,
            request_id=request.request_id,
            wanted=call.wanted,
        )
        return {"restored": map(ref, restored)}

    async def DeleteSnapshot(self, request: snap_pb.DeleteSnapshotRequest, call: Call) -> Fields:
        name, durability = request.snapshot_id, call.wanted
        return {"deleted": await self._snapshots.delete(call.tenant, name, durability)}


def _snapshot(snapshot: Snapshot) -> snap_pb.Snapshot:
    """Return the message for a snapshot."""
    members = [ref(member.key) for member in snapshot.members]
    create_time = timestamp(snapshot.created_us)
    message = snap_pb.Snapshot(
        metadata_json=snapshot.metadata, members=members, create_time=create_time
    )
    return fill_fields(message, snapshot)
