"""Content of a segment: the changed rows of one thread, as the journal has them.

A range of a thread's log reaches from the watermark up to a bound in bytes. A row that changed
again above the range is in the range in its current form, and is also in the next range.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from sqlalchemy import Connection

from ...core.model import BlobLocation, Damage, Lineage
from ...journal.database.binding import binder_of, equal
from ...journal.database.pending_writes import WRITE_CHANGED
from ...journal.database.thread_rows import Place, ThreadRow
from ...journal.sql.schema import checkpoints, writes
from ...journal.sql.statements import SqlRow
from ...journal.values.segment_refs import NOWHERE, ForeignSegments, decode_held
from ..formats.records import CheckpointRecord, SettingRecord
from ..formats.segments import SegmentCheckpoint, SegmentWrite
from .gaps import Gap
from .plan import StoredMember
from .segment_index import NeededValue


class DirtyThread(ThreadRow):
    """A thread, usually with changes above its watermark."""

    __slots__ = ()

    def at(self, generation: int, seq: int) -> tuple[str, int, int, int]:
        """Return the first fields of a record about one of the thread's changes."""
        return (self.thread_id, self.incarnation, generation, seq)

    def setting(self, generation: int) -> SettingRecord:
        """Return the record of the thread's agent and settings."""
        position = self.at(generation, self.settings_seq)
        return SettingRecord(*position, self.agent_id, self.retention_s, bool(self.unsearchable))

    def record(
        self, generation: int, row: SegmentCheckpoint, segment: bytes, held_ns: str | None
    ) -> CheckpointRecord:
        """Return the record of a checkpoint, which names the checkpoint's segment."""
        position = self.at(generation, row.seq)
        identity = (row.checkpoint_ns, row.checkpoint_id, row.parent_id, row.created_us)
        state = hashlib.sha256(row.state).digest()
        notes = (row.label, row.summary, row.lineage)
        return CheckpointRecord(*position, *identity, segment, state, *notes, held_ns)


class RemovedCheckpoint(NamedTuple):
    """A checkpoint that was removed; an empty ID means the whole incarnation."""

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


ROW_CHANGED = "its row was changed behind the server's back"


@dataclass(slots=True)
class DirtyPlace:
    """Changes of a checkpoint in a range."""

    place: Place
    row: SegmentCheckpoint | None = None  # row of the checkpoint, if the row changed
    writes: list[SegmentWrite] = field(default_factory=list)  # pending writes that changed
    # segments that already contain the checkpoint: a copy, or stored outside its range
    held: ForeignSegments = NOWHERE
    held_writes: bool = False  # whether those segments also contain some of the writes
    # digests of evicted values and writes, with the change that brought such a write
    gone: dict[bytes, int] = field(default_factory=dict)
    needs: set[bytes] = field(default_factory=set)  # digests of the values that the row needs
    # why the checkpoint cannot be stored in its current form; empty: no reason is known
    problem: str = ""

    def add(self, connection: Connection, thread: DirtyThread, row: SqlRow) -> None:
        """Add a write from its row, which has `WRITE_COLUMNS`."""
        mac, *columns, data = row
        values: list[Any] = [*columns, data or b""]
        write = SegmentWrite(*values)
        binder = binder_of(connection)
        expected_mac = binder.write(
            *(thread.number, *self.place, write.task_id, write.idx, write.task_path),
            *(write.channel, write.type, write.digest, write.size, write.seq, None),
        )
        if binder.is_complete and (mac is None or not equal(mac, expected_mac)):
            self.problem = WRITE_CHANGED
        if write.seq <= self.held.seq:
            self.held_writes = True
            return
        self.writes.append(write)
        if row[-1] is None:
            self.gone[write.digest] = write.seq

    @property
    def held_row(self) -> bool:
        """Whether another segment already contains the row."""
        return self.row is not None and self.row.seq <= self.held.seq

    @property
    def own_row(self) -> SegmentCheckpoint | None:
        """The row, unless another segment already contains it."""
        return None if self.held_row else self.row

    @property
    def elsewhere(self) -> tuple[bytes, ...]:
        """Segments outside the range that contain the row or some of the writes."""
        if self.held is NOWHERE:
            return ()
        of_row = self.held.segments[:1] if self.held_row else ()
        of_writes = self.held.writes if self.held_writes else ()
        return tuple(dict.fromkeys((*of_row, *of_writes)))

    @property
    def seqs(self) -> list[int]:
        """Sequence numbers of the checkpoint's rows."""
        return [row.seq for row in (self.row, *self.writes) if row is not None]

    @property
    def last_seq(self) -> int:
        """Greatest sequence number of the checkpoint's rows."""
        seq = 0 if self.row is None else self.row.seq
        return max(seq, *(write.seq for write in self.writes)) if self.writes else seq

    @property
    def size(self) -> int:
        """Bytes of the checkpoint's rows, without the values."""
        size = sum(len(write.data) for write in self.writes)
        return size if self.row is None else size + len(self.row.state) + len(self.row.metadata)


