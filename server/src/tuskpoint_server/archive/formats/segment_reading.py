"""Reads stored segments: from bytes that may come from anybody to a checked `Segment`.

Fields are counted before a message is parsed. An empty message needs two bytes inside another
message, a hundred in memory, and next to nothing when compressed: without a bound, a blob of a
megabyte could use all memory.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

from google.protobuf.message import DecodeError

from tuskpoint.storage.v1 import segment_pb2
from tuskpoint.v1 import checkpoint_pb2

from ...core.delta_bases import decode_delta_base
from ...core.errors import malformed_bytes
from ...core.limits import LIMITS
from ...core.model import NO_LINEAGE, BlobLocation, Lineage, Value
from ...core.values import (
    DIGEST_BYTES,
    PREFIX_BYTES,
    DamagedValueError,
    Encoding,
    content_size,
    split,
    unpack_frame,
    value_digest,
)
from ...core.values import unpack as decompressed
from . import segments
from .sealing import KEY_BYTES
from .segments import (
    MAX_FIELDS,
    MAX_SEGMENT_BYTES,
    SKIPPABLE,
    Segment,
    SegmentCheckpoint,
    SegmentMember,
    SegmentValue,
    SegmentWrite,
    mirror,
)
from .stored_json import FORMAT_VERSION, MAX_NUMBER

_MAX_HEADER = 64 << 10
_COUNTED_ABOVE = 1 << 20  # size of a segment above which its fields are counted before parsing
_OF_WRITES = (Encoding.PLAIN, Encoding.ZSTD)
# the other two fields are messages of their own
_CHECKPOINT = mirror(SegmentCheckpoint._fields[:-2])
_WRITE = mirror(SegmentWrite._fields)
_VALUE = mirror(SegmentValue._fields)
_LOCATION = mirror(field.name for field in fields(BlobLocation) if field.name != "key")
_LINEAGE = mirror(field.name for field in fields(Lineage))


def unpacked_size(data: bytes, name: str) -> int:
    """Return the unpacked size of a stored segment; its rows need as much memory again."""
    return content_size(_content(data, name), name, MAX_SEGMENT_BYTES)


def decode_segment(data: bytes, name: str) -> Segment:
    """Return the segment in stored bytes; the segment's values stay packed."""
    plain = unpack_frame(_content(data, name), name, MAX_SEGMENT_BYTES)
    try:
        if (
            len(plain) > _COUNTED_ABOVE
            and _fields_left(plain, 0, len(plain), _SHAPE, MAX_FIELDS) < 0
        ):
            raise malformed_bytes(name, f"it has more than {MAX_FIELDS} fields")
        message = segment_pb2.ThreadSegment.FromString(plain)
        rows = len(message.checkpoints) + len(message.writes) + len(message.values)
        if rows > MAX_FIELDS // _ROW_FIELDS:
            raise malformed_bytes(name, f"it has more than {MAX_FIELDS // _ROW_FIELDS} rows")
    except (DecodeError, ValueError, IndexError):
        raise malformed_bytes(name, "it is not a ThreadSegment") from None
    del plain  # the parsed message has a copy of the content
    handoff = message.handoff if message.HasField("handoff") else None
    segment = Segment(
        thread_id=message.thread_id,
        incarnation=message.incarnation,
        generation=message.generation,
        first_seq=message.first_seq,
        last_seq=message.last_seq,
        checkpoints=tuple(_checkpoint(checkpoint) for checkpoint in message.checkpoints),
        writes=tuple(_write(write, name) for write in message.writes),
        values=tuple(_value(value, name) for value in message.values),
        members=tuple(_member(member, name) for member in message.members),
        handoff=None if handoff is None else (handoff.checkpoint_ns, handoff.checkpoint_id),
    )
    _check(segment, name)
    return segment


def digests_of(row: SegmentCheckpoint, name: str) -> set[bytes]:
    """Return the digests of a checkpoint's channel values and of its delta base."""
    bases = decode_delta_base(row.delta_base, name) if row.delta_base else ()
    return set(state_digests(row.state, name)).union(*[channel.digests for channel in bases])


def state_digests(state: bytes, name: str) -> list[bytes]:
    """Return the digests of the values that a stored state names, after checking the state."""
    if len(state) > LIMITS.max_state:
        raise malformed_bytes(name, f"a state takes {len(state)} bytes")
    try:
        message = checkpoint_pb2.CheckpointState.FromString(state)
    except DecodeError:
        raise malformed_bytes(name, "a state is not a CheckpointState") from None
    digests = []
    names = set()
    for channel in message.channels:
        names.add(channel.name)
        if channel.HasField("version") and channel.version.WhichOneof("kind") is None:
            raise malformed_bytes(name, f"channel {channel.name} has a version without a kind")
        digest, content = channel.digest, channel.WhichOneof("content")
        if content is None and len(digest) == DIGEST_BYTES:
            digests.append(digest)
        elif content != "empty" or digest:
            raise malformed_bytes(name, f"channel {channel.name} is not empty and names no value")
        if channel.size_bytes > LIMITS.max_value:
            raise malformed_bytes(name, f"channel {channel.name} takes {channel.size_bytes} bytes")
    if len(names) < len(message.channels):
        raise malformed_bytes(name, "a state has a channel twice")
    return digests


