"""Which kind of blob store holds what this journal refers to."""

from __future__ import annotations

from sqlalchemy import Connection, delete, insert, select

from .schema import journal_info, placements

_NAME = "blob_backend"


def claim(connection: Connection, backend: str) -> str:
    """Make a kind of store the home of all blobs, unless another is already.

    Args:
        connection: In a write transaction.
        backend: Kind of the store in use.

    Returns:
        Kind of the store that holds what was stored so far; `backend` if nothing was.
    """
    named = journal_info.c.name == _NAME
    known = connection.execute(select(journal_info.c.value).where(named)).scalar_one_or_none()
    if known == backend:
        return backend
    anything = connection.execute(select(placements.c.sha256).limit(1)).first()
    if known is not None and anything is not None:
        return str(known)
    connection.execute(delete(journal_info).where(named))
    connection.execute(insert(journal_info).values(name=_NAME, value=backend))
    return backend
