"""Reading checkpoints one by one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, and_, bindparam, or_, select

from ..domain.evicted import lacks_values
from ..domain.model import (
    EVICTED,
    BlobLocation,
    Checkpoint,
    CheckpointKey,
    Entry,
    Lineage,
    State,
    Value,
    View,
)
from ..domain.state import decode_state
from . import pending
from .schema import checkpoints, contents, envelopes, placements, references
from .statements import (
    Statement,
    of_checkpoint,
    of_namespace,
    of_thread,
    parameters_of,
)

ENTRY = tuple(
    checkpoints.c[name]
    for name in (
        "thread_id",
        "checkpoint_ns",
        "checkpoint_id",
        "parent_id",
        "incarnation",
        "revision",
        "certified_revision",
        "seq",
        "created_us",
        "metadata",
        "label",
        "summary",
        "forked_from",
        "rolled_back_from",
        "adopted_from",
    )
)
"""Columns that `entry_of` makes an entry of."""

CHECKPOINT = (*ENTRY, checkpoints.c.state)
"""Those, and the state."""

_VISIBLE = checkpoints.c.hidden.is_(False)
_BY_KEY = Statement(select(*CHECKPOINT).where(of_checkpoint(checkpoints), _VISIBLE))
_ANY_BY_KEY = Statement(select(*CHECKPOINT).where(of_checkpoint(checkpoints)))
_LATEST = Statement(
    select(*CHECKPOINT)
    .where(of_namespace(checkpoints), _VISIBLE)
    .order_by(checkpoints.c.checkpoint_id.desc())
    .limit(1)
)
_CONTENTS = Statement(
    select(contents.c.digest, contents.c.type, contents.c.data)
    .join(
        references,
        and_(references.c.tenant == contents.c.tenant, references.c.digest == contents.c.digest),
    )
    .where(of_checkpoint(references))
)
_LOCATIONS = Statement(
    select(placements.c.sha256, placements.c.size, placements.c.blob_id, placements.c.identifier)
    .join(
        envelopes,
        and_(envelopes.c.tenant == placements.c.tenant, envelopes.c.sha256 == placements.c.sha256),
    )
    .where(of_checkpoint(envelopes), placements.c.blob_id != "")
    .order_by(envelopes.c.ordinal)
)
_CERTIFIED = Statement(
    select(*ENTRY)
    .where(
        of_thread(checkpoints),
        _VISIBLE,
        checkpoints.c.certified_revision > 0,
        checkpoints.c.checkpoint_ns >= bindparam("after_ns"),
        or_(
            checkpoints.c.checkpoint_ns > bindparam("after_ns"),
            checkpoints.c.checkpoint_id > bindparam("after_id"),
        ),
    )
    .order_by(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id)
    .limit(bindparam("max_rows"))
)


def load(connection: Connection, tenant: str, key: CheckpointKey, view: View) -> Checkpoint | None:
    """Return a checkpoint, or `None`; see `api.Journal.load`."""
    statement = _BY_KEY if key.checkpoint_id else _LATEST
    row = statement.run(connection, **parameters_of(tenant, key)).fetchone()
    return _checkpoint(connection, tenant, row, view) if row is not None else None


def list_certified(
    connection: Connection,
    tenant: str,
    thread_id: str,
    after: tuple[str, str] | None,
    limit: int,
) -> list[Entry]:
    """Return certified checkpoints; see `api.Journal.list_certified`."""
    namespace, checkpoint_id = after or ("", "")
    rows = _CERTIFIED.run(
        connection,
        of_tenant=tenant,
        of_thread=thread_id,
        after_ns=namespace,
        after_id=checkpoint_id,
        max_rows=limit,
    ).fetchall()
    return [_entry(connection, tenant, row) for row in rows]


def read_state(connection: Connection, tenant: str, key: CheckpointKey, stored: bytes) -> State:
    """Return the state of a checkpoint with its contents, `EVICTED` where they are not here."""
    values = {
        digest: EVICTED if data is None else Value(kind, data)
        for digest, kind, data in _CONTENTS.run(connection, **parameters_of(tenant, key)).fetchall()
    }
    return decode_state(stored, values)


def _checkpoint(connection: Connection, tenant: str, row: Sequence[Any], view: View) -> Checkpoint:
    entry = _entry(connection, tenant, row)
    if view is View.ENTRY:
        return Checkpoint(entry)
    state = read_state(connection, tenant, entry.key, row[len(ENTRY)])
    found = Checkpoint(entry, state, pending.read(connection, tenant, entry.key))
    if lacks_values(found) and not entry.envelopes:
        return replace(found, entry=source(connection, tenant, entry.key))
    return found


def load_hidden(connection: Connection, tenant: str, key: CheckpointKey) -> Checkpoint:
    """Return a checkpoint that must be stored, whether or not readers see it."""
    [row] = _ANY_BY_KEY.run(connection, **parameters_of(tenant, key)).fetchall()
    return _checkpoint(connection, tenant, row, View.FULL)


def source(connection: Connection, tenant: str, key: CheckpointKey) -> Entry:
    """Return a checkpoint, hidden or not, with whatever envelopes it has.

    Those hold what was evicted of it, even if it is a copy that is not certified itself.
    """
    [row] = _ANY_BY_KEY.run(connection, **parameters_of(tenant, key)).fetchall()
    return replace(
        _entry(connection, tenant, row), envelopes=tuple(_locations(connection, tenant, key))
    )


def _entry(connection: Connection, tenant: str, row: Sequence[Any]) -> Entry:
    certified_revision = row[6]
    if not certified_revision:
        return entry_of(row, ())
    key = CheckpointKey(row[0], row[1], row[2])
    return entry_of(row, tuple(_locations(connection, tenant, key)))


def entry_of(row: Sequence[Any], envelopes: tuple[BlobLocation, ...]) -> Entry:
    """Make an entry of a row that begins with `ENTRY`."""
    return Entry(
        key=CheckpointKey(row[0], row[1], row[2]),
        parent_id=row[3],
        incarnation=row[4],
        revision=row[5],
        certified_revision=row[6],
        seq=row[7],
        created_us=row[8],
        metadata=row[9],
        label=row[10],
        summary=row[11],
        lineage=Lineage(row[12], row[13], row[14]),
        envelopes=envelopes,
    )


def _locations(connection: Connection, tenant: str, key: CheckpointKey) -> Iterator[BlobLocation]:
    for sha256, size, blob_id, identifier in _LOCATIONS.run(
        connection, **parameters_of(tenant, key)
    ).fetchall():
        yield BlobLocation(sha256, size, blob_id, identifier)
