"""The writer's knowledge of a thread: its row, greatest IDs and some recent checkpoints."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import NamedTuple

from sqlalchemy import ARRAY, Connection, Text, bindparam, exists, func, select, tuple_

from ...core.errors import Reason, Refusal, journal_damaged
from ...core.model import ThreadName
from ...core.state import ChannelRef, channel_ref, decode_channels
from ...core.threads import ThreadState
from ..sql.schema import changes, checkpoints, threads, writes
from ..sql.statements import (
    SqlRow,
    Statement,
    insert_rows,
    of_namespace,
    of_thread,
    update_rows,
)
from . import put_back
from .binding import EMPTY_SUM, Binder, RowDamagedError, add_hashes, binder_of, equal
from .pending_writes import PendingWrites, RecentWrites
from .put_back import STORED_THROUGH

_RECENT = 8
_LOG_BYTES = 1500
_KNOWN_BYTES = 1500

Place = tuple[str, str]
"""Namespace and checkpoint ID, inside a thread."""


class ThreadRef(NamedTuple):
    """The identity of a thread to which the rows below the thread are bound."""

    tenant: str
    thread_id: str
    number: int


@dataclass(slots=True)
class ThreadRow:
    """A row of `threads`, changed in memory and then stored; fields as the columns.

    `bound_rows` is the hash of the thread's rows (`binding`); `None`: the rows are not bound yet.
    """

    number: int
    tenant: str
    thread_id: str
    family: int
    incarnation: int = 1
    seq: int = 0
    certified_seq: int = 0
    indexed_seq: int = 0
    dirty_since_us: int | None = None
    dirty_bytes: int = 0
    unindexed_since_us: int | None = None
    settings_seq: int = 0
    begun_seq: int = 0
    compacted_seq: int = 0
    deleted: bool = False
    deleted_through: str = ""
    agent_id: str = ""
    state: int = ThreadState.IDLE
    head_id: str = ""
    created_us: int = 0
    updated_us: int = 0
    retention_s: int = 0
    expire_us: int | None = None
    unsearchable: bool = False
    added_bytes: int = 0
    removed_bytes: int = 0
    checkpoint_count: int = 0
    removed_count: int = 0
    taken: int = 0
    binding: bytes | None = field(default=None, repr=False, compare=False)
    lease: str | None = None
    lease_until_us: int | None = None
    bound_rows: int | None = field(default=EMPTY_SUM, repr=False, compare=False)
    written: tuple[object, ...] = field(default=(), repr=False, compare=False)

    @property
    def ref(self) -> ThreadRef:
        """The identity to which rows of the thread are bound."""
        return ThreadRef(self.tenant, self.thread_id, self.number)

    @property
    def version(self) -> tuple[int, int, int]:
        """Value that changes with every change that a server's cached thread must show."""
        return self.number, self.seq, self.taken

    @property
    def bound(self) -> str:
        """The bound columns, as one text; the columns of a lease only if there is a lease."""
        lease = "" if self.lease is None else f"{self.lease_until_us} {self.lease}\0"
        return (
            f"{self.number} {self.family} {self.incarnation} {self.seq} {self.certified_seq} "
            f"{self.settings_seq} {self.begun_seq} {self.compacted_seq} {self.deleted:d} "
            f"{self.state} {self.created_us} {self.retention_s} {self.expire_us} "
            f"{self.unsearchable:d} {self.checkpoint_count};{self.tenant}\0{self.thread_id}\0"
            f"{self.deleted_through}\0{self.agent_id}\0{self.head_id}\0{lease}"
        )

    def check(self, binder: Binder) -> None:
        """Compare the row with its binding, and read the hash of the thread's rows from it.

        Until all rows of the journal are bound, a row that does not match its binding is treated as
        a row without binding: servers of layout 1 leave such rows.

        Raises:
            RowDamagedError: The row differs from the row that the server wrote.
        """
        try:
            if self.binding is None:
                raise RowDamagedError("the row of the thread has no MAC")
            self.bound_rows = binder.rows_of(self.number, self.bound, self.binding)
        except RowDamagedError:
            if binder.is_complete:
                raise
            self.bound_rows = None

    def move(self, binder: Binder, new: bytes | None, old: bytes | None = None) -> None:
        """Add a row to the thread's rows, and remove a row, each by its MAC."""
        if self.bound_rows is not None:
            members = (binder.member(new) if new else 0) - (binder.member(old) if old else 0)
            self.bound_rows = add_hashes(self.bound_rows, members)

    def bind(self, binder: Binder, nonce: bytes) -> None:
        """Set the binding of the row as it will be stored."""
        if self.bound_rows is not None:
            self.binding = binder.thread(self.number, self.bound, self.bound_rows, nonce)

    def refuse_deleted(self) -> Refusal:
        """Return the refusal of a change that belongs to an ended incarnation."""
        incarnation = self.incarnation if self.deleted else self.incarnation - 1
        return Refusal(Reason.THREAD_DELETED, thread_id=self.thread_id, incarnation=incarnation)

    def begin_next(self, family: int, now_us: int) -> None:
        """Start the next incarnation; the sequence continues, and no values are shared."""
        self.incarnation += 1
        self.family = family
        self.deleted = self.unsearchable = False
        self.agent_id = self.head_id = ""
        self.state = ThreadState.IDLE
        self.created_us = now_us
        self.retention_s = 0
        self.expire_us = None
        self.lease = self.lease_until_us = None
        self.added_bytes = self.removed_bytes = 0
        self.checkpoint_count = self.removed_count = 0
        # Changes that were compacted since the last incarnation ended can no longer be watched.
        self.begun_seq = max(self.begun_seq, self.compacted_seq)

    def begin_above(self, floor: ThreadRow) -> None:
        """Start the log above the floor: a thread whose row is removed may have had this name."""
        self.incarnation = floor.incarnation + 1
        self.seq = self.certified_seq = self.indexed_seq = floor.seq
        self.begun_seq = self.compacted_seq = floor.seq

    def begin_after(self, stored_through: int) -> None:
        """Continue after certified changes that the row, put back to an older state, lacks."""
        self.certified_seq = max(self.certified_seq, stored_through)
        if stored_through > self.seq:
            self.seq = self.compacted_seq = stored_through

    def set_updated(self, now_us: int) -> None:
        """Record the time of a change, and the new expiry of the thread."""
        self.updated_us = now_us
        self.expire_us = now_us + self.retention_s * 1_000_000 if self.retention_s else None


