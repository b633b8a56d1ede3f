"""Snapshots: several threads captured together, kept in threads of their own, out of users' sight.

The root checkpoint of one describes the snapshot, and another holds what was captured of
each member. So a snapshot is stored, certified, renewed and recovered as every thread is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from tuskpoint.v1 import checkpoint_pb2

from .model import CheckpointKey, Value


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Several threads captured together."""

    snapshot_id: str  # a UUIDv6 made by the journal
    session_id: str  # of the application, or empty
    hostname: str
    working_directory: str
    metadata: bytes  # the exact bytes of a JSON object
    members: tuple[CheckpointKey, ...]  # in the order of the request
    created_us: int


THREADS = "$snapshot/"  # what the names of these threads begin with; no caller can name one
THREADS_END = "$snapshot0"  # the first name past them: "0" follows "/"

MEMBER_THREADS = THREADS + "~"
"""What the names of threads that hold a member begin with: they follow those that describe
a snapshot, since no ID begins with "~"."""

MEMBERS, METADATA = "members", "metadata"
"""Channels of the describing checkpoint; their values have the type "json"."""

STATE_VERSION = 1


def is_reserved(thread_id: str) -> bool:
    """Return whether a thread's name is one that only the server may use."""
    return thread_id.startswith(THREADS)


def thread_of(snapshot_id: str) -> str:
    """Return the thread that keeps a snapshot."""
    return THREADS + snapshot_id


def member_threads_of(snapshot_id: str) -> str:
    """Return what the names of the threads that hold the members of a snapshot begin with."""
    return f"{MEMBER_THREADS}{snapshot_id}/"


def member_thread_of(snapshot_id: str, member: int) -> str:
    """Return the thread that holds a member of a snapshot, as it was captured."""
    return f"{member_threads_of(snapshot_id)}{member}"


@dataclass(frozen=True, slots=True)
class Member:
    """A captured checkpoint of a root graph; agent and setting are of its thread."""

    key: CheckpointKey
    agent_id: str = ""
    unsearchable: bool = False


@dataclass(frozen=True, slots=True)
class Record:
    """What the describing checkpoint holds: metadata, frame and values of a state."""

    metadata: bytes
    frame: bytes
    values: tuple[tuple[str, Value], ...]


_NAMES = ("session_id", "hostname", "working_directory")


def encode(snapshot: Snapshot, members: Sequence[Member]) -> Record:
    """Return the content of a snapshot's describing checkpoint."""
    listed = [
        {
            "thread_id": member.key.thread_id,
            "checkpoint_id": member.key.checkpoint_id,
            "agent_id": member.agent_id,
            "unsearchable": member.unsearchable,
        }
        for member in members
    ]
    return Record(
        metadata=_dump({name: getattr(snapshot, name) for name in _NAMES}),
        frame=checkpoint_pb2.CheckpointState(schema_version=STATE_VERSION).SerializeToString(),
        values=(
            (MEMBERS, Value("json", _dump(listed))),
            (METADATA, Value("json", snapshot.metadata)),
        ),
    )


def decode(
    snapshot_id: str, created_us: int, metadata: bytes, values: dict[str, Value]
) -> tuple[Snapshot, tuple[Member, ...]]:
    """Return the snapshot that a checkpoint describes, and its members."""
    named = json.loads(metadata)
    members = tuple(
        Member(
            CheckpointKey(one["thread_id"], "", one["checkpoint_id"]),
            one["agent_id"],
            one.get("unsearchable", False),
        )
        for one in json.loads(values[MEMBERS].data)
    )
    snapshot = Snapshot(
        snapshot_id=snapshot_id,
        session_id=named["session_id"],
        hostname=named["hostname"],
        working_directory=named["working_directory"],
        metadata=values[METADATA].data,
        members=tuple(member.key for member in members),
        created_us=created_us,
    )
    return snapshot, members


def _dump(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
