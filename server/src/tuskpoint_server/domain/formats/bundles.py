"""Bundles: all that is needed to go on from a checkpoint, as a hand-off stores it.

A bundle is a segment that needs no other and says which checkpoint it hands off. Its numbers
are 0: where in the origin's log something stood means nothing elsewhere. So equal content gives
equal bytes. What is read may come from anybody: its hash proves that it is what was
handed off, not that it makes sense, so all of it is checked against the limits of the contract.
What passes can be stored and loaded like anything that was saved.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from operator import attrgetter, itemgetter

from ..errors import Reason, Refusal, malformed
from ..limits import LIMITS, MIB, text_problem
from ..lineage import Closure, ClosureMember
from ..metadata import parse_metadata
from ..model import (
    Channel,
    Checkpoint,
    CheckpointKey,
    DeltaHistory,
    Entry,
    Value,
    Version,
    Write,
    write_order,
)
from ..state import decode_channels, decode_state, delta_channels
from ..values import Encoding
from .segment_reading import decode_segment, whole_value
from .segments import (
    DeltaChannel,
    Segment,
    SegmentCheckpoint,
    SegmentValue,
    SegmentWrite,
    decode_delta_base,
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
    """Return the closure in stored bytes."""
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


_MAX_REFERENCE = LIMITS.max_thread_id + 1 + LIMITS.max_checkpoint_id
"""Bytes of "thread:checkpoint"."""

_BYTES_PER_WRITE = 128
"""As `LIMITS.max_write_names` counts it."""


def segment_problem(segment: Segment) -> str:
    """Say what is wrong with a decoded segment, or return an empty string."""
    return next(filter(None, _problems(segment)), "")


def _problems(segment: Segment) -> Iterator[str]:
    yield _text_problem("thread_id", segment.thread_id, LIMITS.max_thread_id, required=True)
    for checkpoint in segment.checkpoints:
        for problem in _checkpoint_problems(checkpoint):
            yield problem and f"checkpoint '{checkpoint.checkpoint_id}': {problem}"
    yield from _write_problems(segment.writes)
    for value in segment.values:
        yield _text_problem("the type of a value", value.type, LIMITS.max_value_type, required=True)


def _checkpoint_problems(checkpoint: SegmentCheckpoint) -> Iterator[str]:
    yield from _key_problems(checkpoint.checkpoint_ns, checkpoint.checkpoint_id)
    yield _text_problem("parent_checkpoint_id", checkpoint.parent_id, LIMITS.max_checkpoint_id)
    yield _text_problem("label", checkpoint.label, LIMITS.max_label)
    yield _text_problem("summary", checkpoint.summary, LIMITS.max_summary)
    lineage = checkpoint.lineage
    for reference in (lineage.forked_from, lineage.rolled_back_from, lineage.adopted_from):
        yield _text_problem("lineage", reference, _MAX_REFERENCE)
    yield _metadata_problem(checkpoint.metadata)
    yield from _state_problems(checkpoint.state)
    for channel in decode_delta_base(checkpoint.delta_base, ""):
        yield from _delta_channel_problems(channel)


def _key_problems(checkpoint_ns: str, checkpoint_id: str) -> Iterator[str]:
    yield _text_problem("checkpoint_ns", checkpoint_ns, LIMITS.max_checkpoint_ns)
    yield _text_problem("checkpoint_id", checkpoint_id, LIMITS.max_checkpoint_id, required=True)


def _metadata_problem(metadata: bytes) -> str:
    if len(metadata) > LIMITS.max_metadata:
        return f"metadata_json must be at most {LIMITS.max_metadata} bytes"
    try:
        parse_metadata(metadata, "metadata_json")
    except Refusal as refusal:
        return refusal.message
    return ""


def _state_problems(state: bytes) -> Iterator[str]:
    channels = decode_channels(state)
    if len(channels) > LIMITS.max_channels:
        yield f"it has more than {LIMITS.max_channels} channels"
        return
    for channel in channels:
        yield from _channel_problems(channel)
    if sum(channel.size for channel in channels) > LIMITS.max_checkpoint:
        yield f"its values take more than {LIMITS.max_checkpoint} bytes"
    names = delta_channels(state)
    if len(names) > LIMITS.max_channels:
        yield f"it has more than {LIMITS.max_channels} delta channels"
        return
    for name in names:
        yield _text_problem(
            "the name of a delta channel", name, LIMITS.max_channel_name, required=True
        )


def _channel_problems(channel: Channel) -> Iterator[str]:
    yield _text_problem(
        "the name of a channel", channel.name, LIMITS.max_channel_name, required=True
    )
    yield _version_problem(channel.version)


def _delta_channel_problems(channel: DeltaChannel) -> Iterator[str]:
    yield _text_problem(
        "the name of a delta channel", channel.name, LIMITS.max_channel_name, required=True
    )
    if channel.seed is not None:
        yield _version_problem(channel.seed.version)
    for write in channel.writes:
        yield _text_problem("task_id", write.task_id, LIMITS.max_task_id, required=True)
        yield _text_problem("task_path", write.task_path, LIMITS.max_task_path)
        yield _text_problem("the type of a value", write.type, LIMITS.max_value_type, required=True)


def _write_problems(writes: tuple[SegmentWrite, ...]) -> Iterator[str]:
    names: defaultdict[tuple[str, str], int] = defaultdict(int)
    for write in writes:
        yield from _key_problems(write.checkpoint_ns, write.checkpoint_id)
        yield _text_problem("task_id", write.task_id, LIMITS.max_task_id, required=True)
        yield _text_problem("task_path", write.task_path, LIMITS.max_task_path)
        yield _text_problem(
            "the channel of a write", write.channel, LIMITS.max_channel_name, required=True
        )
        yield _text_problem("the type of a value", write.type, LIMITS.max_value_type, required=True)
        texts = (write.task_id, write.task_path, write.channel, write.type)
        size = _BYTES_PER_WRITE + sum(len(text.encode()) for text in texts)
        names[(write.checkpoint_ns, write.checkpoint_id)] += size
    if any(size > LIMITS.max_write_names for size in names.values()):
        yield f"the names of a checkpoint's writes take more than {LIMITS.max_write_names} bytes"


def _version_problem(version: Version | None) -> str:
    if isinstance(version, str):
        return _text_problem("a version", version, LIMITS.max_version_text)
    if isinstance(version, float) and not math.isfinite(version):
        return "a version must be finite"
    return ""


def _text_problem(what: str, value: str, maximum: int, *, required: bool = False) -> str:
    problem = text_problem(value, maximum, required=required)
    return f"{what} {problem}" if problem else ""
