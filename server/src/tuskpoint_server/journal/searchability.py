"""Whether search finds a thread's checkpoints: setting it."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, update

from ..domain.errors import Reason, Refusal
from ..domain.lineage import EventKind
from . import events, threads
from .schema import checkpoints
from .statements import Statement, of_thread
from .threads import ThreadRow

_INDEX_AGAIN = Statement(
    update(checkpoints).where(of_thread(checkpoints)).values(unindexed_us=bindparam("now_us"))
)


def set_searchable(
    connection: Connection, tenant: str, thread_id: str, searchable: bool, now_us: int
) -> None:
    """Set whether search finds a thread; see `api.Journal.set_searchable`."""
    thread = threads.lock(connection, tenant, thread_id)
    if thread is None or thread.deleted:
        raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
    switch(connection, thread, searchable, now_us)


def switch(connection: Connection, thread: ThreadRow, searchable: bool, now_us: int) -> None:
    """Set it on a thread that is locked, and record that as a change if it is one.

    What was left out of the index while it was off will be indexed.
    """
    if thread.unsearchable != searchable:
        return
    thread.unsearchable = not searchable
    thread.untold = True
    thread.seq += 1
    if searchable:
        _INDEX_AGAIN.run(
            connection, of_tenant=thread.tenant, of_thread=thread.thread_id, now_us=now_us
        )
    threads.store(connection, thread, now_us)
    events.append(connection, thread, EventKind.SEARCHABLE_SET, now_us)
