"""Journal rows for a collection: own blobs that the collection empties, and live threads."""

from __future__ import annotations

import json
from collections.abc import Iterable

from sqlalchemy import Connection, bindparam, delete, select

from ...journal.database.unit_of_work import UnitOfWork
from ...journal.sql.schema import journal_info, threads
from ...journal.sql.statements import LISTED, Statement, put_rows

_EMPTIED = "emptied_blobs"
_GET = Statement(select(journal_info.c.value).where(journal_info.c.name == _EMPTIED))
_PUT = Statement(put_rows(journal_info, ("name",)))
_FORGET = Statement(delete(journal_info).where(journal_info.c.name == _EMPTIED))
_LIVE = Statement(
    select(threads.c.thread_id, threads.c.incarnation).where(
        threads.c.tenant == bindparam("of_tenant"),
        threads.c.thread_id.in_(LISTED),
        threads.c.deleted.is_(False),
    )
)


def read_emptied_blobs(connection: Connection) -> frozenset[str]:
    """Return own, unneeded blobs that an earlier collection may not have removed yet."""
    row = _GET.run(connection).fetchone()
    return frozenset(json.loads(row[0])) if row is not None else frozenset()


def note_emptied(batch: UnitOfWork, blobs: Iterable[str]) -> None:
    """Note own blobs that nothing needs: the process may crash before it removes them."""
    names = sorted(read_emptied_blobs(batch.connection) | set(blobs))
    _PUT.run(batch.connection, name=_EMPTIED, value=json.dumps(names))


def forget_emptied(batch: UnitOfWork) -> None:
    """Forget the noted blobs, which are removed."""
    _FORGET.run(batch.connection)


def live_incarnations(
    connection: Connection, tenant: str, thread_ids: Iterable[str]
) -> dict[str, int]:
    """Return the incarnations of the live threads among some threads."""
    return dict(_LIVE.run_listed(connection, thread_ids, of_tenant=tenant))
