"""Saving: a checkpoint, its pending writes, its label."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, bindparam, func, or_, select, update

from ..domain.checkpoint_ids import mint_checkpoint_id
from ..domain.errors import Reason, Refusal, checkpoint_not_found
from ..domain.limits import LIMITS
from ..domain.lineage import EventKind
from ..domain.model import Channel, CheckpointDraft, CheckpointKey, Saved, ThreadState, Write
from ..domain.state import encode_state
from . import events, evicting, pending, reads, searchability, threads, values, vectors
from .api import WritesEvicted
from .schema import checkpoints
from .statements import (
    Insert,
    InsertInto,
    Statement,
    all_columns,
    of_checkpoint,
    of_namespace,
    parameters_of,
)
from .threads import ThreadRow


@dataclass(frozen=True, slots=True)
class _Row:
    """What a save needs to know of a stored checkpoint."""

    checkpoint_id: str
    parent_id: str
    state: bytes
    metadata: bytes
    delta_channels: bytes
    label: str
    summary: str
    hidden: bool
    revision: int
    label_revision: int
    evicted_revision: int
    seq: int


_ROW = tuple(checkpoints.c[name] for name in _Row.__slots__)
_ROWS = Statement(
    select(*_ROW).where(
        of_namespace(checkpoints),
        or_(
            checkpoints.c.checkpoint_id == bindparam("of_id"),
            checkpoints.c.checkpoint_id == bindparam("of_parent"),
        ),
    )
)
_KEPT = {"created_us", "packed_revision", "certified_revision"}
_KEPT |= {"forked_from", "rolled_back_from", "adopted_from"}


def _store_checkpoint(insert_into: InsertInto) -> Insert:
    insert = insert_into(checkpoints).values(all_columns(checkpoints))
    new = insert.excluded
    replaced: dict[str, Any] = {
        column.name: new[column.name]
        for column in checkpoints.columns
        if not column.primary_key and column.name not in _KEPT
    }
    replaced["dirty_us"] = func.coalesce(checkpoints.c.dirty_us, new.dirty_us)
    replaced["dirty_bytes"] = checkpoints.c.dirty_bytes + new.dirty_bytes
    return insert.on_conflict_do_update(
        index_elements=["tenant", "thread_id", "checkpoint_ns", "checkpoint_id"], set_=replaced
    )


_STORE_CHECKPOINT = Statement(_store_checkpoint)
_RAISE_REVISION = Statement(
    update(checkpoints)
    .where(of_checkpoint(checkpoints))
    .values(
        revision=bindparam("new_revision"),
        seq=bindparam("new_seq"),
        dirty_us=func.coalesce(checkpoints.c.dirty_us, bindparam("now_us")),
        dirty_bytes=checkpoints.c.dirty_bytes + bindparam("more_bytes"),
    )
)
_SET_LABEL = Statement(
    update(checkpoints)
    .where(of_checkpoint(checkpoints))
    .values(label=bindparam("new_label"), label_revision=bindparam("new_revision"))
)


def save_checkpoint(
    connection: Connection,
    tenant: str,
    draft: CheckpointDraft,
    now_us: int,
    entropy: int,
    restored: Sequence[Write] = (),
) -> Saved:
    """Insert or replace a checkpoint; see `api.Journal.save_checkpoint`."""
    thread = threads.lock(connection, tenant, draft.key.thread_id) or threads.new_thread(
        tenant, draft.key.thread_id, now_us
    )
    key = _identify(connection, tenant, draft.key, now_us, entropy)
    stored, parent = _rows(connection, tenant, key, draft.parent_id)
    if stored is None and threads.admit_save(
        connection, thread, draft, parent_exists=parent is not None
    ):
        thread.begin_next(now_us)
    plan = _plan(connection, tenant, draft, stored, parent)
    if stored is not None and plan.replaces:
        _take_writes_back(connection, tenant, key, restored)
    early = (
        pending.claim_early(connection, tenant, key, plan.revision)
        if stored is None
        else pending.Stored()
    )
    written = pending.store(connection, tenant, key, draft.writes, plan.revision, now_us)
    changed = plan.replaces or plan.label is not None or written.count > 0
    if draft.expected_head is not None:
        _check_head(connection, tenant, key, draft.expected_head, changed=changed)
    _prepare_search(connection, thread, key, draft, now_us)
    if not changed and stored is not None:
        _name_agent(connection, thread, draft.agent_id, now_us)
        return Saved(
            key, stored.revision, stored.seq, thread.incarnation, untold=bool(thread.untold)
        )
    thread.seq += 1
    thread.agent_id = draft.agent_id or thread.agent_id
    size = written.size_bytes
    if plan.replaces:
        waiting = written.size_bytes + early.size_bytes
        size += _replace(connection, thread, key, draft, plan, stored, now_us, waiting)
    else:
        _raise_revision(connection, tenant, key, plan.revision, thread.seq, now_us, size)
        if plan.label is not None:
            _SET_LABEL.run(
                connection,
                **parameters_of(tenant, key),
                new_label=plan.label,
                new_revision=plan.revision,
            )
    if key.checkpoint_ns == "" and key.checkpoint_id >= thread.head_id:
        thread.head_id = key.checkpoint_id
        has_writes = stored is not None or early.count or written.count
        thread.state = (
            threads.judge(connection, tenant, key.thread_id, key.checkpoint_id)
            if has_writes
            else ThreadState.IDLE
        )
    threads.store(connection, thread, now_us)
    events.append(
        connection, thread, EventKind.CHECKPOINT_SAVED, now_us, key, revision=plan.revision
    )
    return Saved(key, plan.revision, thread.seq, thread.incarnation, size)


def save_writes(
    connection: Connection, tenant: str, key: CheckpointKey, sent: Sequence[Write], now_us: int
) -> Saved:
    """Insert pending writes; see `api.Journal.save_writes`."""
    thread = threads.lock(connection, tenant, key.thread_id) or threads.new_thread(
        tenant, key.thread_id, now_us
    )
    row, _ = _rows(connection, tenant, key, "")
    # Writes may overtake the save that begins the next incarnation. If it never comes, they
    # expire unseen.
    if row is None and key.checkpoint_id <= thread.deleted_through:
        raise thread.refuse_deleted()
    revision = row.revision + 1 if row else 0
    written = pending.store(connection, tenant, key, sent, revision, now_us)
    visible = row is not None and not row.hidden
    if not written.count:
        found = row.revision if row and visible else 0
        return Saved(key, found, row.seq if row else thread.seq, thread.incarnation)
    thread.seq += 1
    if row is not None:
        _raise_revision(connection, tenant, key, revision, thread.seq, now_us, written.size_bytes)
    if visible and key.checkpoint_ns == "" and key.checkpoint_id == thread.head_id:
        thread.state = threads.judge(connection, tenant, key.thread_id, key.checkpoint_id)
    threads.store(connection, thread, now_us)
    told = revision if visible else 0
    events.append(connection, thread, EventKind.WRITES_SAVED, now_us, key, revision=told)
    return Saved(key, told, thread.seq, thread.incarnation, written.size_bytes)


def set_label(
    connection: Connection, tenant: str, key: CheckpointKey, label: str, now_us: int
) -> Saved:
    """Set or clear a label; see `api.Journal.set_label`."""
    thread = threads.lock(connection, tenant, key.thread_id)
    checkpoint_id = key.checkpoint_id or threads.latest(
        connection, tenant, key.thread_id, key.checkpoint_ns
    )
    named = CheckpointKey(key.thread_id, key.checkpoint_ns, checkpoint_id)
    row, _ = _rows(connection, tenant, named, "")
    if thread is None or row is None or row.hidden:
        raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
    if row.label == label:
        return Saved(named, row.revision, row.seq, thread.incarnation)
    thread.seq += 1
    revision = row.revision + 1
    _raise_revision(connection, tenant, named, revision, thread.seq, now_us, len(label))
    _SET_LABEL.run(
        connection, **parameters_of(tenant, named), new_label=label, new_revision=revision
    )
    threads.store(connection, thread, now_us)
    events.append(connection, thread, EventKind.LABEL_SET, now_us, named, revision=revision)
    return Saved(named, revision, thread.seq, thread.incarnation, len(label))


# --- steps ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a save does to what is stored.

    Attributes:
        revision: Revision of the checkpoint, if anything changes.
        replaces: The content changes.
        label: New label; `None` leaves it.
        channels: Channels with their digests.
        all_here: None of them may have been evicted.
        state: Stored form of the state.
        delta_channels: Stored form of their names.
    """

    revision: int
    replaces: bool
    label: str | None
    channels: tuple[Channel, ...]
    all_here: bool
    state: bytes
    delta_channels: bytes


