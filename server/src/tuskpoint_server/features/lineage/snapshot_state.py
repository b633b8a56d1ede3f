"""Snapshots: several threads captured together, each in a thread that users cannot see.

One such thread describes the snapshot, and one for each member has the captured checkpoints. So a
snapshot is stored, certified, renewed and recovered like any thread.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from tuskpoint.v1 import checkpoint_pb2

from ...core.errors import malformed_bytes
from ...core.json_view.views import dump
from ...core.model import CheckpointKey, Value
from ...core.threads import SNAPSHOTS


@dataclass(frozen=True, slots=True)
class SnapshotMember:
    """A captured checkpoint of a root graph, with the agent and the setting of its thread."""

    thread_id: str
    checkpoint_id: str
    agent_id: str
    unsearchable: bool = False

    @property
    def key(self) -> CheckpointKey:
        """The checkpoint."""
        return CheckpointKey(self.thread_id, "", self.checkpoint_id)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Several threads captured together."""

    snapshot_id: str  # a UUIDv6 from the journal
    session_id: str  # ID of the application, or empty
    hostname: str
    working_directory: str
    metadata: bytes  # the exact bytes of a JSON object
    members: tuple[SnapshotMember, ...]  # in the order of the request
    created_us: int


MEMBER_THREADS = SNAPSHOTS + "~"
"""Prefix of the names of members' threads. These names follow the describing threads, because no ID
starts with "~"."""

MEMBERS, METADATA = "members", "metadata"
"""Channels of the describing checkpoint, with values of the type "json"."""

STATE_VERSION = 1


def thread_of(snapshot_id: str) -> str:
    """Return the thread that keeps a snapshot."""
    return SNAPSHOTS + snapshot_id


def member_threads_of(snapshot_id: str) -> str:
    """Return the prefix of the names of a snapshot's members' threads."""
    return f"{MEMBER_THREADS}{snapshot_id}/"


def member_thread_of(snapshot_id: str, member: int) -> str:
    """Return the thread of a captured member of a snapshot."""
    return f"{member_threads_of(snapshot_id)}{member}"


_OF_MEMBER = ("thread_id", "checkpoint_id", "agent_id")
_NAMES = ("session_id", "hostname", "working_directory")


def encode(snapshot: Snapshot) -> tuple[bytes, bytes, dict[str, Value]]:
    """Return metadata, frame and values of a snapshot's describing checkpoint."""
    metadata = dump({name: getattr(snapshot, name) for name in _NAMES})
    frame = checkpoint_pb2.CheckpointState(schema_version=STATE_VERSION).SerializeToString()
    members = dump([asdict(member) for member in snapshot.members])
    contents = {MEMBERS: members, METADATA: snapshot.metadata}
    return metadata, frame, {name: Value("json", data) for name, data in contents.items()}


def decode(
    snapshot_id: str, created_us: int, metadata: bytes, values: dict[str, Value]
) -> Snapshot:
    """Return the snapshot that a checkpoint describes.

    Raises:
        Refusal: `BLOB_MALFORMED` if it describes none, because it comes from a foreign catalog.
    """
    try:
        fields = json.loads(metadata)
        session_id, hostname, folder = (_text(fields, name) for name in _NAMES)
        members = tuple(_member(member) for member in json.loads(values[MEMBERS].data))
        raw = values[METADATA].data
        return Snapshot(snapshot_id, session_id, hostname, folder, raw, members, created_us)
    except (AttributeError, LookupError, TypeError, ValueError, RecursionError) as error:
        problem = f"it describes no snapshot: {type(error).__name__}"
        raise malformed_bytes(f"of snapshot {snapshot_id}", problem) from error


def _member(described: dict[str, object]) -> SnapshotMember:
    thread_id, checkpoint_id, agent_id = (_text(described, name) for name in _OF_MEMBER)
    return SnapshotMember(thread_id, checkpoint_id, agent_id, described.get("unsearchable") is True)


def _text(described: dict[str, object], name: str) -> str:
    text = described[name]
    if not isinstance(text, str):
        raise TypeError(name)
    return text
