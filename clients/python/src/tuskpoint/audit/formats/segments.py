"""Segments: parts of a thread's log, and the values in them. See docs/storage.md."""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from google.protobuf.message import DecodeError

from ...storage.v1 import segment_pb2
from ...v1 import checkpoint_pb2
from .frames import check_fields, declared_size, unpack
from .records import Place
from .stored import FORMAT_VERSION, MAX_COUNT, Location, MalformedError, is_json_object

MIB = 1 << 20
MAX_SEGMENT = 1088 * MIB
MAX_FIELDS = 1 << 21
MAX_VALUES = 1024 * MIB
"""Bound on the values of a bundle, in total."""

_HEAD = struct.Struct("<II")
_MAGIC = 0x184D2A50
_MAX_HEADER = 64 * 1024
_MAX_STATE = 3 * MIB
_MAX_VALUE = 128 * MIB
_MOST_MEMBERS = 4
_DIGEST, _PREFIX, _KEY_BYTES = 32, 16, 32
_PLAIN, _ZSTD, _PATCH = range(3)

_Value = segment_pb2.SegmentValue | segment_pb2.SegmentWrite


@dataclass(frozen=True, slots=True)
class Segment:
    """A well-formed segment.

    Attributes:
        message: The stored message.
        rows: Checkpoints of the segment.
        writes: Pending writes of the segment, by checkpoint.
        values: Values of the segment by digest, including values of writes.
        needs: Digests of the values that each checkpoint needs.
        members: Locations of other segments with needed values, and the prefixes of the digests of
            these values.
    """

    message: segment_pb2.ThreadSegment
    rows: Mapping[Place, segment_pb2.SegmentCheckpoint]
    writes: Mapping[Place, list[segment_pb2.SegmentWrite]]
    values: Mapping[bytes, _Value]
    needs: Mapping[Place, frozenset[bytes]]
    members: tuple[tuple[Location, frozenset[bytes]], ...]


def content_size(data: bytes) -> int:
    """Return the unpacked size that a stored segment declares.

    Raises:
        MalformedError: The bytes are not a segment.
    """
    return declared_size(_content(data))


def read_segment(
    data: bytes, holder: str, max_bytes: int = MAX_SEGMENT, max_fields: int = MAX_FIELDS
) -> Segment:
    """Return a segment.

    Args:
        data: The stored bytes.
        holder: Blob with the bytes.
        max_bytes: Bound on the unpacked size.
        max_fields: Bound on the fields of the message.

    Raises:
        MalformedError: The bytes are not a well-formed segment.
    """
    plain = unpack(_content(data), max_bytes)
    check_fields(plain, segment_pb2.ThreadSegment.DESCRIPTOR, max_fields)
    try:
        message = segment_pb2.ThreadSegment.FromString(plain)
    except DecodeError:
        raise MalformedError("it is not a ThreadSegment") from None
    rows = {(row.checkpoint_ns, row.checkpoint_id): row for row in message.checkpoints}
    writes: dict[Place, list[segment_pb2.SegmentWrite]] = {}
    for write in message.writes:
        writes.setdefault((write.checkpoint_ns, write.checkpoint_id), []).append(write)
    own = {value.digest: value for value in message.values}
    _refuse(_message_problems(message, len(rows), len(own)))
    needs = {place: frozenset(_needs(row)) for place, row in rows.items()}
    members = tuple(_member(member, holder) for member in message.members)
    elsewhere = frozenset().union(*(prefixes for _, prefixes in members))
    keyframes = {value.keyframe for value in message.values if value.keyframe}
    for digest in keyframes.union(*needs.values()):
        if digest not in own and digest[:_PREFIX] not in elsewhere:
            raise MalformedError(f"it lacks value {digest.hex()}, and names nothing that holds it")
    if any(own[digest].keyframe for digest in keyframes if digest in own):
        raise MalformedError("the keyframe of a value is a patch")
    values: dict[bytes, _Value] = {write.digest: write for write in message.writes}
    return Segment(message, rows, writes, values | own, needs, members)


def _content(data: bytes) -> memoryview:
    """Return the bytes after the header."""
    if len(data) < _HEAD.size:
        raise MalformedError("it is too short for a segment")
    magic, size = _HEAD.unpack_from(data)
    begin = _HEAD.size + size
    if magic != _MAGIC or size > _MAX_HEADER or begin > len(data):
        raise MalformedError("it does not begin with the header of a segment")
    try:
        header = segment_pb2.SegmentHeader.FromString(data[_HEAD.size : begin])
    except DecodeError:
        raise MalformedError("its header is not a SegmentHeader") from None
    if header.format_version != FORMAT_VERSION:
        version = header.format_version
        raise MalformedError(f"format_version is {version} and only {FORMAT_VERSION} is known")
    if header.sealing != segment_pb2.SEALING_NONE:
        raise MalformedError(f"it is sealed, in way {header.sealing}, which is not known")
    return memoryview(data)[begin:]


