"""Bundles: all that is needed to go on from a checkpoint, as a hand-off stores it.

A bundle is a segment that needs no other and says which checkpoint it hands off. Its numbers
are 0: where in the origin's log something stood means nothing elsewhere. So equal content gives
equal bytes. What is read may come from anybody: its hash proves that it is what was
handed off, not that it makes sense, so all of it is checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter, itemgetter

from ..closures import Closure, ClosureMember
from ..compression import Encoding
from ..errors import Reason, Refusal
from ..limits import LIMITS, MIB
from ..metadata import parse_metadata
from ..model import (
    Channel,
    Checkpoint,
    CheckpointKey,
    DeltaHistory,
    Entry,
    Value,
    Write,
    write_order,
)
from ..state import decode_state
from ..stored_json import malformed
from .delta_base import DeltaChannel, decode_delta_base
from .segment_limits import segment_problem
from .segment_reading import decode_segment, whole_value
from .segments import (
    Segment,
    SegmentCheckpoint,
    SegmentValue,
    SegmentWrite,
    encode_segment,
)

MAX_BUNDLE_BYTES = LIMITS.max_bundle
"""Bound on the values of a bundle, whole."""

MAX_STORED_BYTES = MAX_BUNDLE_BYTES + 64 * MIB
"""Bound on a stored one."""


def check_bytes(key: CheckpointKey, size: int) -> None:
    """Refuse the closure of a checkpoint whose values take more bytes than a bundle holds.

    Raises:
        Refusal: `LIMIT_EXCEEDED`.
    """
    if size > MAX_BUNDLE_BYTES:
        raise Refusal(
            Reason.LIMIT_EXCEEDED,
            what=f"what is needed to go on from {key}: {size} bytes",
            limit="max_bundle_bytes",
            maximum=MAX_BUNDLE_BYTES,
        )


def encode_bundle(closure: Closure) -> bytes:
    """Return the stored bytes of a closure that has all its values.

    Raises:
        Refusal: `LIMIT_EXCEEDED`.
        ValueError: A value is not there.
    """
    members = sorted(closure.members, key=_place)
    found: dict[bytes, Value] = {}
    for member in members:
        found |= member.values()
    # In order, so that equal content gives equal bytes; as they are, so that zstd sees what
    # they have in common.
    values = tuple(
        SegmentValue(digest, value.type, len(value.data), Encoding.PLAIN, value.data)
        for digest, value in sorted(found.items(), key=_digest)
    )
    writes = tuple(_segment_write(member, write) for member in members for write in _sorted(member))
    size = sum(value.size for value in values) + sum(write.size for write in writes)
    check_bytes(closure.key, size)
    segment = Segment(
        thread_id=closure.key.thread_id,
        incarnation=0,
        generation=0,
        first_seq=0,
        last_seq=0,
        checkpoints=tuple(_segment_checkpoint(member) for member in members),
        writes=writes,
        values=values,
        handoff=(closure.key.checkpoint_ns, closure.key.checkpoint_id),
    )
    try:
        return encode_segment(segment)
    except ValueError as error:
        raise Refusal(
            Reason.LIMIT_EXCEEDED,
            what=f"what is needed to go on from {closure.key} ({error})",
            limit="max_bundle_bytes",
            maximum=MAX_BUNDLE_BYTES,
        ) from error


def decode_bundle(data: bytes, name: str) -> Closure:
    """Return the closure in stored bytes.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    segment = decode_segment(data, name)
    if segment.handoff is None:
        raise malformed(name, "it is a segment that hands nothing off")
    if problem := segment_problem(segment):
        raise malformed(name, problem)
    size = sum(one.size for one in segment.values) + sum(one.size for one in segment.writes)
    if size > MAX_BUNDLE_BYTES:
        raise malformed(name, f"its values take {size} bytes")
    values = _whole_values(segment, name)
    writes = _whole_writes(segment, name)
    members = [
        _member(segment, checkpoint, values, writes, name) for checkpoint in segment.checkpoints
    ]
    if writes:
        raise malformed(name, "it has writes of a checkpoint that it lacks")
    key = CheckpointKey(segment.thread_id, *segment.handoff)
    return Closure(key, tuple(sorted(members, key=_place)))


