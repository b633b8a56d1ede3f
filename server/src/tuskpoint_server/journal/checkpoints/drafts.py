"""Changes as they wait for the writer: validated, hashed and compressed before the queue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...domain.model import (
    Channel,
    ChannelDraft,
    CheckpointDraft,
    CheckpointKey,
    Reference,
    Value,
    Write,
)
from ...domain.state import encode_channel
from ...domain.value_groups import Keyframes, Prepared
from ...domain.values import compress, value_digest
from ..database.logs import KnownChannel
from ..database.overlay import StoredWrite


class ChannelChange(NamedTuple):
    """A channel of a save; type and content are those of a value that came along."""

    name: str
    # As it will be stored. Not encoded if something has to be looked up: the value with its
    # digest, or without one the parent's.
    known: KnownChannel
    type: str = ""
    content: Prepared | None = None


class CheckpointChange(NamedTuple):
    """A checkpoint to be saved: as it came, and as it will be stored."""

    tenant: str
    draft: CheckpointDraft
    channels: tuple[ChannelChange, ...]
    delta_channels: bytes
    writes: tuple[StoredWrite, ...]
    entropy: int = 0

    @property
    def size_bytes(self) -> int:
        """About how many bytes it writes."""
        channels = sum(c.content.size_bytes for c in self.channels if c.content is not None)
        return channels + written_bytes(self.writes)


def checkpoint_change(
    tenant: str, draft: CheckpointDraft, keyframes: Keyframes, entropy: int
) -> CheckpointChange:
    """Return the change that saves a checkpoint."""
    channels = tuple(_channel(tenant, draft.key, one, keyframes) for one in draft.channels)
    names, writes = encode_names(draft.delta_channels), prepare_writes(draft.writes)
    return CheckpointChange(tenant, draft, channels, names, writes, entropy)


def prepare_writes(writes: Sequence[Write]) -> tuple[StoredWrite, ...]:
    """Return writes as they will be stored, without the number of their change."""
    return tuple(map(_write, writes))


def written_bytes(writes: Iterable[StoredWrite]) -> int:
    """Return the bytes of writes as they are stored."""
    return sum(len(one.data or b"") for one in writes)


def _write(one: Write) -> StoredWrite:
    value, packed = one.value, compress(one.value.data)
    named = (one.task_id, one.idx, one.task_path, one.channel, value.type, one.digest)
    return StoredWrite(*named, len(value.data), int(packed.encoding), 0, None, packed.data)


def encode_names(names: Sequence[str]) -> bytes:
    """Return the stored form of names of delta channels."""
    if not names:
        return b"[]"
    return json.dumps(list(names), ensure_ascii=False, separators=(",", ":")).encode()


def _channel(
    tenant: str, key: CheckpointKey, one: ChannelDraft, keyframes: Keyframes
) -> ChannelChange:
    content = one.content
    if isinstance(content, Value):
        digest, size = one.digest or value_digest(content), len(content.data)
        prepared = keyframes.prepare(
            tenant, key.thread_id, key.checkpoint_ns, one.name, content.data, digest
        )
        encoded = encode_channel(Channel(one.name, one.version, digest, size))
        known = KnownChannel(one.version, digest, size, encoded)
        return ChannelChange(one.name, known, content.type, prepared)
    if isinstance(content, bytes):
        return ChannelChange(one.name, KnownChannel(one.version, content))
    empty = content is Reference.EMPTY
    encoded = encode_channel(Channel(one.name, one.version, None)) if empty else b""
    return ChannelChange(one.name, KnownChannel(one.version, None, 0, encoded))
