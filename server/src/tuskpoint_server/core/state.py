"""State and metadata of a checkpoint in their stored form, and restoring evicted values.

A state is a serialized `tuskpoint.v1.CheckpointState` whose channels name their values by digest.
Concatenated protobuf messages are merged, so the framework's part (the frame) keeps the received
bytes. Metadata is a JSON object that is parsed and never rebuilt. Evicted values are restored by
digest, from any segment.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, TypeVar

from tuskpoint.v1 import checkpoint_pb2, value_pb2

from .errors import Reason, Refusal, Violation
from .limits import LIMITS
from .model import (
    EVICTED,
    Channel,
    Checkpoint,
    CheckpointEntry,
    Damage,
    DamagedValue,
    DeltaHistory,
    Metadata,
    State,
    Value,
    Version,
    Write,
)


class RawCheckpoint(NamedTuple):
    """A checkpoint whose state is the stored message.

    An answer takes half the time that an answer from `Checkpoint` takes.
    """

    entry: CheckpointEntry
    state: checkpoint_pb2.CheckpointState  # the channels name their values by digest
    values: Mapping[bytes, Value]  # by digest
    writes: tuple[Write, ...]  # in order


def fill_version(message: value_pb2.Version, version: Version) -> None:
    """Put a version into the contract's message, with its type."""
    if isinstance(version, str):
        message.text = version
    elif isinstance(version, int):
        message.integer = version
    else:
        message.number = version


def decode_version(message: value_pb2.Version) -> Version:
    """Return the version in the contract's message, which must have a version."""
    if message.HasField("text"):
        return message.text
    if message.HasField("integer"):
        return message.integer
    return message.number


def encode_state(frame: bytes, channels: Iterable[Channel]) -> bytes:
    """Return the stored form: the frame, then the channels by digest."""
    encoded = (
        encode_channel(channel.name, channel.version, channel.digest, channel.size)
        for channel in channels
    )
    return frame + b"".join(encoded)


def encode_channel(name: str, version: Version | None, digest: bytes | None, size: int) -> bytes:
    """Return the part of a channel in the stored form: the frame, then the parts of channels."""
    message = checkpoint_pb2.CheckpointState()
    stored = message.channels.add(name=name, digest=digest, size_bytes=size)
    if version is not None:
        fill_version(stored.version, version)
    if digest is None:
        stored.empty.SetInParent()
    return message.SerializeToString()


class ChannelRef(NamedTuple):
    """A channel of a stored checkpoint; `encoded` is its part of the stored state."""

    version: Version | None
    digest: bytes | None
    size: int = 0
    encoded: bytes = b""


def channel_ref(name: str, version: Version | None, digest: bytes | None, size: int) -> ChannelRef:
    """Return a channel with its part of the stored state."""
    return ChannelRef(version, digest, size, encode_channel(name, version, digest, size))


def decode_channels(stored: bytes) -> tuple[Channel, ...]:
    """Return the channels of the stored form, without content."""
    message = checkpoint_pb2.CheckpointState.FromString(stored)
    return tuple(_channel(channel, {}) for channel in message.channels)


def encode_names(names: Sequence[str]) -> bytes:
    """Return the stored form of names of delta channels."""
    if not names:
        return b"[]"
    return json.dumps(list(names), ensure_ascii=False, separators=(",", ":")).encode()


def delta_channels(frame: bytes) -> tuple[str, ...]:
    """Return the names of the channels that are rebuilt from writes."""
    return tuple(checkpoint_pb2.CheckpointState.FromString(frame).delta_channels)


def decode_state(stored: bytes, values: Mapping[bytes, Value]) -> State:
    """Return the state; channels whose digest is not in `values` stay without content."""
    return state_of(checkpoint_pb2.CheckpointState.FromString(stored), values)


def state_of(message: checkpoint_pb2.CheckpointState, values: Mapping[bytes, Value]) -> State:
    """Return the state in a message, as `decode_state` does; the message loses its channels."""
    channels = tuple(_channel(stored_channel, values) for stored_channel in message.channels)
    message.ClearField("channels")
    return State(message.SerializeToString(deterministic=True), channels)


def fill_state(message: checkpoint_pb2.CheckpointState, stored: RawCheckpoint) -> None:
    """Put a state with its values into the contract's message."""
    message.MergeFrom(stored.state)
    values = stored.values
    for channel in message.channels:
        value = values.get(channel.digest)
        if value is not None:
            channel.ClearField("size_bytes")
            content = channel.value
            content.type = value.type
            content.data = value.data


def _channel(message: value_pb2.Channel, values: Mapping[bytes, Value]) -> Channel:
    return Channel(
        name=message.name,
        version=decode_version(message.version) if message.HasField("version") else None,
        digest=message.digest or None,
        size=message.size_bytes,
        value=values.get(message.digest),
    )


def evicted_digests(checkpoint: Checkpoint) -> list[bytes]:
    """Return the digests of the evicted values of a checkpoint and its writes."""
    channels = checkpoint.state.channels if checkpoint.state is not None else ()
    holders: list[Channel | Write] = [*channels, *checkpoint.writes]
    return [
        holder.digest for holder in holders if holder.value is EVICTED and holder.digest is not None
    ]


