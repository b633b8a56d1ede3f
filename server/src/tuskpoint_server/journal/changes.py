"""Reading the log of a thread, and waiting for more of it."""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, fields

from sqlalchemy import Connection, bindparam, select

from ..domain.model import CheckpointKey
from ..domain.threads import Event, EventKind
from .database.database import Database, Waiter
from .database.schema import changes, threads
from .database.statements import Statement, of_thread


@dataclass(frozen=True, slots=True)
class Extent:
    """What is kept of a thread's log.

    Attributes:
        deleted: The incarnation was deleted.
        begun_seq: Number before the first change of the incarnation.
        compacted_seq: Changes up to here are gone.
        certified_seq: Changes up to here are certified.
        seq: The last change.
    """

    incarnation: int
    deleted: bool
    begun_seq: int
    compacted_seq: int
    certified_seq: int
    seq: int


@dataclass(frozen=True, slots=True)
class News:
    """What came after a position of a log, oldest first, and up to where it is certified."""

    events: tuple[Event, ...]
    certified_seq: int


class EventsCompacted(Exception):
    """Changes after the position asked for are gone; `extent` is what is kept."""

    def __init__(self, extent: Extent) -> None:
        self.extent = extent
        super().__init__(f"changes up to {extent.compacted_seq} are gone")


_EXTENT = Statement(
    select(threads.c.number, *(threads.c[field.name] for field in fields(Extent))).where(
        threads.c.tenant == bindparam("of_tenant"), threads.c.thread_id == bindparam("of_thread_id")
    )
)
_COLUMNS = ("kind", "seq", "incarnation", "deleted", "created_us", "checkpoint_ns", "checkpoint_id")
_AFTER = Statement(
    select(*(changes.c[name] for name in _COLUMNS))
    .where(of_thread(changes), changes.c.seq > bindparam("after"))
    .order_by(changes.c.seq)
    .limit(bindparam("max_rows"))
)


class Events:
    """The logs of threads, for those who watch them."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def journal_id(self) -> str:
        """Identity of the journal."""
        return self._database.journal_id

    async def extent(self, tenant: str, thread_id: str) -> Extent | None:
        """Return what is kept of a thread's log; `None` if it never was."""
        return await self._database.query(
            lambda connection: (found := _extent(connection, tenant, thread_id)) and found[1]
        )

    async def after(self, tenant: str, thread_id: str, position: int, limit: int) -> News:
        """Return what came after a position, with at most `limit` changes.

        Raises:
            EventsCompacted: Some of them are gone.
        """

        def read(connection: Connection) -> News:
            found = _extent(connection, tenant, thread_id)
            if found is None:
                return News((), 0)
            number, extent = found
            rows = _AFTER.run(connection, of_thread=number, after=position, max_rows=limit)
            events = tuple(
                Event(EventKind(kind), seq, of, CheckpointKey(thread_id, *place), deleted, at_us)
                for kind, seq, of, deleted, at_us, *place in rows.fetchall()
            )
            if (not events or events[0].seq != position + 1) and extent.compacted_seq > position:
                raise EventsCompacted(extent)
            return News(events, extent.certified_seq)

        return await self._database.query(read)

    def subscribe(self, tenant: str, thread_id: str) -> AbstractContextManager[Waiter]:
        """Be woken by changes of a thread that are committed inside the context.

        A caller that reads after entering, and again after each wake, misses none.
        """
        return self._database.waiters.subscribe(tenant, thread_id)


def _extent(connection: Connection, tenant: str, thread_id: str) -> tuple[int, Extent] | None:
    row = _EXTENT.run(connection, of_tenant=tenant, of_thread_id=thread_id).fetchone()
    if row is None:
        return None
    number, incarnation, deleted, *positions = row
    return number, Extent(incarnation, bool(deleted), *positions)
