"""Saves in the writer's queue, packed in the form of their rows."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...core.model import CheckpointKey, Metadata
from ...core.state import ChannelRef
from ...core.values import MIN_COMPRESSED, Encoding, compress
from ...journal.database.pending_writes import StoredWrite
from .value_groups import Keyframes, PreparedValue

IncomingWrite = StoredWrite
"""A pending write in the writer's queue; the writer gives it a number."""

IncomingWrites = tuple[CheckpointKey, list[IncomingWrite], str]
"""The checkpoint of some writes, the writes, and the lease of the caller, or ""."""


@dataclass(slots=True)  # not frozen: a frozen class takes several times as long, on each save
class IncomingCheckpoint:
    """A checkpoint to save, from a checked message."""

    key: CheckpointKey  # an empty `checkpoint_id` asks for a minted ID
    parent_id: str
    frame: bytes  # like `State.frame`
    # By name. One is not encoded if something has to be looked up: the value with its digest, or
    # without one the parent's.
    channels: dict[str, ChannelRef]
    contents: dict[str, tuple[str, PreparedValue]]  # types and values in the request
    delta_channels: bytes  # channels that are rebuilt from writes
    metadata: Metadata
    label: str
    summary: str
    agent_id: str  # agent that drives the thread; empty keeps the thread's agent
    writes: Sequence[IncomingWrite]
    expected_head: str | None  # required greatest ID of the namespace; `None`: no requirement
    continues: bool  # the parent is the latest of the namespace, whatever `parent_id` is
    raises_id: bool  # a generated ID, in whose place one above the latest may be stored
    restarts: bool  # the save may repeat an ID of a deleted thread, on purpose
    vector: bytes  # packed vector for search; empty keeps the stored vector
    searchable: bool | None  # whether search finds the thread; `None` keeps the setting
    lease_id: str = ""  # lease of the caller; empty: none

    @property
    def size_bytes(self) -> int:
        """Bytes of the values in the request."""
        return sum([channel.size for channel in self.channels.values()]) + size_of(self.writes)

    def pack(self, tenant: str, keyframes: Keyframes) -> None:
        """Pack the values for storage."""
        place = (tenant, self.key.thread_id, self.key.checkpoint_ns)
        for name, (kind, content) in self.contents.items():
            digest = self.channels[name].digest
            if digest is not None and len(content.value) >= MIN_COMPRESSED:
                self.contents[name] = kind, keyframes.prepare(*place, name, content.value, digest)
        self.writes = pack_writes(self.writes)


def incoming_write(
    task_id: str, idx: int, task_path: str, channel: str, kind: str, digest: bytes, data: bytes
) -> IncomingWrite:
    """Return a write with a value of the request; `kind` is the value's type."""
    encoding = int(Encoding.PLAIN)
    return StoredWrite(
        task_id, idx, task_path, channel, kind, digest, len(data), encoding, 0, None, data
    )


def pack_writes(writes: Iterable[StoredWrite]) -> Sequence[StoredWrite]:
    """Return writes packed for storage."""
    return [
        write if write.encoding or write.size < MIN_COMPRESSED else _pack_write(write)
        for write in writes
    ]


def _pack_write(write: StoredWrite) -> StoredWrite:
    content = compress(write.data or b"")
    return write._replace(encoding=int(content.encoding), data=content.data)


def size_of(writes: Iterable[StoredWrite]) -> int:
    """Return the bytes of the values of writes."""
    return sum([write.size for write in writes])
