"""Reading what happened on threads, and waiting for more."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from sqlalchemy import Connection, bindparam, select

from ..domain.lineage import Event, EventKind
from ..domain.model import CheckpointKey
from .lineage_api import EventsCompacted, Extent
from .schema import events, threads
from .statements import Statement, of_thread
from .waking import Waiter

if TYPE_CHECKING:
    from .journal import SqlJournal

_AFTER = Statement(
    select(
        events.c.kind,
        events.c.seq,
        events.c.incarnation,
        events.c.checkpoint_ns,
        events.c.checkpoint_id,
        events.c.revision,
        events.c.deleted,
        events.c.created_us,
    )
    .where(of_thread(events), events.c.seq > bindparam("after"))
    .order_by(events.c.seq)
    .limit(bindparam("max_rows"))
)
_EXTENT = Statement(
    select(*(threads.c[name] for name in Extent.__slots__)).where(of_thread(threads))
)


class EventLog:
    """The events of a journal; satisfies `lineage_api.EventJournal`."""

    def __init__(self, journal: SqlJournal) -> None:
        self._journal = journal

    @property
    def journal_id(self) -> str:
        """Identity of the journal."""
        return self._journal.journal_id

    async def extent(self, tenant: str, thread_id: str) -> Extent | None:
        """Return what is kept of a thread; see `lineage_api.EventJournal.extent`."""
        return await self._journal.query(lambda connection: _extent(connection, tenant, thread_id))

    async def events(self, tenant: str, thread_id: str, after: int, limit: int) -> list[Event]:
        """Return the events after a position; see `lineage_api.EventJournal.events`."""
        return await self._journal.query(
            lambda connection: _events(connection, tenant, thread_id, after, limit)
        )

    def subscribe(self, tenant: str, thread_id: str) -> AbstractContextManager[Waiter]:
        """Be woken by new events; see `lineage_api.EventJournal.subscribe`."""
        return self._journal.waiters.subscribe(tenant, thread_id)


def _extent(connection: Connection, tenant: str, thread_id: str) -> Extent | None:
    row = _EXTENT.run(connection, of_tenant=tenant, of_thread=thread_id).fetchone()
    if row is None:
        return None
    incarnation, deleted, *positions = row
    return Extent(incarnation, bool(deleted), *positions)


def _events(
    connection: Connection, tenant: str, thread_id: str, after: int, limit: int
) -> list[Event]:
    rows = _AFTER.run(
        connection, of_tenant=tenant, of_thread=thread_id, after=after, max_rows=limit
    ).fetchall()
    found = [_event(thread_id, *row) for row in rows]
    if not found or found[0].seq != after + 1:
        extent = _extent(connection, tenant, thread_id)
        if extent is not None and extent.compacted_seq > after:
            raise EventsCompacted(extent)
    return found


def _event(
    thread_id: str,
    kind: int,
    seq: int,
    incarnation: int,
    checkpoint_ns: str,
    checkpoint_id: str,
    revision: int,
    deleted: int,
    created_us: int,
) -> Event:
    key = CheckpointKey(thread_id, checkpoint_ns, checkpoint_id)
    return Event(EventKind(kind), seq, incarnation, key, revision, deleted, created_us)
