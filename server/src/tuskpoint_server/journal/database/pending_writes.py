"""The pending writes of checkpoints, as the writer knows them.

The tasks of a fan-out save thousands of writes of one checkpoint, one after the other. So the
writer does not read or count the writes again for each new write: it keeps them in memory, and each
write updates them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection
from typing import TYPE_CHECKING, NamedTuple

from sqlalchemy import Connection, bindparam, null, select

from ...core.errors import journal_damaged
from ...core.limits import KIB, MIB
from ...core.threads import EventKind, ThreadState, WaitingTasks
from ..sql.schema import changes, writes
from ..sql.statements import Statement, of_checkpoint, of_thread, parameters_of
from .binding import Binder, binder_of, equal

if TYPE_CHECKING:
    from .thread_rows import Place, ThreadCacheEntry

_EMPTY_BYTES = KIB  # estimated memory of a `PendingWrites` without writes
_WRITE_BYTES = 500  # estimated memory of a write, without its names
_BYTES_PER_WRITE = 128  # most bytes of a write in a message, besides its names and content
_FEW = 64
_RECENT = 8
_MANY_BYTES = 32 * MIB
"""Bound of a thread's writes in memory: above one checkpoint's most writes (`max_write_names`)."""

_FOLLOWED_CHANGES = 256
"""Number of changes by other servers above which all writes are read again."""

_REMOVES_NOTHING = {
    *(EventKind.CHECKPOINT_SAVED, EventKind.WRITES_SAVED, EventKind.LABEL_SET),
    *(EventKind.RETENTION_SET, EventKind.SEARCHABLE_SET, EventKind.HANDED_OFF),
}
"""Kinds of changes that remove no write, and give their number to each write that they store."""

Slot = tuple[str, int]
"""Task and `idx` of a write."""


class StoredWrite(NamedTuple):
    """A pending write, in the order of the columns; without data if the write was evicted."""

    task_id: str
    idx: int
    task_path: str
    channel: str
    type: str
    digest: bytes
    size: int
    encoding: int
    seq: int
    early_us: int | None
    data: bytes | None

    def mac(self, binder: Binder, thread: int, place: Place) -> bytes:
        """Return the MAC of the write's row."""
        return binder.write(
            *(thread, *place, self.task_id, self.idx, self.task_path, self.channel, self.type),
            *(self.digest, self.size, self.seq, self.early_us),
        )

    @property
    def name_bytes(self) -> int:
        """Bytes that the write adds to the names of a checkpoint's writes, which are limited."""
        names = (self.task_id, self.task_path, self.channel, self.type)
        return _BYTES_PER_WRITE + sum([len(name.encode()) for name in names])

    def check(
        self, binder: Binder, thread_id: str, thread: int, place: Place, stored: bytes | None
    ) -> None:
        """Compare the MAC of the write's row with the stored MAC, if all rows are bound.

        Raises:
            Refusal: `JOURNAL_DAMAGED`.
        """
        if not self.is_bound(binder, thread, place, stored):
            raise journal_damaged(thread_id, *place, problem=WRITE_CHANGED)

    def is_bound(self, binder: Binder, thread: int, place: Place, stored: bytes | None) -> bool:
        """Return whether the MAC of the write's row is the stored MAC, if all rows are bound."""
        return not binder.is_complete or (
            stored is not None and equal(stored, self.mac(binder, thread, place))
        )


WRITE_CHANGED = "a write of it was changed behind the server's back"


class PendingWrites:
    """All stored writes of a checkpoint, without their values.

    Attributes:
        seq: Number of the thread's last change that the writes include.
        is_early: Whether the checkpoint is not stored yet.
        name_bytes: Bytes of the writes' names, as the limit counts them.
        counted: Bytes of memory that `RecentWrites` counted last.
    """

    __slots__ = ("_by_slot", "_waiting", "counted", "is_early", "name_bytes", "seq")

    def __init__(self) -> None:
        self.seq = -1
        self.is_early = False
        self.name_bytes = 0
        self.counted = 0
        self._by_slot: dict[Slot, StoredWrite] = {}
        self._waiting: WaitingTasks | None = None  # set when the state is needed

    @property
    def count(self) -> int:
        """Number of writes."""
        return len(self._by_slot)

    def get(self, slot: Slot) -> StoredWrite | None:
        """Return the write of a slot."""
        return self._by_slot.get(slot)

    def all(self) -> Collection[StoredWrite]:
        """Return all writes."""
        return self._by_slot.values()

    def put(self, write: StoredWrite) -> None:
        """Add a write, or replace the write of the same slot."""
        slot = (write.task_id, write.idx)
        before = self._by_slot.get(slot)
        self._by_slot[slot] = write
        self.name_bytes += write.name_bytes - (before.name_bytes if before is not None else 0)
        if before is not None and before.channel != write.channel:
            self._waiting = None  # the replaced write no longer counts
        elif self._waiting is not None:
            self._waiting.add(write.task_id, write.channel, write.seq)

    @property
    def state(self) -> ThreadState:
        """State of the thread if these are the writes of its latest root checkpoint."""
        if self._waiting is None:
            self._waiting = WaitingTasks()
            for write in self._by_slot.values():
                self._waiting.add(write.task_id, write.channel, write.seq)
        return self._waiting.state

    @property
    def size_bytes(self) -> int:
        """About how many bytes of memory the writes take."""
        return _EMPTY_BYTES + _WRITE_BYTES * len(self._by_slot) + self.name_bytes


