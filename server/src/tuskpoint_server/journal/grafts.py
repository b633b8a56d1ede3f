"""Making checkpoints in a thread out of others: copied rows, or content from elsewhere.

Copies refer to the same contents, and to the same stored envelopes where these hold what
is copied, so that nothing is stored on the blob store twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import (
    ColumnElement,
    Connection,
    Table,
    bindparam,
    case,
    exists,
    func,
    insert,
    literal,
    select,
)

from ..domain.errors import Reason, Refusal
from ..domain.lineage import EventKind
from ..domain.model import Channel, CheckpointKey, Lineage, Metadata, Write
from ..domain.snapshots import is_reserved
from . import events, evicting, pending, removals, threads, values, vectors
from .closures import Part
from .copies import LATE, STATE_IS_HELD, same
from .saves import encode_names
from .schema import checkpoints, envelopes, references, writes
from .statements import Statement, all_columns, of_checkpoint, of_thread, parameters_of
from .threads import ThreadRow

NO_LINEAGE = Lineage()

_ANY = Statement(select(checkpoints.c.checkpoint_id).where(of_thread(checkpoints)).limit(1))
_ADD = Statement(lambda insert_into: insert_into(checkpoints).values(all_columns(checkpoints)))


def _parameter(name: str, column: str) -> ColumnElement[Any]:
    return bindparam(name, type_=checkpoints.c[column].type)


def _copy(table: Table, changed: dict[str, Any], *where: ColumnElement[bool]) -> Statement:
    """Return a statement that copies a checkpoint's rows of a table to another place."""
    changed = {
        "thread_id": _parameter("new_thread", "thread_id"),
        "checkpoint_ns": _parameter("new_ns", "checkpoint_ns"),
        **changed,
    }
    columns = [changed.get(column.name, column) for column in table.columns]
    source = select(*columns).where(of_checkpoint(table), *where)
    return Statement(insert(table).from_select([c.name for c in table.columns], source))


_NOW = _parameter("now_us", "created_us")
_HIDDEN = bindparam("new_hidden", type_=checkpoints.c.hidden.type)
_COPY_CHECKPOINT = _copy(
    checkpoints,
    {
        "incarnation": _parameter("incarnation", "incarnation"),
        "revision": case((exists().where(same(writes, checkpoints), LATE), 2), else_=1),
        "content_revision": literal(1),
        "label_revision": literal(1),
        "packed_revision": literal(0),
        "certified_revision": literal(0),
        "evicted_revision": case(
            (checkpoints.c.evicted_revision != 0, evicting.TAKEN_BACK), else_=0
        ),
        "seq": _parameter("new_seq", "seq"),
        "created_us": _NOW,
        "dirty_us": _NOW,
        "dirty_bytes": func.length(checkpoints.c.state) + func.length(checkpoints.c.metadata),
        "unindexed_us": _NOW,
        "hidden": _HIDDEN,
        "label": case((_HIDDEN, ""), else_=checkpoints.c.label),
        "forked_from": _parameter("new_origin", "forked_from"),
        "rolled_back_from": literal(""),
        "adopted_from": literal(""),
    },
)
_COPY_REFERENCES = _copy(references, {})
_COPY_WRITES = _copy(
    writes, {"revision": case((writes.c.revision == 0, 0), (LATE, 2), else_=1), "created_us": _NOW}
)
_COPY_ENVELOPES = _copy(
    envelopes,
    {"revision": literal(1)},
    exists().where(same(checkpoints, envelopes), STATE_IS_HELD),
)


def begin(connection: Connection, tenant: str, target: str, now_us: int) -> ThreadRow:
    """Return the row of a thread that begins now, for the caller to store.

    Raises:
        Refusal: `THREAD_EXISTS` if it has checkpoints.
    """
    thread = threads.lock(connection, tenant, target)
    if thread is None:
        return threads.new_thread(tenant, target, now_us)
    if is_taken(connection, tenant, target):
        raise Refusal(Reason.THREAD_EXISTS, thread_id=target)
    if thread.deleted:
        removals.drop_early_writes(connection, thread)
    else:
        removals.end_incarnation(connection, thread, now_us)
    thread.begin_next(now_us)
    return thread


def is_taken(connection: Connection, tenant: str, thread_id: str) -> bool:
    """Tell whether a thread has checkpoints, hidden ones too."""
    found = _ANY.run(connection, of_tenant=tenant, of_thread=thread_id).fetchone()
    return found is not None


