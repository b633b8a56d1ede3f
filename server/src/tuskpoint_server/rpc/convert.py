"""Messages of the contract to the domain's words, and back, large values cut into chunks.

Requests must have passed `validation`. Digests of values are computed here, once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Any, NamedTuple, TypeVar

from google.protobuf.message import Message
from google.protobuf.timestamp_pb2 import Timestamp

from tuskpoint.v1 import (
    checkpoint_pb2,
    checkpoint_service_pb2,
    history_service_pb2,
    manifest_pb2,
    snapshot_service_pb2,
    thread_pb2,
    thread_service_pb2,
    value_pb2,
)

from ..domain import model
from ..domain.errors import Reason, Refusal
from ..domain.formats.manifests import Manifest, ManifestEntry
from ..domain.limits import KIB, LIMITS, MIB
from ..domain.lineage import LineageStep
from ..domain.search import pack_vector
from ..domain.snapshots import Snapshot
from ..domain.state import decode_version, encode_version, parse_metadata, parse_object
from ..domain.threads import Thread, ThreadDetail, Verdict, VerdictKind, VerificationTotal
from ..domain.values import value_digest
from ..service.checkpoints import Delivery
from ..service.threads import ManifestPage
from .validation import limit_exceeded

MessageT = TypeVar("MessageT", bound=Message)

SPECIAL_CHANNELS = {
    "__error__": -1,
    "__scheduled__": -2,
    "__interrupt__": -3,
    "__resume__": -4,
}
"""Slots of the writes that the last one wins; see `tuskpoint.v1.PendingWrite.idx`."""

MAX_HEADS = 1000  # most namespace heads in a `Thread` message

INLINE_VALUE = 256 * KIB  # largest value, in bytes, that a stream's message carries itself

INLINE_BUDGET = 2 * MIB
"""Bytes of values that a stream's message carries itself; the rest follows in chunks."""

_HISTORY_WRITES = 512
_FRAME_OVERHEAD = 256  # bytes that the frame around a checkpoint takes, at most


def key(ref: checkpoint_pb2.CheckpointRef) -> model.CheckpointKey:
    """Return the identity in a reference."""
    return model.CheckpointKey(ref.thread_id, ref.checkpoint_ns, ref.checkpoint_id)


class Received(NamedTuple):
    """A value that came in chunks, and its digest (`domain.values.value_digest`)."""

    value: model.Value
    digest: bytes


def announced(
    request: checkpoint_service_pb2.SaveCheckpointRequest
    | checkpoint_service_pb2.SaveWritesRequest,
) -> list[value_pb2.LargeValue]:
    """Return the large values that a save announces, in the order of their chunks."""
    holders: list[value_pb2.Channel | value_pb2.PendingWrite] = [*request.writes]
    if isinstance(request, checkpoint_service_pb2.SaveCheckpointRequest):
        holders[:0] = request.checkpoint.state.channels
    return [holder.large for holder in holders if holder.HasField("large")]


def checkpoint_draft(
    request: checkpoint_service_pb2.SaveCheckpointRequest, received: Sequence[Received] = ()
) -> model.CheckpointDraft:
    """Return the checkpoint that a save describes. Takes the request apart."""
    checkpoint = request.checkpoint
    metadata = parse_metadata(checkpoint.metadata_json, "checkpoint.metadata_json")
    large = iter(received)
    channels = tuple(_channel_draft(channel, large) for channel in checkpoint.state.channels)
    writes = write_drafts(request.writes, large)
    delta_channels = tuple(checkpoint.state.delta_channels)
    checkpoint.state.ClearField("channels")
    return model.CheckpointDraft(
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
) -> tuple[model.Write, ...]:
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
            model.Write(
                message.task_id, message.task_path, position, message.channel, value, digest
            )
        )
    return tuple(writes)


def checkpoint_query(
    request: checkpoint_service_pb2.ListCheckpointsRequest,
) -> model.CheckpointQuery:
    """Return which checkpoints a listing asks for."""
    return model.CheckpointQuery(
        thread_id=request.thread_id if request.HasField("thread_id") else None,
        checkpoint_ns=request.checkpoint_ns if request.HasField("checkpoint_ns") else None,
        checkpoint_id=request.checkpoint_id,
        before=request.before,
        filter=parse_object(request.filter_json, "filter_json"),
        label=request.label,
    )


def _channel_draft(message: value_pb2.Channel, large: Iterator[Received]) -> model.ChannelDraft:
    version = decode_version(message.version) if message.HasField("version") else None
    kind = message.WhichOneof("content")
    if kind is None:
        return model.ChannelDraft(message.name, version, message.digest)
    if kind == "inherit":
        return model.ChannelDraft(message.name, version, model.Reference.INHERIT)
    if kind == "empty":
        return model.ChannelDraft(message.name, version, model.Reference.EMPTY)
    value, digest = _content(message, large)
    if message.digest and message.digest != digest:
        raise Refusal(
            Reason.DIGEST_MISMATCH,
            channel=message.name,
            claimed=message.digest.hex(),
            computed=digest.hex(),
        )
    return model.ChannelDraft(message.name, version, value, digest)


