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
    session_id: str  # session of the application, or empty
    hostname: str  # host that it ran on, or empty
    working_directory: str  # directory that it ran in, or empty
    metadata: bytes  # free metadata: the exact bytes of a JSON object
    members: tuple[CheckpointKey, ...]  # the captured checkpoints, in the order of the request
    created_us: int  # time of the capture


THREADS = "$snapshot/"
"""What the names of these threads begin with; no caller can name one."""

THREADS_END = "$snapshot0"
"""The first name past them: "0" follows "/"."""

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
    """A captured checkpoint of a root graph."""

    key: CheckpointKey  # the checkpoint
    agent_id: str = ""  # agent that drove its thread, or empty
    unsearchable: bool = False  # search did not find its thread


@dataclass(frozen=True, slots=True)
class Record:
    """What the describing checkpoint holds: metadata, frame and values of a state."""

    metadata: bytes
    frame: bytes
    values: tuple[tuple[str, Value], ...]


def encode(snapshot: Snapshot, members: Sequence[Member]) -> Record:
    """Return the content of a snapshot's describing checkpoint.

    Args:
        snapshot: The snapshot.
        members: Its members, in order.
    """
    named = {
        "session_id": snapshot.session_id,
        "hostname": snapshot.hostname,
        "working_directory": snapshot.working_directory,
    }
    return Record(
        metadata=_dump(named),
        frame=checkpoint_pb2.CheckpointState(schema_version=STATE_VERSION).SerializeToString(),
        values=(
            (MEMBERS, Value("json", _dump([_member_json(member) for member in members]))),
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


def _member_json(member: Member) -> dict[str, object]:
    return {
        "thread_id": member.key.thread_id,
        "checkpoint_id": member.key.checkpoint_id,
        "agent_id": member.agent_id,
        "unsearchable": member.unsearchable,
    }


def _dump(content: object) -> bytes:
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode()