CHECKPOINT_COLUMNS = tuple(
    checkpoints.c[name]
    for name in (
        *("mac", "run_id", "root_id", "delta_channels"),
        *(*SegmentCheckpoint._fields[:-1], *Lineage.__slots__, "held"),
    )
)
WRITE_COLUMNS = (writes.c.mac, *(writes.c[name] for name in SegmentWrite._fields))


def dirty_checkpoint(connection: Connection, thread: DirtyThread, row: SqlRow) -> DirtyPlace:
    """Return a checkpoint from its row, which has `CHECKPOINT_COLUMNS`."""
    mac, run_id, root_id, names, *columns, delta_base, forked, rolled_back, adopted, held = row
    values: list[Any] = [*columns, delta_base or b"", Lineage(forked, rolled_back, adopted)]
    checkpoint = SegmentCheckpoint(*values)
    place = (checkpoint.checkpoint_ns, checkpoint.checkpoint_id)
    binder = binder_of(connection)
    expected_mac = binder.checkpoint(
        *(
            thread.tenant,
            thread.number,
            *place,
            checkpoint.seq,
            checkpoint.parent_id,
            checkpoint.state,
        ),
        *(
            checkpoint.metadata,
            run_id,
            root_id,
            names,
            delta_base,
            checkpoint.label,
            checkpoint.summary,
        ),
        *(forked, rolled_back, adopted, checkpoint.created_us),
    )
    damaged = binder.is_complete and (mac is None or not equal(mac, expected_mac))
    return DirtyPlace(
        place, checkpoint, held=decode_held(held), problem=ROW_CHANGED if damaged else ""
    )


@dataclass(slots=True)
class DirtyRange:
    """Content of one segment: a range of a thread's log, or one checkpoint outside a range.

    A checkpoint is alone if it could not be stored with its range, or if each checkpoint gets a
    blob of its own. Then the content is its row and all its writes, and no other segment is named.
    """

    thread: DirtyThread
    through: int  # last change; a range starts after the thread's watermark
    size_bytes: int = 0  # dirty bytes of the thread that are in the content
    alone: bool = False  # whether the content is one checkpoint outside the ranges
    gap: Gap | None = None  # gap that the checkpoint was until now
    # changed checkpoints, in the order of their last change
    places: list[DirtyPlace] = field(default_factory=list)
    removed: list[RemovedCheckpoint] = field(default_factory=list)
    pins: list[Pin] = field(default_factory=list)  # bundles that were handed off
    # values that the rows need and that no named segment contains, by digest
    values: dict[bytes, NeededValue] = field(default_factory=dict)
    # segment that contains a value, by the value's digest
    named: dict[bytes, StoredMember] = field(default_factory=dict)
    # segments that contain evicted values and writes
    sources: list[BlobLocation] = field(default_factory=list)
    # damages of values and writes in the journal, with the checkpoint that needs them
    damages: list[tuple[Place, Damage]] = field(default_factory=list)
    # segments with copies and bundles, segments they need, and the parts of all, by hash
    holders: dict[bytes, StoredMember] = field(default_factory=dict)