def _refuse(problems: Iterable[tuple[object, str]]) -> None:
    for is_wrong, problem in problems:
        if is_wrong:
            raise MalformedError(problem)


def _message_problems(
    message: segment_pb2.ThreadSegment, rows: int, values: int
) -> Iterator[tuple[object, str]]:
    """Yield each possible problem of the message, and whether the message has the problem."""
    yield not message.thread_id, "it lacks its thread"
    yield message.first_seq > message.last_seq, "its range ends before it begins"
    counts = [message.incarnation, message.generation, message.last_seq]
    counts += (count for row in message.checkpoints for count in (row.seq, row.create_time_us))
    counts += (write.seq for write in message.writes)
    yield max(counts) > MAX_COUNT, "it has a number above 2^63 - 1"
    yield rows < len(message.checkpoints), "it holds a checkpoint twice"
    yield values < len(message.values), "it holds a value twice"
    yield len(message.members) > _MOST_MEMBERS, f"it names more than {_MOST_MEMBERS} members"
    yield not all(row.checkpoint_id for row in message.checkpoints), "a checkpoint has no ID"
    slots = {
        (write.checkpoint_ns, write.checkpoint_id, write.task_id, write.idx)
        for write in message.writes
    }
    yield len(slots) < len(message.writes), "it holds a write twice"
    for write in message.writes:
        named = write.checkpoint_id and write.task_id and write.channel
        yield not named, "a write lacks its checkpoint, task or channel"
        yield write.encoding not in (_PLAIN, _ZSTD), "a write is a patch, or of unknown encoding"
        yield from _value_problems(write)
    for value in message.values:
        is_patch = value.encoding == _PATCH
        yield value.encoding not in (_PLAIN, _ZSTD, _PATCH), "a value is of unknown encoding"
        fits = len(value.keyframe) == (_DIGEST if is_patch else 0)
        yield not fits, "the encoding and the keyframe of a value contradict each other"
        yield from _value_problems(value)
    if message.HasField("handoff"):
        place = (message.handoff.checkpoint_ns, message.handoff.checkpoint_id)
        places = {(row.checkpoint_ns, row.checkpoint_id) for row in message.checkpoints}
        yield place not in places, "it lacks the checkpoint that it hands off"
        yield message.members, "it hands off a checkpoint and needs other segments"


def _value_problems(value: _Value) -> Iterator[tuple[object, str]]:
    yield len(value.digest) != _DIGEST or not value.type, "a value lacks its digest or type"
    yield value.size_bytes > _MAX_VALUE, f"a value takes {value.size_bytes} bytes"
    size = len(value.data) if value.encoding == _PLAIN else value.size_bytes
    yield size != value.size_bytes, f"a value of {size} bytes says {value.size_bytes}"


def _member(message: segment_pb2.SegmentMember, holder: str) -> tuple[Location, frozenset[bytes]]:
    place, joined = message.location, message.digests
    starts = range(0, len(joined), _PREFIX)
    prefixes = [joined[start : start + _PREFIX] for start in starts]
    if len(place.sha256) != _DIGEST or place.size_bytes > MAX_COUNT:
        raise MalformedError("it names a member without a hash, or with an invalid size")
    if len(message.key) not in (0, _KEY_BYTES):
        raise MalformedError(f"it names a member with a key of {len(message.key)} bytes")
    if not prefixes or len(joined) % _PREFIX or any(a >= b for a, b in pairwise(prefixes)):
        raise MalformedError("the digests of a member are missing, truncated, or do not ascend")
    location = Location(
        place.blob_id or holder,
        place.identifier,
        place.sha256.hex(),
        place.size_bytes,
        message.key,
    )
    return location, frozenset(prefixes)


