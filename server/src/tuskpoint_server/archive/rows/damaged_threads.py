"""Damaged threads, which no flush stores: finds them and reports them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import NamedTuple

from sqlalchemy import Connection, bindparam, select

from ...journal.database import put_back
from ...journal.database.binding import RowDamagedError, binder_of, equal
from ...journal.database.put_back import STORED_THROUGH
from ...journal.database.thread_rows import THREAD
from ...journal.sql.schema import changes, threads
from ...journal.sql.statements import LISTED, SqlRow, Statement, of_thread
from ...journal.values.lost_rows import lost_rows
from .dirty import DirtyThread

TOLD_AGAIN_S = 3600.0  # interval after which the log repeats a damage that persists

_BY_NUMBER = Statement(select(*THREAD, STORED_THROUGH).where(threads.c.number.in_(LISTED)))

RANGE_CHANGES = 4096
"""Most changes of a thread that a flush stores; missing rows are looked for in as many changes."""

_BOUND_CHANGE = (
    *("thread", "seq", "incarnation", "kind", "checkpoint_ns", "checkpoint_id", "deleted"),
    "created_us",
)
CHANGES = Statement(
    select(changes.c.mac, *(changes.c[name] for name in _BOUND_CHANGE))
    .where(of_thread(changes), changes.c.seq > bindparam("after"))
    .order_by(changes.c.seq)
    .limit(bindparam("most"))
)

_log = logging.getLogger(__name__)


class DamagedThread(NamedTuple):
    """A thread whose row, or the row of a new checkpoint, was changed after the server wrote it."""

    thread_id: str
    problem: str

    def __str__(self) -> str:
        return f"thread '{self.thread_id}' is damaged: {self.problem}"


def sound_threads(
    connection: Connection, rows: Iterable[SqlRow], bad: dict[int, DamagedThread]
) -> list[DirtyThread]:
    """Return threads from their rows; add damaged threads to `bad` instead.

    Nothing of a damaged thread is stored: its segments would replace sound ones.
    """
    dirty_threads = []
    for *columns, stored_through in rows:
        thread = DirtyThread(*columns)
        if problem := _problem(connection, thread, stored_through):
            bad[thread.number] = DamagedThread(thread.thread_id, problem)
        else:
            dirty_threads.append(thread)
    return dirty_threads


def _problem(connection: Connection, thread: DirtyThread, stored_through: int | None) -> str:
    """Return how the row of a thread differs from the server's last write; empty if it does not."""
    binder = binder_of(connection)
    try:
        thread.check(binder)
    except RowDamagedError as error:
        return str(error)
    if binder.is_complete and put_back.is_older(thread.certified_seq, stored_through):
        return put_back.problem(thread.certified_seq, stored_through)
    return ""


def lacks_row(connection: Connection, thread: DirtyThread) -> DamagedThread | None:
    """Return the damage if a thread lacks the row of a checkpoint that is not certified yet.

    A flush that missed the row would certify that the checkpoint never existed. A damaged log
    proves nothing about rows.
    """
    if thread.deleted or not binder_of(connection).is_complete:
        return None
    through = thread.certified_seq + RANGE_CHANGES
    missing_rows = lost_rows(connection, thread, through, most=1)
    if not missing_rows:
        return None
    after = thread.certified_seq
    parameters = {"of_thread": thread.number, "after": after, "most": RANGE_CHANGES}
    if damaged_change(
        connection, thread, CHANGES.run(connection, **parameters).fetchall(), RANGE_CHANGES
    ):
        return None
    [(place, _)] = missing_rows
    problem = f"the row of checkpoint '{place[1]}' is missing, or is older than its last save"
    return DamagedThread(thread.thread_id, problem)


def damaged_change(
    connection: Connection, thread: DirtyThread, logged: Sequence[SqlRow], most: int
) -> int | None:
    """Return the first missing or altered change above a thread's watermark.

    `logged` are the rows of `CHANGES`, at most `most`. A change is altered if it is not as the
    server wrote it.
    """
    binder = binder_of(connection)
    if not binder.is_complete:
        return None
    seq = thread.certified_seq
    for mac, *columns in logged:
        seq += 1
        if columns[1] != seq or mac is None or not equal(mac, binder.change(*columns)):
            return seq
    return None if len(logged) == most or seq == thread.seq else seq + 1


def find_damaged(connection: Connection, numbers: Iterable[int]) -> dict[int, DamagedThread]:
    """Return the damaged threads among some threads; no flush stores them."""
    damages: dict[int, DamagedThread] = {}
    rows = _BY_NUMBER.run_listed(connection, numbers)
    for thread in sound_threads(connection, rows, damages):
        if damage := lacks_row(connection, thread):
            damages[thread.number] = damage
    return damages


class DamagedThreads:
    """Damaged threads that the flushes of a tenant met.

    Every flush checks the threads again, so the log does not repeat them each time.
    """

    def __init__(self, tenant: str, clock_us: Callable[[], int]) -> None:
        self._tenant = tenant
        self._clock_us = clock_us
        self._known: dict[int, DamagedThread] = {}
        self._told_us: dict[int, int] = {}
        self.looks = 0
        """Checks in a row that found the same threads damaged."""

    def __len__(self) -> int:
        return len(self._known)

    @property
    def numbers(self) -> Collection[int]:
        """Numbers of the threads that were damaged at the last check."""
        return frozenset(self._known)

    @property
    def text(self) -> str:
        """Damaged threads, as text for people; empty: none is damaged."""
        suffix = f"; so are {len(self) - 1} more threads" if len(self) > 1 else ""
        return next((f"{thread}{suffix}" for thread in self._known.values()), "")

    def forget(self) -> None:
        """Forget the damaged threads: another server may have checked them since."""
        self._known.clear()
        self._told_us.clear()
        self.looks = 0

    def look(self, damaged: Mapping[int, DamagedThread]) -> None:
        """Note the damaged threads, and log which ones are new."""
        for number in self._known.keys() - damaged.keys():
            name = self._known[number].thread_id
            _log.info("thread %r of tenant %s is no longer damaged", name, self._tenant)
            del self._told_us[number]
        now_us = self._clock_us()
        for number, thread in damaged.items():
            is_due = now_us - self._told_us.get(number, now_us) >= TOLD_AGAIN_S * 1e6
            if is_due or self._known.get(number) != thread:
                arguments = (thread.thread_id, self._tenant, thread.problem)
                _log.error("thread %r of tenant %s is not stored: %s", *arguments)
                self._told_us[number] = now_us
        self.looks = self.looks + 1 if self._known.keys() == damaged.keys() else 1
        self._known = dict(damaged)
