"""Removing what nothing needs: unreferenced contents; expired writes, answers and events."""

from __future__ import annotations

from collections.abc import Sequence

from sqlalchemy import Connection, and_, bindparam, delete, exists, or_, select, update

from .schema import contents, events, references, requests, threads, writes
from .statements import Statement, of_thread

SCANNED_AT_ONCE = 2000
"""Contents that one read transaction looks at."""

EVENTS_AT_ONCE = 1000
"""Events past their time that one write transaction looks at."""

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
_OLD_EVENTS = Statement(
    select(events.c.tenant, events.c.thread_id, events.c.seq)
    .where(events.c.created_us < bindparam("before_us"))
    .order_by(events.c.created_us)
    .limit(bindparam("max_rows"))
)
_DROP_EVENTS = Statement(
    delete(events).where(of_thread(events), events.c.seq <= bindparam("through"))
)
_COMPACTED = Statement(
    update(threads)
    .where(of_thread(threads), threads.c.compacted_seq < bindparam("through"))
    .values(compacted_seq=bindparam("through"))
)


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


def drop_events(connection: Connection, before_us: int) -> int:
    """Remove some of the older events; return how many, 0 once there are none.

    What is left of a thread's events has no gap: an event that came before an old one goes
    with it, whatever a clock that was set back says of its time.
    """
    rows = _OLD_EVENTS.run(connection, before_us=before_us, max_rows=EVENTS_AT_ONCE).fetchall()
    through: dict[tuple[str, str], int] = {}
    for tenant, thread_id, seq in rows:
        place = (tenant, thread_id)
        through[place] = max(seq, through.get(place, 0))
    count = 0
    for (tenant, thread_id), last in through.items():
        of = {"of_tenant": tenant, "of_thread": thread_id, "through": last}
        count += _DROP_EVENTS.run(connection, **of).rowcount
        _COMPACTED.run(connection, **of)
    return count
