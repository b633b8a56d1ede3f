"""Segments: pieces of threads' logs, in the form that is stored and hashed.

The stored form is a skippable frame of zstd with a `tuskpoint.v1.SegmentHeader`, and a frame
with a `tuskpoint.v1.ThreadSegment`.
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
    """Return a function that reads these fields of a row from its message, in this order."""
    return attrgetter(*[STORED_NAMES.get(name, name) for name in fields])


MAX_FIELDS = 1 << 21  # fields of a message that are read at most, those of nested messages included

MAX_SEGMENT_BYTES = LIMITS.max_bundle + 64 * MIB
"""Bound on an unpacked segment. Only bundles and lone large checkpoints come near it."""

MAX_MEMBERS = 4  # other segments that a segment may name

SKIPPABLE = struct.Struct("<II")
"""Start of a skippable frame: magic number, and the size of its content."""

SKIPPABLE_MAGIC = 0x184D2A50


class SegmentCheckpoint(NamedTuple):
    """A checkpoint in a segment; segment.proto describes the fields.

    `state` is as `encode_state` made it, `delta_base` as `encode_delta_base` did.
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
    """A pending write in a segment; segment.proto describes the fields."""

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
    """A value of a channel in a segment; segment.proto describes the fields."""

    digest: bytes
    type: str
    size: int
    encoding: int
    data: bytes
    keyframe: bytes = b""


class SegmentMember(NamedTuple):
    """Another segment that holds values which a segment needs."""

    location: BlobLocation  # an empty `blob_id` means "this quilt"
    prefixes: tuple[bytes, ...]  # first `PREFIX_BYTES` of the digests of these values, ascending


@dataclass(frozen=True, slots=True)
class Segment:
    """A piece of a thread's log: the rows that changed in a range, and the values they need."""

    thread_id: str
    incarnation: int
    generation: int
    first_seq: int
    last_seq: int
    checkpoints: tuple[SegmentCheckpoint, ...] = ()
    writes: tuple[SegmentWrite, ...] = ()
    values: tuple[SegmentValue, ...] = ()
    members: tuple[SegmentMember, ...] = ()  # hold the other values, and keyframes of all patches
    handoff: tuple[str, str] | None = None  # of a bundle: namespace and ID of its checkpoint


def member(location: BlobLocation, digests: Iterable[bytes]) -> SegmentMember:
    """Return the naming of another segment that holds the values with these digests."""
    return SegmentMember(location, tuple(sorted({digest[:PREFIX_BYTES] for digest in digests})))


def encode_segment(segment: Segment) -> bytes:
    """Return the stored bytes; equal segments give equal bytes.

    It raises `ValueError` if the segment is larger than any reader accepts, names too many
    others, or has a text that is no Unicode.
    """
    bases = sum(len(checkpoint.delta_base) for checkpoint in segment.checkpoints)
    rows = 16 * len(segment.checkpoints) + 13 * len(segment.writes) + 7 * len(segment.values)
    # At most so many fields, those of nested messages included.
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
    # Every row of every flush goes this way: a dict for each takes twice the time.
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
