"""Removing what nothing needs: unreferenced contents, expired writes and answers."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, and_, bindparam, delete, exists, or_, select

from .schema import contents, references, requests, writes
from .statements import Statement

SCANNED_AT_ONCE = 2000
"""Contents that one read transaction looks at."""

ContentKey = tuple[str, bytes]
"""Tenant and digest."""

_REFERENCED = exists().where(
    references.c.tenant == contents.c.tenant, references.c.digest == contents.c.digest
)
_KEYS = Statement(
    select(contents.c.tenant, contents.c.digest, _REFERENCED)
    .where(
        contents.c.tenant >= bindparam("after_tenant"),
        or_(
            contents.c.tenant > bindparam("after_tenant"),
            contents.c.digest > bindparam("after_digest"),
        ),
    )
    .order_by(contents.c.tenant, contents.c.digest)
    .limit(SCANNED_AT_ONCE)
)
_DROP = Statement(
    delete(contents).where(
        and_(
            contents.c.tenant == bindparam("of_tenant"),
            contents.c.digest == bindparam("of_digest"),
            contents.c.created_us < bindparam("before_us"),
            ~_REFERENCED,
        )
    )
)
_DROP_EARLY = Statement(
    delete(writes).where(writes.c.revision == 0, writes.c.created_us < bindparam("before_us"))
)
_DROP_REQUESTS = Statement(delete(requests).where(requests.c.created_us < bindparam("before_us")))


def unreferenced(
    connection: Connection, after: ContentKey
) -> tuple[list[ContentKey], ContentKey | None]:
    """Return the next contents without a reference, and where to go on; `None` at the end."""
    rows = _KEYS.run(connection, after_tenant=after[0], after_digest=after[1]).fetchall()
    found = [(tenant, digest) for tenant, digest, referenced in rows if not referenced]
    end = len(rows) < SCANNED_AT_ONCE
    return found, None if end else (rows[-1][0], rows[-1][1])


def drop_contents(connection: Connection, found: Sequence[ContentKey], before_us: int) -> int:
    """Remove contents that are older and still without a reference; return how many."""
    return sum(
        _DROP.run(connection, of_tenant=tenant, of_digest=digest, before_us=before_us).rowcount
        for tenant, digest in found
    )


def drop_early_writes(connection: Connection, before_us: int) -> int:
    """Remove older writes whose checkpoint never came; return how many."""
    return _DROP_EARLY.run(connection, before_us=before_us).rowcount


def drop_requests(connection: Connection, before_us: int) -> int:
    """Remove older answers; return how many."""
    return _DROP_REQUESTS.run(connection, before_us=before_us).rowcount
