"""Saves as they wait for the writer: in the form of their rows, packed before the queue."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...core.model import CheckpointKey, Metadata
from ...core.state import ChannelRef
from ...core.values import MIN_COMPRESSED, Encoding, compress
from ...journal.database.pending_writes import StoredWrite
from .value_groups import Keyframes, PreparedValue

IncomingWrite = StoredWrite
"""A pending write as it waits for the writer, which gives it a number."""

IncomingWrites = tuple[CheckpointKey, list[IncomingWrite]]
"""The checkpoint that writes follow, and the writes."""


@dataclass(slots=True)  # not frozen: that takes several times as long, on the way of each save
class IncomingCheckpoint:
    """A checkpoint to be saved, whose message was checked and taken apart."""

    key: CheckpointKey  # an empty `checkpoint_id` asks for a minted one
    parent_id: str
    frame: bytes  # as `State.frame`
    # By name. One is not encoded if something has to be looked up: the value with its digest, or
    # without one the parent's.
    channels: dict[str, ChannelRef]
    contents: dict[str, tuple[str, PreparedValue]]  # types and values that came along
    delta_channels: bytes  # names of channels that are rebuilt from writes
    metadata: Metadata
    label: str
    summary: str
    agent_id: str  # agent that drives the thread; empty leaves the thread's as it is
    writes: Sequence[IncomingWrite]
    expected_head: str | None  # required greatest ID of the namespace; `None` does not ask
    continues: bool  # the parent is the latest of the namespace, whatever `parent_id` is
    raises_id: bool  # a generated ID, in whose place one above the latest may be stored
    restarts: bool  # it may repeat an ID of a deleted thread, on purpose
    vector: bytes  # vector that search finds it by, packed; empty leaves it as it is
    searchable: bool | None  # whether search finds the thread; `None` leaves it as it is

    @property
    def size_bytes(self) -> int:
        """Bytes of the values that came along."""
        return sum([channel.size for channel in self.channels.values()]) + size_of(self.writes)

    def pack(self, tenant: str, keyframes: Keyframes) -> None:
        """Bring its values into the form in which they may be stored."""
        place = (tenant, self.key.thread_id, self.key.checkpoint_ns)
        for name, (kind, content) in self.contents.items():
            digest = self.channels[name].digest
            if digest is not None and len(content.value) >= MIN_COMPRESSED:
                self.contents[name] = kind, keyframes.prepare(*place, name, content.value, digest)
        self.writes = pack_writes(self.writes)


def incoming_write(
    task_id: str, idx: int, task_path: str, channel: str, kind: str, digest: bytes, data: bytes
) -> IncomingWrite:
    """Return a write whose value, of type `kind`, came along and has this digest."""
    encoding = int(Encoding.PLAIN)
    return StoredWrite(
        task_id, idx, task_path, channel, kind, digest, len(data), encoding, 0, None, data
    )


def pack_writes(writes: Iterable[StoredWrite]) -> Sequence[StoredWrite]:
    """Return writes that were sent in the form in which they are stored."""
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