def _content(
    message: value_pb2.Channel | value_pb2.PendingWrite, large: Iterator[Received]
) -> tuple[model.Value, bytes]:
    if message.HasField("large"):
        return next(large)
    value = model.Value(message.value.type, message.value.data)
    return value, value_digest(value)


def number(word: IntEnum) -> Any:
    """Return the contract's number of a word; the domain's enums have the same."""
    return word.value


def timestamp(microseconds: int) -> Timestamp:
    """Return the message for a time in microseconds since the Unix epoch."""
    seconds, rest = divmod(microseconds, 1_000_000)
    return Timestamp(seconds=seconds, nanos=rest * 1000)


def filled(message: MessageT, *sources: object) -> MessageT:
    """Fill the fields of a message that sources have under the same name.

    The source of a time has microseconds: `create_time` is `created_us`, `expire_time` `expire_us`.
    """
    for field in message.DESCRIPTOR.fields:
        name, stem = field.name, field.name.removesuffix("_time")
        for source in sources:
            if stem != name:
                found = getattr(source, f"{stem}_us", getattr(source, f"{stem}d_us", None))
                if found is not None:
                    getattr(message, name).CopyFrom(timestamp(found))
            elif field.message_type is None and not field.is_repeated and hasattr(source, name):
                setattr(message, name, getattr(source, name))
    return message


class Cutter:
    """Places the values of one outgoing message: inline, or announced and cut."""

    def __init__(
        self, inline_value: int = INLINE_VALUE, inline_budget: int = INLINE_BUDGET
    ) -> None:
        self._inline_value = inline_value
        self._left = inline_budget
        self._large: list[bytes] = []

    def place(self, target: value_pb2.Channel | value_pb2.PendingWrite, value: model.Value) -> None:
        """Put a value into a message, or announce it there."""
        size = len(value.data)
        if size > self._inline_value or size > self._left:
            target.large.type = value.type
            target.large.size_bytes = size
            self._large.append(value.data)
        else:
            target.value.type = value.type
            target.value.data = value.data
            self._left -= size

    def frames(self, **first: Message) -> Iterator[dict[str, Message]]:
        """Yield the frame of a message that is placed, and one for each chunk, in order."""
        yield first
        for index, data in enumerate(self._large):
            view = memoryview(data)
            for offset in range(0, len(data), LIMITS.max_chunk):
                piece = bytes(view[offset : offset + LIMITS.max_chunk])
                chunk = value_pb2.ValueChunk(value_index=index, offset=offset, data=piece)
                yield {"chunk": chunk}


def whole() -> Cutter:
    """Return a cutter that leaves every value inline, for unary answers."""
    return Cutter(LIMITS.max_value, LIMITS.max_checkpoint)


def ref(checkpoint_key: model.CheckpointKey) -> checkpoint_pb2.CheckpointRef:
    """Return the message for an identity."""
    return checkpoint_pb2.CheckpointRef(
        thread_id=checkpoint_key.thread_id,
        checkpoint_ns=checkpoint_key.checkpoint_ns,
        checkpoint_id=checkpoint_key.checkpoint_id,
    )


def checkpoint_header(loaded: model.Checkpoint, cutter: Cutter) -> checkpoint_pb2.Checkpoint:
    """Return the message that begins a checkpoint on a stream."""
    message = checkpoint(loaded, cutter)
    size = message.ByteSize()
    if size > LIMITS.max_message - _FRAME_OVERHEAD:
        what = f"the checkpoint without its large values: {size} bytes"
        raise limit_exceeded(what, "max_message_bytes", LIMITS.max_message)
    return message


def checkpoint(loaded: model.Checkpoint, cutter: Cutter) -> checkpoint_pb2.Checkpoint:
    """Return the message for a checkpoint, its values placed by the cutter."""
    message = entry(loaded.entry)
    if loaded.state is not None:
        message.state.MergeFromString(loaded.state.frame)
        message.state.SetInParent()
        for stored in loaded.state.channels:
            _fill_channel(message.state.channels.add(), stored, cutter)
    for write in loaded.writes:
        _fill_write(message.writes.add(), write, cutter)
    return message


def entry(stored: model.Entry) -> checkpoint_pb2.Checkpoint:
    """Return the message for a checkpoint without its state."""
    reached = model.Durability.CERTIFIED if stored.certified else model.Durability.JOURNALED
    return checkpoint_pb2.Checkpoint(
        ref=ref(stored.key),
        parent_checkpoint_id=stored.parent_id,
        metadata_json=stored.metadata,
        label=stored.label,
        summary=stored.summary,
        seq=stored.seq,
        durability=number(reached),
        create_time=timestamp(stored.created_us),
        lineage=_lineage(stored.lineage),
        location=location(stored.segments[0]) if stored.segments else None,
    )


def _fill_channel(message: value_pb2.Channel, stored: model.Channel, cutter: Cutter) -> None:
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


def _fill_write(message: value_pb2.PendingWrite, write: model.Write, cutter: Cutter) -> None:
    message.task_id = write.task_id
    message.task_path = write.task_path
    message.idx = write.idx
    message.channel = write.channel
    message.digest = write.digest
    cutter.place(message, write.value)


