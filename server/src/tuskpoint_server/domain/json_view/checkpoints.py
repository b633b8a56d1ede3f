"""The view of a whole checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tuskpoint.v1 import checkpoint_pb2

from ..limits import MIB
from ..model import Channel, Checkpoint, DeltaHistory, State, Value
from .deltas import delta_view
from .values import Room

MAX_CHECKPOINT_TEXT = 32 * MIB
"""Bytes of text of all values of one checkpoint; what exceeds them is `$opaque`."""

MAX_EXTRAS_TEXT = 1 * MIB
"""The same of all extras of its state: they travel in the message that begins a checkpoint."""


def checkpoint_view(loaded: Checkpoint, histories: Sequence[DeltaHistory] = ()) -> Checkpoint:
    """Return a checkpoint with a view in the place of every value; digests stay.

    Pending writes come first, so that what a thread waits for is shown however large its
    state is; delta channels come last.

    Args:
        loaded: The checkpoint.
        histories: Of the delta channels that it does not store itself; their channels are
            shown with what they are rebuilt from.
    """
    room = Room(MAX_CHECKPOINT_TEXT)
    writes = tuple(replace(write, value=room.view(write.value)) for write in loaded.writes)
    state = loaded.state
    if state is None:
        return replace(loaded, writes=writes)
    channels = tuple(
        channel if channel.value is None else replace(channel, value=room.view(channel.value))
        for channel in state.channels
    )
    channels = _with_deltas(channels, histories, room)
    return replace(loaded, state=State(_frame_view(state.frame), channels), writes=writes)


def _with_deltas(
    channels: tuple[Channel, ...], histories: Sequence[DeltaHistory], room: Room
) -> tuple[Channel, ...]:
    """Return channels with what delta channels are rebuilt from; those of no history stay."""
    found = {channel.name: channel for channel in channels}
    for history in histories:
        known = found.get(history.channel, Channel(history.channel, None, None))
        if known.value is None and (shown := delta_view(history, room)) is not None:
            found[history.channel] = replace(known, value=shown)
    return tuple(found.values())


def _frame_view(frame: bytes) -> bytes:
    """Return a frame with views in the place of its extras."""
    message = checkpoint_pb2.CheckpointState.FromString(frame)
    if not message.extras:
        return frame
    room = Room(MAX_EXTRAS_TEXT)
    for name in sorted(message.extras):
        held = message.extras[name]
        shown = room.view(Value(held.type, held.data))
        held.type, held.data = shown.type, shown.data
    return message.SerializeToString(deterministic=True)
