"""Giving values up that envelopes hold, and taking them back.

A checkpoint gives its values up once it is certified as it is, unless it is the head of
its namespace; `evicted_revision` says at which revision it did, and while it is 0 nothing
of the checkpoint can be missing. Its writes go at once, a content when every checkpoint
that refers to it has given it up. Only the data goes: the
rows stay, so that whatever compares keys and digests works as before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sqlalchemy import (
    Connection,
    and_,
    bindparam,
    exists,
    func,
    literal,
    or_,
    select,
    tuple_,
    update,
)

from ..domain.digests import value_digest
from ..domain.model import CheckpointKey, Value, Write
from . import sqlite
from .schema import checkpoints, contents, envelopes, placements, references, writes
from .statements import EMPTY, Statement, of_checkpoint, of_users, parameters_of

MAX_CONTENTS = 200
"""Contents and writes after which a batch ends."""

MAX_BYTES = 16 * 1024 * 1024
"""Bytes after which a batch ends."""

TAKEN_BACK = -1
"""`evicted_revision` of a checkpoint of which something may be here again, if not all."""

_SCANNED_AT_ONCE = 2000

ContentKey = tuple[str, bytes]
"""Tenant and digest."""


@dataclass(frozen=True, slots=True)
class Position:
    """How far a pass over the checkpoints has come, oldest first."""

    created_us: int = -1
    tenant: str = ""
    thread_id: str = ""
    checkpoint_ns: str = ""
    checkpoint_id: str = ""

    @property
    def key(self) -> CheckpointKey:
        """The checkpoint that was looked at last."""
        return CheckpointKey(self.thread_id, self.checkpoint_ns, self.checkpoint_id)


@dataclass(frozen=True, slots=True)
class Evicted:
    """What a batch gave up: numbers of contents and of writes, and their bytes."""

    contents: int = 0
    writes: int = 0
    size_bytes: int = 0

    def __add__(self, other: Evicted) -> Evicted:
        """Return the sum."""
        return Evicted(
            self.contents + other.contents,
            self.writes + other.writes,
            self.size_bytes + other.size_bytes,
        )


_NEWER = checkpoints.alias("newer")
_HEAD = and_(
    checkpoints.c.hidden.is_(False),
    # What a snapshot captured is read when it is restored, and then as a whole.
    or_(of_users(checkpoints), checkpoints.c.checkpoint_ns == EMPTY),
    ~exists().where(
        _NEWER.c.tenant == checkpoints.c.tenant,
        _NEWER.c.thread_id == checkpoints.c.thread_id,
        _NEWER.c.checkpoint_ns == checkpoints.c.checkpoint_ns,
        _NEWER.c.checkpoint_id > checkpoints.c.checkpoint_id,
        _NEWER.c.hidden.is_(False),
    ),
)
_ITS_ENVELOPES = and_(
    envelopes.c.tenant == checkpoints.c.tenant,
    envelopes.c.thread_id == checkpoints.c.thread_id,
    envelopes.c.checkpoint_ns == checkpoints.c.checkpoint_ns,
    envelopes.c.checkpoint_id == checkpoints.c.checkpoint_id,
)
_HELD = and_(
    exists().where(
        _ITS_ENVELOPES,
        envelopes.c.ordinal == 0,
        envelopes.c.revision >= checkpoints.c.content_revision,
    ),
    ~exists().where(
        _ITS_ENVELOPES,
        ~exists().where(
            placements.c.tenant == envelopes.c.tenant,
            placements.c.sha256 == envelopes.c.sha256,
            placements.c.blob_id != EMPTY,
        ),
    ),
)
_MAY_GO = and_(
    checkpoints.c.certified_revision == checkpoints.c.revision,
    checkpoints.c.evicted_revision < checkpoints.c.revision,
    checkpoints.c.dirty_us.is_(None),
    checkpoints.c.created_us < bindparam("before_us"),
    ~_HEAD,
    _HELD,
)
_POSITION = (
    checkpoints.c.created_us,
    checkpoints.c.tenant,
    checkpoints.c.thread_id,
    checkpoints.c.checkpoint_ns,
    checkpoints.c.checkpoint_id,
)
_CANDIDATES = Statement(
    select(*_POSITION)
    .where(
        _MAY_GO,
        checkpoints.c.created_us >= bindparam("after_us"),
        tuple_(*_POSITION)
        > tuple_(
            bindparam("after_us"),
            bindparam("after_tenant"),
            bindparam("after_thread"),
            bindparam("after_ns"),
            bindparam("after_id"),
        ),
    )
    .order_by(*_POSITION)
    .limit(MAX_CONTENTS)
)
_GIVE_UP = Statement(
    update(checkpoints)
    .where(of_checkpoint(checkpoints), _MAY_GO)
    .values(evicted_revision=checkpoints.c.revision)
)
_WRITES_HERE = and_(
    of_checkpoint(writes),
    writes.c.data.is_not(None),
    writes.c.revision > literal(0),
    writes.c.revision
    <= select(func.max(envelopes.c.revision)).where(of_checkpoint(envelopes)).scalar_subquery(),
)
_WRITE_SIZES = Statement(
    select(func.count(), func.coalesce(func.sum(writes.c.size), 0)).where(_WRITES_HERE)
)
_EVICT_WRITES = Statement(update(writes).where(_WRITES_HERE).values(data=None))
_CONTENTS_HERE = Statement(
    select(contents.c.digest, contents.c.size)
    .join(
        references,
        and_(references.c.tenant == contents.c.tenant, references.c.digest == contents.c.digest),
    )
    .where(of_checkpoint(references), contents.c.data.is_not(None))
)
# Newest first: what still needs a content mostly came last.
_NEEDS = (
    select(references.c.digest)
    .join(
        checkpoints,
        and_(
            checkpoints.c.tenant == references.c.tenant,
            checkpoints.c.thread_id == references.c.thread_id,
            checkpoints.c.checkpoint_ns == references.c.checkpoint_ns,
            checkpoints.c.checkpoint_id == references.c.checkpoint_id,
        ),
    )
    .where(
        references.c.tenant == contents.c.tenant,
        references.c.digest == contents.c.digest,
        or_(
            checkpoints.c.certified_revision != checkpoints.c.revision,
            checkpoints.c.evicted_revision != checkpoints.c.revision,
        ),
    )
    .order_by(
        references.c.thread_id.desc(),
        references.c.checkpoint_ns.desc(),
        references.c.checkpoint_id.desc(),
    )
    .limit(1)
    .correlate(contents)
    .scalar_subquery()
)
_IS_REFERRED_TO = exists().where(
    references.c.tenant == contents.c.tenant, references.c.digest == contents.c.digest
)
_OF_DIGEST = and_(
    contents.c.tenant == bindparam("of_tenant"), contents.c.digest == bindparam("of_digest")
)
_EVICT_CONTENT = Statement(
    update(contents)
    .where(_OF_DIGEST, contents.c.data.is_not(None), _IS_REFERRED_TO, _NEEDS.is_(None))
    .values(data=None)
)
_LEFT = Statement(
    select(
        contents.c.tenant,
        contents.c.digest,
        contents.c.size,
        and_(contents.c.data.is_not(None), _IS_REFERRED_TO, _NEEDS.is_(None)),
    )
    .where(
        tuple_(contents.c.tenant, contents.c.digest)
        > tuple_(bindparam("after_tenant"), bindparam("after_digest"))
    )
    .order_by(contents.c.tenant, contents.c.digest)
    .limit(_SCANNED_AT_ONCE)
)
_RESTORE = Statement(
    update(contents).where(_OF_DIGEST, contents.c.data.is_(None)).values(data=bindparam("new_data"))
)
_TAKEN_BACK = Statement(
    update(checkpoints)
    .where(
        checkpoints.c.tenant == bindparam("of_tenant"),
        checkpoints.c.evicted_revision > literal(0),
        tuple_(
            checkpoints.c.thread_id, checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id
        ).in_(
            select(
                references.c.thread_id, references.c.checkpoint_ns, references.c.checkpoint_id
            ).where(
                references.c.tenant == bindparam("of_tenant"),
                references.c.digest == bindparam("of_digest"),
            )
        ),
    )
    .values(evicted_revision=TAKEN_BACK)
)
_RESTORE_WRITE = Statement(
    update(writes)
    .where(
        of_checkpoint(writes),
        writes.c.task_id == bindparam("of_task"),
        writes.c.idx == bindparam("of_idx"),
        writes.c.digest == bindparam("of_digest"),
        writes.c.data.is_(None),
    )
    .values(data=bindparam("new_data"))
)
_TOOK_WRITES_BACK = Statement(
    update(checkpoints).where(of_checkpoint(checkpoints)).values(evicted_revision=TAKEN_BACK)
)
_EVICTED_BYTES = tuple(
    Statement(
        select(func.coalesce(func.sum(table.c.size), 0)).where(
            table.c.tenant == bindparam("of_tenant"), table.c.data.is_(None)
        )
    )
    for table in (contents, writes)
)


def used_bytes(connection: Connection) -> int:
    """Return the bytes of the database that hold something; free pages do not count."""
    return sqlite.used_bytes(connection)


def evicted_bytes(connection: Connection, tenant: str) -> int:
    """Return the bytes of values and writes of a tenant that are only in envelopes."""
    found = (statement.run(connection, of_tenant=tenant).fetchone() for statement in _EVICTED_BYTES)
    return sum(int(row[0]) for row in found if row is not None)


# --- giving up -------------------------------------------------------------------------


def evictable(connection: Connection, after: Position, before_us: int) -> list[Position]:
    """Return the next checkpoints that may give their values up: one batch, oldest first.

    Args:
        connection: In a transaction.
        after: Where the last batch ended.
        before_us: Only those that are older.
    """
    rows = _CANDIDATES.run(
        connection,
        before_us=before_us,
        after_us=after.created_us,
        after_tenant=after.tenant,
        after_thread=after.thread_id,
        after_ns=after.checkpoint_ns,
        after_id=after.checkpoint_id,
    ).fetchall()
    batch: list[Position] = []
    count = size = 0
    for row in rows:
        position = Position(*row)
        more, more_bytes = _extent(connection, position)
        if batch and (count + more > MAX_CONTENTS or size + more_bytes > MAX_BYTES):
            break
        batch.append(position)
        count += more
        size += more_bytes
    return batch


def evict(connection: Connection, batch: Sequence[Position], before_us: int) -> Evicted:
    """Make checkpoints give their values up, those of them that still may.

    Args:
        connection: In a write transaction.
        batch: What `evictable` returned.
        before_us: As there.
    """
    contents_here: dict[ContentKey, int] = {}
    count = size = 0
    for position in batch:
        of = parameters_of(position.tenant, position.key)
        if _GIVE_UP.run(connection, **of, before_us=before_us).rowcount < 1:
            continue
        row = _WRITE_SIZES.run(connection, **of).fetchone()
        if row is not None and row[0]:
            count += _EVICT_WRITES.run(connection, **of).rowcount
            size += int(row[1])
        for digest, content_size in _CONTENTS_HERE.run(connection, **of).fetchall():
            contents_here[position.tenant, digest] = content_size
    return Evicted(0, count, size) + evict_contents(connection, contents_here)


def left_behind(
    connection: Connection, after: ContentKey
) -> tuple[dict[ContentKey, int], ContentKey | None]:
    """Return contents that could go, with their sizes, and where to go on.

    They stayed for a checkpoint that was removed or changed since, so that no batch of
    checkpoints leads to them. `None` is the end.
    """
    rows = _LEFT.run(connection, after_tenant=after[0], after_digest=after[1]).fetchall()
    found: dict[ContentKey, int] = {}
    size = 0
    for tenant, digest, content_size, free in rows:
        if not free:
            continue
        found[tenant, digest] = content_size
        size += content_size
        if len(found) >= MAX_CONTENTS or size >= MAX_BYTES:
            return found, (tenant, digest)
    end = len(rows) < _SCANNED_AT_ONCE
    return found, None if end else (rows[-1][0], rows[-1][1])


def evict_contents(connection: Connection, found: Mapping[ContentKey, int]) -> Evicted:
    """Give contents up that every checkpoint which refers to them has given up.

    Args:
        connection: In a write transaction.
        found: The contents, with their sizes.
    """
    gone = [
        size
        for (tenant, digest), size in found.items()
        if _EVICT_CONTENT.run(connection, of_tenant=tenant, of_digest=digest).rowcount > 0
    ]
    return Evicted(len(gone), 0, sum(gone))


def _extent(connection: Connection, position: Position) -> tuple[int, int]:
    """Return the number and the bytes of what a checkpoint may give up, at most."""
    of = parameters_of(position.tenant, position.key)
    sizes = [size for _, size in _CONTENTS_HERE.run(connection, **of).fetchall()]
    row = _WRITE_SIZES.run(connection, **of).fetchone() or (0, 0)
    return len(sizes) + row[0], sum(sizes) + int(row[1])


# --- taking back -----------------------------------------------------------------------


def restore(connection: Connection, tenant: str, values: Mapping[bytes, Value]) -> int:
    """Put evicted contents back, by digest; return how many were.

    They may be evicted again once the checkpoints that refer to them may give them up.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        values: The values; those that are here or not known are left out.

    Raises:
        ValueError: A value has another digest.
    """
    count = 0
    for digest, value in values.items():
        _check(digest, value)
        of = {"of_tenant": tenant, "of_digest": digest}
        if _RESTORE.run(connection, **of, new_data=value.data).rowcount > 0:
            _TAKEN_BACK.run(connection, **of)
            count += 1
    return count


def restore_writes(
    connection: Connection, tenant: str, key: CheckpointKey, sent: Iterable[Write]
) -> int:
    """Put evicted writes of a checkpoint back; return how many were.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        key: The checkpoint.
        sent: Its writes, as an envelope holds them; those that are here, or have another
            digest there, are left out.

    Raises:
        ValueError: A write has another digest than it says.
    """
    of = parameters_of(tenant, key)
    count = 0
    for write in sent:
        _check(write.digest, write.value)
        count += _RESTORE_WRITE.run(
            connection,
            **of,
            of_task=write.task_id,
            of_idx=write.idx,
            of_digest=write.digest,
            new_data=write.value.data,
        ).rowcount
    if count:
        _TOOK_WRITES_BACK.run(connection, **of)
    return count


def _check(digest: bytes, value: Value) -> None:
    if value_digest(value) != digest:
        raise ValueError(f"a value has another digest than {digest.hex()}")
