"""Records and requests of replays and watches. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Literal

from ..v1 import history_service_pb2 as history
from .arguments import check_given_texts, check_texts, invalid_field, wrong_type
from .records import CheckpointRecord, SourceName, ViewName, checkpoint_record, moment
from .requests import choice, source, view

EventName = Literal[
    "checkpoint_saved",
    "writes_saved",
    "label_set",
    "checkpoints_deleted",
    "thread_deleted",
    "retention_set",
    "searchable_set",
    "handed_off",
    "recovered",
    "certified",
    "lease_changed",
]

_KINDS: dict[str, history.EventKind] = {
    "checkpoint_saved": history.EVENT_KIND_CHECKPOINT_SAVED,
    "writes_saved": history.EVENT_KIND_WRITES_SAVED,
    "label_set": history.EVENT_KIND_LABEL_SET,
    "checkpoints_deleted": history.EVENT_KIND_CHECKPOINTS_DELETED,
    "thread_deleted": history.EVENT_KIND_THREAD_DELETED,
    "retention_set": history.EVENT_KIND_RETENTION_SET,
    "searchable_set": history.EVENT_KIND_SEARCHABLE_SET,
    "handed_off": history.EVENT_KIND_HANDED_OFF,
    "recovered": history.EVENT_KIND_RECOVERED,
    "certified": history.EVENT_KIND_CERTIFIED,
    "lease_changed": history.EVENT_KIND_LEASE_CHANGED,
}


@dataclass(frozen=True, slots=True)
class ThreadEvent:
    """One change of a thread.

    Attributes:
        kind: Kind of the change: "checkpoint_saved", "writes_saved", "label_set",
            "checkpoints_deleted", "thread_deleted" (the last of an incarnation),
            "retention_set", "searchable_set", "handed_off", "recovered", "certified" (everything
            up to `seq` is), "lease_changed", or "progress" (nothing happened). A newer
            server may send other kinds.
        cursor: Position after which a watch can start.
        seq: Position in the thread's sequence, which rises by 1 from change to change; "certified"
            and "progress" are not changes.
        incarnation: Incarnation of the thread.
        checkpoint: Checkpoint of the change, with its state at the delivery of the event. A
            checkpoint that no longer exists has only its identity. `None` if the change has no
            checkpoint.
        deleted_checkpoints: Number of checkpoints that a deletion removed.
        time: Time of the change.
    """

    kind: str
    cursor: bytes
    seq: int
    incarnation: int
    checkpoint: CheckpointRecord | None
    deleted_checkpoints: int
    time: datetime

    @property
    def is_progress(self) -> bool:
        """Whether the event is not a change, but reports that all earlier events were delivered."""
        return self.kind == "progress"


def thread_event(message: history.ThreadEvent) -> ThreadEvent:
    """Return the record of a complete event message, which has all values inline."""
    has_checkpoint = message.HasField("checkpoint")
    return ThreadEvent(
        kind=_kind_name(message.kind),
        cursor=message.cursor,
        seq=message.seq,
        incarnation=message.incarnation,
        checkpoint=checkpoint_record(message.checkpoint) if has_checkpoint else None,
        deleted_checkpoints=message.deleted_checkpoints,
        time=moment(message.time),
    )


def _kind_name(kind: int) -> str:
    if kind not in history.EventKind.values():
        return str(kind)
    return history.EventKind.Name(history.EventKind.ValueType(kind))[len("EVENT_KIND_") :].lower()


def replaying(
    thread_id: str,
    checkpoint_ns: str | None,
    from_checkpoint_id: str,
    to_checkpoint_id: str,
    how_much: ViewName,
    taken_from: SourceName,
) -> history.ReplayThreadRequest:
    """Return the request of a replay; see `Client.replay`."""
    check_texts(
        thread_id=thread_id,
        from_checkpoint_id=from_checkpoint_id,
        to_checkpoint_id=to_checkpoint_id,
    )
    check_given_texts(checkpoint_ns=checkpoint_ns)
    return history.ReplayThreadRequest(
        thread_id=thread_id,
        checkpoint_ns=checkpoint_ns,
        from_checkpoint_id=from_checkpoint_id,
        to_checkpoint_id=to_checkpoint_id,
        view=view(how_much),
        source=source(taken_from),
    )


def watching(
    thread_id: str,
    cursor: bytes,
    kinds: Iterable[EventName] | None,
    how_much: ViewName,
    progress_s: float | None,
    *,
    from_now: bool,
) -> history.WatchThreadRequest:
    """Return the request of a watch; see `Client.watch`.

    Raises:
        InvalidRequest: A kind or a view is unknown, or `progress_s` is less than 1.
    """
    check_texts(thread_id=thread_id)
    request = history.WatchThreadRequest(
        thread_id=thread_id, cursor=cursor, view=view(how_much), from_now=from_now
    )
    if isinstance(kinds, str) or not isinstance(kinds, Iterable | None):
        raise wrong_type("kinds", f"it must be names of kinds, not {kinds!r:.80}")
    for kind in kinds or ():
        request.kinds.append(choice("kinds", kind, _KINDS))
    if kinds is not None and not request.kinds:
        raise invalid_field("kinds", "it must name at least one kind, or be None")
    if progress_s is not None:
        if not 1 <= progress_s < timedelta.max.total_seconds():
            raise invalid_field("progress_s", f"it must be at least 1 second, not {progress_s!r}")
        request.progress_interval.FromTimedelta(timedelta(seconds=progress_s))
    return request
