"""The stored form of a checkpoint's state, and the values that the journal gave up.

A serialized `tuskpoint.v1.CheckpointState` in which every channel names its content by
digest instead of holding it. Protobuf messages may be concatenated, so the framework's
part (the frame) is kept as the bytes that came in.

Evicted values are put back by digest, which commits to type and data: whatever segment one
comes from, it is the value that was saved.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from tuskpoint.v1 import checkpoint_pb2, value_pb2

from .model import EVICTED, Channel, Checkpoint, DeltaHistory, State, Value, Version, Write


def encode_version(version: Version) -> value_pb2.Version:
    """Return the contract's message for a version, keeping its type."""
    if isinstance(version, str):
        return value_pb2.Version(text=version)
    if isinstance(version, int):
        return value_pb2.Version(integer=version)
    return value_pb2.Version(number=version)


def decode_version(message: value_pb2.Version) -> Version:
    """Return the version in the contract's message. The message must hold one."""
    if message.HasField("text"):
        return message.text
    if message.HasField("integer"):
        return message.integer
    return message.number


def encode_state(frame: bytes, channels: Iterable[Channel]) -> bytes:
    """Return the stored form: the frame, then the channels by digest."""
    message = checkpoint_pb2.CheckpointState()
    for channel in channels:
        stored = message.channels.add(name=channel.name, size_bytes=channel.size)
        if channel.version is not None:
            stored.version.CopyFrom(encode_version(channel.version))
        if channel.digest is None:
            stored.empty.SetInParent()
        else:
            stored.digest = channel.digest
    return frame + message.SerializeToString()


def encode_channel(channel: Channel) -> bytes:
    """Return a part of the stored form, which is the frame and these, one after another."""
    return encode_state(b"", (channel,))


def decode_channels(stored: bytes) -> tuple[Channel, ...]:
    """Return the channels of the stored form, without content."""
    message = checkpoint_pb2.CheckpointState.FromString(stored)
    return tuple(_channel(channel, {}) for channel in message.channels)


def delta_channels(frame: bytes) -> tuple[str, ...]:
    """Return the names of the channels that are rebuilt from writes."""
    return tuple(checkpoint_pb2.CheckpointState.FromString(frame).delta_channels)


def decode_state(stored: bytes, values: Mapping[bytes, Value]) -> State:
    """Return the state, with the content of every channel found in `values`.

    Channels whose digest is not in it stay without content.
    """
    message = checkpoint_pb2.CheckpointState.FromString(stored)
    channels = tuple(_channel(stored_channel, values) for stored_channel in message.channels)
    message.ClearField("channels")
    return State(message.SerializeToString(deterministic=True), channels)


def _channel(message: value_pb2.Channel, values: Mapping[bytes, Value]) -> Channel:
    return Channel(
        name=message.name,
        version=decode_version(message.version) if message.HasField("version") else None,
        digest=message.digest or None,
        size=message.size_bytes,
        value=values.get(message.digest),
    )


def lacks_values(checkpoint: Checkpoint) -> bool:
    """Tell whether a value of a loaded checkpoint, or of its writes, was evicted."""
    return bool(evicted_digests(checkpoint))


def evicted_digests(checkpoint: Checkpoint) -> list[bytes]:
    """Return the digests of the values that were evicted of a checkpoint and its writes."""
    channels = checkpoint.state.channels if checkpoint.state is not None else ()
    held: list[Channel | Write] = [*channels, *checkpoint.writes]
    return [one.digest for one in held if one.value is EVICTED and one.digest is not None]


def supplied(checkpoint: Checkpoint, values: Mapping[bytes, Value]) -> Checkpoint:
    """Return a checkpoint with its evicted values put back.

    Raises:
        LookupError: `values` lacks one.
    """
    state = checkpoint.state
    if state is not None:
        state = State(state.frame, tuple(_whole(one, values) for one in state.channels))
    writes = tuple(_whole(write, values) for write in checkpoint.writes)
    return replace(checkpoint, state=state, writes=writes)


def supplied_history(history: DeltaHistory, values: Mapping[bytes, Value]) -> DeltaHistory:
    """Return a history with its evicted values put back.

    Raises:
        LookupError: `values` lacks one.
    """
    seed = None if history.seed is None else _whole(history.seed, values)
    writes = tuple(_whole(write, values) for write in history.writes)
    return DeltaHistory(history.channel, seed, writes)


_Held = TypeVar("_Held", Channel, Write)


def _whole(held: _Held, values: Mapping[bytes, Value]) -> _Held:
    if held.value is not EVICTED:
        return held
    digest = held.digest or b""
    if digest not in values:
        raise LookupError(f"the segments lack the value with the digest {digest.hex()}")
    return replace(held, value=values[digest])