class RecentWrites:
    """The writes of recent checkpoints of a thread, bounded in memory.

    A step whose tasks run subgraphs saves checkpoints of many namespaces between two writes of one
    checkpoint. So a checkpoint with many writes, which take long to read, is not dropped for
    checkpoints with few writes.

    Attributes:
        size_bytes: About how many bytes of memory the writes take.
    """

    __slots__ = ("_few", "_many", "size_bytes")

    def __init__(self) -> None:
        self.size_bytes = 0
        # The least recently used first.
        self._few: OrderedDict[Place, PendingWrites] = OrderedDict()
        self._many: OrderedDict[Place, PendingWrites] = OrderedDict()

    def get(self, place: Place) -> PendingWrites | None:
        """Return the writes of a checkpoint, if they are in memory."""
        few = self._few.get(place)
        return few if few is not None else self._many.get(place)

    def keep(self, place: Place, pending: PendingWrites) -> None:
        """Keep the writes of a checkpoint as the most recently used, and count their memory."""
        self._drop(place)
        pending.counted = pending.size_bytes
        self.size_bytes += pending.counted
        if pending.count > _FEW:
            self._many[place] = pending
        else:
            self._few[place] = pending
        if len(self._few) > _RECENT:
            self._drop(next(iter(self._few)))
        while self.size_bytes > _MANY_BYTES and len(self._many) > 1:
            self._drop(next(iter(self._many)))

    def _drop(self, place: Place) -> None:
        pending = self._few.pop(place, None)
        if pending is None:
            pending = self._many.pop(place, None)
        if pending is not None:
            self.size_bytes -= pending.counted


_COLUMNS = (writes.c[name] for name in StoredWrite._fields[:-1])
_READ = Statement(
    select(writes.c.mac, *_COLUMNS, null()).where(
        of_checkpoint(writes), writes.c.seq > bindparam("after")
    )
)
_CHANGES = Statement(
    select(changes.c.mac, *(column for column in changes.c if column.name != "mac")).where(
        of_thread(changes), changes.c.seq > bindparam("after"), changes.c.seq <= bindparam("last")
    )
)


def read_writes(
    connection: Connection, log: ThreadCacheEntry, place: Place, known: PendingWrites | None
) -> PendingWrites:
    """Return all stored writes of a checkpoint; the checkpoint need not exist yet.

    `known`: the writes before other servers changed the thread. If these servers removed no write,
    only the writes of later changes are read.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    binder, row = binder_of(connection), log.row
    if known is None or known.is_early or not _follows(connection, binder, log, known.seq):
        known = PendingWrites()
    parameters = parameters_of(row.number, *place)
    for mac, *columns in _READ.run(connection, **parameters, after=known.seq).fetchall():
        write = StoredWrite(*columns)
        write.check(binder, row.thread_id, row.number, place, mac)
        known.put(write)
    return known


def _follows(connection: Connection, binder: Binder, log: ThreadCacheEntry, after: int) -> bool:
    """Return whether the changes of other servers after the number `after` removed no write."""
    count = log.shared_seq - after
    if count > _FOLLOWED_CHANGES:
        return False
    parameters = {"of_thread": log.row.number, "after": after, "last": log.shared_seq}
    rows = _CHANGES.run(connection, **parameters).fetchall()
    return len(rows) == count and all(
        columns[_KIND] in _REMOVES_NOTHING
        and (not binder.is_complete or (mac is not None and equal(mac, binder.change(*columns))))
        for mac, *columns in rows
    )


_KIND = [column.name for column in changes.c].index("kind")