def location(stored: model.BlobLocation) -> checkpoint_pb2.BlobLocation:
    """Return the message for a location."""
    return checkpoint_pb2.BlobLocation(
        blob_id=stored.blob_id,
        identifier=stored.identifier,
        sha256=stored.sha256,
        size_bytes=stored.size,
    )


def _lineage(stored: model.Lineage) -> checkpoint_pb2.Lineage | None:
    if stored == model.NO_LINEAGE:
        return None
    return filled(checkpoint_pb2.Lineage(), stored)


def history_frames(history: model.DeltaHistory) -> Iterator[Mapping[str, Message]]:
    """Yield the frames of one channel: its history in parts, each with its chunks.

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


def thread(stored: Thread, *more: object) -> thread_pb2.Thread:
    """Return the message for a thread."""
    message = thread_pb2.Thread(head_checkpoint_id=stored.head_id)
    if stored.retention_s:
        message.retention.seconds = stored.retention_s
    return filled(message, stored, *more)


def thread_detail(detail: ThreadDetail) -> thread_pb2.Thread:
    """Return the message for a thread with its counts and heads."""
    message = thread(detail.thread, detail)
    for checkpoint_ns, checkpoint_id in sorted(detail.heads.items())[:MAX_HEADS]:
        message.heads.add(checkpoint_ns=checkpoint_ns, checkpoint_id=checkpoint_id)
    return message


def lineage_step(step: LineageStep) -> thread_service_pb2.LineageStep:
    """Return the message for a step of a lineage."""
    return thread_service_pb2.LineageStep(
        kind=number(step.descent),
        to=ref(step.key),
        create_time=timestamp(step.created_us),
        **{"from": ref(step.origin)},  # a keyword of Python
    )


def snapshot(stored: Snapshot) -> snapshot_service_pb2.Snapshot:
    """Return the message for a snapshot."""
    members = [ref(member.key) for member in stored.members]
    created = timestamp(stored.created_us)
    named = snapshot_service_pb2.Snapshot(
        metadata_json=stored.metadata, members=members, create_time=created
    )
    return filled(named, stored)


def event(delivery: Delivery, cutter: Cutter) -> history_service_pb2.ThreadEvent:
    """Return the message for an event on its way to a watcher."""
    told = delivery.event
    message = history_service_pb2.ThreadEvent(
        cursor=delivery.cursor,
        deleted_checkpoints=told.deleted,
        time=timestamp(told.created_us),
    )
    filled(message, told)
    if delivery.checkpoint is not None:
        message.checkpoint.CopyFrom(checkpoint_header(delivery.checkpoint, cutter))
    elif told.key.checkpoint_id:
        message.checkpoint.ref.CopyFrom(ref(told.key))
    return message


def manifest_response(page: ManifestPage) -> thread_service_pb2.GetManifestResponse:
    """Return the answer with a page of a manifest."""
    manifest, catalog = page.manifest, page.catalog
    if manifest is None or catalog is None:
        return thread_service_pb2.GetManifestResponse(incarnation=page.incarnation)
    message = thread_service_pb2.GetManifestResponse(
        next_page_token=page.next_token,
        catalog=location(catalog.location),
        certify_time=timestamp(catalog.certified_us),
        manifest=location(page.stored) if page.stored is not None else None,
        entries=[_manifest_entry(manifest, entry) for _, entry in page.entries],
    )
    return filled(message, manifest)


def _manifest_entry(manifest: Manifest, entry: ManifestEntry) -> manifest_pb2.ManifestEntry:
    def segment(sha256: bytes) -> checkpoint_pb2.BlobLocation:
        """Return where a segment lies, or only its hash if no record says so."""
        return location(manifest.location(sha256) or model.BlobLocation(sha256, 0))

    record = entry.record
    message = manifest_pb2.ManifestEntry(
        parent_checkpoint_id=record.parent_id,
        segment=segment(record.segment),
        writes=[segment(writes.segment) for writes in entry.writes],
        lineage=_lineage(record.lineage),
    )
    filled(message, record)
    message.seq = max(record.seq, *(writes.seq for writes in entry.writes), 0)
    return message


def verification_frame(
    found: Verdict | VerificationTotal,
) -> thread_service_pb2.VerifyThreadResponse:
    """Return the frame of a verdict, or of the total."""
    if isinstance(found, Verdict):
        verdict = thread_service_pb2.CheckpointVerdict(
            ref=ref(found.key),
            verdict=number(found.kind),
            location=location(found.location) if found.location is not None else None,
        )
        return thread_service_pb2.VerifyThreadResponse(verdict=filled(verdict, found))
    total = thread_service_pb2.VerificationTotal(
        ok=found.ok,
        passed=found.counts[VerdictKind.PASS],
        failed=found.counts[VerdictKind.FAIL],
        unverified=found.counts[VerdictKind.UNVERIFIED],
        retracted=found.counts[VerdictKind.RETRACTED],
        chain_detail=found.chain_problem,
    )
    return thread_service_pb2.VerifyThreadResponse(total=total)
