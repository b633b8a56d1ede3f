"""Segments: pieces of threads' logs, as they are stored and hashed.

The stored form is a skippable frame of zstd with a `tuskpoint.v1.SegmentHeader`, and a frame
with a `tuskpoint.v1.ThreadSegment`. The SHA-256 of all these bytes is the segment's name.
`segment_reading` is the way back.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.message import EncodeError

from tuskpoint.v1 import segment_pb2

from ..compression import Encoding
from ..limits import LIMITS, MIB
from ..model import BlobLocation, Lineage
from ..stored_json import FORMAT_VERSION
from .field_count import MAX_FIELDS
from .frames import pack

MAX_SEGMENT_BYTES = LIMITS.max_bundle + 64 * MIB
"""Bound on an unpacked segment. Only bundles and lone large checkpoints come near it."""

MAX_MEMBERS = 4
"""Other segments that a segment may name."""

PREFIX_BYTES = 16
"""Bytes of a digest that say which value comes from which of these."""

NO_LINEAGE = Lineage()

SKIPPABLE = struct.Struct("<II")
"""Begin of a skippable frame: magic number, and the size of what it holds."""

SKIPPABLE_MAGIC = 0x184D2A50


@dataclass(frozen=True, slots=True)
class SegmentCheckpoint:
    """A checkpoint in a segment.

    Attributes:
        checkpoint_ns: The namespace.
        checkpoint_id: The checkpoint.
        seq: The change that made the row as it is.
        parent_id: Its parent, or empty.
        state: The state, exactly as `domain.state.encode_state` made it.
        metadata: The metadata's exact bytes.
        created_us: Time of the first save.
        delta_base: As `encode_delta_base` made it; empty if there is none.
        label: Name, or empty.
        summary: One sentence, or empty.
        lineage: Lineage beyond the parent.
    """

    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    parent_id: str
    state: bytes
    metadata: bytes
    created_us: int
    delta_base: bytes = b""
    label: str = ""
    summary: str = ""
    lineage: Lineage = NO_LINEAGE


@dataclass(frozen=True, slots=True)
class SegmentWrite:
    """A pending write in a segment.

    Attributes:
        checkpoint_ns: Namespace of its checkpoint.
        checkpoint_id: Its checkpoint.
        seq: The change that made the row as it is.
        task_id: The task that wrote.
        idx: Slot of the write within its task.
        task_path: Position of the task in the graph.
        channel: The channel written to.
        type: Type of the value.
        digest: Digest of the value.
        size: Bytes of the value, whole.
        encoding: `PLAIN` or `ZSTD`.
        data: The value, encoded.
    """

    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    task_id: str
    idx: int
    task_path: str
    channel: str
    type: str
    digest: bytes
    size: int
    encoding: int
    data: bytes


@dataclass(frozen=True, slots=True)
class SegmentValue:
    """A value of a channel in a segment.

    Attributes:
        digest: Digest of the value.
        type: Type of the value.
        size: Bytes of the value, whole.
        encoding: An `Encoding`.
        data: The value, encoded.
        keyframe: Of a patch the digest of its keyframe, else empty.
    """

    digest: bytes
    type: str
    size: int
    encoding: int
    data: bytes
    keyframe: bytes = b""


@dataclass(frozen=True, slots=True)
class SegmentMember:
    """Another segment that holds values which a segment needs.

    Attributes:
        location: The other segment; an empty `blob_id` means "this quilt".
        prefixes: First `PREFIX_BYTES` of the digests of these values, ascending.
    """

    location: BlobLocation
    prefixes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a thread's log.

    Attributes:
        thread_id: The thread.
        incarnation: Its incarnation.
        generation: Generation of the log.
        first_seq: First number of the range that it holds.
        last_seq: Last number of the range.
        checkpoints: The checkpoints that changed in the range.
        writes: The pending writes that changed in the range.
        values: Values that these need.
        members: Other segments that hold the rest of the values that these need, with the
            keyframes of all patches.
        handoff: Namespace and ID of the checkpoint that the segment hands off, if it is a
            bundle.
    """

    thread_id: str
    incarnation: int
    generation: int
    first_seq: int
    last_seq: int
    checkpoints: tuple[SegmentCheckpoint, ...] = ()
    writes: tuple[SegmentWrite, ...] = ()
    values: tuple[SegmentValue, ...] = ()
    members: tuple[SegmentMember, ...] = ()
    handoff: tuple[str, str] | None = None

    @property
    def needs_no_other(self) -> bool:
        """Whether everything in it can be read from it alone."""
        return not self.members


def member(location: BlobLocation, digests: Iterable[bytes]) -> SegmentMember:
    """Return the naming of another segment that holds the values with these digests."""
    return SegmentMember(location, tuple(sorted({digest[:PREFIX_BYTES] for digest in digests})))