_place = attrgetter("place")
_digest = itemgetter(0)


def _sorted(member: ClosureMember) -> list[Write]:
    return sorted(member.checkpoint.writes, key=write_order)


def _segment_checkpoint(member: ClosureMember) -> SegmentCheckpoint:
    entry = member.checkpoint.entry
    return SegmentCheckpoint(
        *member.place,
        seq=0,
        parent_id=entry.parent_id,
        state=member.stored_state,
        metadata=entry.metadata,
        created_us=entry.created_us,
        label=entry.label,
        summary=entry.summary,
        delta_base=member.delta_base,
        lineage=entry.lineage,
    )


def _segment_write(member: ClosureMember, write: Write) -> SegmentWrite:
    return SegmentWrite(
        *member.place,
        seq=0,
        task_id=write.task_id,
        idx=write.idx,
        task_path=write.task_path,
        channel=write.channel,
        type=write.value.type,
        digest=write.digest,
        size=len(write.value.data),
        encoding=Encoding.PLAIN,
        data=write.value.data,
    )


# --- reading ---------------------------------------------------------------------------


def _whole_values(segment: Segment, name: str) -> dict[bytes, Value]:
    stored = {value.digest: value for value in segment.values}
    return {
        digest: whole_value(
            one, whole_value(stored[one.keyframe], None, name).data if one.keyframe else None, name
        )
        for digest, one in stored.items()
    }


def _whole_writes(segment: Segment, name: str) -> dict[tuple[str, str], list[Write]]:
    found: dict[tuple[str, str], list[Write]] = {}
    for write in segment.writes:
        found.setdefault((write.checkpoint_ns, write.checkpoint_id), []).append(
            Write(
                write.task_id,
                write.task_path,
                write.idx,
                write.channel,
                whole_value(write, None, name),
                write.digest,
            )
        )
    return found


def _member(
    segment: Segment,
    checkpoint: SegmentCheckpoint,
    values: Mapping[bytes, Value],
    writes: dict[tuple[str, str], list[Write]],
    name: str,
) -> ClosureMember:
    place = (checkpoint.checkpoint_ns, checkpoint.checkpoint_id)
    entry = Entry(
        key=CheckpointKey(segment.thread_id, *place),
        parent_id=checkpoint.parent_id,
        incarnation=0,
        seq=0,
        certified=False,
        created_us=checkpoint.created_us,
        metadata=parse_metadata(checkpoint.metadata, "metadata_json").raw,
        label=checkpoint.label,
        summary=checkpoint.summary,
        lineage=checkpoint.lineage,
    )
    state = decode_state(checkpoint.state, values)
    if any(channel.size != _size(channel) for channel in state.channels):
        raise malformed(name, f"checkpoint '{place[1]}' has a channel of another size than it says")
    own = sorted(writes.pop(place, ()), key=write_order)
    histories = tuple(
        _history(channel, values, name)
        for channel in decode_delta_base(checkpoint.delta_base, name)
    )
    return ClosureMember(Checkpoint(entry, state, tuple(own)), histories)


def _size(channel: Channel) -> int:
    return 0 if channel.value is None else len(channel.value.data)


def _history(channel: DeltaChannel, values: Mapping[bytes, Value], name: str) -> DeltaHistory:
    if channel.ancestor_id:
        raise malformed(name, f"channel {channel.name} is rebuilt from an ancestor that it lacks")
    seed = None
    if channel.seed is not None:
        value = values[channel.seed.digest]
        seed = Channel(
            channel.name, channel.seed.version, channel.seed.digest, len(value.data), value
        )
    return DeltaHistory(
        channel.name,
        seed,
        tuple(
            Write(
                write.task_id,
                write.task_path,
                write.idx,
                channel.name,
                values[write.digest],
                write.digest,
            )
            for write in channel.writes
        ),
    )
