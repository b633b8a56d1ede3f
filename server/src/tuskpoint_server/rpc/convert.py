"""Messages of the contract to the domain's words, and back.

Requests must have passed `validation`. Digests of values are computed here, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tuskpoint.v1 import (
    checkpoint_pb2,
    checkpoint_service_pb2,
    thread_pb2,
    value_pb2,
)

from ..domain.errors import Reason, Refusal
from ..domain.metadata import parse_metadata, parse_object
from ..domain.model import (
    BlobLocation,
    Channel,
    ChannelDraft,
    Checkpoint,
    CheckpointDraft,
    CheckpointKey,
    CheckpointQuery,
    Durability,
    Entry,
    Lineage,
    Reference,
    Source,
    Value,
    View,
    Write,
)
from ..domain.search import pack_vector
from ..domain.state import decode_version, encode_version
from ..domain.threads import Thread, ThreadDetail, ThreadState
from ..domain.values import value_digest
from .chunks import Cutter, Received

SPECIAL_CHANNELS = {
    "__error__": -1,
    "__scheduled__": -2,
    "__interrupt__": -3,
    "__resume__": -4,
}
"""Slots of the writes that the last one wins; see `tuskpoint.v1.PendingWrite.idx`."""

DURABILITIES = {
    Durability.JOURNALED: checkpoint_pb2.DURABILITY_JOURNALED,
    Durability.CERTIFIED: checkpoint_pb2.DURABILITY_CERTIFIED,
}
"""The contract's numbers for what was reached."""

_THREAD_STATES = {
    ThreadState.IDLE: thread_pb2.THREAD_STATE_IDLE,
    ThreadState.INTERRUPTED: thread_pb2.THREAD_STATE_INTERRUPTED,
    ThreadState.FAILED: thread_pb2.THREAD_STATE_FAILED,
}

MAX_HEADS = 1000
"""Most namespace heads in a `Thread` message."""


# --- from the wire -------------------------------------------------------------------------


def key(ref: checkpoint_pb2.CheckpointRef) -> CheckpointKey:
    """Return the identity in a reference."""
    return CheckpointKey(ref.thread_id, ref.checkpoint_ns, ref.checkpoint_id)


def durability(number: int) -> Durability:
    """Return the durability that a request asks for."""
    return Durability(number or Durability.JOURNALED)


def view(number: int) -> View:
    """Return the view that a request asks for."""
    return View(number or View.FULL)


def source(number: int) -> Source:
    """Return the source that a request allows."""
    return Source(number or Source.ANY)


def announced(
    request: checkpoint_service_pb2.SaveCheckpointRequest
    | checkpoint_service_pb2.SaveWritesRequest,
) -> list[value_pb2.LargeValue]:
    """Return the large values that a save announces, in the order of their chunks."""
    found: list[value_pb2.LargeValue] = []
    if isinstance(request, checkpoint_service_pb2.SaveCheckpointRequest):
        found.extend(
            channel.large
            for channel in request.checkpoint.state.channels
            if channel.HasField("large")
        )
    found.extend(write.large for write in request.writes if write.HasField("large"))
    return found


def checkpoint_draft(
    request: checkpoint_service_pb2.SaveCheckpointRequest, received: Sequence[Received] = ()
) -> CheckpointDraft:
    """Return the checkpoint that a save describes. Takes the request apart.

    Args:
        request: The save.
        received: Its large values, in order.

    Raises:
        Refusal: `DIGEST_MISMATCH`, `METADATA_NOT_JSON`.
    """
    checkpoint = request.checkpoint
    metadata = parse_metadata(checkpoint.metadata_json, "checkpoint.metadata_json")
    large = iter(received)
    channels = tuple(_channel_draft(channel, large) for channel in checkpoint.state.channels)
    writes = write_drafts(request.writes, large)
    delta_channels = tuple(checkpoint.state.delta_channels)
    checkpoint.state.ClearField("channels")
    return CheckpointDraft(
        key=key(checkpoint.ref),
        parent_id=checkpoint.parent_checkpoint_id,
        frame=checkpoint.state.SerializeToString(deterministic=True),
        channels=channels,
        delta_channels=delta_channels,
        metadata=metadata,
        label=checkpoint.label,
        summary=checkpoint.summary,
        agent_id=request.agent_id,
        writes=writes,
        expected_head=request.expected_head if request.HasField("expected_head") else None,
        vector=pack_vector(request.vector),
        searchable=request.searchable if request.HasField("searchable") else None,
    )


def write_drafts(
    messages: Iterable[value_pb2.PendingWrite], large: Iterator[Received]
) -> tuple[Write, ...]:
    """Return pending writes with their slots, digests and content."""
    positions: dict[str, int] = {}
    writes = []
    for message in messages:
        position = positions.get(message.task_id, 0)
        positions[message.task_id] = position + 1
        if message.HasField("idx"):
            position = message.idx
        else:
            position = SPECIAL_CHANNELS.get(message.channel, position)
        value, digest = _content(message, large)
        writes.append(
            Write(message.task_id, message.task_path, position, message.channel, value, digest)
        )
    return tuple(writes)


def checkpoint_query(request: checkpoint_service_pb2.ListCheckpointsRequest) -> CheckpointQuery:
    """Return which checkpoints a listing asks for.

    Raises:
        Refusal: `METADATA_NOT_JSON` for the filter.
    """
    return CheckpointQuery(
        thread_id=request.thread_id if request.HasField("thread_id") else None,
        checkpoint_ns=request.checkpoint_ns if request.HasField("checkpoint_ns") else None,
        checkpoint_id=request.checkpoint_id,
        before=request.before,
        filter=parse_object(request.filter_json, "filter_json"),
        label=request.label,
    )


