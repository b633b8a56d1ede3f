"""What the journal gave up, and how it is put back from segments.

Values are matched by digest, which commits to type and data: whatever segment one comes
from, it is the value that was saved.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from .model import EVICTED, Channel, Checkpoint, DeltaHistory, Value, Write


def lacks_values(checkpoint: Checkpoint) -> bool:
    """Tell whether a value of a loaded checkpoint, or of its writes, was evicted."""
    channels = checkpoint.state.channels if checkpoint.state is not None else ()
    return any(channel.value is EVICTED for channel in channels) or any(
        write.value is EVICTED for write in checkpoint.writes
    )


def evicted_digests(checkpoint: Checkpoint) -> list[bytes]:
    """Return the digests of the values that were evicted of a checkpoint and its writes."""
    channels = checkpoint.state.channels if checkpoint.state is not None else ()
    found = [one.digest for one in channels if one.value is EVICTED and one.digest is not None]
    return found + [write.digest for write in checkpoint.writes if write.value is EVICTED]


def supplied(checkpoint: Checkpoint, values: Mapping[bytes, Value]) -> Checkpoint:
    """Return a checkpoint with its evicted values put back.

    Raises:
        LookupError: `values` lacks one.
    """
    state = checkpoint.state
    if state is not None:
        state = replace(
            state, channels=tuple(_with_value(channel, values) for channel in state.channels)
        )
    writes = tuple(_with_content(write, values) for write in checkpoint.writes)
    return replace(checkpoint, state=state, writes=writes)


def supplied_history(history: DeltaHistory, values: Mapping[bytes, Value]) -> DeltaHistory:
    """Return a history with its evicted values put back.

    Raises:
        LookupError: `values` lacks one.
    """
    return DeltaHistory(
        history.channel,
        None if history.seed is None else _with_value(history.seed, values),
        tuple(_with_content(write, values) for write in history.writes),
    )


def _with_value(channel: Channel, values: Mapping[bytes, Value]) -> Channel:
    if channel.value is not EVICTED:
        return channel
    return replace(channel, value=_found(channel.digest or b"", values))


def _with_content(write: Write, values: Mapping[bytes, Value]) -> Write:
    if write.value is not EVICTED:
        return write
    return replace(write, value=_found(write.digest, values))


def _found(digest: bytes, values: Mapping[bytes, Value]) -> Value:
    value = values.get(digest)
    if value is None:
        raise LookupError(f"the segments lack the value with the digest {digest.hex()}")
    return value
