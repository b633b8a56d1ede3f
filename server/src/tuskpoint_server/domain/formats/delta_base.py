"""Delta bases: what delta channels are rebuilt from that no ancestor holds any more.

The stored form is `tuskpoint.v1.DeltaBase`. It names values by digest, like a state.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from tuskpoint.v1 import segment_pb2

from ..digests import DIGEST_BYTES
from ..limits import LIMITS
from ..model import Version
from ..state import decode_version, encode_version
from ..stored_json import malformed
from .mirrors import Mirror


@dataclass(frozen=True, slots=True)
class DeltaSeed:
    """The value that rebuilding begins with: its version, if it had one, digest and size."""

    version: Version | None
    digest: bytes
    size: int


@dataclass(frozen=True, slots=True)
class DeltaWrite:
    """A write that a channel is rebuilt from; `digest`, `type` and `size` are of its value."""

    task_path: str
    task_id: str
    idx: int
    digest: bytes
    type: str
    size: int


@dataclass(frozen=True, slots=True)
class DeltaChannel:
    """What one channel is rebuilt from: a value, if there is one, and the writes after it.

    Attributes:
        name: Name of the channel.
        seed: The value that rebuilding begins with, or `None`.
        writes: The writes after it, oldest first.
        ancestor_id: Without a seed: the checkpoint at which the path goes on above the
            writes; empty: rebuilding begins with nothing.
    """

    name: str
    seed: DeltaSeed | None
    writes: tuple[DeltaWrite, ...]
    ancestor_id: str = ""

    @property
    def digests(self) -> tuple[bytes, ...]:
        """The values that it takes."""
        seed = () if self.seed is None else (self.seed.digest,)
        return seed + tuple(write.digest for write in self.writes)


_SEEDS = Mirror(DeltaSeed, {"size": "size_bytes"}, left_out=("version",))
_WRITES = Mirror(DeltaWrite, {"size": "size_bytes"})


def encode_delta_base(channels: Iterable[DeltaChannel]) -> bytes:
    """Return the stored bytes; empty if there are no channels."""
    message = segment_pb2.DeltaBase()
    for channel in channels:
        stored = message.channels.add(name=channel.name, ancestor_checkpoint_id=channel.ancestor_id)
        if channel.seed is not None:
            stored.seed.CopyFrom(segment_pb2.DeltaSeed(**_SEEDS.to_message(channel.seed)))
            if channel.seed.version is not None:
                stored.seed.version.CopyFrom(encode_version(channel.seed.version))
        for write in channel.writes:
            stored.writes.add(**_WRITES.to_message(write))
    return message.SerializeToString(deterministic=True)


def decode_delta_base(data: bytes, name: str) -> tuple[DeltaChannel, ...]:
    """Return what stored bytes hold; `name` is the blob ID, for the refusal.

    Raises:
        Refusal: `BLOB_MALFORMED`.
    """
    try:
        message = segment_pb2.DeltaBase.FromString(data)
    except DecodeError:
        raise malformed(name, "a delta_base is no DeltaBase") from None
    if len(message.channels) > LIMITS.max_channels:
        raise malformed(name, f"a delta_base has more than {LIMITS.max_channels} channels")
    channels = tuple(_channel(channel, name) for channel in message.channels)
    if len({channel.name for channel in channels}) < len(channels):
        raise malformed(name, "a delta_base has a channel twice")
    return channels


def _channel(message: segment_pb2.DeltaChannel, name: str) -> DeltaChannel:
    seed = None
    if message.HasField("seed"):
        version = None
        if message.seed.HasField("version"):
            if message.seed.version.WhichOneof("kind") is None:
                raise malformed(name, f"channel {message.name} has a version without a kind")
            version = decode_version(message.seed.version)
        seed = DeltaSeed(version, *_SEEDS.of_message(message.seed))
    writes = tuple(DeltaWrite(*_WRITES.of_message(write)) for write in message.writes)
    channel = DeltaChannel(message.name, seed, writes, message.ancestor_checkpoint_id)
    if seed is not None and channel.ancestor_id:
        raise malformed(name, f"channel {message.name} of a delta_base begins twice")
    if any(len(digest) != DIGEST_BYTES for digest in channel.digests):
        raise malformed(name, f"a delta_base names no value for channel {message.name}")
    return channel
