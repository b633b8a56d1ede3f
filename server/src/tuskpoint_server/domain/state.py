"""The stored form of a checkpoint's state.

A serialized `tuskpoint.v1.CheckpointState` in which every channel names its content by
digest instead of holding it. Protobuf messages may be concatenated, so the framework's
part (the frame) is kept as the bytes that came in.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tuskpoint.v1 import checkpoint_pb2, value_pb2

from .model import Channel, State, Value, Version


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
    """Return the part of the stored form that is one channel, by digest.

    The stored form is the frame and these parts, one after another.
    """
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

    Args:
        stored: What `encode_state` returned.
        values: Digest to value; channels whose digest is not in it stay without content.
    """
    message = checkpoint_pb2.CheckpointState.FromString(stored)
    channels = tuple(_channel(stored_channel, values) for stored_channel in message.channels)
    message.ClearField("channels")
    return State(message.SerializeToString(deterministic=True), channels)


def _channel(message: value_pb2.Channel, values: Mapping[bytes, Value]) -> Channel:
    digest = message.digest
    return Channel(
        name=message.name,
        version=decode_version(message.version) if message.HasField("version") else None,
        digest=digest or None,
        size=message.size_bytes,
        value=values.get(digest),
    )
