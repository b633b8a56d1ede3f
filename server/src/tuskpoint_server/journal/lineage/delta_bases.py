"""What the delta channels of a checkpoint need where it stands without its ancestors."""

from __future__ import annotations

import json
from dataclasses import dataclass

from sqlalchemy import Connection

from ...domain.formats.delta_base import DeltaChannel, encode_delta_base
from ...domain.state import decode_channels
from ..checkpoints.delta_history import follow
from ..database.overlay import Place

NO_NAMES = b"[]"
"""Stored form of no delta channels."""


@dataclass(frozen=True, slots=True)
class Base:
    """What the delta channels that a checkpoint does not store are rebuilt from.

    Attributes:
        channels: Each that is rebuilt from something, by name.
        written: Digest to number of a row of `writes` that holds the value; the others are
            values of the family.
    """

    channels: tuple[DeltaChannel, ...]
    written: dict[bytes, int]

    @property
    def stored(self) -> bytes | None:
        """The stored form; `None` if there is nothing."""
        return encode_delta_base(self.channels) or None

    @property
    def digests(self) -> set[bytes]:
        """The values that it takes."""
        return {digest for channel in self.channels for digest in channel.digests}

    @property
    def size(self) -> int:
        """Bytes of the values, each time that one is applied."""
        seeds = sum(one.seed.size for one in self.channels if one.seed is not None)
        return seeds + sum(write.size for one in self.channels for write in one.writes)


NO_BASE = Base((), {})


def delta_base(
    connection: Connection, number: int, place: Place, state: bytes, delta_channels: bytes
) -> Base:
    """Return what the delta channels of a checkpoint are rebuilt from.

    Args:
        connection: In a transaction.
        number: Number of the thread.
        place: The checkpoint.
        state: Stored form of its state.
        delta_channels: Stored form of the names of its delta channels.
    """
    if delta_channels == NO_NAMES:
        return NO_BASE
    stored = {channel.name for channel in decode_channels(state) if channel.digest is not None}
    paths = follow(connection, number, place, sorted(set(json.loads(delta_channels)) - stored))
    channels = tuple(
        DeltaChannel(name, path.seed, tuple(one.write for one in path.writes))
        for name, path in paths.items()
        if path.seed is not None or path.newest_first
    )
    written = {
        one.write.digest: one.number
        for path in paths.values()
        for one in path.newest_first
        if one.number is not None
    }
    return Base(channels, written)
