"""Which values the row of a checkpoint refers to."""

from __future__ import annotations

from tuskpoint.v1 import checkpoint_pb2, segment_pb2


def referred(state: bytes, delta_base: bytes | None) -> set[bytes]:
    """Return the digests of the values that a checkpoint needs besides its writes.

    Args:
        state: Its `state`, as it is stored.
        delta_base: Its `delta_base`, as it is stored, or `None`.
    """
    message = checkpoint_pb2.CheckpointState.FromString(state)
    found = {channel.digest for channel in message.channels}
    if delta_base:
        base = segment_pb2.DeltaBase.FromString(delta_base)
        for channel in base.channels:
            found.add(channel.seed.digest)
            found.update(write.digest for write in channel.writes)
    found.discard(b"")
    return found
