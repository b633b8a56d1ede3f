"""Records that the clients return, from contract messages. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

from google.protobuf.timestamp_pb2 import Timestamp

from ..errors import UnreadableValue
from ..v1 import checkpoint_pb2, lease_pb2, value_pb2
from .checkpoints.steps import StepRecord, step_record

DurabilityName = Literal["journaled", "certified"]
SourceName = Literal["any", "blob"]
ViewName = Literal["entry", "full", "json", "step"]
VersionValue = int | float | str | None


@dataclass(frozen=True, slots=True)
class Reference:
    """Identity of a checkpoint.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace inside the thread; empty is the root.
        checkpoint_id: The checkpoint.
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str


@dataclass(frozen=True, slots=True)
class Location:
    """The location of stored bytes, and the hash that they must have.

    Attributes:
        blob_id: The blob; on Walrus, the quilt if `identifier` is set.
        identifier: Name of the patch inside the quilt; empty if the blob is stored alone.
        sha256: SHA-256 of the stored bytes, as lowercase hex.
        size: Number of stored bytes.
    """

    blob_id: str
    identifier: str
    sha256: str
    size: int


@dataclass(frozen=True, slots=True)
class Lineage:
    """The origins of a checkpoint besides its parent; each is "thread:checkpoint" or empty."""

    forked_from: str = ""
    rolled_back_from: str = ""
    adopted_from: str = ""


@dataclass(frozen=True, slots=True)
class Channel:
    """One named slot of an agent's state.

    Attributes:
        type: Name of the encoding of `data`; `None` if the channel has no value.
        data: The encoded value; `None` if the channel has no value.
        version: Version of the content, in the kind of its save: text, integer or float.
        digest: SHA-256 over the type, a zero byte and the data, as lowercase hex; empty if the
            channel has no value.
    """

    type: str | None
    data: bytes | None
    version: VersionValue
    digest: str


@dataclass(frozen=True, slots=True)
class Write:
    """A value that a task wrote after the checkpoint and before the next one.

    Attributes:
        task_id: The task.
        task_path: Position of the task in the graph; may be empty.
        idx: Slot of the write within its task.
        channel: The channel written to.
        type: Name of the encoding of `data`.
        data: The encoded value.
    """

    task_id: str
    task_path: str
    idx: int
    channel: str
    type: str
    data: bytes

    @property
    def value(self) -> Any:
        """The decoded value.

        Raises:
            UnreadableValue: The type is not json, null or bytes. A read with the view "json"
                returns the value as json.
        """
        return decoded_value("channel", self.channel, self.type, self.data)


@dataclass(frozen=True, slots=True)
class CheckpointRecord:
    """A checkpoint.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: The namespace inside the thread; empty is the root.
        checkpoint_id: The checkpoint.
        parent_checkpoint_id: The checkpoint that this checkpoint follows; empty for the first
            checkpoint.
        metadata: Metadata that was saved with the checkpoint.
        summary: One sentence about what happened.
        label: Name of the checkpoint; empty if it has no name.
        lineage: Origins of the checkpoint besides its parent.
        seq: Position of the checkpoint's last change in the thread's sequence.
        durability: Durability of the last change.
        location: Location of the segment with the checkpoint's state; `None` until the segment is
            stored.
        created: Time of the first save.
        channels: The encoded state; empty if the checkpoint was read without state.
        writes: The pending writes, in order; empty if the checkpoint was read without state.
        agent_id: Name of the agent that drives the thread; empty if no agent was named.
        step: What the step that led to the checkpoint did, and what comes next; `None` unless the
            checkpoint was read with the view "step".
    """

    thread_id: str
    checkpoint_ns: str
    checkpoint_id: str
    parent_checkpoint_id: str
    metadata: Mapping[str, Any]
    summary: str
    label: str
    lineage: Lineage
    seq: int
    durability: DurabilityName
    location: Location | None
    created: datetime | None
    channels: Mapping[str, Channel]
    writes: tuple[Write, ...]
    agent_id: str = ""
    step: StepRecord | None = None

    @property
    def state(self) -> dict[str, Any]:
        """The decoded state: one key per channel that has a value.

        Raises:
            UnreadableValue: The type of a channel is not json, null or bytes. `channels` has the
                channel's bytes, and a read with the view "json" returns the value as json.
        """
        return {
            name: decoded_value("channel", name, channel.type, channel.data or b"")
            for name, channel in self.channels.items()
            if channel.type is not None
        }


