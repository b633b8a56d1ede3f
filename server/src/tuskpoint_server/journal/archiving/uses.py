"""Which threads need which segments: what nobody uses need not be kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from sqlalchemy import Connection, bindparam, delete, select

from ..checkpoints.located import decode_held
from ..database.schema import checkpoints, members, uses
from ..database.statements import Statement, inserting
from .holding import split

_DIGEST_BYTES = 32


_ADD = Statement(inserting(uses).on_conflict_do_nothing())
_DROP_ALL = Statement(delete(uses).where(uses.c.thread == bindparam("of_thread")))
_HELD = Statement(
    select(checkpoints.c.held).where(
        checkpoints.c.thread == bindparam("of_thread"), checkpoints.c.held.is_not(None)
    )
)
_NEEDS = Statement(
    select(members.c.needs).where(
        members.c.tenant == bindparam("of_tenant"), members.c.sha256 == bindparam("of_sha256")
    )
)


def add(connection: Connection, tenant: str, used: Iterable[tuple[bytes, int]]) -> None:
    """Record that threads need segments.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        used: Hash of a segment, and number of the thread that needs it.
    """
    _ADD.run_many(
        connection,
        [{"tenant": tenant, "segment": segment, "thread": thread} for segment, thread in used],
    )


def with_needs(connection: Connection, tenant: str, segments: Iterable[bytes]) -> list[bytes]:
    """Return segments and those that they name, each once, in order."""
    found: dict[bytes, None] = {}
    for sha256 in segments:
        found[sha256] = None
        row = _NEEDS.run(connection, of_tenant=tenant, of_sha256=sha256).fetchone()
        for needed in split(row[0] or b"", _DIGEST_BYTES) if row is not None else ():
            found[needed] = None
    return list(found)


def begin_anew(connection: Connection, tenant: str, threads: Sequence[int]) -> None:
    """Forget what ended incarnations of threads needed.

    What copies of the incarnation that follows lie in stays in use.

    Args:
        connection: In a write transaction.
        tenant: The tenant.
        threads: Their numbers.
    """
    for thread in threads:
        _DROP_ALL.run(connection, of_thread=thread)
        held = _HELD.run(connection, of_thread=thread).fetchall()
        segments = {sha256 for row in held for sha256 in decode_held(row[0]).segments}
        needed = with_needs(connection, tenant, sorted(segments))
        add(connection, tenant, ((sha256, thread) for sha256 in needed))
