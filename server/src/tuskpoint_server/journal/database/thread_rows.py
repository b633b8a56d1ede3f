"""A thread's own row: how long its log is, how far it is certified, what it waits for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any

from sqlalchemy import Connection, bindparam, exists, func, insert, select, update

from ...domain.errors import Reason, Refusal
from ...domain.model import ThreadState
from .schema import threads, writes
from .statements import Statement

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
_INSERT = Statement(insert(threads).values({name: bindparam(name) for name in FIELDS}))
_OF_NUMBERED = update(threads).where(threads.c.number == bindparam("of_number"))
_UPDATE = Statement(_OF_NUMBERED.values({name: bindparam(name) for name in _EVERY_TIME}))
_UPDATE_ALL = Statement(
    _OF_NUMBERED.values({name: bindparam(name) for name in (*_EVERY_TIME, *_SELDOM)})
)


def find(connection: Connection, tenant: str, thread_id: str) -> ThreadRow | None:
    """Return a thread's row, deleted or not, or `None` if it never was."""
    found = find_with_early(connection, tenant, thread_id)
    return found[0] if found is not None else None


def find_with_early(
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


def greatest(connection: Connection) -> tuple[int, int]:
    """Return the greatest number of a thread and of a family; 0 if there is none."""
    number, family = _GREATEST.run(connection).fetchone() or (0, 0)
    return int(number), int(family)


def insert_rows(connection: Connection, rows: Sequence[ThreadRow]) -> None:
    """Insert threads that began."""
    for row in rows:
        row.written = _seldom(row)
    _INSERT.run_many(connection, [{name: getattr(row, name) for name in FIELDS} for row in rows])


def update_rows(connection: Connection, rows: Sequence[ThreadRow]) -> None:
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