def whole_value(stored: SegmentValue | SegmentWrite, keyframe: bytes | None, name: str) -> Value:
    """Return the value in a row; `keyframe` is the whole value that a patch is based on."""
    try:
        data = decompressed(stored.encoding, stored.data, stored.size, keyframe, LIMITS.max_value)
    except DamagedValueError as error:
        raise malformed_bytes(name, f"value {stored.digest.hex()}: {error}") from None
    value = Value(stored.type, data)
    if value_digest(value) != stored.digest:
        raise malformed_bytes(name, f"a value has another digest than {stored.digest.hex()}")
    return value


def _content(data: bytes, name: str) -> memoryview:
    """Return the bytes after the header of a segment, after checking the header."""
    if len(data) < SKIPPABLE.size:
        raise malformed_bytes(name, "it is too short for a segment")
    magic, size = SKIPPABLE.unpack_from(data)
    begin = SKIPPABLE.size + size
    if magic != segments.SKIPPABLE_MAGIC or size > _MAX_HEADER or begin > len(data):
        raise malformed_bytes(name, "it does not begin with the header of a segment")
    try:
        header = segment_pb2.SegmentHeader.FromString(data[SKIPPABLE.size : begin])
    except DecodeError:
        raise malformed_bytes(name, "its header is not a SegmentHeader") from None
    version = header.format_version
    if version != FORMAT_VERSION:
        raise malformed_bytes(
            name, f"format_version is {version} and only {FORMAT_VERSION} is known"
        )
    if header.sealing != segment_pb2.SEALING_NONE:
        raise malformed_bytes(name, f"sealing {header.sealing} is not known")
    return memoryview(data)[begin:]


def _checkpoint(message: segment_pb2.SegmentCheckpoint) -> SegmentCheckpoint:
    delta_base, lineage = b"", NO_LINEAGE
    if message.HasField("delta_base"):
        delta_base = message.delta_base.SerializeToString(deterministic=True)
    if message.HasField("lineage"):
        lineage = Lineage(*_LINEAGE(message.lineage))
    return SegmentCheckpoint(*(*_CHECKPOINT(message), delta_base, lineage))


def _write(message: segment_pb2.SegmentWrite, name: str) -> SegmentWrite:
    write = SegmentWrite._make(_WRITE(message))
    if not write.checkpoint_id or not write.task_id or not write.channel:
        raise malformed_bytes(name, "a write lacks its checkpoint, task or channel")
    if write.encoding not in _OF_WRITES:
        raise malformed_bytes(
            name, f"a write of task {write.task_id} has encoding {write.encoding}"
        )
    _check_value(write, f"a write of task {write.task_id}", name)
    return write


def _value(message: segment_pb2.SegmentValue, name: str) -> SegmentValue:
    value = SegmentValue._make(_VALUE(message))
    is_patch = value.encoding == Encoding.PATCH
    if not is_patch and value.encoding not in _OF_WRITES:
        raise malformed_bytes(name, f"a value has encoding {value.encoding}")
    if len(value.keyframe) != (DIGEST_BYTES if is_patch else 0):
        raise malformed_bytes(
            name, "the encoding and the keyframe of a value contradict each other"
        )
    _check_value(value, "a value", name)
    return value


def _check_value(value: SegmentValue | SegmentWrite, what: str, name: str) -> None:
    if len(value.digest) != DIGEST_BYTES or not value.type:
        raise malformed_bytes(name, f"{what} lacks its digest or type")
    if value.size > LIMITS.max_value:
        raise malformed_bytes(name, f"{what} takes {value.size} bytes")
    if value.encoding == Encoding.PLAIN and len(value.data) != value.size:
        raise malformed_bytes(name, f"{what} has {len(value.data)} bytes and says {value.size}")


def _member(message: segment_pb2.SegmentMember, name: str) -> SegmentMember:
    location = replace(BlobLocation(*_LOCATION(message.location)), key=message.key)
    digests = message.digests
    prefixes = tuple(split(digests, PREFIX_BYTES))
    if len(location.sha256) != DIGEST_BYTES or location.size > MAX_NUMBER:
        raise malformed_bytes(name, "it names a member without a hash, or with an invalid size")
    if len(location.key) not in (0, KEY_BYTES):
        raise malformed_bytes(name, f"the key of a member has {len(location.key)} bytes")
    ascending = all(first < second for first, second in pairwise(prefixes))
    if not prefixes or len(digests) % PREFIX_BYTES or not ascending:
        raise malformed_bytes(
            name, "the digests of a member are missing, truncated, or not ascending"
        )
    return SegmentMember(location, prefixes)