_UNSTORED = ("bound_rows", "written")
_FIELDS = tuple(column.name for column in fields(ThreadRow) if column.name not in _UNSTORED)
THREAD = tuple(threads.c[name] for name in _FIELDS)
"""Columns of `ThreadRow`."""

# First the columns that every save changes, without an index; then the columns that seldom change.
_OFTEN = (
    *("seq", "dirty_bytes", "head_id", "updated_us", "added_bytes", "checkpoint_count"),
    "binding",
)
_FIXED = ("number", "tenant", "thread_id", "taken")
_VARYING = tuple(name for name in _FIELDS if name not in _FIXED)
_whole, _often, _varying = attrgetter(*_FIELDS), attrgetter(*_OFTEN), attrgetter(*_VARYING)
_seldom = attrgetter(*(name for name in _VARYING if name not in _OFTEN))
HAS_EARLY = exists().where(writes.c.thread == threads.c.number, writes.c.early_us.is_not(None))
ENTERED = (*THREAD, HAS_EARLY, STORED_THROUGH)
"""Columns that `log_of` builds a `ThreadCacheEntry` from."""
_FIND = Statement(
    select(*ENTERED).where(
        threads.c.tenant == bindparam("of_tenant"), threads.c.thread_id == bindparam("of_thread")
    )
)
_WANTED = tuple_(threads.c.tenant, threads.c.thread_id).in_(
    select(
        func.unnest(bindparam("of_tenants", type_=ARRAY(Text))),
        func.unnest(bindparam("of_threads", type_=ARRAY(Text))),
    )
)
_BY_NUMBER = select(threads.c.number).where(_WANTED).order_by(threads.c.number)
_LOCK = Statement(_BY_NUMBER.with_for_update())
_LOCK_FREE = Statement(_BY_NUMBER.with_for_update(skip_locked=True))
_LOCKED = Statement(select(*ENTERED).where(_WANTED))
_GREATEST = Statement(
    select(func.max(checkpoints.c.checkpoint_id)).where(of_namespace(checkpoints))
)
_FIRST_ABOVE = Statement(
    select(changes.c.created_us)
    .where(of_thread(changes), changes.c.seq > bindparam("above"))
    .order_by(changes.c.seq)
    .limit(1)
)
_INSERT = Statement(insert_rows(threads, _FIELDS))
_UPDATE = update_rows(threads, "number", _OFTEN)
_UPDATE_ALL = update_rows(threads, "number", _VARYING)


def greatest_id(connection: Connection, thread: int, checkpoint_ns: str) -> str:
    """Return the greatest ID of a namespace; empty if the namespace has none."""
    row = _GREATEST.run(connection, of_thread=thread, of_ns=checkpoint_ns).fetchone()
    return (row[0] if row else None) or ""


