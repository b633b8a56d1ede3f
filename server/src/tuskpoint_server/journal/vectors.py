"""Vectors of checkpoints: storing them. They are found by `finding`."""

from __future__ import annotations

from sqlalchemy import Connection, bindparam, delete, func, insert, select

from ..domain import vectors as packed
from ..domain.errors import Refusal, invalid_field
from ..domain.model import CheckpointKey
from .schema import vectors
from .statements import Statement, of_checkpoint, parameters_of

CALLER = ""
"""Embedder of vectors that callers sent."""

_ANY_SIZE = Statement(
    select(func.length(vectors.c.vector)).where(vectors.c.tenant == bindparam("of_tenant")).limit(1)
)
_DROP = Statement(delete(vectors).where(of_checkpoint(vectors)))
_ADD = Statement(
    insert(vectors).values(
        {
            name: bindparam(name)
            for name in (
                "tenant",
                "thread_id",
                "checkpoint_ns",
                "checkpoint_id",
                "embedder",
                "vector",
            )
        }
    )
)


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
        Refusal: `INVALID_FIELD`: other vectors of the tenant have another dimension.
    """
    _DROP.run(connection, **parameters_of(tenant, key))
    row = _ANY_SIZE.run(connection, of_tenant=tenant).fetchone()
    if row is not None and row[0] != len(vector):
        raise wrong_dimension(packed.dimension(vector), row[0] // packed.COMPONENT_BYTES)
    _ADD.run(
        connection,
        tenant=tenant,
        thread_id=key.thread_id,
        checkpoint_ns=key.checkpoint_ns,
        checkpoint_id=key.checkpoint_id,
        embedder=embedder,
        vector=vector,
    )


def dimension(connection: Connection, tenant: str) -> int:
    """Return the dimension of the tenant's vectors; 0 if there are none."""
    row = _ANY_SIZE.run(connection, of_tenant=tenant).fetchone()
    return row[0] // packed.COMPONENT_BYTES if row is not None else 0


def wrong_dimension(sent: int, expected: int) -> Refusal:
    """Return the refusal of a vector of another dimension than those in the index."""
    return invalid_field(
        "vector", f"must have {expected} components as the vectors in the index have, not {sent}"
    )
