"""What the limits of the contract say about a checkpoint that came in a bundle.

A save is checked on arrival, field by field; what comes in a bundle was saved elsewhere,
perhaps by a server with other limits, or by nobody. What passes here can be stored and
loaded like anything that was saved.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator

from google.protobuf.message import DecodeError

from .envelope import Envelope
from .limits import LIMITS
from .model import Lineage, Value, Version, Write
from .state import delta_channels, encode_state
from .texts import text_problem

_MAX_REFERENCE = LIMITS.max_thread_id + 1 + LIMITS.max_checkpoint_id
"""Bytes of "thread:checkpoint"."""

_BYTES_PER_WRITE = 128
"""As `LIMITS.max_write_names` counts it."""


def member_problem(envelope: Envelope) -> str:
    """Say what is wrong with a checkpoint, or return an empty string."""
    return next(filter(None, _problems(envelope)), "")


def _problems(envelope: Envelope) -> Iterator[str]:
    yield from _names(envelope)
    yield from _state(envelope)
    yield from _writes(envelope.writes)


def _names(envelope: Envelope) -> Iterator[str]:
    key = envelope.key
    yield _text("thread_id", key.thread_id, LIMITS.max_thread_id, required=True)
    yield _text("checkpoint_ns", key.checkpoint_ns, LIMITS.max_checkpoint_ns)
    yield _text("checkpoint_id", key.checkpoint_id, LIMITS.max_checkpoint_id, required=True)
    yield _text("parent_checkpoint_id", envelope.parent_id, LIMITS.max_checkpoint_id)
    yield _text("label", envelope.label, LIMITS.max_label)
    yield _text("summary", envelope.summary, LIMITS.max_summary)
    for reference in _references(envelope.lineage):
        yield _text("lineage", reference, _MAX_REFERENCE)
    if len(envelope.metadata) > LIMITS.max_metadata:
        yield f"metadata_json must be at most {LIMITS.max_metadata} bytes"


def _references(lineage: Lineage) -> tuple[str, str, str]:
    return (lineage.forked_from, lineage.rolled_back_from, lineage.adopted_from)


def _state(envelope: Envelope) -> Iterator[str]:
    channels = envelope.state.channels
    if len(channels) > LIMITS.max_channels:
        yield f"it has more than {LIMITS.max_channels} channels"
        return
    if len({channel.name for channel in channels}) < len(channels):
        yield "a channel is there twice"
    for channel in channels:
        yield _text("the name of a channel", channel.name, LIMITS.max_channel_name, required=True)
        yield _version_problem(channel.version)
    yield from _values(channel.value for channel in channels if channel.value is not None)
    if sum(channel.size for channel in channels) > LIMITS.max_checkpoint:
        yield f"its values take more than {LIMITS.max_checkpoint} bytes"
    if len(encode_state(envelope.state.frame, channels)) > LIMITS.max_state:
        yield f"its state without values takes more than {LIMITS.max_state} bytes"
        return
    yield from _delta_channels(envelope.state.frame)


def _delta_channels(frame: bytes) -> Iterator[str]:
    try:
        names = delta_channels(frame)
    except DecodeError:
        yield "its state is no CheckpointState"
        return
    if len(names) > LIMITS.max_channels:
        yield f"it has more than {LIMITS.max_channels} delta channels"
        return
    for name in names:
        yield _text("the name of a delta channel", name, LIMITS.max_channel_name, required=True)


def _writes(writes: tuple[Write, ...]) -> Iterator[str]:
    if len({(write.task_id, write.idx) for write in writes}) < len(writes):
        yield "a write is there twice"
    size = 0
    for write in writes:
        yield _text("task_id", write.task_id, LIMITS.max_task_id, required=True)
        yield _text("task_path", write.task_path, LIMITS.max_task_path)
        yield _text("the channel of a write", write.channel, LIMITS.max_channel_name, required=True)
        size += _BYTES_PER_WRITE + _name_bytes(write)
    if size > LIMITS.max_write_names:
        yield f"the names of its writes take more than {LIMITS.max_write_names} bytes"
    yield from _values(write.value for write in writes)


def _name_bytes(write: Write) -> int:
    names = (write.task_id, write.task_path, write.channel, write.value.type)
    return sum(len(name.encode()) for name in names)


def _values(values: Iterable[Value]) -> Iterator[str]:
    for value in values:
        yield _text("the type of a value", value.type, LIMITS.max_value_type, required=True)
        if len(value.data) > LIMITS.max_value:
            yield f"a value takes more than {LIMITS.max_value} bytes"


def _version_problem(version: Version | None) -> str:
    if isinstance(version, str):
        return _text("a version", version, LIMITS.max_version_text)
    if isinstance(version, float) and not math.isfinite(version):
        return "a version must be finite"
    return ""


def _text(what: str, value: str, maximum: int, *, required: bool = False) -> str:
    problem = text_problem(value, maximum, required=required)
    return f"{what} {problem}" if problem else ""
