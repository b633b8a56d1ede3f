"""What the limits of the contract say about a segment that came from elsewhere.

A save is checked on arrival, field by field; what comes in a bundle was saved elsewhere,
perhaps by a server with other limits, or by nobody. What passes here can be stored and
loaded like anything that was saved.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from ..errors import Refusal
from ..limits import LIMITS
from ..metadata import parse_metadata
from ..model import Channel, Version
from ..state import decode_channels, delta_channels
from ..texts import text_problem
from .delta_base import DeltaChannel, decode_delta_base
from .segments import Segment, SegmentCheckpoint, SegmentWrite

_MAX_REFERENCE = LIMITS.max_thread_id + 1 + LIMITS.max_checkpoint_id
"""Bytes of "thread:checkpoint"."""

_BYTES_PER_WRITE = 128
"""As `LIMITS.max_write_names` counts it."""


def segment_problem(segment: Segment) -> str:
    """Say what is wrong with a decoded segment, or return an empty string."""
    return next(filter(None, _problems(segment)), "")


def _problems(segment: Segment) -> Iterator[str]:
    yield _text("thread_id", segment.thread_id, LIMITS.max_thread_id, required=True)
    for checkpoint in segment.checkpoints:
        for problem in _checkpoint(checkpoint):
            yield problem and f"checkpoint '{checkpoint.checkpoint_id}': {problem}"
    yield from _writes(segment.writes)
    for value in segment.values:
        yield _text("the type of a value", value.type, LIMITS.max_value_type, required=True)


def _checkpoint(checkpoint: SegmentCheckpoint) -> Iterator[str]:
    yield from _key(checkpoint.checkpoint_ns, checkpoint.checkpoint_id)
    yield _text("parent_checkpoint_id", checkpoint.parent_id, LIMITS.max_checkpoint_id)
    yield _text("label", checkpoint.label, LIMITS.max_label)
    yield _text("summary", checkpoint.summary, LIMITS.max_summary)
    lineage = checkpoint.lineage
    for reference in (lineage.forked_from, lineage.rolled_back_from, lineage.adopted_from):
        yield _text("lineage", reference, _MAX_REFERENCE)
    yield _metadata(checkpoint.metadata)
    yield from _state(checkpoint.state)
    for channel in decode_delta_base(checkpoint.delta_base, ""):
        yield from _delta_channel(channel)


def _key(checkpoint_ns: str, checkpoint_id: str) -> Iterator[str]:
    yield _text("checkpoint_ns", checkpoint_ns, LIMITS.max_checkpoint_ns)
    yield _text("checkpoint_id", checkpoint_id, LIMITS.max_checkpoint_id, required=True)


def _metadata(metadata: bytes) -> str:
    if len(metadata) > LIMITS.max_metadata:
        return f"metadata_json must be at most {LIMITS.max_metadata} bytes"
    try:
        parse_metadata(metadata, "metadata_json")
    except Refusal as refusal:
        return refusal.message
    return ""


def _state(state: bytes) -> Iterator[str]:
    channels = decode_channels(state)
    if len(channels) > LIMITS.max_channels:
        yield f"it has more than {LIMITS.max_channels} channels"
        return
    for channel in channels:
        yield from _channel(channel)
    if sum(channel.size for channel in channels) > LIMITS.max_checkpoint:
        yield f"its values take more than {LIMITS.max_checkpoint} bytes"
    names = delta_channels(state)
    if len(names) > LIMITS.max_channels:
        yield f"it has more than {LIMITS.max_channels} delta channels"
        return
    for name in names:
        yield _text("the name of a delta channel", name, LIMITS.max_channel_name, required=True)


def _channel(channel: Channel) -> Iterator[str]:
    yield _text("the name of a channel", channel.name, LIMITS.max_channel_name, required=True)
    yield _version(channel.version)


def _delta_channel(channel: DeltaChannel) -> Iterator[str]:
    yield _text("the name of a delta channel", channel.name, LIMITS.max_channel_name, required=True)
    if channel.seed is not None:
        yield _version(channel.seed.version)
    for write in channel.writes:
        yield _text("task_id", write.task_id, LIMITS.max_task_id, required=True)
        yield _text("task_path", write.task_path, LIMITS.max_task_path)
        yield _text("the type of a value", write.type, LIMITS.max_value_type, required=True)


def _writes(writes: tuple[SegmentWrite, ...]) -> Iterator[str]:
    names: defaultdict[tuple[str, str], int] = defaultdict(int)
    for write in writes:
        yield from _key(write.checkpoint_ns, write.checkpoint_id)
        yield _text("task_id", write.task_id, LIMITS.max_task_id, required=True)
        yield _text("task_path", write.task_path, LIMITS.max_task_path)
        yield _text("the channel of a write", write.channel, LIMITS.max_channel_name, required=True)
        yield _text("the type of a value", write.type, LIMITS.max_value_type, required=True)
        texts = (write.task_id, write.task_path, write.channel, write.type)
        size = _BYTES_PER_WRITE + sum(len(text.encode()) for text in texts)
        names[(write.checkpoint_ns, write.checkpoint_id)] += size
    if any(size > LIMITS.max_write_names for size in names.values()):
        yield f"the names of a checkpoint's writes take more than {LIMITS.max_write_names} bytes"


def _version(version: Version | None) -> str:
    if isinstance(version, str):
        return _text("a version", version, LIMITS.max_version_text)
    if isinstance(version, float) and not math.isfinite(version):
        return "a version must be finite"
    return ""


def _text(what: str, value: str, maximum: int, *, required: bool = False) -> str:
    problem = text_problem(value, maximum, required=required)
    return f"{what} {problem}" if problem else ""
