"""Stores vectors of checkpoints; `search` finds them.

All vectors of a tenant have one dimension: the embedder's dimension from the moment the embedder is
adopted, before that the dimension of the stored vectors.
"""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, func, select, text

from ...core.errors import invalid_field
from ...core.search import COMPONENT_BYTES
from ..database.thread_rows import Place
from ..sql.schema import journal_info, vectors
from ..sql.statements import Statement, insert_rows, of_checkpoint, parameters_of

CALLER = ""
"""Embedder of vectors that callers sent."""

_EMBEDDER = "search_embedder"
"""Fact with the dimension and the name of the embedder, separated by a space."""

_ANY_SIZE = Statement(
    select(func.length(vectors.c.vector)).where(vectors.c.tenant == bindparam("of_tenant")).limit(1)
)
_IS_NOTED = journal_info.c.name == _EMBEDDER
_NOTED = Statement(select(journal_info.c.value).where(_IS_NOTED))
_FORGET = Statement(delete(journal_info).where(_IS_NOTED))
_NOTE = Statement(insert_rows(journal_info))
_DROP = Statement(delete(vectors).where(of_checkpoint(vectors)))
_IN_ORDER = Statement(
    text("SELECT 1"),
    postgresql=text("SELECT pg_advisory_xact_lock(1986356083, hashtext(current_schema()))"),
)
_COLUMNS = tuple(column.name for column in vectors.columns if column.name != "number")
_ADD = Statement(insert_rows(vectors, _COLUMNS))


def note_embedder(connection: Connection, embedder: str, dimension: int) -> None:
    """Note the embedder of all later vectors, and their dimension."""
    forget_embedder(connection)
    _NOTE.run(connection, name=_EMBEDDER, value=f"{dimension} {embedder}")


def forget_embedder(connection: Connection) -> None:
    """Forget the embedder: without stored vectors, any dimension is accepted."""
    _FORGET.run(connection)


def noted_dimension(connection: Connection) -> int:
    """Return the dimension of the embedder; 0 if there is none."""
    row = _NOTED.run(connection).fetchone()
    return int(row[0].partition(" ")[0]) if row is not None else 0


def size_bytes(connection: Connection, tenant: str) -> int:
    """Return the size of a tenant's vectors in bytes; 0 if any size is accepted."""
    noted = noted_dimension(connection)
    if noted:
        return noted * COMPONENT_BYTES
    row = _ANY_SIZE.run(connection, of_tenant=tenant).fetchone()
    return row[0] if row is not None else 0


def check(connection: Connection, tenant: str, size: int) -> None:
    """Refuse (`INVALID_FIELD`) a vector of `size` packed bytes if other vectors have another size.

    No other server adds a vector until the transaction ends.
    """
    _IN_ORDER.run(connection).close()
    expected = size_bytes(connection, tenant)
    if expected not in (0, size):
        raise invalid_field(
            "vector",
            f"must have {expected // COMPONENT_BYTES} components as the vectors in the "
            f"index have, not {size // COMPONENT_BYTES}",
        )


def store(connection: Connection, tenant: str, thread: int, place: Place, vector: bytes) -> None:
    """Store a checkpoint's vector, packed and checked, in place of its old vector."""
    _DROP.run(connection, **parameters_of(thread, *place))
    add(connection, [(tenant, thread, *place, CALLER, vector)])


def add(connection: Connection, rows: Sequence[tuple[object, ...]]) -> None:
    """Insert vectors, each with tenant, number of the thread, namespace, ID and embedder.

    Scans continue above a number: transactions that add vectors to a shared database commit in the
    order of their numbers, one after another.
    """
    if rows:
        _IN_ORDER.run(connection).close()
    _ADD.run_rows(connection, _COLUMNS, rows)
