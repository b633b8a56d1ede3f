"""Pending writes: stored once per (task, index), claimed by the checkpoint they follow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection, bindparam, delete, func, or_, select, update

from ..domain.errors import Reason, Refusal
from ..domain.limits import LIMITS
from ..domain.model import EVICTED, CheckpointKey, Value, Write, write_order
from .schema import writes
from .statements import Insert as _Insert
from .statements import InsertInto, Statement, all_columns, of_checkpoint, parameters_of

_KEY = ["tenant", "thread_id", "checkpoint_ns", "checkpoint_id", "task_id", "idx"]
COLUMNS = (
    writes.c.task_id,
    writes.c.task_path,
    writes.c.idx,
    writes.c.channel,
    writes.c.type,
    writes.c.data,
    writes.c.digest,
)
"""What `write_from` makes a write of."""


def _first_wins(insert_into: InsertInto) -> _Insert:
    return insert_into(writes).values(all_columns(writes)).on_conflict_do_nothing()


def _last_wins(insert_into: InsertInto) -> _Insert:
    insert = insert_into(writes).values(all_columns(writes))
    new = insert.excluded
    return insert.on_conflict_do_update(
        index_elements=_KEY,
        set_={column.name: new[column.name] for column in writes.columns if not column.primary_key},
        where=or_(
            writes.c.digest != new.digest,
            writes.c.channel != new.channel,
            writes.c.task_path != new.task_path,
        ),
    )


_FIRST_WINS = Statement(_first_wins)
_LAST_WINS = Statement(_last_wins)
_EARLY = Statement(select(writes.c.size).where(of_checkpoint(writes)))
_CLAIM = Statement(
    update(writes).where(of_checkpoint(writes)).values(revision=bindparam("claimed_at"))
)
_DROP = Statement(delete(writes).where(of_checkpoint(writes)))
_OF_CHECKPOINT = Statement(select(*COLUMNS).where(of_checkpoint(writes)))
_EVICTED = Statement(
    select(writes.c.idx).where(of_checkpoint(writes), writes.c.data.is_(None)).limit(1)
)
_NAME_COLUMNS = (writes.c.task_id, writes.c.task_path, writes.c.channel, writes.c.type)
_CHARACTERS = (
    func.length(writes.c.task_id)
    + func.length(writes.c.task_path)
    + func.length(writes.c.channel)
    + func.length(writes.c.type)
)
_EXTENT = Statement(
    select(func.count(), func.coalesce(func.sum(_CHARACTERS), 0)).where(of_checkpoint(writes))
)
_NAMES = Statement(select(*_NAME_COLUMNS).where(of_checkpoint(writes)))

_BYTES_PER_WRITE = 128
"""What a write takes in a message besides its names and content, at most."""

_BYTES_PER_CHARACTER = 4
"""UTF-8 takes no more."""


@dataclass(frozen=True, slots=True)
class Stored:
    """What storing writes changed: their number and the bytes of their content."""

    count: int = 0
    size_bytes: int = 0


def store(
    connection: Connection,
    tenant: str,
    key: CheckpointKey,
    sent: Sequence[Write],
    revision: int,
    now_us: int,
) -> Stored:
    """Insert writes: the first wins at `idx` 0 and above, the last below.

    Args:
        connection: In a write transaction.
        tenant: Tenant.
        key: Checkpoint that the writes follow.
        sent: The writes.
        revision: What the checkpoint's revision becomes if anything changes; 0 if the
            checkpoint does not exist yet.
        now_us: Time of the change.

    Raises:
        Refusal: `LIMIT_EXCEEDED` if the checkpoint would have more writes than a read can
            return.
    """
    count = size = 0
    for write in sent:
        statement = _FIRST_WINS if write.idx >= 0 else _LAST_WINS
        cursor = statement.run(
            connection,
            tenant=tenant,
            thread_id=key.thread_id,
            checkpoint_ns=key.checkpoint_ns,
            checkpoint_id=key.checkpoint_id,
            task_id=write.task_id,
            idx=write.idx,
            task_path=write.task_path,
            channel=write.channel,
            type=write.value.type,
            data=write.value.data,
            digest=write.digest,
            revision=revision,
            created_us=now_us,
            size=len(write.value.data),
        )
        if cursor.rowcount > 0:
            count += 1
            size += len(write.value.data)
    if count:
        _check_extent(connection, tenant, key)
    return Stored(count, size)


def _check_extent(connection: Connection, tenant: str, key: CheckpointKey) -> None:
    of = parameters_of(tenant, key)
    count, characters = _EXTENT.run(connection, **of).fetchone() or (0, 0)
    fixed = count * _BYTES_PER_WRITE
    if fixed + characters * _BYTES_PER_CHARACTER <= LIMITS.max_write_names:
        return
    rows = _NAMES.run(connection, **of).fetchall()
    size = fixed + sum(len(name.encode()) for row in rows for name in row)
    if size > LIMITS.max_write_names:
        raise Refusal(
            Reason.LIMIT_EXCEEDED,
            what=f"writes with {size} bytes of names on one checkpoint",
            limit="max_write_names_bytes",
            maximum=LIMITS.max_write_names,
        )


def claim_early(connection: Connection, tenant: str, key: CheckpointKey, revision: int) -> Stored:
    """Give the writes that came before their checkpoint its revision, and tell of them."""
    of = parameters_of(tenant, key)
    sizes = _EARLY.run(connection, **of).fetchall()
    if sizes:
        _CLAIM.run(connection, **of, claimed_at=revision)
    return Stored(len(sizes), sum(row[0] for row in sizes))


def drop(connection: Connection, tenant: str, key: CheckpointKey) -> None:
    """Remove the writes of a checkpoint, or those that wait for it."""
    _DROP.run(connection, **parameters_of(tenant, key))


def read(connection: Connection, tenant: str, key: CheckpointKey) -> tuple[Write, ...]:
    """Return the pending writes of a checkpoint, in order."""
    rows = _OF_CHECKPOINT.run(connection, **parameters_of(tenant, key)).fetchall()
    return tuple(sorted(map(write_from, rows), key=write_order))


def write_from(row: Sequence[object]) -> Write:
    """Make a write of a row of `COLUMNS`; its value is `EVICTED` if it is not here."""
    task_id, task_path, idx, channel, kind, data, digest = row
    value = EVICTED if data is None else Value(kind, data)  # type: ignore[arg-type]
    return Write(task_id, task_path, idx, channel, value, digest)  # type: ignore[arg-type]


def any_evicted(connection: Connection, tenant: str, key: CheckpointKey) -> bool:
    """Tell whether a write of a checkpoint was evicted."""
    return _EVICTED.run(connection, **parameters_of(tenant, key)).fetchone() is not None
