"""Conversion between the contract's messages and the core's types.

Requests must have passed `validation`. Saves are converted in the module `saves`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tuskpoint.v1 import (
    checkpoint_pb2,
    checkpoint_service_pb2,
    errors_pb2,
    lease_pb2,
    step_pb2,
    value_pb2,
)

from ...core import model
from ...core.leases import Lease
from ...core.limits import LIMITS
from ...core.state import RawCheckpoint, fill_state, fill_version, parse_object
from .chunks import INLINE_BUDGET, Cutter
from .validation import Watch, limit_exceeded

MessageT = TypeVar("MessageT", bound=Message)

BACKLOG_WARNING = errors_pb2.Warning(
    kind=errors_pb2.WARNING_KIND_BACKLOG,
    message="much is waiting for certification; saves are refused if it grows on",
)


def damaged_warning(damaged: Sequence[str]) -> errors_pb2.Warning:
    """Return the warning of a search that left out damaged results."""
    more = f", and {len(damaged) - 1} more" if len(damaged) > 1 else ""
    text = f"left out of the results: {damaged[0]}{more}"
    return errors_pb2.Warning(kind=errors_pb2.WARNING_KIND_DAMAGED, message=text)


def below_latest(saved: model.SaveOutcome) -> errors_pb2.Warning:
    """Return the warning that a saved checkpoint is not the latest, because its ID sorts below."""
    return errors_pb2.Warning(
        kind=errors_pb2.WARNING_KIND_BELOW_LATEST,
        message=f"checkpoint '{saved.key.checkpoint_id}' of thread '{saved.key.thread_id}' is "
        f"saved and is not the latest, because its ID sorts below '{saved.latest}'; compare the "
        "clocks of the machines that save this thread",
    )


_HISTORY_WRITES = 512
_FRAME_OVERHEAD = 256  # most bytes of the frame around a checkpoint


def key(ref: checkpoint_pb2.CheckpointRef) -> model.CheckpointKey:
    """Return the identity in a reference."""
    return model.CheckpointKey(ref.thread_id, ref.checkpoint_ns, ref.checkpoint_id)


def read_load_request(
    request: checkpoint_service_pb2.GetCheckpointRequest
    | checkpoint_service_pb2.LoadCheckpointRequest,
) -> tuple[model.CheckpointKey, model.View, model.Source, model.HeldDigests]:
    """Return the checkpoint, the view, the source and the held digests of a load request."""
    view, source, held = model.View(request.view), model.Source(request.source), model.NONE_HELD
    if view is model.View.FULL and source is model.Source.ANY and request.held_digests:
        held = frozenset(request.held_digests)
    return key(request.ref), view, source, held


def checkpoint_query(
    request: checkpoint_service_pb2.ListCheckpointsRequest,
) -> model.CheckpointQuery:
    """Return the query of a listing."""
    return model.CheckpointQuery(
        thread_id=request.thread_id if request.HasField("thread_id") else None,
        checkpoint_ns=request.checkpoint_ns if request.HasField("checkpoint_ns") else None,
        checkpoint_id=request.checkpoint_id,
        before=request.before,
        filter=parse_object(request.filter_json, "filter_json"),
        label=request.label,
    )


PROGRESS_SECONDS = 15.0  # longest silence of a watch without an interval of its own


def progress_seconds(request: Watch) -> float:
    """Return the longest silence of a watch, in seconds."""
    if request.HasField("progress_interval"):
        return request.progress_interval.ToNanoseconds() / 1e9
    return PROGRESS_SECONDS


def number(word: IntEnum) -> Any:
    """Return the contract's number of an enum member; the core's enums have the same numbers."""
    return word.value


def timestamp(microseconds: int) -> Timestamp:
    """Return the message for a time in microseconds since the Unix epoch."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def fill_fields(message: MessageT, *sources: object) -> MessageT:
    """Fill the fields of a message from attributes with the same names.

    Times come from microseconds: `create_time` from `created_us`, `expire_time` from `expire_us`.
    """
    for field in message.DESCRIPTOR.fields:
        name, stem = field.name, field.name.removesuffix("_time")
        for source in sources:
            if stem != name:
                time_us = getattr(source, f"{stem}_us", getattr(source, f"{stem}d_us", None))
                if time_us is not None:
                    getattr(message, name).CopyFrom(timestamp(time_us))
            elif field.message_type is None and not field.is_repeated and hasattr(source, name):
                setattr(message, name, getattr(source, name))
    return message


