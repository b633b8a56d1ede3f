"""Reads of a thread's log, and waits for new changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, select

from ...core.errors import journal_damaged
from ...core.model import CheckpointKey
from ...core.threads import Event, EventKind
from ...journal.database.binding import Binder, binder_of, equal
from ...journal.database.database import Database, Waiter
from ...journal.database.thread_rows import ThreadRow, find_thread
from ...journal.sql.schema import changes, handoffs
from ...journal.sql.statements import SqlRow, Statement, of_thread


@dataclass(frozen=True, slots=True)
class NewEvents:
    """Changes after a position of a log, oldest first, and the watermark of certification."""

    events: tuple[Event, ...]
    certified_seq: int


@dataclass(eq=False)
class EventsCompactedError(Exception):
    """Changes after the requested position were dropped; `kept` is the thread's row."""

    kept: ThreadRow


_COLUMNS = ("kind", "seq", "incarnation", "deleted", "created_us", "checkpoint_ns", "checkpoint_id")
_AFTER = Statement(
    select(changes.c.mac, *(changes.c[name] for name in _COLUMNS))
    .where(of_thread(changes), changes.c.seq > bindparam("after"))
    .order_by(changes.c.seq)
    .limit(bindparam("max_rows"))
)
# A change without content has no checkpoint, or a flush would store the checkpoint again.
_HANDED_OFF = Statement(
    select(handoffs.c.seq, handoffs.c.checkpoint_ns, handoffs.c.checkpoint_id).where(
        of_thread(handoffs),
        handoffs.c.seq.between(bindparam("first"), bindparam("last")),
    )
)


def _handed_off(
    connection: Connection, thread: ThreadRow, rows: Sequence[SqlRow]
) -> Mapping[int, CheckpointKey]:
    """Return the checkpoints of hand-offs by the numbers of their changes.

    A hand-off that a later one repeated is missing: the later change has its checkpoint.
    """
    numbers = [row[2] for row in rows if row[1] == EventKind.HANDED_OFF]
    if not numbers:
        return {}
    bounds = {"first": numbers[0], "last": numbers[-1]}
    rows_of_handoffs = _HANDED_OFF.run(connection, of_thread=thread.number, **bounds).fetchall()
    return {seq: CheckpointKey(thread.thread_id, *place) for seq, *place in rows_of_handoffs}


def _check(
    binder: Binder, thread: ThreadRow, rows: Sequence[SqlRow], position: int, limit: int
) -> None:
    """Check that rows are the complete changes after a position of a log, up to a limit.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    if not binder.is_complete:
        return
    last = min(thread.seq, position + limit)
    if [row[2] for row in rows] != list(range(position + 1, last + 1)):
        raise journal_damaged(thread.thread_id, problem="its log has a gap")
    for mac, kind, seq, incarnation, deleted, created_us, *place in rows:
        own_mac = binder.change(
            thread.number, seq, incarnation, kind, place[0], place[1], deleted, created_us
        )
        if mac is None or not equal(mac, own_mac):
            raise journal_damaged(thread.thread_id, problem=f"change {seq} of its log was changed")


class Events:
    """The logs of threads, for watchers."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.journal_id = database.journal_id

    async def kept(self, tenant: str, thread_id: str) -> ThreadRow | None:
        """Return a thread's row, with the bounds of its log; `None` if it never existed."""
        return await self._database.query(
            lambda connection: find_thread(connection, tenant, thread_id)
        )

    async def after(self, tenant: str, thread_id: str, position: int, limit: int) -> NewEvents:
        """Return the changes after a position, at most `limit`.

        Raises:
            EventsCompactedError: Some of the changes were dropped.
        """

        def read(connection: Connection) -> NewEvents:
            thread = find_thread(connection, tenant, thread_id)
            if thread is None:
                return NewEvents((), 0)
            parameters = {"of_thread": thread.number, "after": position, "max_rows": limit}
            rows = _AFTER.run(connection, **parameters).fetchall()
            handed_off = _handed_off(connection, thread, rows)
            events = tuple(
                Event(
                    EventKind(kind),
                    seq,
                    incarnation,
                    handed_off.get(seq) or CheckpointKey(thread_id, *place),
                    deleted,
                    at_us,
                )
                for _, kind, seq, incarnation, deleted, at_us, *place in rows
            )
            if (not events or events[0].seq != position + 1) and thread.compacted_seq > position:
                raise EventsCompactedError(thread)
            _check(binder_of(connection), thread, rows, position, limit)
            return NewEvents(events, thread.certified_seq)

        return await self._database.query(read)

    def subscribe(self, tenant: str, thread_id: str) -> AbstractContextManager[Waiter]:
        """Wake the caller after commits of changes of a thread inside the context.

        A caller that reads after entering, and after each wake, misses no change.
        """
        return self._database.waiters.subscribe(tenant, thread_id)
