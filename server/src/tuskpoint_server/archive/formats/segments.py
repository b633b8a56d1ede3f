"""Segments: pieces of threads' logs, in the form that is stored and hashed.

The stored form is a skippable zstd frame with a `tuskpoint.v1.SegmentHeader`, followed by a zstd
frame with a `tuskpoint.v1.ThreadSegment`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from operator import attrgetter
from typing import Any, NamedTuple

from google.protobuf.message import EncodeError

from tuskpoint.storage.v1 import segment_pb2
from tuskpoint.v1 import checkpoint_pb2

from ...core.limits import LIMITS, MIB
from ...core.model import NO_LINEAGE, BlobLocation, Lineage
from ...core.values import PREFIX_BYTES, Encoding, pack_frame
from .stored_json import FORMAT_VERSION, STORED_NAMES


def mirror(fields: Iterable[str]) -> Callable[[object], Any]:
    """Return a function that reads the given fields of a row from its message, in order."""
    return attrgetter(*[STORED_NAMES.get(name, name) for name in fields])


# most fields of a message that are read, including the fields of nested messages
MAX_FIELDS = 1 << 21

MAX_SEGMENT_BYTES = LIMITS.max_bundle + 64 * MIB
"""Bound on an unpacked segment. Only bundles and large single checkpoints come near it."""

MAX_MEMBERS = 4  # most other segments that a segment may name

SKIPPABLE = struct.Struct("<II")
"""Start of a skippable frame: magic number, and the size of its content."""

SKIPPABLE_MAGIC = 0x184D2A50


class SegmentCheckpoint(NamedTuple):
    """Checkpoint in a segment; segment.proto describes the fields.

    `state` is the output of `encode_state`, `delta_base` of `encode_delta_base`.
    """

    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    parent_id: str
    state: bytes
    metadata: bytes
    created_us: int
    label: str = ""
    summary: str = ""
    delta_base: bytes = b""
    lineage: Lineage = NO_LINEAGE


class SegmentWrite(NamedTuple):
    """Pending write in a segment; segment.proto describes the fields."""

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


class SegmentValue(NamedTuple):
    """Value of a channel in a segment; segment.proto describes the fields."""

    digest: bytes
    type: str
    size: int
    encoding: int
    data: bytes
    keyframe: bytes = b""


class SegmentMember(NamedTuple):
    """Another segment that contains values which a segment needs."""

    location: BlobLocation  # an empty `blob_id` means "this quilt"
    # first `PREFIX_BYTES` of the digests of the needed values, ascending
    prefixes: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Segment:
    """Piece of a thread's log: the rows that changed in a range, and the values they need."""

    thread_id: str
    incarnation: int
    generation: int
    first_seq: int
    last_seq: int
    checkpoints: tuple[SegmentCheckpoint, ...] = ()
    writes: tuple[SegmentWrite, ...] = ()
    values: tuple[SegmentValue, ...] = ()
    # segments with the other values, and with the keyframes of all patches
    members: tuple[SegmentMember, ...] = ()
    handoff: tuple[str, str] | None = None  # for a bundle: namespace and ID of its checkpoint


def member(location: BlobLocation, digests: Iterable[bytes]) -> SegmentMember:
    """Return the reference to another segment that contains the values with the given digests."""
    return SegmentMember(location, tuple(sorted({digest[:PREFIX_BYTES] for digest in digests})))


def encode_segment(segment: Segment) -> bytes:
    """Return the stored bytes of a segment; equal segments give equal bytes.

    Raises `ValueError` if the segment is larger than any reader accepts, names too many other
    segments, or has a text that is not Unicode.
    """
    bases = sum(len(checkpoint.delta_base) for checkpoint in segment.checkpoints)
    rows = 16 * len(segment.checkpoints) + 13 * len(segment.writes) + 7 * len(segment.values)
    # Upper bound of the number of fields, including the fields of nested messages.
    if rows + bases // 2 + 7 * MAX_MEMBERS + 16 > MAX_FIELDS:
        raise ValueError(f"a segment of {segment.thread_id} has too many rows for a reader")
    if len(segment.members) > MAX_MEMBERS:
        raise ValueError(f"a segment of {segment.thread_id} names {len(segment.members)} others")
    if any(write.encoding == Encoding.PATCH for write in segment.writes):
        raise ValueError(f"a segment of {segment.thread_id} has a write that is a patch")
    message = segment_pb2.ThreadSegment(
        thread_id=segment.thread_id,
        incarnation=segment.incarnation,
        generation=segment.generation,
        first_seq=segment.first_seq,
        last_seq=segment.last_seq,
    )
    _add_rows(message, segment)
    for segment_member in segment.members:
        location = segment_member.location
        message_location = checkpoint_pb2.BlobLocation(
            sha256=location.sha256,
            size_bytes=location.size,
            blob_id=location.blob_id,
            identifier=location.identifier,
        )
        message.members.add(
            location=message_location, digests=b"".join(segment_member.prefixes), key=location.key
        )
    if segment.handoff is not None:
        message.handoff.checkpoint_ns, message.handoff.checkpoint_id = segment.handoff
    try:
        plain = message.SerializeToString(deterministic=True)
    except EncodeError as error:
        raise ValueError(f"a segment of {segment.thread_id} cannot be serialized") from error
    if len(plain) > MAX_SEGMENT_BYTES:
        raise ValueError(f"a segment of {segment.thread_id} takes {len(plain)} bytes")
    header = segment_pb2.SegmentHeader(
        format_version=FORMAT_VERSION, sealing=segment_pb2.SEALING_NONE
    ).SerializeToString(deterministic=True)
    return SKIPPABLE.pack(SKIPPABLE_MAGIC, len(header)) + header + pack_frame(plain)


def _add_rows(message: segment_pb2.ThreadSegment, segment: Segment) -> None:
    # Every row of every flush is read here: a dict for each row would need twice the time.
    for checkpoint in segment.checkpoints:
        stored = message.checkpoints.add(
            checkpoint_ns=checkpoint.checkpoint_ns,
            checkpoint_id=checkpoint.checkpoint_id,
            seq=checkpoint.seq,
            parent_checkpoint_id=checkpoint.parent_id,
            state=checkpoint.state,
            metadata_json=checkpoint.metadata,
            create_time_us=checkpoint.created_us,
            label=checkpoint.label,
            summary=checkpoint.summary,
        )
        if checkpoint.delta_base:
            stored.delta_base.MergeFromString(checkpoint.delta_base)
        if checkpoint.lineage != NO_LINEAGE:
            stored.lineage.CopyFrom(checkpoint_pb2.Lineage(**asdict(checkpoint.lineage)))
    for ns, checkpoint_id, seq, task, idx, path, channel, kind, *value in segment.writes:
        digest, size, encoding, data = value
        message.writes.add(
            checkpoint_ns=ns,
            checkpoint_id=checkpoint_id,
            seq=seq,
            task_id=task,
            idx=idx,
            task_path=path,
            channel=channel,
            type=kind,
            digest=digest,
            size_bytes=size,
            encoding=encoding,
            data=data,
        )
    for digest, kind, size, encoding, data, keyframe in segment.values:
        message.values.add(
            digest=digest,
            type=kind,
            size_bytes=size,
            encoding=encoding,
            data=data,
            keyframe=keyframe,
        )
