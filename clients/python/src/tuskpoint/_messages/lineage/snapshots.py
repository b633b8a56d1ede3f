"""Records and requests of snapshots. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from ...v1 import snapshot_service_pb2 as snapshots
from ..arguments import check_texts, checked_texts
from ..records import DurabilityName, Reference, moment, reference_of
from ..requests import BATCH, choice, durability, metadata_json

RestoreModeName = Literal["new_threads", "rollback"]

_MODES: dict[str, snapshots.RestoreMode] = {
    "new_threads": snapshots.RESTORE_MODE_NEW_THREADS,
    "rollback": snapshots.RESTORE_MODE_ROLLBACK,
}


@dataclass(frozen=True, slots=True)
class SnapshotRecord:
    """Several threads that were captured together.

    Attributes:
        snapshot_id: ID of the snapshot; IDs of later snapshots sort after it.
        session_id: Session of the application; may be empty.
        hostname: Host of the application; may be empty.
        working_directory: Working directory of the application; may be empty.
        metadata: Metadata that was saved with the snapshot.
        members: The captured checkpoints, by thread.
        created: Time of the capture.
    """

    snapshot_id: str
    session_id: str
    hostname: str
    working_directory: str
    metadata: Mapping[str, Any]
    members: tuple[Reference, ...]
    created: datetime


def snapshot_record(message: snapshots.Snapshot) -> SnapshotRecord:
    """Return the record of a snapshot message."""
    return SnapshotRecord(
        snapshot_id=message.snapshot_id,
        session_id=message.session_id,
        hostname=message.hostname,
        working_directory=message.working_directory,
        metadata=json.loads(message.metadata_json or b"{}"),
        members=tuple(reference_of(member) for member in message.members),
        created=moment(message.create_time),
    )


def capturing(
    thread_ids: str | Iterable[str],
    session_id: str,
    hostname: str,
    working_directory: str,
    metadata: Mapping[str, Any] | None,
    safe: DurabilityName,
) -> snapshots.CreateSnapshotRequest:
    """Return the request that captures threads."""
    check_texts(session_id=session_id, hostname=hostname, working_directory=working_directory)
    return snapshots.CreateSnapshotRequest(
        thread_ids=checked_texts("thread_ids", thread_ids),
        session_id=session_id,
        hostname=hostname,
        working_directory=working_directory,
        metadata_json=metadata_json(metadata),
        durability=durability(safe),
    )


def snapshot_listing(
    session_id: str, hostname: str, working_directory: str
) -> snapshots.ListSnapshotsRequest:
    """Return the request of the first page of snapshots."""
    check_texts(session_id=session_id, hostname=hostname, working_directory=working_directory)
    return snapshots.ListSnapshotsRequest(
        session_id=session_id,
        hostname=hostname,
        working_directory=working_directory,
        page_size=BATCH,
    )


def restoring(
    snapshot_id: str, mode: RestoreModeName, safe: DurabilityName, *, skip_deleted: bool
) -> snapshots.RestoreSnapshotRequest:
    """Return the request that restores a snapshot.

    Raises:
        InvalidRequest: The mode is unknown, or the ID cannot be sent.
    """
    check_texts(snapshot_id=snapshot_id)
    return snapshots.RestoreSnapshotRequest(
        snapshot_id=snapshot_id,
        mode=choice("mode", mode, _MODES),
        durability=durability(safe),
        skip_deleted=skip_deleted,
    )


def dropping(snapshot_id: str, safe: DurabilityName) -> snapshots.DeleteSnapshotRequest:
    """Return the request that deletes a snapshot."""
    check_texts(snapshot_id=snapshot_id)
    return snapshots.DeleteSnapshotRequest(snapshot_id=snapshot_id, durability=durability(safe))