def lease(thread_id: str, held: Lease, *, with_id: bool = True) -> lease_pb2.Lease:
    """Return the message for a lease; only the holder gets the ID."""
    message = fill_fields(lease_pb2.Lease(thread_id=thread_id), held)
    message.expire_time.CopyFrom(timestamp(held.until_us))
    message.acquire_time.CopyFrom(timestamp(held.acquired_us))
    message.ttl.FromMicroseconds(held.ttl_us)
    if not with_id:
        message.ClearField("lease_id")
    return message


def ref(checkpoint_key: model.CheckpointKey) -> checkpoint_pb2.CheckpointRef:
    """Return the message for an identity."""
    return checkpoint_pb2.CheckpointRef(
        thread_id=checkpoint_key.thread_id,
        checkpoint_ns=checkpoint_key.checkpoint_ns,
        checkpoint_id=checkpoint_key.checkpoint_id,
    )


def checkpoint_frames(loaded: model.Checkpoint) -> Iterator[Mapping[str, Message]]:
    """Yield the frames of a checkpoint on a stream: the header, then chunks of large values."""
    cutter = Cutter()
    return cutter.frames(checkpoint=checkpoint_header(loaded, cutter))


def checkpoint_header(loaded: model.Checkpoint, cutter: Cutter) -> checkpoint_pb2.Checkpoint:
    """Return the first message of a checkpoint on a stream."""
    message = checkpoint(loaded, cutter)
    size = message.ByteSize()
    if size > LIMITS.max_message - _FRAME_OVERHEAD:
        subject = f"the checkpoint without its large values: {size} bytes"
        raise limit_exceeded(subject, "max_message_bytes", LIMITS.max_message)
    return message


def checkpoint(loaded: model.Checkpoint, cutter: Cutter) -> checkpoint_pb2.Checkpoint:
    """Return the message for a checkpoint, its values placed by the cutter."""
    message = entry(loaded.entry)
    if loaded.step is not None:
        _fill_step(message.step, loaded.step)
    if loaded.state is not None:
        message.state.MergeFromString(loaded.state.frame)
        message.state.SetInParent()
        for channel in loaded.state.channels:
            _fill_channel(message.state.channels.add(), channel, cutter)
    for write in loaded.writes:
        _fill_write(message.writes.add(), write, cutter)
    return message


def fill_stored(message: checkpoint_pb2.Checkpoint, stored: RawCheckpoint) -> None:
    """Fill the message for a checkpoint, all its values inline."""
    _fill_entry(message, stored.entry)
    fill_state(message.state, stored)
    for write in stored.writes:
        sent = message.writes.add()
        sent.task_id, sent.task_path, sent.idx = write.task_id, write.task_path, write.idx
        sent.channel, sent.digest = write.channel, write.digest
        if isinstance(write.value, model.HeldValue):
            sent.size_bytes = write.value.size
            continue
        content = sent.value
        content.type, content.data = write.value.type, write.value.data


def entry(stored: model.CheckpointEntry) -> checkpoint_pb2.Checkpoint:
    """Return the message for a checkpoint without its state."""
    message = checkpoint_pb2.Checkpoint()
    _fill_entry(message, stored)
    return message