def _plan(
    connection: Connection,
    tenant: str,
    draft: CheckpointDraft,
    stored: _Row | None,
    parent: _Row | None,
) -> _Plan:
    channels = values.resolve(
        connection, tenant, draft.channels, parent.state if parent is not None else None
    )
    state = encode_state(draft.frame, channels)
    if len(state) > LIMITS.max_state:
        raise Refusal(
            Reason.LIMIT_EXCEEDED,
            what=f"a state of {len(state)} bytes without its content",
            limit="max_state_bytes",
            maximum=LIMITS.max_state,
        )
    delta_channels = encode_names(draft.delta_channels)
    same = (
        stored is not None
        and not stored.hidden
        and stored.parent_id == draft.parent_id
        and stored.state == state
        and stored.metadata == draft.metadata.raw
        and stored.delta_channels == delta_channels
        and draft.summary in ("", stored.summary)
    )
    old_label = stored.label if stored else ""
    return _Plan(
        revision=stored.revision + 1 if stored else 1,
        replaces=not same,
        label=draft.label if draft.label not in ("", old_label) else None,
        channels=channels,
        all_here=(parent is None or not parent.evicted_revision)
        and not any(isinstance(channel.content, bytes) for channel in draft.channels),
        state=state,
        delta_channels=delta_channels,
    )


