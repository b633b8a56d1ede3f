"""Delta bases: values that rebuild delta channels and that no ancestor stores.

A delta base names values by digest, as a state does. The journal and segments store the bytes of a
`tuskpoint.v1.DeltaBase`.
"""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import NamedTuple

from google.protobuf.message import DecodeError

from tuskpoint.storage.v1 import segment_pb2

from .errors import malformed_bytes
from .limits import LIMITS
from .model import Version
from .state import decode_version, fill_version
from .values import DIGEST_BYTES


class DeltaSeed(NamedTuple):
    """The value that a rebuild starts with: version if it had one, digest and size."""

    version: Version | None
    digest: bytes
    size: int


class DeltaWrite(NamedTuple):
    """A write that rebuilds a channel; `digest`, `type` and `size` describe its value."""

    task_path: str
    task_id: str
    idx: int
    digest: bytes
    type: str
    size: int


class DeltaChannel(NamedTuple):
    """The values that rebuild one channel: a seed, if there is one, and the later writes."""

    name: str
    seed: DeltaSeed | None
    writes: tuple[DeltaWrite, ...]  # oldest first
    # Without a seed: the ancestor at which the history continues; empty: the channel starts empty.
    ancestor_id: str = ""

    @property
    def digests(self) -> tuple[bytes, ...]:
        """The digests of the channel's values."""
        seed = () if self.seed is None else (self.seed.digest,)
        return seed + tuple(write.digest for write in self.writes)


_SEED = attrgetter("digest", "size_bytes")
_WRITE = attrgetter("task_path", "task_id", "idx", "digest", "type", "size_bytes")


def encode_delta_base(channels: Iterable[DeltaChannel]) -> bytes:
    """Return the stored bytes; empty if there are no channels."""
    message = segment_pb2.DeltaBase()
    for channel in channels:
        stored = message.channels.add(name=channel.name, ancestor_checkpoint_id=channel.ancestor_id)
        if channel.seed is not None:
            version, stored.seed.digest, stored.seed.size_bytes = channel.seed
            if version is not None:
                fill_version(stored.seed.version, version)
        for path, task, idx, digest, kind, size in channel.writes:
            stored.writes.add(
                task_path=path, task_id=task, idx=idx, digest=digest, type=kind, size_bytes=size
            )
    return message.SerializeToString(deterministic=True)


def decode_delta_base(data: bytes, name: str) -> tuple[DeltaChannel, ...]:
    """Decode stored bytes; `name` is the blob ID, for the refusal."""
    try:
        message = segment_pb2.DeltaBase.FromString(data)
    except DecodeError:
        raise malformed_bytes(name, "a delta_base is not a DeltaBase") from None
    if len(message.channels) > LIMITS.max_channels:
        raise malformed_bytes(name, f"a delta_base has more than {LIMITS.max_channels} channels")
    channels = tuple(_delta_channel(channel, name) for channel in message.channels)
    if len({channel.name for channel in channels}) < len(channels):
        raise malformed_bytes(name, "a delta_base has a channel twice")
    return channels


def _delta_channel(message: segment_pb2.DeltaChannel, name: str) -> DeltaChannel:
    seed = None
    if message.HasField("seed"):
        version = None
        if message.seed.HasField("version"):
            if message.seed.version.WhichOneof("kind") is None:
                raise malformed_bytes(name, f"channel {message.name} has a version without a kind")
            version = decode_version(message.seed.version)
        seed = DeltaSeed(version, *_SEED(message.seed))
    writes = tuple(DeltaWrite(*_WRITE(write)) for write in message.writes)
    channel = DeltaChannel(message.name, seed, writes, message.ancestor_checkpoint_id)
    if seed is not None and channel.ancestor_id:
        raise malformed_bytes(name, f"channel {message.name} of a delta_base begins twice")
    if any(len(digest) != DIGEST_BYTES for digest in channel.digests):
        raise malformed_bytes(name, f"a delta_base names no value for channel {message.name}")
    return channel
