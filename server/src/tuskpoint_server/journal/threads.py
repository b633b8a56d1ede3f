"""A thread's own row: its incarnation, its sequence, its head and what it waits for."""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import Connection, func, select

from ..domain import thread_state
from ..domain.errors import Reason, Refusal
from ..domain.model import CheckpointDraft, CheckpointKey, ThreadState
from .schema import checkpoints, threads, writes
from .statements import (
    Statement,
    all_columns,
    of_checkpoint,
    of_namespace,
    of_thread,
    parameters_of,
)


@dataclass(slots=True)
class ThreadRow:
    """A row of `threads`, changed in place and then stored."""

    tenant: str
    thread_id: str
    incarnation: int
    seq: int
    deleted: bool
    deleted_through: str
    agent_id: str
    state: int
    head_id: str
    created_us: int
    updated_us: int
    retention_s: int = 0
    untold: bool = False
    begun_seq: int = 0
    compacted_seq: int = 0
    unsearchable: bool = False

    def refuse_deleted(self) -> Refusal:
        """Return the refusal of a change that belongs to an ended incarnation."""
        ended = self.incarnation if self.deleted else self.incarnation - 1
        return Refusal(Reason.THREAD_DELETED, thread_id=self.thread_id, incarnation=ended)

    def begin_next(self, now_us: int) -> None:
        """Start the next incarnation; the sequence goes on."""
        self.incarnation += 1
        self.deleted = False
        self.agent_id = ""
        self.state = ThreadState.IDLE
        self.head_id = ""
        self.created_us = now_us
        self.retention_s = 0
        self.unsearchable = False
        self.untold = False
        # It began when the last one ended. What was compacted since then has expired as well,
        # and of incarnations that ended elsewhere there are no events.
        self.begun_seq = max(self.begun_seq, self.compacted_seq)


_READ = Statement(select(*threads.columns).where(of_thread(threads)).with_for_update())
_LIVE = Statement(select(threads.c.seq).where(of_thread(threads), threads.c.deleted.is_(False)))
_UNSEARCHABLE = Statement(
    select(threads.c.seq).where(
        of_thread(threads), threads.c.deleted.is_(False), threads.c.unsearchable
    )
)
_STORE = Statement(
    lambda insert_into: (
        (insert := insert_into(threads))
        .values(all_columns(threads))
        .on_conflict_do_update(
            index_elements=["tenant", "thread_id"],
            set_={
                column.name: insert.excluded[column.name]
                for column in threads.columns
                if not column.primary_key
            },
        )
    )
)
_LATEST = Statement(
    select(func.max(checkpoints.c.checkpoint_id)).where(
        of_namespace(checkpoints), checkpoints.c.hidden.is_(False)
    )
)
_GREATEST = Statement(
    select(func.max(checkpoints.c.checkpoint_id)).where(of_namespace(checkpoints))
)
_REVISION = Statement(select(checkpoints.c.revision).where(of_checkpoint(checkpoints)))
_PENDING = Statement(
    select(writes.c.task_id, writes.c.channel, writes.c.revision).where(of_checkpoint(writes))
)


def new_thread(tenant: str, thread_id: str, now_us: int) -> ThreadRow:
    """Return the row of a thread that begins."""
    return ThreadRow(tenant, thread_id, 1, 0, False, "", "", ThreadState.IDLE, "", now_us, now_us)


def lock(connection: Connection, tenant: str, thread_id: str) -> ThreadRow | None:
    """Return the thread's row for a change, deleted or not, or `None` if it never was."""
    row = _READ.run(connection, of_tenant=tenant, of_thread=thread_id).fetchone()
    return ThreadRow(*row) if row is not None else None


def is_live(connection: Connection, tenant: str, thread_id: str) -> bool:
    """Tell whether a thread exists and is not deleted."""
    row = _LIVE.run(connection, of_tenant=tenant, of_thread=thread_id).fetchone()
    return row is not None


def is_unsearchable(connection: Connection, tenant: str, thread_id: str) -> bool:
    """Tell whether a thread exists, is not deleted, and is not found by search."""
    row = _UNSEARCHABLE.run(connection, of_tenant=tenant, of_thread=thread_id).fetchone()
    return row is not None


def store(connection: Connection, thread: ThreadRow, now_us: int) -> None:
    """Write the row."""
    thread.updated_us = now_us
    # Of an ended incarnation the tombstone tells.
    thread.untold = thread.untold and not thread.deleted
    _STORE.run(connection, **{name: getattr(thread, name) for name in ThreadRow.__slots__})


def latest(connection: Connection, tenant: str, thread_id: str, checkpoint_ns: str) -> str:
    """Return the greatest ID of a namespace that readers see; empty if there is none."""
    row = _LATEST.run(
        connection, of_tenant=tenant, of_thread=thread_id, of_ns=checkpoint_ns
    ).fetchone()
    return row[0] or "" if row else ""


def greatest(connection: Connection, tenant: str, thread_id: str, checkpoint_ns: str) -> str:
    """Return the greatest ID of a namespace, hidden ones included; empty if there is none."""
    row = _GREATEST.run(
        connection, of_tenant=tenant, of_thread=thread_id, of_ns=checkpoint_ns
    ).fetchone()
    return row[0] or "" if row else ""


def exists(connection: Connection, tenant: str, key: CheckpointKey) -> bool:
    """Tell whether a checkpoint is stored, hidden or not."""
    return revision(connection, tenant, key) > 0


def revision(connection: Connection, tenant: str, key: CheckpointKey) -> int:
    """Return the revision of a checkpoint, hidden or not; 0 if it is not stored."""
    row = _REVISION.run(connection, **parameters_of(tenant, key)).fetchone()
    return int(row[0]) if row is not None else 0


def judge(connection: Connection, tenant: str, thread_id: str, head_id: str) -> ThreadState:
    """Say what a thread waits for, by the writes of its latest root checkpoint."""
    head = parameters_of(tenant, CheckpointKey(thread_id, "", head_id))
    rows = _PENDING.run(connection, **head).fetchall()
    return thread_state.judge((task_id, channel, order) for task_id, channel, order in rows)


def review_head(connection: Connection, thread: ThreadRow) -> None:
    """Set the head and the state anew after checkpoints were removed."""
    thread.head_id = latest(connection, thread.tenant, thread.thread_id, "")
    thread.state = judge(connection, thread.tenant, thread.thread_id, thread.head_id)


def admit_save(
    connection: Connection, thread: ThreadRow, draft: CheckpointDraft, *, parent_exists: bool
) -> bool:
    """Decide whether a checkpoint that is not stored yet may be; true if it begins anew.

    After a deletion only a checkpoint that owes nothing to the ended incarnation is let
    in: one without parent, which is not tied to a root checkpoint of that time.

    Raises:
        Refusal: `THREAD_DELETED`.
    """
    root_id = draft.metadata.root_id if draft.key.checkpoint_ns else ""
    if thread.deleted:
        if draft.parent_id or (root_id and root_id <= thread.deleted_through):
            raise thread.refuse_deleted()
        return True
    if not thread.deleted_through:
        return False
    if draft.parent_id and not parent_exists and draft.parent_id <= thread.deleted_through:
        raise thread.refuse_deleted()
    if root_id and root_id <= thread.deleted_through:
        root = CheckpointKey(thread.thread_id, "", root_id)
        if not exists(connection, thread.tenant, root):
            raise thread.refuse_deleted()
    return False
