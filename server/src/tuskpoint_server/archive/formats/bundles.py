"""Bundles: a checkpoint with everything that its next run needs, as a hand-off stores it.

A bundle is a segment that needs no other segment and names the checkpoint that is handed off. All
sequence numbers in a bundle are 0, so that equal content gives equal bytes. A bundle may come from
anybody, so all of its content is checked against the limits of the contract: a bundle that passes
can be stored and loaded like any save.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import chain
from operator import attrgetter, itemgetter

from ...core.delta_bases import decode_delta_base, encode_delta_base
from ...core.errors import Reason, Refusal, malformed_bytes
from ...core.limits import LIMITS, MIB, text_problem
from ...core.model import Channel, CheckpointKey, Value, Version
from ...core.state import (
    decode_channels,
    decode_state,
    delta_channels,
    encode_state,
    parse_metadata,
)
from ...core.values import Encoding
from . import bundled_effects
from .segment_reading import decode_segment, whole_value
from .segments import Segment, SegmentCheckpoint, SegmentValue, SegmentWrite, encode_segment

MAX_BUNDLE_BYTES = LIMITS.max_bundle  # bound on the values of a bundle, unpacked
MAX_STORED_BYTES = MAX_BUNDLE_BYTES + 64 * MIB  # bound on the stored bytes of a bundle
_place = attrgetter("checkpoint_ns", "checkpoint_id")


def check_bytes(key: CheckpointKey, size: int) -> None:
    """Refuse (`LIMIT_EXCEEDED`) a closure whose values are larger than a bundle may contain."""
    if size > MAX_BUNDLE_BYTES:
        raise _too_large(f"a bundle of {key} with values of {size} bytes")


def _too_large(what: str) -> Refusal:
    return Refusal(
        Reason.LIMIT_EXCEEDED, what=what, limit="max_bundle_bytes", maximum=MAX_BUNDLE_BYTES
    )


@dataclass(frozen=True, slots=True)
class Closure:
    """A checkpoint with everything that its next run needs.

    `segment` has the rows of the checkpoint and of the current checkpoints of its subgraphs, by
    namespace and ID, then the effects that belong to it (`bundled_effects`), and all of their
    values, whole. `seq` is the last change of the thread at the
    time of reading; 0 for rows from elsewhere.
    """

    key: CheckpointKey
    segment: Segment
    seq: int = 0


def encode_bundle(closure: Closure) -> bytes:
    """Return the stored bytes of a closure; refuse one that is too large (`LIMIT_EXCEEDED`)."""
    segment = closure.segment
    check_bytes(closure.key, _values_size(segment))
    try:
        return encode_segment(segment)
    except ValueError as error:
        raise _too_large(f"a bundle of {closure.key} ({error})") from error


def decode_bundle(data: bytes, name: str) -> Closure:
    """Return the closure in stored bytes."""
    return unpack_bundle(read_bundle(data, name), name)


def read_bundle(data: bytes, name: str) -> Segment:
    """Return the segment in the stored bytes of a bundle; the segment's values stay packed."""
    segment = decode_segment(data, name)
    if problem := segment_problem(segment):
        raise malformed_bytes(name, problem)
    size = _values_size(segment)
    if size > MAX_BUNDLE_BYTES:
        raise malformed_bytes(name, f"its values take {size} bytes")
    return segment


def unpacked_bytes(segment: Segment) -> int:
    """Return the number of bytes that `unpack_bundle` produces: the sizes of all packed values."""
    rows: Iterable[SegmentValue | SegmentWrite] = chain(segment.values, segment.writes)
    return sum(row.size for row in rows if row.encoding != Encoding.PLAIN)


def unpack_bundle(segment: Segment, name: str) -> Closure:
    """Return the closure in the segment of a bundle, after checking its values."""
    if segment.handoff is None:
        raise malformed_bytes(name, "it is a segment without a hand-off")
    stored = {value.digest: value for value in segment.values}
    values: dict[bytes, Value] = {}
    for digest, value in stored.items():
        keyframe = whole_value(stored[value.keyframe], None, name).data if value.keyframe else None
        values[digest] = whole_value(value, keyframe, name)
    writes = [
        write._replace(encoding=Encoding.PLAIN, data=whole_value(write, None, name).data)
        for write in segment.writes
    ]
    checkpoints = [_check_values(checkpoint, values, name) for checkpoint in segment.checkpoints]
    places = set(map(_place, checkpoints))
    if any(_place(write) not in places for write in writes):
        raise malformed_bytes(name, "it has writes of a checkpoint that it lacks")
    whole = replace(
        segment,
        checkpoints=tuple(sorted(checkpoints, key=_place)),
        writes=tuple(writes),
        values=tuple(
            SegmentValue(digest, value.type, len(value.data), Encoding.PLAIN, value.data)
            for digest, value in sorted(values.items(), key=itemgetter(0))
        ),
    )
    return Closure(CheckpointKey(segment.thread_id, *segment.handoff), whole)


def _values_size(segment: Segment) -> int:
    return sum(value.size for value in segment.values) + sum(write.size for write in segment.writes)


