"""Changes as they wait for the writer: validated, hashed and compressed before the queue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from ...domain.model import (
    Channel,
    CheckpointDraft,
    CheckpointKey,
    Reference,
    Value,
    Version,
    Write,
)
from ...domain.state import encode_channel
from ...domain.value_groups import Keyframes, Prepared
from ...domain.values import Packed, compress, value_digest


@dataclass(frozen=True, slots=True)
class ChannelChange:
    """A channel of a save.

    Attributes:
        name: Its name.
        version: Its version, or `None`.
        reference: `INHERIT`, `EMPTY`, or `None` if a digest says what it holds.
        digest: Digest of its value, or `None`.
        size: Bytes of the value, if it came along.
        encoded: Its part of the stored state, if that is known already; else empty.
        type: Type of the value, if it came along.
        content: The value, if it came along.
    """

    name: str
    version: Version | None
    reference: Reference | None
    digest: bytes | None
    size: int = 0
    encoded: bytes = b""
    type: str = ""
    content: Prepared | None = None


@dataclass(frozen=True, slots=True)
class WriteChange:
    """A pending write, with its value as it will be stored."""

    write: Write
    packed: Packed


@dataclass(frozen=True, slots=True)
class CheckpointChange:
    """A checkpoint to be saved.

    Attributes:
        tenant: The tenant.
        draft: The checkpoint as it came.
        channels: Its channels, in order.
        delta_channels: Stored form of their names.
        writes: Writes saved with it.
        entropy: 62 random bits, for an ID.
    """

    tenant: str
    draft: CheckpointDraft
    channels: tuple[ChannelChange, ...]
    delta_channels: bytes
    writes: tuple[WriteChange, ...]
    entropy: int = 0

    @property
    def size_bytes(self) -> int:
        """About how many bytes it writes."""
        channels = sum(c.content.size_bytes for c in self.channels if c.content is not None)
        return channels + sum(len(one.packed.data) for one in self.writes)


@dataclass(frozen=True, slots=True)
class WritesChange:
    """Pending writes to be saved."""

    tenant: str
    key: CheckpointKey
    writes: tuple[WriteChange, ...]

    @property
    def size_bytes(self) -> int:
        """About how many bytes it writes."""
        return sum(len(one.packed.data) for one in self.writes)


def checkpoint_change(
    tenant: str, draft: CheckpointDraft, keyframes: Keyframes, entropy: int
) -> CheckpointChange:
    """Return the change that saves a checkpoint."""
    return CheckpointChange(
        tenant=tenant,
        draft=draft,
        channels=tuple(
            _channel(tenant, draft, index, keyframes) for index in range(len(draft.channels))
        ),
        delta_channels=encode_names(draft.delta_channels),
        writes=prepare_writes(draft.writes),
        entropy=entropy,
    )


def prepare_writes(writes: Sequence[Write]) -> tuple[WriteChange, ...]:
    """Return writes with their values as they will be stored."""
    return tuple(WriteChange(write, compress(write.value.data)) for write in writes)


def encode_names(names: Sequence[str]) -> bytes:
    """Return the stored form of names of delta channels."""
    if not names:
        return b"[]"
    return json.dumps(list(names), ensure_ascii=False, separators=(",", ":")).encode()


def _channel(
    tenant: str, draft: CheckpointDraft, index: int, keyframes: Keyframes
) -> ChannelChange:
    one = draft.channels[index]
    content = one.content
    if isinstance(content, Value):
        digest = one.digest or value_digest(content)
        key = draft.key
        prepared = keyframes.prepare(
            tenant, key.thread_id, key.checkpoint_ns, one.name, content.data, digest
        )
        size = len(content.data)
        encoded = encode_channel(Channel(one.name, one.version, digest, size))
        return ChannelChange(
            one.name, one.version, None, digest, size, encoded, content.type, prepared
        )
    if content is Reference.EMPTY:
        encoded = encode_channel(Channel(one.name, one.version, None))
        return ChannelChange(one.name, one.version, content, None, 0, encoded)
    if content is Reference.INHERIT:
        return ChannelChange(one.name, one.version, content, None)
    return ChannelChange(one.name, one.version, None, bytes(content))
