"""Changes as they wait for the writer: validated, hashed and compressed before the queue."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ...domain.model import Channel, CheckpointDraft, Reference, Value, Write
from ...domain.state import encode_channel
from ...domain.value_groups import Keyframes, Prepared
from ...domain.values import compress, value_digest
from ..database.logs import KnownChannel, StoredWrite


class CheckpointChange(NamedTuple):
    """A checkpoint to be saved: as it came, and as it will be stored."""

    tenant: str
    draft: CheckpointDraft
    # By name. One is not encoded if something has to be looked up: the value with its digest, or
    # without one the parent's.
    channels: dict[str, KnownChannel]
    contents: dict[str, tuple[str, Prepared]]  # types and values that came along
    delta_channels: bytes
    writes: tuple[StoredWrite, ...]
    entropy: int = 0

    @property
    def size_bytes(self) -> int:
        """About how many bytes it writes."""
        channels = sum(content.size_bytes for _, content in self.contents.values())
        return channels + written_bytes(self.writes)


def checkpoint_change(
    tenant: str, draft: CheckpointDraft, keyframes: Keyframes, entropy: int
) -> CheckpointChange:
    """Return the change that saves a checkpoint."""
    place = (tenant, draft.key.thread_id, draft.key.checkpoint_ns)
    channels: dict[str, KnownChannel] = {}
    contents: dict[str, tuple[str, Prepared]] = {}
    for one in draft.channels:
        content = one.content
        digest, size, encoded = content if isinstance(content, bytes) else None, 0, b""
        if isinstance(content, Value):
            digest, size = one.digest or value_digest(content), len(content.data)
            prepared = keyframes.prepare(*place, one.name, content.data, digest)
            contents[one.name] = (content.type, prepared)
        if one.name in contents or content is Reference.EMPTY:
            encoded = encode_channel(Channel(one.name, one.version, digest, size))
        channels[one.name] = KnownChannel(one.version, digest, size, encoded)
    names, writes = encode_names(draft.delta_channels), prepare_writes(draft.writes)
    return CheckpointChange(tenant, draft, channels, contents, names, writes, entropy)


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