def damages(checkpoint: Checkpoint) -> list[Damage]:
    """Return the damages of the values of a checkpoint and its writes in the journal."""
    channels = checkpoint.state.channels if checkpoint.state is not None else ()
    holders: list[Channel | Write] = [*channels, *checkpoint.writes]
    return [holder.value.damage for holder in holders if isinstance(holder.value, DamagedValue)]


def history_damages(histories: Sequence[DeltaHistory]) -> list[Damage]:
    """Return the damages of the values of histories in the journal."""
    holders = [
        holder for history in histories for holder in (history.seed, *history.writes) if holder
    ]
    return [holder.value.damage for holder in holders if isinstance(holder.value, DamagedValue)]


def supply_values(checkpoint: Checkpoint, values: Mapping[bytes, Value]) -> Checkpoint:
    """Return a checkpoint with its evicted values filled in."""
    state = checkpoint.state
    if state is not None:
        state = State(
            state.frame, tuple(_with_value(channel, values) for channel in state.channels)
        )
    writes = tuple(_with_value(write, values) for write in checkpoint.writes)
    return replace(checkpoint, state=state, writes=writes, sources=())


def supply_history(history: DeltaHistory, values: Mapping[bytes, Value]) -> DeltaHistory:
    """Return a history with its evicted values filled in."""
    seed = None if history.seed is None else _with_value(history.seed, values)
    writes = tuple(_with_value(write, values) for write in history.writes)
    return DeltaHistory(history.channel, seed, writes)


_HolderT = TypeVar("_HolderT", Channel, Write)


def _with_value(holder: _HolderT, values: Mapping[bytes, Value]) -> _HolderT:
    return (
        replace(holder, value=values[holder.digest or b""]) if holder.value is EVICTED else holder
    )


_NUMBER = "a number"
_KINDS = {list: "an array", str: "a string", int: _NUMBER, float: _NUMBER, bool: "true or false"}


def _not_json(field: str, problem: str) -> Refusal:
    violation = Violation(field, f"must be a JSON object in UTF-8: {problem}")
    return Refusal(Reason.METADATA_NOT_JSON, violations=(violation,), field=field, problem=problem)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is not JSON")


_DECODE = json.JSONDecoder(parse_constant=_refuse_constant).decode

MAX_DEPTH = 500
"""Most levels of nested arrays and objects in an object.

Python's own bound depends on the caller's depth: an audit might refuse what a server accepts.
"""


def parse_object(raw: bytes, field: str) -> dict[str, object]:
    """Parse a JSON object in UTF-8, empty input being `{}`; refuse others (`METADATA_NOT_JSON`)."""
    if not raw:
        return {}
    try:
        parsed = _DECODE(raw.decode("utf-8"))
    except ValueError as error:
        raise _not_json(field, str(error)) from None
    except RecursionError:
        raise _not_json(field, "it is nested too deeply") from None
    if not isinstance(parsed, dict):
        raise _not_json(field, f"it is {_KINDS.get(type(parsed), 'null')}")
    if raw.count(b"[") + raw.count(b"{") > MAX_DEPTH and _is_deeper(parsed, MAX_DEPTH):
        raise _not_json(field, f"it is nested too deeply: more than {MAX_DEPTH} levels")
    return parsed


def _is_deeper(parsed: object, levels: int) -> bool:
    """Return whether arrays and objects are nested deeper than a number of levels."""
    level: list[Any] = [parsed]
    for _ in range(levels):
        inside = [item.values() if isinstance(item, dict) else item for item in level]
        level = [inner for items in inside for inner in items if isinstance(inner, dict | list)]
        if not level:
            return False
    return True


def parse_metadata(raw: bytes, field: str) -> Metadata:
    """Parse metadata like `parse_object`, and extract the fields that the server reads."""
    parsed = parse_object(raw, field)
    parents = parsed.get("parents")
    root_id = parents.get("") if isinstance(parents, dict) else None
    return Metadata(
        raw=raw or b"{}",
        run_id=_identifier(parsed.get("run_id"), LIMITS.max_run_id),
        root_id=_identifier(root_id, LIMITS.max_checkpoint_id),
    )


def _identifier(value: object, maximum: int) -> str:
    """Return a string that is a valid identifier; empty for any other value."""
    if not isinstance(value, str) or "\0" in value:
        return ""
    try:
        return value if len(value.encode()) <= maximum else ""
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can express
        return ""


def matches(metadata: bytes, wanted: Mapping[str, object], *, typed: bool = False) -> bool:
    """Return whether metadata has every wanted top-level key with an equal value.

    Values are compared whole; a missing key does not equal null. In Python's equality `True` equals
    `1`; in JSON's types, only `1` equals `1.0`.
    """
    parsed = json.loads(metadata) if wanted else {}
    equal = equal_typed if typed else operator.eq
    return all(key in parsed and equal(parsed[key], value) for key, value in wanted.items())


def equal_typed(one: object, other: object) -> bool:
    """Return whether two JSON values are equal and of equal types, at every depth."""
    pairs = [(one, other)]  # no recursion: both values may be nested as deep as JSON allows
    while pairs:
        left, right = pairs.pop()
        if isinstance(left, dict) and isinstance(right, dict):
            if left.keys() != right.keys():
                return False
            pairs += [(value, right[key]) for key, value in left.items()]
        elif isinstance(left, list) and isinstance(right, list):
            if len(left) != len(right):
                return False
            pairs += zip(left, right, strict=True)
        elif isinstance(left, bool) is not isinstance(right, bool) or left != right:
            return False
    return True
