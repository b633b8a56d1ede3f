"""Tenants with lost blobs that are not all stored again yet; the notes survive a crash."""

from __future__ import annotations

import json

from sqlalchemy import Connection, bindparam, delete, select

from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import journal_info
from ...journal.sql.statements import Statement, put_rows

_LOST = "lost_blobs"
_NAMED = journal_info.c.name == bindparam("of_name")
_GET = Statement(select(journal_info.c.value).where(_NAMED))
_PUT = Statement(put_rows(journal_info, ("name",)))
_FORGET = Statement(delete(journal_info).where(_NAMED))


def tenants(connection: Connection) -> frozenset[str]:
    """Return the tenants whose blobs were lost and may not all be stored again."""
    row = _GET.run(connection, of_name=_LOST).fetchone()
    return frozenset(json.loads(row[0])) if row is not None else frozenset()


def note(batch: UnitOfWork, tenant: str) -> None:
    """Note that blobs of a tenant were lost: the tenant's next catalog does not show that."""
    lost_tenants = tenants(batch.connection)
    if tenant not in lost_tenants:
        _put(batch, lost_tenants | {tenant})


def forget(batch: UnitOfWork, tenant: str) -> None:
    """Forget the loss: the journal's content is stored again, and the rest is recorded as lost."""
    _put(batch, tenants(batch.connection) - {tenant})


def _put(batch: UnitOfWork, names: frozenset[str]) -> None:
    if names:
        _PUT.run(batch.connection, name=_LOST, value=json.dumps(sorted(names)))
    else:
        _FORGET.run(batch.connection, of_name=_LOST)
