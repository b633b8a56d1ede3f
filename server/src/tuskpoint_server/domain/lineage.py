"""What the rooms hand to one another about where checkpoints come from, and what happened."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from .model import CheckpointKey


class EventKind(IntEnum):
    """What happened on a thread. Numbers are those of the contract."""

    CHECKPOINT_SAVED = 1
    WRITES_SAVED = 2
    LABEL_SET = 3
    CHECKPOINTS_DELETED = 4
    THREAD_DELETED = 5
    RETENTION_SET = 6
    SEARCHABLE_SET = 7
    HANDED_OFF = 8
    RECOVERED = 9
    CERTIFIED = 10
    PROGRESS = 11


class Descent(IntEnum):
    """How one checkpoint came from another. Numbers are those of the contract."""

    FORK = 1
    ADOPTION = 2
    ROLLBACK = 3


@dataclass(frozen=True, slots=True)
class Event:
    """One change of a thread.

    Attributes:
        kind: What happened.
        seq: Position in the thread's sequence.
        incarnation: Incarnation of the thread.
        key: The checkpoint concerned; its ID is empty if none is.
        deleted: How many checkpoints were deleted.
        created_us: Time of the change.
    """

    kind: EventKind
    seq: int
    incarnation: int
    key: CheckpointKey
    deleted: int
    created_us: int


@dataclass(frozen=True, slots=True)
class LineageStep:
    """One checkpoint that came from another."""

    descent: Descent
    origin: CheckpointKey
    key: CheckpointKey
    created_us: int


@dataclass(frozen=True, slots=True)
class LineageTree:
    """Steps that lead to a thread, oldest first, and from it, nearest first."""

    ancestors: tuple[LineageStep, ...]
    descendants: tuple[LineageStep, ...]
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Several threads captured together.

    Attributes:
        snapshot_id: A UUIDv6 made by the journal.
        session_id: Session of the application, or empty.
        hostname: Host that it ran on, or empty.
        working_directory: Directory that it ran in, or empty.
        metadata: Free metadata: the exact bytes of a JSON object.
        members: The captured checkpoints, in the order of the request.
        created_us: Time of the capture.
    """

    snapshot_id: str
    session_id: str
    hostname: str
    working_directory: str
    metadata: bytes
    members: tuple[CheckpointKey, ...]
    created_us: int
