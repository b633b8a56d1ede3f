"""What a collection needs of the journal: own blobs that it empties, and which threads live."""

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
    """Return the own blobs that nothing needs, and that a collection may not have removed yet."""
    row = _GET.run(connection).fetchone()
    return frozenset(json.loads(row[0])) if row is not None else frozenset()


def note_emptied(batch: UnitOfWork, blobs: Iterable[str]) -> None:
    """Note own blobs that nothing needs: a crash may come before they are removed."""
    names = sorted(read_emptied_blobs(batch.connection) | set(blobs))
    _PUT.run(batch.connection, name=_EMPTIED, value=json.dumps(names))


def forget_emptied(batch: UnitOfWork) -> None:
    """Forget them: they are removed."""
    _FORGET.run(batch.connection)


def live_incarnations(
    connection: Connection, tenant: str, thread_ids: Iterable[str]
) -> dict[str, int]:
    """Return the incarnations of those of some threads that live."""
    return dict(_LIVE.run_listed(connection, thread_ids, of_tenant=tenant))
