"""Records and request of the comparison of two checkpoints. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from ...v1 import thread_service_pb2 as threads
from ..arguments import check_given_texts, check_texts, invalid_field
from ..requests import ref

ChangeName = Literal["added", "removed", "changed"]
_CHANGES: dict[int, ChangeName] = {
    threads.CHANGE_KIND_ADDED: "added",
    threads.CHANGE_KIND_REMOVED: "removed",
    threads.CHANGE_KIND_CHANGED: "changed",
}


@dataclass(frozen=True, slots=True)
class Change:
    """One difference between two checkpoints.

    Attributes:
        kind: "added" (only the second has it), "removed" (only the first) or "changed".
        channel: The channel.
        path: JSON Pointer (RFC 6901) inside the channel's JSON view; empty is the whole value.
        from_json: JSON view of the first value, cut at 4,096 bytes; `None` if added.
        to_json: JSON view of the second value, cut at 4,096 bytes; `None` if removed.
    """

    kind: ChangeName
    channel: str
    path: str
    from_json: str | None
    to_json: str | None


@dataclass(frozen=True, slots=True)
class Diff:
    """The differences between the states of two checkpoints.

    Attributes:
        changes: The changes, by channel and path.
        truncated: Whether there are more changes.
    """

    changes: tuple[Change, ...]
    truncated: bool


def comparing(
    thread_id: str,
    from_checkpoint_id: str,
    to_checkpoint_id: str | None,
    to_thread_id: str | None,
    checkpoint_ns: str,
    max_changes: int,
) -> threads.DiffCheckpointsRequest:
    """Return the request that compares two checkpoints.

    Raises:
        InvalidRequest: `max_changes` is negative.
    """
    if max_changes < 0:
        raise invalid_field("max_changes", f"it must be 0 or more, not {max_changes}")
    check_texts(from_checkpoint_id=from_checkpoint_id)
    check_given_texts(to_checkpoint_id=to_checkpoint_id, to_thread_id=to_thread_id)
    request = threads.DiffCheckpointsRequest(
        to=ref(to_thread_id or thread_id, checkpoint_ns, to_checkpoint_id), max_changes=max_changes
    )
    getattr(request, "from").CopyFrom(ref(thread_id, checkpoint_ns, from_checkpoint_id))
    return request


def diff_of(message: threads.DiffCheckpointsResponse) -> Diff:
    """Return the record of a comparison."""
    return Diff(tuple(_change(change) for change in message.changes), message.truncated)


def _change(message: threads.Change) -> Change:
    return Change(
        _CHANGES.get(message.kind, "changed"),
        message.channel,
        message.path,
        message.from_json if message.HasField("from_json") else None,
        message.to_json if message.HasField("to_json") else None,
    )
