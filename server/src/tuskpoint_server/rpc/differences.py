"""Comparisons of checkpoints, as the contract's messages."""

from __future__ import annotations

from tuskpoint.v1 import checkpoint_pb2
from tuskpoint.v1 import thread_service_pb2 as pb

from ..domain.json_diff import Change, ChangeKind, Diff

_KINDS = {
    ChangeKind.ADDED: pb.CHANGE_KIND_ADDED,
    ChangeKind.REMOVED: pb.CHANGE_KIND_REMOVED,
    ChangeKind.CHANGED: pb.CHANGE_KIND_CHANGED,
}


def from_side(request: pb.DiffCheckpointsRequest) -> checkpoint_pb2.CheckpointRef:
    """Return the side of a comparison whose name is a keyword of Python."""
    side: checkpoint_pb2.CheckpointRef = getattr(request, "from")
    return side


def diff_response(found: Diff) -> pb.DiffCheckpointsResponse:
    """Return the answer to a comparison."""
    return pb.DiffCheckpointsResponse(
        changes=[_change(change) for change in found.changes], truncated=found.truncated
    )


def _change(change: Change) -> pb.Change:
    return pb.Change(
        kind=_KINDS[change.kind],
        channel=change.channel,
        path=change.path,
        from_json=change.before,
        to_json=change.after,
    )
