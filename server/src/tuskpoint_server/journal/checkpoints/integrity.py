"""Checking whole threads: that no row is missing, and that none is made up or changed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from sqlalchemy import Connection, bindparam, select

from ...domain.errors import journal_damaged
from ..database.binding import Binder, binder_of, equal
from ..database.logs import KNOWN, Known, StoredWrite, ThreadRow
from ..database.schema import changes, checkpoints, writes
from ..database.statements import Statement, of_thread

MISSING = "rows of it are missing, or others were put in their place"

_AT_ONCE = 500
_MACS = tuple(
    Statement(select(table.c.mac).where(of_thread(table))) for table in (checkpoints, writes)
)
_ROWS = Statement(
    select(checkpoints.c.checkpoint_ns, checkpoints.c.checkpoint_id, *KNOWN).where(
        of_thread(checkpoints)
    )
)
_STORED = (writes.c[name] for name in StoredWrite._fields[:-1])
_WRITES = Statement(
    select(writes.c.checkpoint_ns, writes.c.checkpoint_id, writes.c.mac, *_STORED).where(
        of_thread(writes)
    )
)
_CHANGED = ("thread", "seq", "incarnation", "kind", "checkpoint_ns", "checkpoint_id", "deleted")
_CHANGES = Statement(
    select(changes.c.mac, *(changes.c[name] for name in (*_CHANGED, "created_us")))
    .where(of_thread(changes), changes.c.seq > bindparam("after"))
    .order_by(changes.c.seq)
)


def check_rows(connection: Connection, row: ThreadRow) -> None:
    """Check that a thread has all rows of checkpoints and writes that it should have, and no more.

    What each row says is not checked here: who reads a row checks that.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    if row.bound_rows is not None and hash_rows(connection, row.number) != row.bound_rows:
        raise journal_damaged(row.thread_id, problem=MISSING)


def hash_rows(connection: Connection, number: int) -> int:
    """Return the hash of the rows of a thread as they are stored."""
    macs = (
        mac
        for statement in _MACS
        for (mac,) in statement.run(connection, of_thread=number).fetchall()
    )
    return binder_of(connection).total(mac or b"" for mac in macs)


def problems(connection: Connection, row: ThreadRow) -> Iterator[str]:
    """Yield what is wrong with the rows of a thread whose own row was checked."""
    binder = binder_of(connection)
    if row.bound_rows is None:
        return
    macs: list[bytes] = []
    yield from _checkpoint_problems(binder, connection, row, macs)
    yield from _write_problems(binder, connection, row, macs)
    if binder.total(macs) != row.bound_rows:
        yield MISSING
    seq = row.compacted_seq
    for mac, *columns in _in_runs(_CHANGES, connection, row.number, after=seq):
        seq += 1
        if columns[1] != seq:
            yield f"its log lacks change {seq}"
            seq = columns[1]
        if mac is None or not equal(mac, binder.change(*columns)):
            yield f"change {seq} of its log was changed"
    if seq != row.seq:
        yield f"its log ends with change {seq}, and not with {row.seq}"


def _checkpoint_problems(
    binder: Binder, connection: Connection, row: ThreadRow, macs: list[bytes]
) -> Iterator[str]:
    for checkpoint_ns, checkpoint_id, *columns in _in_runs(_ROWS, connection, row.number):
        known = Known(*columns)
        own = known.bind(binder, row.tenant, row.number, (checkpoint_ns, checkpoint_id))
        macs.append(known.mac or b"")
        if not equal(macs[-1], own):
            yield f"checkpoint '{checkpoint_id}' in namespace '{checkpoint_ns}' was changed"


def _write_problems(
    binder: Binder, connection: Connection, row: ThreadRow, macs: list[bytes]
) -> Iterator[str]:
    for checkpoint_ns, checkpoint_id, mac, *columns in _in_runs(_WRITES, connection, row.number):
        write = StoredWrite._make([*columns, None])
        own = write.mac(binder, row.number, (checkpoint_ns, checkpoint_id))
        macs.append(mac or b"")
        if not equal(macs[-1], own):
            yield f"a write of checkpoint '{checkpoint_id}' was changed"


def _in_runs(
    statement: Statement, connection: Connection, number: int, **values: object
) -> Iterator[Any]:
    answer = statement.run(connection, of_thread=number, **values)
    while some := answer.fetchmany(_AT_ONCE):
        yield from some
