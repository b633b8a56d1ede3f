"""What the limits of the contract say about a request that concerns snapshots."""

from __future__ import annotations

from tuskpoint.v1 import snapshot_service_pb2 as pb

from ..domain.limits import LIMITS
from .checks import DURABILITIES, Checks, limit_exceeded


def check_create(request: pb.CreateSnapshotRequest) -> None:
    """Check a snapshot to be made; whether its metadata is JSON is asked when it is parsed.

    Raises:
        Refusal: `INVALID_FIELD`, `LIMIT_EXCEEDED`.
    """
    checks = Checks()
    if not request.thread_ids:
        checks.fail("thread_ids", "must not be empty")
    checks.threads("thread_ids", request.thread_ids)
    if len(set(request.thread_ids)) < len(request.thread_ids):
        checks.fail("thread_ids", "must not name a thread twice")
    _application(checks, request)
    checks.text("request_id", request.request_id, LIMITS.max_request_id)
    checks.member("durability", request.durability, DURABILITIES)
    checks.finish()
    if len(request.metadata_json) > LIMITS.max_metadata:
        raise limit_exceeded(
            f"metadata of {len(request.metadata_json)} bytes",
            "max_metadata_bytes",
            LIMITS.max_metadata,
        )


def check_get(request: pb.GetSnapshotRequest) -> None:
    """Check a request for one snapshot.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    _snapshot(checks, request.snapshot_id)
    checks.finish()


def check_get_latest(request: pb.GetLatestSnapshotRequest) -> None:
    """Check a request for the newest snapshot.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    _application(checks, request)
    checks.finish()


def check_list(request: pb.ListSnapshotsRequest) -> None:
    """Check a listing.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    _application(checks, request)
    checks.page_size(request.page_size)
    checks.finish()


def check_restore(request: pb.RestoreSnapshotRequest) -> None:
    """Check a restoration.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    _snapshot(checks, request.snapshot_id)
    if request.mode == pb.RESTORE_MODE_UNSPECIFIED:
        checks.fail("mode", "must be set")
    checks.member("mode", request.mode, pb.RestoreMode.values())
    checks.text("request_id", request.request_id, LIMITS.max_request_id)
    checks.member("durability", request.durability, DURABILITIES)
    checks.finish()


def check_delete(request: pb.DeleteSnapshotRequest) -> None:
    """Check a deletion.

    Raises:
        Refusal: `INVALID_FIELD`.
    """
    checks = Checks()
    _snapshot(checks, request.snapshot_id)
    checks.member("durability", request.durability, DURABILITIES)
    checks.finish()


def _snapshot(checks: Checks, snapshot_id: str) -> None:
    checks.text("snapshot_id", snapshot_id, LIMITS.max_checkpoint_id, required=True)


def _application(
    checks: Checks,
    request: pb.CreateSnapshotRequest | pb.GetLatestSnapshotRequest | pb.ListSnapshotsRequest,
) -> None:
    checks.text("session_id", request.session_id, LIMITS.max_session_id)
    checks.text("hostname", request.hostname, LIMITS.max_hostname)
    checks.text("working_directory", request.working_directory, LIMITS.max_working_directory)