def copy_parts(
    connection: Connection,
    thread: ThreadRow,
    parts: Iterable[Part],
    now_us: int,
    *,
    origins: dict[CheckpointKey, str],
    place: Callable[[str], str] = str,
) -> None:
    """Copy checkpoints into a thread, under their IDs.

    Each that readers see takes a number of the sequence; hidden ones share the last.

    Args:
        connection: In a write transaction.
        thread: The thread; none of the copies may be there already. The caller stores it.
        parts: What to copy.
        now_us: Time of the change.
        origins: What `forked_from` says, by the key of what is copied.
        place: Namespace in the thread, by the namespace of what is copied.
    """
    for part in parts:
        key = CheckpointKey(thread.thread_id, place(part.key.checkpoint_ns), part.key.checkpoint_id)
        if not part.hidden:
            thread.seq += 1
        _copy_rows(connection, thread, part, key, origins.get(part.key, ""), now_us)
        if not part.hidden:
            revision = threads.revision(connection, thread.tenant, key)
            events.append(
                connection, thread, EventKind.CHECKPOINT_SAVED, now_us, key, revision=revision
            )


def _copy_rows(
    connection: Connection,
    thread: ThreadRow,
    part: Part,
    key: CheckpointKey,
    origin: str,
    now_us: int,
) -> None:
    of = {
        **parameters_of(thread.tenant, part.key),
        "new_thread": key.thread_id,
        "new_ns": key.checkpoint_ns,
    }
    # In this order: what is copied of the others depends on what stands at the source.
    _COPY_CHECKPOINT.run(
        connection,
        **of,
        incarnation=thread.incarnation,
        new_seq=thread.seq,
        now_us=now_us,
        new_hidden=part.hidden,
        new_origin=origin,
    )
    _COPY_REFERENCES.run(connection, **of)
    _COPY_WRITES.run(connection, **of, now_us=now_us)
    _COPY_ENVELOPES.run(connection, **of)
    if not is_reserved(key.thread_id) and not thread.unsearchable:
        vectors.copy(connection, thread.tenant, part.key, key)


@dataclass(frozen=True, slots=True)
class Graft:
    """A checkpoint to be made of content that is here, or comes with it.

    Attributes:
        key: The checkpoint.
        parent_id: Parent, or empty.
        state: Stored form of its state.
        channels: Its channels, by digest; with their values where these are to be stored.
        metadata: Parsed metadata.
        delta_channels: Names of its delta channels.
        label: Name, or empty.
        summary: One sentence, or empty.
        lineage: Lineage beyond the parent.
        writes: Pending writes.
        hidden: Readers do not see it.
    """

    key: CheckpointKey
    parent_id: str
    state: bytes
    channels: tuple[Channel, ...]
    metadata: Metadata
    delta_channels: Sequence[str] = ()
    label: str = ""
    summary: str = ""
    lineage: Lineage = NO_LINEAGE
    writes: tuple[Write, ...] = ()
    hidden: bool = False


def insert_checkpoint(connection: Connection, thread: ThreadRow, graft: Graft, now_us: int) -> None:
    """Insert a checkpoint; it takes a number of the sequence unless it is hidden.

    Args:
        connection: In a write transaction.
        thread: Its thread; the caller stores it.
        graft: The checkpoint; it must not be there already.
        now_us: Time of the change.

    Raises:
        Refusal: `VALUES_MISSING` if a content is neither here nor with it.
    """
    tenant = thread.tenant
    size = values.store_values(connection, tenant, graft.channels, now_us)
    values.replace_references(connection, tenant, graft.key, graft.channels, before=False)
    written = pending.store(connection, tenant, graft.key, graft.writes, 1, now_us)
    if not graft.hidden:
        thread.seq += 1
    _ADD.run(
        connection,
        tenant=tenant,
        thread_id=graft.key.thread_id,
        checkpoint_ns=graft.key.checkpoint_ns,
        checkpoint_id=graft.key.checkpoint_id,
        incarnation=thread.incarnation,
        parent_id=graft.parent_id,
        state=graft.state,
        metadata=graft.metadata.raw,
        run_id=graft.metadata.run_id,
        root_id=graft.metadata.root_id,
        delta_channels=encode_names(graft.delta_channels),
        label=graft.label,
        summary=graft.summary,
        forked_from=graft.lineage.forked_from,
        rolled_back_from=graft.lineage.rolled_back_from,
        adopted_from=graft.lineage.adopted_from,
        hidden=graft.hidden,
        revision=1,
        content_revision=1,
        label_revision=1,
        packed_revision=0,
        certified_revision=0,
        evicted_revision=0,
        seq=thread.seq,
        created_us=now_us,
        dirty_us=now_us,
        dirty_bytes=size + written.size_bytes + len(graft.state) + len(graft.metadata.raw),
        unindexed_us=now_us,
    )
    if not graft.hidden:
        events.append(connection, thread, EventKind.CHECKPOINT_SAVED, now_us, graft.key, revision=1)