def decoded_value(what: str, name: str, kind: str, data: bytes) -> Any:
    """Return the value that a type and bytes encode.

    Args:
        what: Kind of thing that has the value, for the error.
        name: Name of the thing, for the error.
        kind: Name of the encoding.
        data: The encoded value.

    Raises:
        UnreadableValue: The type is not json, null or bytes.
    """
    if kind == "json":
        try:
            return json.loads(data)
        except ValueError as error:
            raise UnreadableValue(
                f"{what} '{name}' has the type json but is not JSON: {error}", status="DATA_LOSS"
            ) from error
    if kind == "null":
        return None
    if kind == "bytes":
        return data
    raise UnreadableValue(
        f"{what} '{name}' is of type '{kind}', which only the framework that saved it can read "
        "(LangGraph's types need TuskPointSaver); read it with view='json', or take its bytes",
        status="FAILED_PRECONDITION",
        metadata={what: name, "type": kind},
    )


def version_value(version: value_pb2.Version) -> VersionValue:
    """Return a version in the kind of its save, or `None` if there is no version."""
    kind = version.WhichOneof("kind")
    if kind == "integer":
        return version.integer
    if kind == "number":
        return version.number
    return version.text if kind == "text" else None


def reference_of(ref: checkpoint_pb2.CheckpointRef) -> Reference:
    """Return the record of an identity."""
    return Reference(ref.thread_id, ref.checkpoint_ns, ref.checkpoint_id)


def location_of(location: checkpoint_pb2.BlobLocation) -> Location:
    """Return the record of a blob's location."""
    return Location(
        location.blob_id, location.identifier, location.sha256.hex(), location.size_bytes
    )


def lineage_of(lineage: checkpoint_pb2.Lineage) -> Lineage:
    """Return the record of a lineage."""
    return Lineage(lineage.forked_from, lineage.rolled_back_from, lineage.adopted_from)


def moment(timestamp: Timestamp) -> datetime:
    """Return an aware datetime for a timestamp."""
    return timestamp.ToDatetime(tzinfo=UTC)


def durability_name(durability: checkpoint_pb2.Durability) -> DurabilityName:
    """Return the name of a durability."""
    certified = durability == checkpoint_pb2.DURABILITY_CERTIFIED
    return "certified" if certified else "journaled"


def checkpoint_record(message: checkpoint_pb2.Checkpoint) -> CheckpointRecord:
    """Return the record of a complete checkpoint message, which has all values inline."""
    return CheckpointRecord(
        thread_id=message.ref.thread_id,
        checkpoint_ns=message.ref.checkpoint_ns,
        checkpoint_id=message.ref.checkpoint_id,
        parent_checkpoint_id=message.parent_checkpoint_id,
        metadata=json.loads(message.metadata_json or b"{}"),
        summary=message.summary,
        label=message.label,
        lineage=lineage_of(message.lineage),
        seq=message.seq,
        durability=durability_name(message.durability),
        location=location_of(message.location) if message.HasField("location") else None,
        created=moment(message.create_time) if message.HasField("create_time") else None,
        channels={channel.name: _channel(channel) for channel in message.state.channels},
        writes=tuple(_write(write) for write in message.writes),
        agent_id=message.agent_id,
        step=step_record(message.step) if message.HasField("step") else None,
    )


def _channel(message: value_pb2.Channel) -> Channel:
    has_value = message.WhichOneof("content") == "value"
    return Channel(
        type=message.value.type if has_value else None,
        data=message.value.data if has_value else None,
        version=version_value(message.version),
        digest=message.digest.hex(),
    )


def _write(message: value_pb2.PendingWrite) -> Write:
    return Write(
        task_id=message.task_id,
        task_path=message.task_path,
        idx=message.idx,
        channel=message.channel,
        type=message.value.type,
        data=message.value.data,
    )


@dataclass(frozen=True, slots=True)
class LeaseRecord:
    """The right to change a thread.

    Attributes:
        thread_id: The thread.
        lease_id: ID of the lease; empty in the description of a thread, because only the holder
            knows the ID.
        fence: Number that is greater than the fences of all earlier leases of the thread.
        owner: Name of the driver.
        advisory: Whether changes without the lease are accepted.
        expires: Time at which the lease ends unless it is extended.
        acquired: Time of the acquisition.
        ttl: Time from an extension to the end.
    """

    thread_id: str
    lease_id: str
    fence: int
    owner: str
    advisory: bool
    expires: datetime
    acquired: datetime
    ttl: timedelta

    @property
    def variable(self) -> str:
        """Value of the environment variable `TUSKPOINT_LEASE` for a process that may use it."""
        return f"{self.lease_id}:{self.thread_id}"


def lease_record(message: lease_pb2.Lease) -> LeaseRecord:
    """Return the record of a lease."""
    return LeaseRecord(
        thread_id=message.thread_id,
        lease_id=message.lease_id,
        fence=message.fence,
        owner=message.owner,
        advisory=message.advisory,
        expires=moment(message.expire_time),
        acquired=moment(message.acquire_time),
        ttl=message.ttl.ToTimedelta(),
    )
