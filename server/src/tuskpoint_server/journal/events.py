"""Events: what happened on each thread, one for each number of its sequence.

Whatever takes a number of the sequence records here, in the same transaction, what it
took it for. Watchers read from here; they are woken by `Writer` once that is committed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection

from ..domain.lineage import Event, EventKind
from ..domain.model import CheckpointKey
from .schema import events
from .statements import Statement, all_columns
from .threads import ThreadRow

TOUCHED = "tuskpoint.touched"
"""Key in `Connection.info`: threads with new events since the last commit."""

_APPEND = Statement(lambda insert_into: insert_into(events).values(all_columns(events)))


def append(
    connection: Connection,
    thread: ThreadRow,
    kind: EventKind,
    now_us: int,
    key: CheckpointKey | None = None,
    *,
    revision: int = 0,
    deleted: int = 0,
) -> None:
    """Record what the thread's current `seq` was taken for.

    Args:
        connection: In a write transaction.
        thread: The thread, locked, its `seq` raised already.
        kind: What happened.
        now_us: Time of the change.
        key: The checkpoint concerned, if one is; it belongs to the thread.
        revision: Its revision that the change made.
        deleted: How many checkpoints were deleted.
    """
    _APPEND.run(
        connection,
        tenant=thread.tenant,
        thread_id=thread.thread_id,
        seq=thread.seq,
        # What comes after the deletion is the next incarnation's: writes that overtook its
        # first save.
        incarnation=thread.incarnation + bool(thread.deleted),
        kind=int(kind),
        checkpoint_ns=key.checkpoint_ns if key else "",
        checkpoint_id=key.checkpoint_id if key else "",
        revision=revision,
        deleted=deleted,
        created_us=now_us,
    )
    touch(connection, thread.tenant, (thread.thread_id,))


def append_all(connection: Connection, tenant: str, happened: Sequence[Event]) -> None:
    """Record events; their numbers were taken from their threads' sequences."""
    _APPEND.run_many(connection, [_row(tenant, event) for event in happened])
    touch(connection, tenant, (event.key.thread_id for event in happened))


def touch(connection: Connection, tenant: str, thread_ids: Iterable[str]) -> None:
    """Let the commit of this transaction wake who watches these threads."""
    connection.info.setdefault(TOUCHED, set()).update((tenant, name) for name in thread_ids)


def _row(tenant: str, event: Event) -> dict[str, object]:
    return {
        "tenant": tenant,
        "thread_id": event.key.thread_id,
        "seq": event.seq,
        "incarnation": event.incarnation,
        "kind": int(event.kind),
        "checkpoint_ns": event.key.checkpoint_ns,
        "checkpoint_id": event.key.checkpoint_id,
        "revision": event.revision,
        "deleted": event.deleted,
        "created_us": event.created_us,
    }