def first_above(connection: Connection, thread: ThreadRow, watermark: int) -> int | None:
    """Return the time of the first change of a thread above a watermark; `None`: there is none.

    If the log lacks that change, return the time of the thread's last change: the content of the
    missing change still waits.
    """
    if thread.seq <= watermark:
        return None
    row = _FIRST_ABOVE.run(connection, of_thread=thread.number, above=watermark).fetchone()
    return row[0] if row is not None else thread.updated_us


def find_thread(
    connection: Connection, tenant: str, thread_id: str, *, newest: bool = True
) -> ThreadRow | None:
    """Return a thread's row, deleted or not, or `None` if the thread never existed.

    `newest`: refuse a thread that was put back to an earlier state, too.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    log = find_log(connection, tenant, thread_id)
    if log is not None and log.damage is not None and (newest or not log.put_back):
        raise log.damage
    return log.row if log is not None else None


def find_log(connection: Connection, tenant: str, thread_id: str) -> ThreadCacheEntry | None:
    """Return the cache entry of a thread from its row, or `None` if the thread never existed."""
    row = _FIND.run(connection, of_tenant=tenant, of_thread=thread_id).fetchone()
    return log_of(binder_of(connection), row) if row is not None else None


def lock_logs(
    connection: Connection, names: Collection[ThreadName], *, wait: bool
) -> Callable[[], tuple[list[ThreadCacheEntry], set[int]]]:
    """Lock the rows of threads; return a function that reads the threads that exist.

    The function also returns the numbers of the locked threads: not of all threads if the caller
    did not `wait`. Threads are locked in the order of their numbers, so two servers seldom wait for
    each other. Threads are read after they are locked: a statement that waits for a lock does not
    see rows of other tables that were committed meanwhile.
    """
    tenants, thread_ids = map(list, zip(*names, strict=True))
    parameters = {"of_tenants": tenants, "of_threads": thread_ids}
    numbers = (_LOCK if wait else _LOCK_FREE).run(connection, **parameters)
    rows = _LOCKED.run(connection, **parameters)
    binder = binder_of(connection)
    return lambda: (
        [log_of(binder, row) for row in rows.fetchall()],
        {row[0] for row in numbers.fetchall()},
    )


def row_of(columns: SqlRow) -> ThreadRow:
    """Return a row from the columns `THREAD`, unchecked."""
    row = ThreadRow(*columns)
    row.deleted, row.unsearchable = bool(row.deleted), bool(row.unsearchable)
    return row


def log_of(binder: Binder, columns: SqlRow) -> ThreadCacheEntry:
    """Return a cache entry from the columns `ENTERED`, compared with its MAC and segments."""
    early, stored_through = columns[-2:]
    row = row_of(columns[:-2])
    row.written = _seldom(row)
    log = ThreadCacheEntry(row, new=False, early=bool(early))
    try:
        row.check(binder)
    except RowDamagedError as error:
        log.damage = journal_damaged(row.thread_id, problem=str(error))
    else:
        log.compare(binder, stored_through)
    return log


def insert_threads(connection: Connection, rows: Sequence[ThreadRow], nonce: bytes) -> None:
    """Insert new threads; `nonce`: see `ThreadRow.bind`."""
    binder = binder_of(connection)
    for row in rows:
        row.bind(binder, nonce)
        row.written = _seldom(row)
    _INSERT.run_rows(connection, _FIELDS, list(map(_whole, rows)))


def update_threads(connection: Connection, rows: Sequence[ThreadRow], nonce: bytes) -> None:
    """Write changed threads; indexed columns are only written for rows where they changed."""
    binder = binder_of(connection)
    often: list[tuple[object, ...]] = []
    seldom: list[tuple[object, ...]] = []
    for row in rows:
        row.bind(binder, nonce)
        now = _seldom(row)
        if now == row.written:
            often.append((*_often(row), row.number))
        else:
            seldom.append((*_varying(row), row.number))
            row.written = now
    _UPDATE.run_rows(connection, (*_OFTEN, "of_number"), often)
    _UPDATE_ALL.run_rows(connection, (*_VARYING, "of_number"), seldom)


@dataclass(slots=True)
class CachedCheckpoint:
    """A stored checkpoint, with the columns that saves need."""

    seq: int
    parent_id: str
    state: bytes
    metadata: bytes
    run_id: str
    root_id: str
    delta_channels: bytes
    label: str
    summary: str
    created_us: int
    forked_from: str = ""
    rolled_back_from: str = ""
    adopted_from: str = ""
    delta_base: bytes | None = None
    mac: bytes | None = None  # MAC of the stored row
    held: bytes | None = None  # see `values.segment_refs`
    decoded: dict[str, ChannelRef] | None = None

    def bind(self, binder: Binder, tenant: str, thread: int, place: Place) -> bytes:
        """Return the MAC of the checkpoint's row in its current state."""
        return binder.checkpoint(
            *(tenant, thread, *place, self.seq, self.parent_id, self.state, self.metadata),
            *(self.run_id, self.root_id, self.delta_channels, self.delta_base, self.label),
            *(self.summary, self.forked_from, self.rolled_back_from, self.adopted_from),
            self.created_us,
        )

    def is_bound(self, binder: Binder, of: ThreadRef, place: Place) -> bool:
        """Return whether the row is as the server wrote it, if all rows are bound."""
        if not binder.is_complete:
            return True
        mac = self.bind(binder, of.tenant, of.number, place)
        return self.mac is not None and equal(self.mac, mac)

    def check(self, binder: Binder, of: ThreadRef, place: Place) -> None:
        """Compare the MAC of the checkpoint's row with the stored MAC, if all rows are bound.

        Raises:
            Refusal: `JOURNAL_DAMAGED`.
        """
        if not self.is_bound(binder, of, place):
            raise journal_damaged(of.thread_id, *place)

    @property
    def size_bytes(self) -> int:
        """About how many bytes of memory the checkpoint takes, without its writes."""
        return _KNOWN_BYTES + 2 * len(self.state) + len(self.metadata)

    @property
    def channels(self) -> dict[str, ChannelRef]:
        """Channels of the checkpoint, by name."""
        if self.decoded is None:
            self.decoded = {
                channel.name: channel_ref(
                    channel.name, channel.version, channel.digest, channel.size
                )
                for channel in decode_channels(self.state)
            }
        return self.decoded