def _take_writes_back(
    connection: Connection, tenant: str, key: CheckpointKey, restored: Sequence[Write]
) -> None:
    """See to it that all writes are here: the next full envelope holds them again."""
    evicting.restore_writes(connection, tenant, key, restored)
    if pending.any_evicted(connection, tenant, key):
        raise WritesEvicted(reads.source(connection, tenant, key))


def encode_names(names: Sequence[str]) -> bytes:
    """Return the stored form of names of delta channels."""
    if not names:
        return b"[]"
    return json.dumps(list(names), ensure_ascii=False, separators=(",", ":")).encode()


def _identify(
    connection: Connection, tenant: str, key: CheckpointKey, now_us: int, entropy: int
) -> CheckpointKey:
    if key.checkpoint_id:
        return key
    above = threads.greatest(connection, tenant, key.thread_id, key.checkpoint_ns)
    minted = mint_checkpoint_id(now_us, entropy, above)
    return CheckpointKey(key.thread_id, key.checkpoint_ns, minted)


def _rows(
    connection: Connection, tenant: str, key: CheckpointKey, parent_id: str
) -> tuple[_Row | None, _Row | None]:
    """Return the checkpoint and its parent, hidden or not, as far as they are stored."""
    found = _ROWS.run(connection, **parameters_of(tenant, key), of_parent=parent_id).fetchall()
    rows = {row[0]: _Row(*row) for row in found}
    return rows.get(key.checkpoint_id), rows.get(parent_id) if parent_id else None


def _check_head(
    connection: Connection, tenant: str, key: CheckpointKey, expected: str, *, changed: bool
) -> None:
    """Compare the head before the save.

    What is stored already passes, wherever the head is: it is the retry of a save whose
    answer was lost, and a refusal would make the caller save it twice.
    """
    if not changed:
        return
    head = threads.latest(connection, tenant, key.thread_id, key.checkpoint_ns)
    if head == expected:
        return
    raise Refusal(
        Reason.HEAD_MOVED,
        thread_id=key.thread_id,
        checkpoint_ns=key.checkpoint_ns,
        head=head,
        expected=expected,
    )


def _prepare_search(
    connection: Connection,
    thread: ThreadRow,
    key: CheckpointKey,
    draft: CheckpointDraft,
    now_us: int,
) -> None:
    """Do what a save says about search; neither is part of the checkpoint.

    The setting comes before the checkpoint that it is to hold for. A thread that is not
    searchable keeps no vectors.
    """
    if draft.searchable is not None:
        searchability.switch(connection, thread, draft.searchable, now_us)
    if draft.vector and not thread.unsearchable:
        vectors.store(connection, thread.tenant, key, draft.vector)


def _name_agent(connection: Connection, thread: ThreadRow, agent_id: str, now_us: int) -> None:
    if agent_id and agent_id != thread.agent_id:
        thread.agent_id = agent_id
        thread.untold = True
        threads.store(connection, thread, now_us)


def _replace(
    connection: Connection,
    thread: ThreadRow,
    key: CheckpointKey,
    draft: CheckpointDraft,
    plan: _Plan,
    stored: _Row | None,
    now_us: int,
    waiting_bytes: int,
) -> int:
    """Store the checkpoint with its contents; return the bytes of new content."""
    tenant = thread.tenant
    size = values.store_contents(connection, tenant, draft.channels, plan.channels, now_us)
    size += len(plan.state) + len(draft.metadata.raw)
    values.replace_references(
        connection,
        tenant,
        key,
        plan.channels,
        before=stored is not None,
        all_here=plan.all_here,
    )
    visible = stored if stored is not None and not stored.hidden else None
    label, label_revision = plan.label, plan.revision
    if label is None:
        label = visible.label if visible else ""
        label_revision = stored.label_revision if stored else 0
    _STORE_CHECKPOINT.run(
        connection,
        tenant=tenant,
        thread_id=key.thread_id,
        checkpoint_ns=key.checkpoint_ns,
        checkpoint_id=key.checkpoint_id,
        incarnation=thread.incarnation,
        parent_id=draft.parent_id,
        state=plan.state,
        metadata=draft.metadata.raw,
        run_id=draft.metadata.run_id,
        root_id=draft.metadata.root_id,
        delta_channels=plan.delta_channels,
        label=label,
        summary=draft.summary or (visible.summary if visible else ""),
        forked_from="",
        rolled_back_from="",
        adopted_from="",
        hidden=False,
        revision=plan.revision,
        content_revision=plan.revision,
        label_revision=label_revision,
        packed_revision=0,
        certified_revision=0,
        evicted_revision=0,
        seq=thread.seq,
        created_us=now_us,
        dirty_us=now_us,
        dirty_bytes=size + waiting_bytes,
        unindexed_us=now_us,
    )
    return size


def _raise_revision(
    connection: Connection,
    tenant: str,
    key: CheckpointKey,
    revision: int,
    seq: int,
    now_us: int,
    size: int,
) -> None:
    _RAISE_REVISION.run(
        connection,
        **parameters_of(tenant, key),
        new_revision=revision,
        new_seq=seq,
        now_us=now_us,
        more_bytes=size,
    )
