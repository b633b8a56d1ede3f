"""What a flush reads of a thread: its rows as they are in the journal, and what they need."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from ...domain.formats.records import CheckpointRecord, SettingRecord
from ...domain.model import BlobLocation, Lineage
from ..checkpoints.located import Held
from ..database.logs import Place
from .holding import Holder, NeededValue


class Bounds(NamedTuple):
    """How much one flush takes over all threads; of one that is reached at least a checkpoint."""

    threads: int
    checkpoints: int
    size_bytes: int


class DirtyThread(NamedTuple):
    """A thread, for the most part one with changes above its watermark; fields as the columns."""

    number: int
    thread_id: str
    family: int
    incarnation: int
    seq: int
    certified_seq: int
    dirty_since_us: int
    dirty_bytes: int
    settings_seq: int
    deleted: bool
    deleted_through: str
    agent_id: str
    retention_s: int
    unsearchable: bool

    def at(self, generation: int, seq: int) -> tuple[str, int, int, int]:
        """Return what a record of one of its changes begins with."""
        return (self.thread_id, self.incarnation, generation, seq)

    def setting(self, generation: int) -> SettingRecord:
        """Return the record of its agent and settings."""
        where = self.at(generation, self.settings_seq)
        return SettingRecord(*where, self.agent_id, self.retention_s, bool(self.unsearchable))


class CheckpointRow(NamedTuple):
    """A checkpoint's row; fields as the columns."""

    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    parent_id: str
    state: bytes
    metadata: bytes
    delta_base: bytes | None
    label: str
    summary: str
    forked_from: str
    rolled_back_from: str
    adopted_from: str
    created_us: int
    held: bytes | None

    @property
    def lineage(self) -> Lineage:
        """Where it came from."""
        return Lineage(self.forked_from, self.rolled_back_from, self.adopted_from)

    def record(
        self, thread: DirtyThread, generation: int, segment: bytes, held_ns: str | None
    ) -> CheckpointRecord:
        """Return its record, which names the segment that holds it."""
        return CheckpointRecord(
            *thread.at(generation, self.seq),
            self.checkpoint_ns,
            self.checkpoint_id,
            self.parent_id,
            self.created_us,
            segment,
            hashlib.sha256(self.state).digest(),
            self.label,
            self.summary,
            self.lineage,
            held_ns,
        )


class WriteRow(NamedTuple):
    """A pending write's row; fields as the columns."""

    checkpoint_ns: str
    checkpoint_id: str
    seq: int
    task_id: str
    idx: int
    task_path: str
    channel: str
    type: str
    digest: bytes
    size: int
    encoding: int
    data: bytes | None


class Removal(NamedTuple):
    """A checkpoint that was removed; an empty ID: the whole incarnation."""

    seq: int
    incarnation: int
    checkpoint_ns: str
    checkpoint_id: str


class Pin(NamedTuple):
    """A bundle that was handed off."""

    sha256: bytes
    checkpoint_ns: str
    checkpoint_id: str
    seq: int


@dataclass(slots=True)
class DirtyPlace:
    """What changed of a checkpoint in a range.

    Attributes:
        place: Namespace and ID.
        row: Its row, if that changed.
        writes: Its pending writes that changed.
        held: What holds it already, if it is a copy, or was stored beside its range.
        held_writes: Some of its writes lie there too.
        needs: Digests of the values that its row needs.
        problem: Why it cannot be stored as it stands; empty: nothing is known of.
    """

    place: Place
    row: CheckpointRow | None = None
    writes: list[WriteRow] = field(default_factory=list)
    held: Held | None = None
    held_writes: bool = False
    needs: set[bytes] = field(default_factory=set)
    problem: str = ""

    @property
    def held_row(self) -> bool:
        """Whether the row is stored already, elsewhere."""
        return self.row is not None and self.held is not None and self.row.seq <= self.held.seq

    @property
    def own_row(self) -> CheckpointRow | None:
        """The row, unless it is stored already."""
        return None if self.held_row else self.row

    @property
    def elsewhere(self) -> tuple[bytes, ...]:
        """Segments, not of the range, that hold something of it."""
        if self.held is None or not (self.held_row or self.held_writes):
            return ()
        return self.held.segments

    @property
    def seqs(self) -> list[int]:
        """The numbers of its rows."""
        own = [self.row.seq] if self.row is not None else []
        return own + [write.seq for write in self.writes]

    @property
    def last_seq(self) -> int:
        """The greatest number of its rows."""
        return max(self.seqs, default=0)

    @property
    def size(self) -> int:
        """Bytes of its rows, without the values."""
        size = sum(len(write.data or b"") for write in self.writes)
        return size if self.row is None else size + len(self.row.state) + len(self.row.metadata)


@dataclass(slots=True)
class DirtyRange:
    """What one segment is to hold: a range of a thread's log, or one checkpoint beside it.

    A checkpoint stands alone if it could not be stored with its range, or if each is to be a blob
    of its own. Then its row and all its writes are here, and no other segment is named.

    Attributes:
        thread: The thread.
        through: The last change; the first of a range follows the thread's watermark.
        size_bytes: What of the thread's dirty bytes is in it.
        whole: It goes to the thread's last change.
        alone: It is one checkpoint beside the ranges.
        hole: Number of the hole that the checkpoint was; 0: none.
        hole_seq: The change up to which it was a hole.
        places: The checkpoints that changed, in the order of their last change.
        removed: What was removed.
        pins: Bundles that were handed off.
        values: The values that its rows need and that are in no named segment, by digest.
        data: Stored bytes of these; of evicted ones there are none.
        named: By digest the segment that holds a value.
        sources: Segments that hold what was evicted, of values and writes.
        holders: Segments that hold copies and bundles, what these need, and parts of all, by hash.
    """

    thread: DirtyThread
    through: int
    size_bytes: int = 0
    whole: bool = True
    alone: bool = False
    hole: int = 0
    hole_seq: int = 0
    places: list[DirtyPlace] = field(default_factory=list)
    removed: list[Removal] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)
    values: dict[bytes, NeededValue] = field(default_factory=dict)
    data: dict[bytes, bytes] = field(default_factory=dict)
    named: dict[bytes, Holder] = field(default_factory=dict)
    sources: list[BlobLocation] = field(default_factory=list)
    holders: dict[bytes, Holder] = field(default_factory=dict)

    def evicted(self, one: DirtyPlace) -> Iterator[bytes]:
        """Yield the digests of what its segment has to hold of a checkpoint and is not here."""
        for digest in one.needs:
            value = self.values.get(digest)
            if value is not None and value.stored is None:
                yield digest
        for write in one.writes:
            if write.data is None:
                yield write.digest