def _check(segment: Segment, name: str) -> None:
    """Check the rules that involve more than one row."""
    if not segment.thread_id or segment.first_seq > segment.last_seq:
        raise malformed_bytes(name, "it lacks its thread, or its range ends before it begins")
    numbers = [segment.incarnation, segment.generation, segment.last_seq]
    numbers += [
        number
        for checkpoint in segment.checkpoints
        for number in (checkpoint.seq, checkpoint.created_us)
    ]
    numbers += [write.seq for write in segment.writes]
    if max(numbers) > MAX_NUMBER:
        raise malformed_bytes(name, f"a number in it is above {MAX_NUMBER}")
    keys = {
        (checkpoint.checkpoint_ns, checkpoint.checkpoint_id) for checkpoint in segment.checkpoints
    }
    slots = {
        (write.checkpoint_ns, write.checkpoint_id, write.task_id, write.idx)
        for write in segment.writes
    }
    if len(keys) < len(segment.checkpoints) or len(slots) < len(segment.writes):
        raise malformed_bytes(name, "it holds a checkpoint or a write twice")
    if any(not checkpoint_id for _, checkpoint_id in keys):
        raise malformed_bytes(name, "a checkpoint has no ID")
    if segment.handoff is not None and (segment.handoff not in keys or segment.members):
        raise malformed_bytes(name, "it lacks the checkpoint that it hands off")
    if len(segment.members) > segments.MAX_MEMBERS:
        raise malformed_bytes(name, f"it names more than {segments.MAX_MEMBERS} members")
    encodings = {value.digest: value.encoding for value in segment.values}
    if len(encodings) < len(segment.values):
        raise malformed_bytes(name, "it holds a value twice")
    member_prefixes = {prefix for member in segment.members for prefix in member.prefixes}
    keyframes = {value.keyframe for value in segment.values if value.keyframe}
    if any(encodings.get(keyframe) == Encoding.PATCH for keyframe in keyframes):
        raise malformed_bytes(name, "the keyframe of a value is a patch")
    for digest in keyframes.union(*[digests_of(row, name) for row in segment.checkpoints]):
        if digest not in encodings and digest[:PREFIX_BYTES] not in member_prefixes:
            raise malformed_bytes(
                name, f"it lacks value {digest.hex()} and names nothing that holds it"
            )


_VARINT, _EIGHT_BYTES, _LENGTH, _FOUR_BYTES = 0, 1, 2, 5
"""Wire types (protobuf.dev/programming-guides/encoding); segment messages have no groups."""

_FIXED = {_EIGHT_BYTES: 8, _FOUR_BYTES: 4}
_Shape = Mapping[int, Any]  # shapes of nested messages, by field number


def _shape_of(descriptor: Any) -> _Shape:
    return {
        field.number: _shape_of(field.message_type)
        for field in descriptor.fields
        if field.message_type is not None
    }


_SHAPE = _shape_of(segment_pb2.ThreadSegment.DESCRIPTOR)


_ROW_FIELDS, _INNER_FIELDS = 7, 4
"""Least number of fields that a row, or a message in it, counts for: empty ones use memory too."""


def _fields_left(
    plain: bytes, offset: int, end: int, shape: _Shape, remaining: int, least: int = _ROW_FIELDS
) -> int:
    """Return how many fields may follow after a message; negative if it has too many fields."""
    while offset < end and remaining >= 0:
        remaining -= 1
        tag, offset = _varint(plain, offset)
        kind = tag & 7
        if kind == _LENGTH:
            size, offset = _varint(plain, offset)
            if offset + size > end:
                raise ValueError("a field is longer than what holds it")
            inner = shape.get(tag >> 3)
            if inner is not None:
                most = remaining + 1 - least
                remaining = min(
                    most,
                    _fields_left(plain, offset, offset + size, inner, remaining, _INNER_FIELDS),
                )
            offset += size
        elif kind == _VARINT:
            _, offset = _varint(plain, offset)
        elif kind in _FIXED:
            offset += _FIXED[kind]
        else:
            raise ValueError("a field has an unknown type")
    return remaining


def _varint(plain: bytes, offset: int) -> tuple[int, int]:
    """Return a number and the offset after it."""
    number = shift = 0
    while True:
        byte = plain[offset]
        number |= (byte & 0x7F) << shift
        offset += 1
        if byte < 0x80:
            return number, offset
        shift += 7
        if shift > 63:
            raise ValueError("a number is too long")
