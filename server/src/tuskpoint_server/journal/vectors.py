"""Vectors of checkpoints: storing and copying them. They are found by `finding`.

All vectors of a tenant have one dimension: the embedder's from the moment it is adopted, else
that of those which are there.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Connection, bindparam, delete, func, insert, select
from sqlalchemy.sql.elements import ColumnElement

from ..domain import vectors as packed
from ..domain.errors import Refusal, invalid_field
from ..domain.model import CheckpointKey
from .schema import journal_info, vectors
from .statements import EMPTY, Statement, all_columns, of_checkpoint, of_thread, parameters_of

CALLER = ""
"""Embedder of vectors that callers sent."""

_ANY_SIZE = Statement(
    select(func.length(vectors.c.vector)).where(vectors.c.tenant == bindparam("of_tenant")).limit(1)
)
_EMBEDDER = "search_embedder"
"""Name of the fact that tells dimension and name of the embedder, a space between them."""

_NOTED = Statement(select(journal_info.c.value).where(journal_info.c.name == bindparam("fact")))
_FORGET = Statement(delete(journal_info).where(journal_info.c.name == bindparam("fact")))
_NOTE = Statement(insert(journal_info).values(all_columns(journal_info)))
_DROP = Statement(delete(vectors).where(of_checkpoint(vectors)))
_COLUMNS = [column.name for column in vectors.columns if column.name != "number"]
_ADD = Statement(insert(vectors).values({name: bindparam(name) for name in _COLUMNS}))


def _copy(where: ColumnElement[bool], changed: dict[str, ColumnElement[Any]]) -> Statement:
    """Return a statement that copies callers' vectors of a length to another place."""
    columns = [changed.get(name, vectors.c[name]) for name in _COLUMNS]
    source = select(*columns).where(
        where,
        vectors.c.embedder == EMPTY,
        func.length(vectors.c.vector) == bindparam("of_length"),
    )
    return Statement(insert(vectors).from_select(_COLUMNS, source.order_by(vectors.c.number)))


_NEW_THREAD = bindparam("new_thread", type_=vectors.c.thread_id.type)
_NEW_NS = bindparam("new_ns", type_=vectors.c.checkpoint_ns.type)
_COPY = _copy(of_checkpoint(vectors), {"thread_id": _NEW_THREAD, "checkpoint_ns": _NEW_NS})
_COPY_THREAD = _copy(of_thread(vectors), {"thread_id": _NEW_THREAD})
_DROP_THREAD = Statement(delete(vectors).where(of_thread(vectors)))


def note_embedder(connection: Connection, embedder: str, dimension: int) -> None:
    """Note whose vectors are stored from now on, and of which dimension."""
    forget_embedder(connection)
    _NOTE.run(connection, name=_EMBEDDER, value=f"{dimension} {embedder}")


def forget_embedder(connection: Connection) -> None:
    """Forget the embedder: vectors may have any dimension if there are none."""
    _FORGET.run(connection, fact=_EMBEDDER)


def noted_dimension(connection: Connection) -> int:
    """Return the dimension of the embedder; 0 if there is none."""
    row = _NOTED.run(connection, fact=_EMBEDDER).fetchone()
    return int(row[0].partition(" ")[0]) if row is not None else 0


def store(
    connection: Connection, tenant: str, key: CheckpointKey, vector: bytes, embedder: str = CALLER
) -> None:
    """Store the vector of a checkpoint, in the place of another if there is one.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        key: The checkpoint.
        vector: The vector, packed.
        embedder: Who made it.

    Raises:
        Refusal: `INVALID_FIELD`: the embedder's, or others of the tenant, have another
            dimension.
    """
    _DROP.run(connection, **parameters_of(tenant, key))
    if not fits(connection, tenant, vector):
        sent = packed.dimension(vector)
        raise wrong_dimension(sent, dimension(connection, tenant))
    _ADD.run(
        connection,
        tenant=tenant,
        thread_id=key.thread_id,
        checkpoint_ns=key.checkpoint_ns,
        checkpoint_id=key.checkpoint_id,
        embedder=embedder,
        vector=vector,
    )


def copy(connection: Connection, tenant: str, key: CheckpointKey, place: CheckpointKey) -> None:
    """Copy the vector that a caller sent with a checkpoint, if it did, to another place.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        key: The checkpoint.
        place: Of its copy.
    """
    if not (expected := dimension(connection, tenant)):
        return
    _DROP.run(connection, **parameters_of(tenant, place))
    _COPY.run(
        connection,
        **parameters_of(tenant, key),
        new_thread=place.thread_id,
        new_ns=place.checkpoint_ns,
        of_length=expected * packed.COMPONENT_BYTES,
    )


def copy_thread(connection: Connection, tenant: str, source: str, target: str) -> None:
    """Copy the vectors that callers sent with checkpoints of a thread, as `copy` does."""
    if not (expected := dimension(connection, tenant)):
        return
    _DROP_THREAD.run(connection, of_tenant=tenant, of_thread=target)
    _COPY_THREAD.run(
        connection,
        of_tenant=tenant,
        of_thread=source,
        new_thread=target,
        of_length=expected * packed.COMPONENT_BYTES,
    )


def dimension(connection: Connection, tenant: str) -> int:
    """Return the dimension that the tenant's vectors must have; 0 if it may be any."""
    noted = noted_dimension(connection)
    if noted:
        return noted
    row = _ANY_SIZE.run(connection, of_tenant=tenant).fetchone()
    return row[0] // packed.COMPONENT_BYTES if row is not None else 0


def fits(connection: Connection, tenant: str, vector: bytes) -> bool:
    """Tell whether a vector has a dimension that the tenant's may have."""
    return dimension(connection, tenant) in (0, packed.dimension(vector))


def wrong_dimension(sent: int, expected: int) -> Refusal:
    """Return the refusal of a vector of another dimension than those in the index."""
    return invalid_field(
        "vector", f"must have {expected} components as the vectors in the index have, not {sent}"
    )
