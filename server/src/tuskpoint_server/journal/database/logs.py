"""What the writer knows of recent threads: row, greatest IDs and some recent checkpoints.

Logs stay in memory between batches, bounded in bytes; a commit that fails forgets all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, exists, func, select, update

from ...domain.errors import Reason, Refusal
from ...domain.model import Version
from ...domain.state import decode_channels, encode_channel
from ...domain.threads import ThreadState, judge_state
from .schema import threads, writes
from .statements import Statement, inserting

_MICROSECONDS = 1_000_000


@dataclass(slots=True)
class ThreadRow:
    """A row of `threads`, changed in place and then stored; fields as the columns."""

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
    written: tuple[object, ...] = field(default=(), repr=False, compare=False)

    def refuse_deleted(self) -> Refusal:
        """Return the refusal of a change that belongs to an ended incarnation."""
        ended = self.incarnation if self.deleted else self.incarnation - 1
        return Refusal(Reason.THREAD_DELETED, thread_id=self.thread_id, incarnation=ended)

    def begin_next(self, family: int, now_us: int) -> None:
        """Start the next incarnation; the sequence goes on, and no values are shared."""
        self.incarnation += 1
        self.family = family
        self.deleted = False
        self.agent_id = ""
        self.state = ThreadState.IDLE
        self.head_id = ""
        self.created_us = now_us
        self.retention_s = 0
        self.expire_us = None
        self.unsearchable = False
        self.added_bytes = self.removed_bytes = 0
        self.checkpoint_count = self.removed_count = 0
        # Changes that were swept since the last incarnation ended cannot be watched any more.
        self.begun_seq = max(self.begun_seq, self.compacted_seq)

    def set_updated(self, now_us: int) -> None:
        """Record the time of a change, and when the thread expires because of it."""
        self.updated_us = now_us
        self.expire_us = now_us + self.retention_s * _MICROSECONDS if self.retention_s else None


FIELDS = tuple(column.name for column in fields(ThreadRow) if column.name != "written")
_EVERY_TIME = ("seq", "dirty_bytes", "head_id", "updated_us", "added_bytes", "checkpoint_count")
"""What every save changes; no index has it."""

_SELDOM = tuple(
    name
    for name in FIELDS
    if name not in ("number", "tenant", "thread_id", "compacted_seq", *_EVERY_TIME)
)
_seldom = attrgetter(*_SELDOM)
_HAS_EARLY = exists().where(writes.c.thread == threads.c.number, writes.c.early_us.is_not(None))
_COLUMNS = tuple(threads.c[name] for name in FIELDS)
_FIND = Statement(
    select(*_COLUMNS, _HAS_EARLY).where(
        threads.c.tenant == bindparam("of_tenant"), threads.c.thread_id == bindparam("of_thread")
    )
)
_GREATEST = Statement(
    select(
        func.coalesce(func.max(threads.c.number), 0), func.coalesce(func.max(threads.c.family), 0)
    )
)
_INSERT = Statement(inserting(threads, FIELDS))
_OF_NUMBERED = update(threads).where(threads.c.number == bindparam("of_number"))
_UPDATE = Statement(_OF_NUMBERED.values({name: bindparam(name) for name in _EVERY_TIME}))
_UPDATE_ALL = Statement(
    _OF_NUMBERED.values({name: bindparam(name) for name in (*_EVERY_TIME, *_SELDOM)})
)


def find_thread(connection: Connection, tenant: str, thread_id: str) -> ThreadRow | None:
    """Return a thread's row, deleted or not, or `None` if it never was."""
    found = find_thread_with_early(connection, tenant, thread_id)
    return found[0] if found is not None else None


def find_thread_with_early(
    connection: Connection, tenant: str, thread_id: str
) -> tuple[ThreadRow, bool] | None:
    """Return a thread's row as `find` does, and whether writes wait for their checkpoint."""
    row = _FIND.run(connection, of_tenant=tenant, of_thread=thread_id).fetchone()
    if row is None:
        return None
    return _row(row[:-1]), bool(row[-1])


def _row(columns: Sequence[Any]) -> ThreadRow:
    row = ThreadRow(*columns)
    row.deleted, row.unsearchable = bool(row.deleted), bool(row.unsearchable)
    row.written = _seldom(row)
    return row


def greatest_numbers(connection: Connection) -> tuple[int, int]:
    """Return the greatest number of a thread and of a family; 0 if there is none."""
    number, family = _GREATEST.run(connection).fetchone() or (0, 0)
    return int(number), int(family)


def insert_threads(connection: Connection, rows: Sequence[ThreadRow]) -> None:
    """Insert threads that began."""
    for row in rows:
        row.written = _seldom(row)
    _INSERT.run_many(connection, [{name: getattr(row, name) for name in FIELDS} for row in rows])


def update_threads(connection: Connection, rows: Sequence[ThreadRow]) -> None:
    """Write changed threads; columns that an index has only where they changed."""
    often: list[dict[str, object]] = []
    seldom: list[dict[str, object]] = []
    for row in rows:
        values: dict[str, object] = {name: getattr(row, name) for name in _EVERY_TIME}
        values["of_number"] = row.number
        now = _seldom(row)
        if now == row.written:
            often.append(values)
        else:
            values.update(zip(_SELDOM, now, strict=True))
            seldom.append(values)
            row.written = now
    _UPDATE.run_many(connection, often)
    _UPDATE_ALL.run_many(connection, seldom)


