"""Reading checkpoints: one, or pages of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import Connection, Select, and_, bindparam, or_, select

from ..domain.evicted import lacks_values
from ..domain.metadata import matches
from ..domain.model import (
    EVICTED,
    BlobLocation,
    Checkpoint,
    CheckpointKey,
    CheckpointQuery,
    Entry,
    Lineage,
    State,
    Value,
    View,
)
from ..domain.state import decode_state
from . import pending
from .api import ListPosition, Page
from .schema import checkpoints, contents, envelopes, placements, references
from .statements import EMPTY, Statement, of_checkpoint, of_namespace, of_thread, parameters_of

SCANNED_PER_PAGE = 2000
"""Rows that one page looks at, however few of them match a filter."""

_ENTRY = tuple(
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
_CHECKPOINT = (*_ENTRY, checkpoints.c.state)
_VISIBLE = checkpoints.c.hidden.is_(False)
_BY_KEY = Statement(select(*_CHECKPOINT).where(of_checkpoint(checkpoints), _VISIBLE))
_ANY_BY_KEY = Statement(select(*_ENTRY).where(of_checkpoint(checkpoints)))
_LATEST = Statement(
    select(*_CHECKPOINT)
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
    select(*_ENTRY)
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


def list_page(
    connection: Connection,
    tenant: str,
    query: CheckpointQuery,
    view: View,
    after: ListPosition | None,
    *,
    max_count: int,
    max_bytes: int,
) -> Page:
    """Return the next checkpoints, greatest ID first; see `api.Journal.list_page`."""
    found: list[Checkpoint] = []
    size = scanned = 0
    last: ListPosition | None = after
    with connection.execute(_listing(tenant, query, view, after)) as rows:
        for row in rows:
            full = len(found) >= max_count or (found and size >= max_bytes)
            if full or scanned == SCANNED_PER_PAGE:
                return Page(tuple(found), last)
            scanned += 1
            last = ListPosition(row.checkpoint_id, row.thread_id, row.checkpoint_ns)
            if matches(row.metadata, query.filter):
                found.append(_checkpoint(connection, tenant, row, view))
                size += content_size(found[-1])
    return Page(tuple(found), None)


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


def content_size(checkpoint: Checkpoint) -> int:
    """Return about how many bytes a checkpoint takes in memory; what was evicted takes none."""
    values = [write.value for write in checkpoint.writes]
    size = len(checkpoint.entry.metadata)
    if checkpoint.state is not None:
        size += len(checkpoint.state.frame)
        values.extend(c.value for c in checkpoint.state.channels if c.value)
    return size + sum(len(value.data) for value in values if value is not EVICTED)


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
    state = read_state(connection, tenant, entry.key, row[len(_ENTRY)])
    found = Checkpoint(entry, state, pending.read(connection, tenant, entry.key))
    if lacks_values(found) and not entry.envelopes:
        return replace(found, entry=source(connection, tenant, entry.key))
    return found


def source(connection: Connection, tenant: str, key: CheckpointKey) -> Entry:
    """Return a checkpoint, hidden or not, with whatever envelopes it has.

    Those hold what was evicted of it, even if it is a copy that is not certified itself.
    """
    [row] = _ANY_BY_KEY.run(connection, **parameters_of(tenant, key)).fetchall()
    return replace(
        _entry(connection, tenant, row), envelopes=tuple(_locations(connection, tenant, key))
    )


def _entry(connection: Connection, tenant: str, row: Sequence[Any]) -> Entry:
    key = CheckpointKey(row[0], row[1], row[2])
    certified_revision = row[6]
    return Entry(
        key=key,
        parent_id=row[3],
        incarnation=row[4],
        revision=row[5],
        certified_revision=certified_revision,
        seq=row[7],
        created_us=row[8],
        metadata=row[9],
        label=row[10],
        summary=row[11],
        lineage=Lineage(row[12], row[13], row[14]),
        envelopes=tuple(_locations(connection, tenant, key)) if certified_revision else (),
    )


def _locations(connection: Connection, tenant: str, key: CheckpointKey) -> Iterator[BlobLocation]:
    for sha256, size, blob_id, identifier in _LOCATIONS.run(
        connection, **parameters_of(tenant, key)
    ).fetchall():
        yield BlobLocation(sha256, size, blob_id, identifier)


def _listing(
    tenant: str, query: CheckpointQuery, view: View, after: ListPosition | None
) -> Select[Any]:
    """Return the statement of a page; one row more than a page looks at."""
    table = checkpoints.c
    statement = (
        select(*(_ENTRY if view is View.ENTRY else _CHECKPOINT))
        .where(table.tenant == tenant, _VISIBLE)
        .order_by(table.checkpoint_id.desc(), table.thread_id, table.checkpoint_ns)
        .limit(SCANNED_PER_PAGE + 1)
    )
    if query.thread_id is not None:
        statement = statement.where(table.thread_id == query.thread_id)
    if query.checkpoint_ns is not None:
        statement = statement.where(table.checkpoint_ns == query.checkpoint_ns)
    if query.checkpoint_id:
        statement = statement.where(table.checkpoint_id == query.checkpoint_id)
    if query.before:
        statement = statement.where(table.checkpoint_id < query.before)
    if query.label:
        statement = statement.where(table.label == query.label, table.label != EMPTY)
    if after is not None:
        statement = statement.where(
            table.checkpoint_id <= after.checkpoint_id,
            or_(
                table.checkpoint_id < after.checkpoint_id,
                table.thread_id > after.thread_id,
                and_(table.thread_id == after.thread_id, table.checkpoint_ns > after.checkpoint_ns),
            ),
        )
    return statement
