"""Which checkpoints the search index lacks, and what it is to hold of them."""

from __future__ import annotations

import hashlib

from sqlalchemy import Connection, and_, bindparam, func, select

from ..domain.limits import KIB
from ..domain.model import Channel, CheckpointKey, Value
from ..domain.searchable import PLAN, is_internal
from ..domain.state import decode_channels
from .findable import FINDABLE, ITS_THREAD
from .schema import checkpoints, contents, threads
from .search_api import Due
from .statements import EMPTY, Statement

MAX_VALUES_BYTES = 32 * KIB
"""Most bytes of values that are read of a checkpoint. Of its text `LIMITS.max_search_text`
are indexed: to parse a larger value costs more than it brings."""

MAX_VALUES = 256
"""Most values that are read of a checkpoint, for the same reason."""

_parents = checkpoints.alias("parents")
_DUE = Statement(
    select(
        checkpoints.c.tenant,
        checkpoints.c.thread_id,
        checkpoints.c.checkpoint_ns,
        checkpoints.c.checkpoint_id,
        checkpoints.c.unindexed_us,
        FINDABLE.label("shown"),
        checkpoints.c.summary,
        checkpoints.c.state,
        _parents.c.state,
    )
    .select_from(
        checkpoints.outerjoin(threads, ITS_THREAD).outerjoin(
            _parents,
            and_(
                _parents.c.tenant == checkpoints.c.tenant,
                _parents.c.thread_id == checkpoints.c.thread_id,
                _parents.c.checkpoint_ns == checkpoints.c.checkpoint_ns,
                _parents.c.checkpoint_id == checkpoints.c.parent_id,
            ),
        )
    )
    .where(checkpoints.c.unindexed_us.is_not(None))
    .order_by(checkpoints.c.unindexed_us)
    .limit(bindparam("max_rows"))
)
_COUNT_BEFORE = Statement(
    select(func.count()).where(
        checkpoints.c.unindexed_us.is_not(None),
        checkpoints.c.unindexed_us < bindparam("before_us"),
        # So spelled, it does not make an index of the tenant's checkpoints look shorter.
        func.coalesce(checkpoints.c.tenant, EMPTY) == bindparam("of_tenant"),
    )
)
_COUNT_NOW = Statement(
    select(func.count(), func.coalesce(func.max(checkpoints.c.unindexed_us), -1)).where(
        checkpoints.c.unindexed_us.is_not(None),
        func.coalesce(checkpoints.c.tenant, EMPTY) == bindparam("of_tenant"),
    )
)
_VALUE = Statement(
    select(contents.c.type, contents.c.data).where(
        contents.c.tenant == bindparam("of_tenant"),
        contents.c.digest == bindparam("of_digest"),
        contents.c.data.is_not(None),
    )
)


def due(connection: Connection, limit: int) -> list[Due]:
    """Return checkpoints that are due; see `search_api.Indexing.due`."""
    found: list[Due] = []
    for tenant, thread_id, ns, checkpoint_id, since_us, shown, summary, state, before in _DUE.run(
        connection, max_rows=limit
    ).fetchall():
        key = CheckpointKey(thread_id, ns, checkpoint_id)
        content = content_of(summary, state)
        if not shown:
            found.append(Due(tenant, key, since_us, content, shown=False))
            continue
        channels = _values(connection, tenant, state, before)
        found.append(Due(tenant, key, since_us, content, True, summary, channels))
    return found


def content_of(summary: str, state: bytes) -> bytes:
    """Return a digest of what a document says of a checkpoint.

    No number of the checkpoint would do: one that is deleted and saved again begins anew
    with them, and its time may be the same.
    """
    said = summary.encode()
    return hashlib.sha256(len(said).to_bytes(8) + said + state).digest()


def count_before(connection: Connection, tenant: str, before_us: int) -> int:
    """Return how many checkpoints are due; see `search_api.Indexing.due_before`."""
    row = _COUNT_BEFORE.run(connection, of_tenant=tenant, before_us=before_us).fetchone()
    return int(row[0]) if row else 0


def count_now(connection: Connection, tenant: str) -> tuple[int, int]:
    """Return how many are due, and a time after them; see `search_api.Indexing.due_now`."""
    row = _COUNT_NOW.run(connection, of_tenant=tenant).fetchone()
    return (int(row[0]), int(row[1]) + 1) if row else (0, 0)


def _values(
    connection: Connection, tenant: str, state: bytes, before: bytes | None
) -> tuple[tuple[str, Value], ...]:
    """Return the values that tell of a checkpoint, as far as they are here and fit."""
    taken: list[tuple[str, Value]] = []
    room = MAX_VALUES_BYTES
    for channel in _telling(state, before):
        if channel.size > room:
            continue
        row = _VALUE.run(connection, of_tenant=tenant, of_digest=channel.digest).fetchone()
        if row is not None:
            taken.append((channel.name, Value(*row)))
            room -= len(row[1])
    return tuple(taken)


def _telling(state: bytes, before: bytes | None) -> list[Channel]:
    """Return the channels to read, in the order in which they tell of a checkpoint.

    That is its plan, which may turn out to say nothing, then those that differ from the
    parent's, then the others. LangGraph's own would take room from what tells something.
    """
    known = {one.name: one.digest for one in decode_channels(before)} if before else {}
    return sorted(
        (
            one
            for one in decode_channels(state)
            if one.digest is not None and not is_internal(one.name)
        ),
        key=lambda one: (one.name != PLAN, known.get(one.name) == one.digest, one.name),
    )[:MAX_VALUES]