def _check_values(
    checkpoint: SegmentCheckpoint, values: Mapping[bytes, Value], name: str
) -> SegmentCheckpoint:
    """Return a checkpoint in its stored form, after checking its values against the state."""
    state = decode_state(checkpoint.state, values)
    fits = all(
        channel.size == (0 if channel.value is None else len(channel.value.data))
        for channel in state.channels
    )
    base = decode_delta_base(checkpoint.delta_base, name)
    for channel in base:
        if channel.ancestor_id:
            problem = f"channel {channel.name} is rebuilt from an ancestor that is missing"
            raise malformed_bytes(name, problem)
        seed = channel.seed
        fits &= seed is None or seed.size == len(values[seed.digest].data)
        for write in channel.writes:
            value = values[write.digest]
            fits &= (write.type, write.size) == (value.type, len(value.data))
    if not fits:
        problem = f"checkpoint '{checkpoint.checkpoint_id}' has a channel of another size"
        raise malformed_bytes(name, f"{problem} than it says")
    return checkpoint._replace(
        state=encode_state(state.frame, state.channels),
        delta_base=encode_delta_base(channel for channel in base if channel.seed or channel.writes),
    )


_MAX_REFERENCE = LIMITS.max_thread_id + 1 + LIMITS.max_checkpoint_id  # bytes of "thread:checkpoint"
_BYTES_PER_WRITE = 128  # bytes per write in the count of `LIMITS.max_write_names`

_Rules = tuple[tuple[str, str, int, bool], ...]
"""Rules of a row: a text field, its name in errors, its most bytes, and whether it is required."""

_NAME, _TYPE = LIMITS.max_channel_name, LIMITS.max_value_type
_KEY: _Rules = (
    ("checkpoint_ns", "checkpoint_ns", LIMITS.max_checkpoint_ns, False),
    ("checkpoint_id", "checkpoint_id", LIMITS.max_checkpoint_id, True),
)
_CHECKPOINT: _Rules = (
    *_KEY,
    ("parent_id", "parent_checkpoint_id", LIMITS.max_checkpoint_id, False),
    ("label", "label", LIMITS.max_label, False),
    ("summary", "summary", LIMITS.max_summary, False),
    ("lineage.forked_from", "lineage", _MAX_REFERENCE, False),
    ("lineage.rolled_back_from", "lineage", _MAX_REFERENCE, False),
    ("lineage.adopted_from", "lineage", _MAX_REFERENCE, False),
)
_CHANNEL: _Rules = (("name", "the name of a channel", _NAME, True),)
_DELTA_CHANNEL: _Rules = (("name", "the name of a delta channel", _NAME, True),)
_VALUE: _Rules = (("type", "the type of a value", _TYPE, True),)
_DELTA_WRITE: _Rules = (
    ("task_id", "task_id", LIMITS.max_task_id, True),
    ("task_path", "task_path", LIMITS.max_task_path, False),
    *_VALUE,
)
_WRITE: _Rules = (*_KEY, *_DELTA_WRITE, ("channel", "the channel of a write", _NAME, True))


def segment_problem(segment: Segment) -> str:
    """Return how a decoded segment exceeds the contract's limits; empty if it is within them."""
    return next(filter(None, _problems(segment)), "")


def _problems(segment: Segment) -> Iterator[str]:
    yield from _texts(segment, (("thread_id", "thread_id", LIMITS.max_thread_id, True),))
    yield from bundled_effects.problems(filter(bundled_effects.is_effect, segment.checkpoints))
    for checkpoint in segment.checkpoints:
        if bundled_effects.is_effect(checkpoint):
            continue
        for problem in _checkpoint_problems(checkpoint):
            yield problem and f"checkpoint '{checkpoint.checkpoint_id}': {problem}"
    names: defaultdict[tuple[str, str], int] = defaultdict(int)
    for write in segment.writes:
        yield from _texts(write, _WRITE)
        texts = (write.task_id, write.task_path, write.channel, write.type)
        size = _BYTES_PER_WRITE + sum(len(text.encode()) for text in texts)
        names[write.checkpoint_ns, write.checkpoint_id] += size
    if any(size > LIMITS.max_write_names for size in names.values()):
        yield f"the names of a checkpoint's writes take more than {LIMITS.max_write_names} bytes"
    for value in segment.values:
        yield from _texts(value, _VALUE)


def _texts(row: object, rules: _Rules) -> Iterator[str]:
    for field, what, maximum, required in rules:
        problem = text_problem(attrgetter(field)(row), maximum, required=required)
        if problem:
            yield f"{what} {problem}"


def _checkpoint_problems(checkpoint: SegmentCheckpoint) -> Iterator[str]:
    yield from _texts(checkpoint, _CHECKPOINT)
    if len(checkpoint.metadata) > LIMITS.max_metadata:
        yield f"metadata_json must be at most {LIMITS.max_metadata} bytes"
    try:
        parse_metadata(checkpoint.metadata, "metadata_json")
    except Refusal as refusal:
        yield refusal.message
    channels = decode_channels(checkpoint.state)
    names = delta_channels(checkpoint.state)
    for items, what in ((channels, "channels"), (names, "delta channels")):
        if len(items) > LIMITS.max_channels:
            yield f"it has more than {LIMITS.max_channels} {what}"
    for channel in channels:
        yield from _texts(channel, _CHANNEL)
        yield _version_problem(channel.version)
    if sum(channel.size for channel in channels) > LIMITS.max_checkpoint:
        yield f"its values take more than {LIMITS.max_checkpoint} bytes"
    for name in names:
        yield from _texts(Channel(name, None, None), _DELTA_CHANNEL)
    for rebuilt in decode_delta_base(checkpoint.delta_base, ""):
        yield from _texts(rebuilt, _DELTA_CHANNEL)
        yield _version_problem(rebuilt.seed.version if rebuilt.seed is not None else None)
        for write in rebuilt.writes:
            yield from _texts(write, _DELTA_WRITE)


def _version_problem(version: Version | None) -> str:
    if isinstance(version, str):
        problem = text_problem(version, LIMITS.max_version_text)
        return problem and f"a version {problem}"
    if isinstance(version, float) and not math.isfinite(version):
        return "a version must be finite"
    return ""