KNOWN = tuple(
    checkpoints.c[attribute.name]
    for attribute in fields(CachedCheckpoint)
    if attribute.name in checkpoints.c
)
"""Columns of `CachedCheckpoint`: all bound columns of a row, except its place."""


@dataclass(slots=True, eq=False)
class ThreadCacheEntry:
    """A thread as the writer knows it."""

    row: ThreadRow
    new: bool  # whether the row is not stored yet
    early: bool  # whether writes may wait for their checkpoint
    damage: Refusal | None = None  # set if the row is not as the server wrote it last
    # whether the damage is an older state of the thread in place of the last one
    put_back: bool = False
    stored_through: int = 0  # the last change in a recorded segment
    fresh: bool = False  # whether the thread has only checkpoints of the batch that created it
    keyframes: set[bytes] = field(default_factory=set)  # stored values that are not patches
    greatest: dict[str, str] = field(default_factory=dict)  # greatest ID by namespace
    # namespaces whose greatest checkpoint has all its values in the journal
    whole: set[str] = field(default_factory=set)
    known: OrderedDict[Place, CachedCheckpoint] = field(
        default_factory=OrderedDict
    )  # recent checkpoints
    # writes of recent checkpoints, also of checkpoints that are not stored yet
    writes: RecentWrites = field(default_factory=RecentWrites)
    shared_seq: int = 0  # last change up to which other servers may have made changes
    size: int = _LOG_BYTES  # about how many bytes of memory the entry takes, without `writes`
    counted: int = 0  # the size that the thread cache counted last

    def compare(self, binder: Binder, stored_through: int | None) -> None:
        """Note damage if a recorded segment is of a later state than the row."""
        self.stored_through = stored_through or 0
        if binder.is_complete and put_back.is_older(self.row.certified_seq, stored_through):
            self.put_back = True
            why = put_back.problem(self.row.certified_seq, stored_through)
            self.damage = journal_damaged(self.row.thread_id, problem=why)

    def add(self, place: Place, known: CachedCheckpoint) -> None:
        """Remember a checkpoint as the most recent one, and forget the oldest beyond the bound."""
        before = self.known.pop(place, None)
        self.size += known.size_bytes - (before.size_bytes if before is not None else 0)
        self.known[place] = known
        while len(self.known) > _RECENT:
            self.size -= self.known.popitem(last=False)[1].size_bytes

    def set_head(self, head_id: str, pending: PendingWrites | None) -> None:
        """Set the latest root checkpoint, and the thread's state from its writes."""
        self.row.head_id = head_id
        self.row.state = pending.state if pending is not None else ThreadState.IDLE

    def forget_checkpoints(self) -> None:
        """Forget the checkpoints, so that they are read again on demand."""
        self.known.clear()
        self.greatest.clear()
        self.whole.clear()
        self.fresh = False
        self.size = _LOG_BYTES
        self.writes = RecentWrites()