CACHED_BYTES = 64 * 1024 * 1024
_RECENT = 8
_LOG_BYTES = 1500
_KNOWN_BYTES = 1500

Place = tuple[str, str]
"""Namespace and checkpoint ID, inside a thread."""


class KnownChannel(NamedTuple):
    """A channel of a stored checkpoint; `encoded` is its part of the stored state."""

    version: Version | None
    digest: bytes | None
    size: int
    encoded: bytes


class KnownWrite(NamedTuple):
    """A stored pending write, without its value."""

    task_path: str
    channel: str
    type: str
    digest: bytes
    size: int
    seq: int


@dataclass(slots=True)
class Known:
    """A stored checkpoint as far as saves ask for it; `pending` is `None` until it is read."""

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
    pending: dict[tuple[str, int], KnownWrite] | None = None
    _channels: dict[str, KnownChannel] | None = None

    @property
    def size_bytes(self) -> int:
        """About how many bytes of memory it takes, its writes left out."""
        return _KNOWN_BYTES + 2 * len(self.state) + len(self.metadata)

    @property
    def channels(self) -> dict[str, KnownChannel]:
        """Its channels by name."""
        if self._channels is None:
            self._channels = {
                channel.name: KnownChannel(
                    channel.version, channel.digest, channel.size, encode_channel(channel)
                )
                for channel in decode_channels(self.state)
            }
        return self._channels

    def set_channels(self, channels: dict[str, KnownChannel]) -> None:
        """Give the channels that `state` holds, where they are at hand."""
        self._channels = channels


class Log:
    """A thread as the writer knows it."""

    __slots__ = (
        "counted",
        "early",
        "fresh",
        "greatest",
        "keyframes",
        "known",
        "new",
        "row",
        "size",
        "whole",
    )

    def __init__(self, row: ThreadRow, *, new: bool, early: bool) -> None:
        self.row = row
        self.new = new
        self.early = early
        self.fresh = new
        self.keyframes: set[bytes] = set()
        self.greatest: dict[str, str] = {}
        self.whole: set[str] = set()
        self.known: OrderedDict[Place, Known] = OrderedDict()
        self.size = _LOG_BYTES
        self.counted = 0

    def add(self, place: Place, known: Known) -> None:
        """Remember a checkpoint as the most recent one, and forget those long ago."""
        before = self.known.pop(place, None)
        self.size += known.size_bytes - (before.size_bytes if before is not None else 0)
        self.known[place] = known
        while len(self.known) > _RECENT:
            _, old = self.known.popitem(last=False)
            self.size -= old.size_bytes

    def set_head(self, head_id: str, pending: Mapping[tuple[str, int], KnownWrite]) -> None:
        """Set the latest root checkpoint, whose writes say what the thread waits for."""
        self.row.head_id = head_id
        self.row.state = ThreadState.IDLE
        if pending:
            self.row.state = judge_state(
                (task_id, write.channel, write.seq) for (task_id, _), write in pending.items()
            )

    def forget_checkpoints(self) -> None:
        """Read checkpoints again when they are asked for."""
        self.known.clear()
        self.greatest.clear()
        self.whole.clear()
        self.fresh = False
        self.size = _LOG_BYTES


class Logs:
    """Recent threads by (tenant, thread), the most recently used last.

    What a commit costs here depends on the threads that it touched, not on how many are kept.
    """

    def __init__(self, limit_bytes: int = CACHED_BYTES) -> None:
        self._limit = limit_bytes
        self._logs: OrderedDict[tuple[str, str], Log] = OrderedDict()
        self._used: set[tuple[str, str]] = set()
        self._size = 0

    def get(self, tenant: str, thread_id: str) -> Log | None:
        """Return a thread that is here."""
        key = (tenant, thread_id)
        log = self._logs.get(key)
        if log is not None:
            self._logs.move_to_end(key)
            self._used.add(key)
        return log

    def put(self, log: Log) -> None:
        """Keep a thread."""
        key = (log.row.tenant, log.row.thread_id)
        self.forget(*key)
        self._logs[key] = log
        self._used.add(key)

    def forget(self, tenant: str, thread_id: str) -> None:
        """Drop one thread."""
        log = self._logs.pop((tenant, thread_id), None)
        if log is not None:
            self._size -= log.counted
            log.counted = 0

    def clear(self) -> None:
        """Drop all."""
        for log in self._logs.values():
            log.counted = 0
        self._logs.clear()
        self._used.clear()
        self._size = 0

    def trim(self) -> None:
        """Drop the least recently used ones beyond the bound."""
        for key in self._used:
            log = self._logs.get(key)
            if log is not None:
                self._size += log.size - log.counted
                log.counted = log.size
        self._used.clear()
        while self._size > self._limit:
            _, log = self._logs.popitem(last=False)
            self._size -= log.counted
            log.counted = 0