def _channel_draft(message: value_pb2.Channel, large: Iterator[Received]) -> ChannelDraft:
    version = decode_version(message.version) if message.HasField("version") else None
    kind = message.WhichOneof("content")
    if kind is None:
        return ChannelDraft(message.name, version, message.digest)
    if kind == "inherit":
        return ChannelDraft(message.name, version, Reference.INHERIT)
    if kind == "empty":
        return ChannelDraft(message.name, version, Reference.EMPTY)
    value, digest = _content(message, large)
    if message.digest and message.digest != digest:
        raise Refusal(
            Reason.DIGEST_MISMATCH,
            channel=message.name,
            claimed=message.digest.hex(),
            computed=digest.hex(),
        )
    return ChannelDraft(message.name, version, value, digest)


def _content(
    message: value_pb2.Channel | value_pb2.PendingWrite, large: Iterator[Received]
) -> tuple[Value, bytes]:
    if message.HasField("large"):
        received = next(large)
        return received.value, received.digest
    value = Value(message.value.type, message.value.data)
    return value, value_digest(value)


# --- to the wire ---------------------------------------------------------------------------


def ref(checkpoint_key: CheckpointKey) -> checkpoint_pb2.CheckpointRef:
    """Return the message for an identity."""
    return checkpoint_pb2.CheckpointRef(
        thread_id=checkpoint_key.thread_id,
        checkpoint_ns=checkpoint_key.checkpoint_ns,
        checkpoint_id=checkpoint_key.checkpoint_id,
    )


def checkpoint(loaded: Checkpoint, cutter: Cutter) -> checkpoint_pb2.Checkpoint:
    """Return the message for a checkpoint, its values placed by the cutter."""
    message = entry(loaded.entry)
    if loaded.state is not None:
        message.state.MergeFromString(loaded.state.frame)
        message.state.SetInParent()
        for stored in loaded.state.channels:
            fill_channel(message.state.channels.add(), stored, cutter)
    for write in loaded.writes:
        fill_write(message.writes.add(), write, cutter)
    return message


def entry(stored: Entry) -> checkpoint_pb2.Checkpoint:
    """Return the message for a checkpoint without its state."""
    message = checkpoint_pb2.Checkpoint(
        ref=ref(stored.key),
        parent_checkpoint_id=stored.parent_id,
        metadata_json=stored.metadata,
        label=stored.label,
        summary=stored.summary,
        seq=stored.seq,
        durability=DURABILITIES[Durability.CERTIFIED if stored.certified else Durability.JOURNALED],
    )
    message.create_time.CopyFrom(timestamp(stored.created_us))
    if stored.lineage != Lineage():
        message.lineage.CopyFrom(lineage(stored.lineage))
    if stored.segments:
        message.location.CopyFrom(location(stored.segments[0]))
    return message


def fill_channel(message: value_pb2.Channel, stored: Channel, cutter: Cutter) -> None:
    """Write a stored channel into a message."""
    message.name = stored.name
    if stored.version is not None:
        message.version.CopyFrom(encode_version(stored.version))
    if stored.digest is not None:
        message.digest = stored.digest
    if stored.value is not None:  # without a digest it is a view of what is rebuilt from writes
        cutter.place(message, stored.value)
    elif stored.digest is None:
        message.empty.SetInParent()
    else:
        message.size_bytes = stored.size


def fill_write(message: value_pb2.PendingWrite, write: Write, cutter: Cutter) -> None:
    """Write a pending write into a message."""
    message.task_id = write.task_id
    message.task_path = write.task_path
    message.idx = write.idx
    message.channel = write.channel
    message.digest = write.digest
    cutter.place(message, write.value)


def location(stored: BlobLocation) -> checkpoint_pb2.BlobLocation:
    """Return the message for a location."""
    return checkpoint_pb2.BlobLocation(
        blob_id=stored.blob_id,
        identifier=stored.identifier,
        sha256=stored.sha256,
        size_bytes=stored.size,
    )


def lineage(stored: Lineage) -> checkpoint_pb2.Lineage:
    """Return the message for a lineage."""
    return checkpoint_pb2.Lineage(
        forked_from=stored.forked_from,
        rolled_back_from=stored.rolled_back_from,
        adopted_from=stored.adopted_from,
    )


def thread(stored: Thread) -> thread_pb2.Thread:
    """Return the message for a thread."""
    message = thread_pb2.Thread(
        thread_id=stored.thread_id,
        incarnation=stored.incarnation,
        seq=stored.seq,
        agent_id=stored.agent_id,
        state=_THREAD_STATES[stored.state],
        head_checkpoint_id=stored.head_id,
        create_time=timestamp(stored.created_us),
        update_time=timestamp(stored.updated_us),
    )
    if stored.retention_s:
        message.retention.seconds = stored.retention_s
    message.unsearchable = stored.unsearchable
    return message


def thread_detail(detail: ThreadDetail) -> thread_pb2.Thread:
    """Return the message for a thread with its counts and heads."""
    message = thread(detail.thread)
    message.checkpoint_count = detail.checkpoint_count
    message.uncertified_count = detail.uncertified_count
    if detail.expire_us is not None:
        message.expire_time.CopyFrom(timestamp(detail.expire_us))
    for checkpoint_ns, checkpoint_id in sorted(detail.heads.items())[:MAX_HEADS]:
        message.heads.add(checkpoint_ns=checkpoint_ns, checkpoint_id=checkpoint_id)
    return message


def seconds(message: Duration) -> float:
    """Return a duration in seconds."""
    return message.seconds + message.nanos / 1e9


def timestamp(microseconds: int) -> Timestamp:
    """Return the message for a time in microseconds since the Unix epoch."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1000)
