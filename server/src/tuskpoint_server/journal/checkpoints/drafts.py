"""Changes as they wait for the writer: validated, hashed and compressed before the queue."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import NamedTuple

from ...domain.model import Channel, CheckpointDraft, Reference, Value, Version, Write
from ...domain.state import encode_channel
from ...domain.value_groups import Keyframes, Prepared
from ...domain.values import Packed, compress, value_digest


class ChannelChange(NamedTuple):
    """A channel of a save; size, type and content are those of a value that came along."""

    name: str
    version: Version | None
    reference: Reference | None  # `None` if a digest says what it holds
    digest: bytes | None
    size: int = 0
    encoded: bytes = b""  # its part of the stored state, if that is known already
    type: str = ""
    content: Prepared | None = None


class WriteChange(NamedTuple):
    """A pending write, with its value as it will be stored."""

    write: Write
    packed: Packed


class CheckpointChange(NamedTuple):
    """A checkpoint to be saved: as it came, and as it will be stored."""

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


def checkpoint_change(
    tenant: str, draft: CheckpointDraft, keyframes: Keyframes, entropy: int
) -> CheckpointChange:
    """Return the change that saves a checkpoint."""
    channels = tuple(
        _channel(tenant, draft, index, keyframes) for index in range(len(draft.channels))
    )
    names = encode_names(draft.delta_channels)
    return CheckpointChange(
        tenant, draft, channels, names, prepare_writes(draft.writes), entropy=entropy
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
    one, key = draft.channels[index], draft.key
    content = one.content
    if isinstance(content, Value):
        digest, size = one.digest or value_digest(content), len(content.data)
        prepared = keyframes.prepare(
            tenant, key.thread_id, key.checkpoint_ns, one.name, content.data, digest
        )
        encoded = encode_channel(Channel(one.name, one.version, digest, size))
        return ChannelChange(
            one.name, one.version, None, digest, size, encoded, content.type, prepared
        )
    if isinstance(content, bytes):
        return ChannelChange(one.name, one.version, None, content)
    empty = content is Reference.EMPTY
    encoded = encode_channel(Channel(one.name, one.version, None)) if empty else b""
    return ChannelChange(one.name, one.version, content, None, 0, encoded)