def _needs(row: segment_pb2.SegmentCheckpoint) -> Iterator[bytes]:
    """Check a checkpoint's state; yield the digests of the values that it needs."""
    if len(row.state) > _MAX_STATE:
        raise MalformedError(f"a state takes {len(row.state)} bytes")
    try:
        state = checkpoint_pb2.CheckpointState.FromString(row.state)
    except DecodeError:
        raise MalformedError("a state is not a CheckpointState") from None
    for channel in state.channels:
        content = channel.WhichOneof("content")
        if channel.HasField("version") and channel.version.WhichOneof("kind") is None:
            raise MalformedError(f"channel '{channel.name}' has a version without a kind")
        if content is None and len(channel.digest) == _DIGEST:
            yield channel.digest
        elif content != "empty" or channel.digest:
            raise MalformedError(f"channel '{channel.name}' is not empty and names no value")
    base = row.delta_base.channels
    for names in ([channel.name for channel in state.channels], [channel.name for channel in base]):
        if len(set(names)) < len(names):
            raise MalformedError(f"checkpoint '{row.checkpoint_id}' has a channel twice")
    for delta in base:
        digests = [write.digest for write in delta.writes]
        if delta.HasField("seed"):
            digests.append(delta.seed.digest)
            seed = delta.seed
            if seed.HasField("version") and seed.version.WhichOneof("kind") is None:
                raise MalformedError(f"channel '{delta.name}' has a version without a kind")
            if delta.ancestor_checkpoint_id:
                raise MalformedError(f"channel '{delta.name}' of a delta_base begins twice")
        if any(len(digest) != _DIGEST for digest in digests):
            raise MalformedError(f"a delta_base names no value for channel '{delta.name}'")
        yield from digests
    if row.metadata_json and not is_json_object(row.metadata_json):
        raise MalformedError("its metadata is not a JSON object")


# --- values ----------------------------------------------------------------------------


@dataclass(slots=True)
class Values:
    """The findings about the values of a segment.

    Attributes:
        problems: Maps each digest to the problem of its value.
        segments_of: Maps each digest to the hashes of the members that have the value, or should
            have it.
    """

    problems: dict[bytes, str] = field(default_factory=dict)
    segments_of: dict[bytes, frozenset[str]] = field(default_factory=dict)


def check_values(segment: Segment, members: Mapping[str, Segment | None]) -> Values:
    """Unpack every value that a segment contains or needs, and compare it with its digest.

    Only one value and its keyframe are in memory at a time.

    Args:
        segment: The segment.
        members: The members that the segment names, by hash; `None` for a member that cannot be
            read.
    """
    values = Values()
    entries: list[tuple[bytes, bytes, _Value]] = []
    for write in segment.message.writes:
        _plain(write, None, values, write.digest)
    own = (value.digest for value in segment.message.values)
    for digest in set(own).union(*segment.needs.values()):
        value = _find(segment, members, digest, values, digest)
        if value is not None:
            entries.append((getattr(value, "keyframe", b""), digest, value))
    entries.sort(key=lambda entry: entry[:2])
    last, keyframe = b"", None
    for based_on, digest, value in entries:
        if based_on and based_on != last:
            last, base = based_on, _find(segment, members, based_on, values, digest)
            keyframe = None if base is None else _plain(base, None, values, based_on)
        if based_on:
            _find(segment, members, based_on, values, digest)
        if based_on and keyframe is None:
            values.problems.setdefault(digest, f"value {digest.hex()} lacks its keyframe")
            continue
        _plain(value, keyframe if based_on else None, values, digest)
    for digest in values.problems.keys() & values.segments_of.keys():
        if any(members.get(sha256) is None for sha256 in values.segments_of[digest]):
            del values.problems[digest]  # the finding about the member has more detail
    return values


def _find(
    segment: Segment,
    members: Mapping[str, Segment | None],
    digest: bytes,
    values: Values,
    dependent: bytes,
) -> _Value | None:
    """Return a value of a segment or of its members; record the members that have it."""
    if (own := segment.values.get(digest)) is not None:
        return own
    for location, prefixes in segment.members:
        if digest[:_PREFIX] not in prefixes:
            continue
        values.segments_of[dependent] = values.segments_of.get(dependent, frozenset()) | {
            location.sha256
        }
        member = members.get(location.sha256)
        value = member.values.get(digest) if member is not None else None
        if member is None or value is not None:
            return value
    values.problems[dependent] = f"value {digest.hex()} is not where it should be"
    return None


def _plain(value: _Value, keyframe: bytes | None, values: Values, digest: bytes) -> bytes | None:
    """Return the bytes of a value, or `None` if the bytes do not match the digest."""
    try:
        data = unpacked(value, keyframe)
    except MalformedError as error:
        values.problems[digest] = f"value {digest.hex()}: {error}"
        return None
    actual = hashlib.sha256(value.type.encode() + b"\0")
    actual.update(data)
    if actual.digest() != digest:
        values.problems[digest] = f"value {digest.hex()} has digest {actual.hexdigest()}"
        return None
    return data


def unpacked(value: _Value, keyframe: bytes | None = None) -> bytes:
    """Return the bytes of a value.

    Raises:
        MalformedError: The bytes contradict the fields of the value.
    """
    if value.encoding == _PLAIN:
        return value.data
    if (value.encoding == _PATCH) != (keyframe is not None):
        raise MalformedError("its keyframe is a patch")
    data = unpack(value.data, value.size_bytes, keyframe)
    if len(data) != value.size_bytes:
        raise MalformedError(f"it has {len(data)} bytes and says {value.size_bytes}")
    return data