def holder(segment: Segment, digest: bytes) -> BlobLocation | None:
    """Return where a needed value lies that the segment does not hold; `None`: in itself."""
    prefix = digest[:PREFIX_BYTES]
    for other in segment.members:
        if prefix in other.prefixes and all(value.digest != digest for value in segment.values):
            return other.location
    return None


def encode_segment(segment: Segment) -> bytes:
    """Return the stored bytes; equal segments give equal bytes.

    Raises:
        ValueError: The segment is larger than any reader accepts, names too many others, or
            has a text that is no Unicode.
    """
    if _fields(segment) > MAX_FIELDS:
        raise ValueError(f"a segment of {segment.thread_id} has too many rows for a reader")
    if len(segment.members) > MAX_MEMBERS:
        raise ValueError(f"a segment of {segment.thread_id} names {len(segment.members)} others")
    message = segment_pb2.ThreadSegment(
        thread_id=segment.thread_id,
        incarnation=segment.incarnation,
        generation=segment.generation,
        first_seq=segment.first_seq,
        last_seq=segment.last_seq,
    )
    _add_checkpoints(message, segment.checkpoints)
    _add_writes(message, segment.writes)
    _add_values(message, segment.values)
    for other in segment.members:
        place = other.location
        named = message.members.add(digests=b"".join(other.prefixes))
        named.location.sha256 = place.sha256
        named.location.size_bytes = place.size
        named.location.blob_id = place.blob_id
        named.location.identifier = place.identifier
    if segment.handoff is not None:
        message.handoff.checkpoint_ns, message.handoff.checkpoint_id = segment.handoff
    try:
        plain = message.SerializeToString(deterministic=True)
    except EncodeError as error:
        raise ValueError(f"a segment of {segment.thread_id} cannot be serialized") from error
    if len(plain) > MAX_SEGMENT_BYTES:
        raise ValueError(f"a segment of {segment.thread_id} takes {len(plain)} bytes")
    return _BEGIN + pack(plain)


def _fields(segment: Segment) -> int:
    """Return how many fields the message has at most, those of nested messages included."""
    bases = sum(len(checkpoint.delta_base) for checkpoint in segment.checkpoints)
    rows = 16 * len(segment.checkpoints) + 13 * len(segment.writes) + 7 * len(segment.values)
    return rows + bases // 2 + 7 * MAX_MEMBERS + 16


def _begin() -> bytes:
    header = segment_pb2.SegmentHeader(
        format_version=FORMAT_VERSION, sealing=segment_pb2.SEALING_NONE
    ).SerializeToString(deterministic=True)
    return SKIPPABLE.pack(SKIPPABLE_MAGIC, len(header)) + header


_BEGIN = _begin()


def _add_checkpoints(
    message: segment_pb2.ThreadSegment, checkpoints: Iterable[SegmentCheckpoint]
) -> None:
    add = message.checkpoints.add
    for checkpoint in checkpoints:
        stored = add(
            checkpoint_ns=checkpoint.checkpoint_ns,
            checkpoint_id=checkpoint.checkpoint_id,
            seq=checkpoint.seq,
            parent_checkpoint_id=checkpoint.parent_id,
            state=checkpoint.state,
            metadata_json=checkpoint.metadata,
            label=checkpoint.label,
            summary=checkpoint.summary,
            create_time_us=checkpoint.created_us,
        )
        if checkpoint.delta_base:
            stored.delta_base.MergeFromString(checkpoint.delta_base)
        if checkpoint.lineage != NO_LINEAGE:
            stored.lineage.forked_from = checkpoint.lineage.forked_from
            stored.lineage.rolled_back_from = checkpoint.lineage.rolled_back_from
            stored.lineage.adopted_from = checkpoint.lineage.adopted_from


def _add_writes(message: segment_pb2.ThreadSegment, writes: Iterable[SegmentWrite]) -> None:
    add = message.writes.add
    for write in writes:
        if write.encoding == Encoding.PATCH:
            raise ValueError(f"a write of task {write.task_id} is a patch")
        add(
            checkpoint_ns=write.checkpoint_ns,
            checkpoint_id=write.checkpoint_id,
            seq=write.seq,
            task_id=write.task_id,
            idx=write.idx,
            task_path=write.task_path,
            channel=write.channel,
            type=write.type,
            digest=write.digest,
            size_bytes=write.size,
            encoding=write.encoding,
            data=write.data,
        )


def _add_values(message: segment_pb2.ThreadSegment, values: Iterable[SegmentValue]) -> None:
    add = message.values.add
    for value in values:
        add(
            digest=value.digest,
            type=value.type,
            size_bytes=value.size,
            encoding=value.encoding,
            data=value.data,
            keyframe=value.keyframe,
        )