def _fill_entry(message: checkpoint_pb2.Checkpoint, stored: model.CheckpointEntry) -> None:
    """Fill a message field by field, because each load pays for it."""
    identity, key = message.ref, stored.key
    identity.thread_id, identity.checkpoint_ns = key.thread_id, key.checkpoint_ns
    identity.checkpoint_id, message.parent_checkpoint_id = key.checkpoint_id, stored.parent_id
    message.metadata_json, message.seq = stored.metadata, stored.seq
    message.label, message.summary = stored.label, stored.summary
    durability = model.Durability.CERTIFIED if stored.certified else model.Durability.JOURNALED
    message.durability, message.agent_id = number(durability), stored.agent_id
    seconds, rest = divmod(stored.created_us, 1_000_000)
    message.create_time.seconds, message.create_time.nanos = seconds, rest * 1000
    if stored.lineage != model.NO_LINEAGE:
        fill_fields(message.lineage, stored.lineage)
    if stored.segments:
        message.location.CopyFrom(location(stored.segments[0]))


def _fill_step(message: step_pb2.Step, step: model.Step) -> None:
    message.SetInParent()
    message.nodes.extend(step.nodes)
    message.changed_channels.extend(step.changed_channels)
    message.next_nodes.extend(step.next_nodes)
    message.questions.extend(map(question, step.questions))
    message.failures.extend(map(failure, step.failures))
    if step.tokens is not None:
        fill_fields(message.tokens, step.tokens)


def question(asked: model.Question) -> step_pb2.Question:
    """Return the message for a question."""
    return fill_fields(step_pb2.Question(), asked)


def failure(failed: model.Failure) -> step_pb2.Failure:
    """Return the message for a failure."""
    return fill_fields(step_pb2.Failure(), failed)


def _fill_channel(message: value_pb2.Channel, channel: model.Channel, cutter: Cutter) -> None:
    message.name = channel.name
    if channel.version is not None:
        fill_version(message.version, channel.version)
    if channel.digest is not None:
        message.digest = channel.digest
    if channel.value is not None:  # a view without a digest shows a delta channel's history
        cutter.place(message, channel.value)
    elif channel.digest is None:
        message.empty.SetInParent()
    else:
        message.size_bytes = channel.size


def _fill_write(message: value_pb2.PendingWrite, write: model.Write, cutter: Cutter) -> None:
    message.task_id = write.task_id
    message.task_path = write.task_path
    message.idx = write.idx
    message.channel = write.channel
    message.digest = write.digest
    if isinstance(write.value, model.HeldValue):
        message.size_bytes = write.value.size
    else:
        cutter.place(message, write.value)


def location(stored: model.BlobLocation) -> checkpoint_pb2.BlobLocation:
    """Return the message for a location."""
    return checkpoint_pb2.BlobLocation(
        blob_id=stored.blob_id,
        identifier=stored.identifier,
        sha256=stored.sha256,
        size_bytes=stored.size,
    )


def lineage(stored: model.Lineage) -> checkpoint_pb2.Lineage | None:
    """Return the message for a checkpoint's lineage; `None` without an origin."""
    if stored == model.NO_LINEAGE:
        return None
    return fill_fields(checkpoint_pb2.Lineage(), stored)


def history_frames(history: model.DeltaHistory) -> Iterator[Mapping[str, Message]]:
    """Yield the frames of a channel's history, in parts, each with its chunks.

    A part ends at 512 writes or 2 MiB of content; only the first has the seed. A channel
    without history has one empty part.
    """
    cutter, content = Cutter(), 0
    part = checkpoint_service_pb2.DeltaChannelHistory(channel=history.channel)
    if history.seed is not None:
        _fill_channel(part.seed, history.seed, cutter)
    for write in history.writes:
        if len(part.writes) >= _HISTORY_WRITES or content >= INLINE_BUDGET:
            yield from cutter.frames(history=part)
            cutter, content = Cutter(), 0
            part = checkpoint_service_pb2.DeltaChannelHistory(channel=history.channel)
        _fill_write(part.writes.add(), write, cutter)
        content += len(write.value.data)
    yield from cutter.frames(history=part)
