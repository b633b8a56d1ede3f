"""Checks whole threads for missing, invented and changed rows.

A thread is checked in parts. Each part reads a bounded number of bytes in one read transaction, so
a long thread delays no other reader. The checks of the thread as a whole need one transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from google.protobuf.message import DecodeError
from sqlalchemy import ColumnElement, Connection, Table, and_, bindparam, select, tuple_

from tuskpoint.v1.checkpoint_pb2 import CheckpointState

from ...core.delta_bases import decode_delta_base
from ...core.errors import Refusal, journal_damaged
from ...core.limits import MIB
from ...core.model import Damage, DamagedValue
from ...core.values import UnopenedBytes
from ..database import put_back
from ..database.binding import binder_of, equal
from ..database.pending_writes import WRITE_CHANGED, StoredWrite
from ..database.put_back import STORED_THROUGH
from ..database.thread_rows import (
    KNOWN,
    CachedCheckpoint,
    Place,
    ThreadRef,
    ThreadRow,
    find_log,
    greatest_id,
)
from ..sql.schema import changes, checkpoints, members, threads, uses, writes
from ..sql.sealing import seal_of
from ..sql.statements import LISTED, Statement, of_thread
from . import contents

MISSING = "rows of it are missing, or others were put in their place"
CHANGED = "its row was changed behind the server's back"

PART_BYTES = MIB  # bytes of rows and values that one part reads, after the first row
PART_ROWS = 1000  # that one part reads
ROW_BYTES = 200  # bytes that a row counts besides its content

_MACS = tuple(
    Statement(select(table.c.mac).where(of_thread(table))) for table in (checkpoints, writes)
)


def _rows_after(
    table: Table, key: tuple[str, ...], columns: tuple[ColumnElement[object], ...]
) -> Statement:
    """Return the statement that reads a thread's rows above a key, in the order of the key."""
    key_columns = [table.c[name] for name in key]
    above = tuple_(*key_columns) > tuple_(*(bindparam(f"after_{name}") for name in key))
    return Statement(
        select(*key_columns, *columns)
        .where(of_thread(table), above)
        .order_by(*key_columns)
        .limit(bindparam("max_rows"))
    )


_PLACE = ("checkpoint_ns", "checkpoint_id")
_WRITE_KEY = (*_PLACE, "task_id", "idx")
_CHANGED = ("thread", "seq", "incarnation", "kind", "checkpoint_ns", "checkpoint_id", "deleted")
_ROWS = _rows_after(checkpoints, _PLACE, KNOWN)
_WRITES = _rows_after(
    writes, _WRITE_KEY, (writes.c.mac, *(writes.c[name] for name in StoredWrite._fields))
)
_NUMBERED = Statement(
    select(
        *(checkpoints.c.number, threads.c.tenant, threads.c.thread_id, threads.c.number),
        *(threads.c.certified_seq, STORED_THROUGH),
        *(checkpoints.c[name] for name in _PLACE),
        *KNOWN,
    )
    .join(threads, threads.c.number == checkpoints.c.thread)
    .where(checkpoints.c.number.in_(LISTED))
)
_KEYS = Statement(
    select(members.c.sha256, members.c.blob_id, members.c.key)
    .join(uses, and_(uses.c.tenant == members.c.tenant, uses.c.segment == members.c.sha256))
    .where(
        uses.c.thread == bindparam("of_thread"),
        members.c.sha256 > bindparam("after"),
        # a key is destroyed with content that only a deleted thread needed
        members.c.key.is_not(None),
    )
    .order_by(members.c.sha256)
    .limit(bindparam("max_rows"))
)
_CHANGES = _rows_after(
    changes, ("seq",), (changes.c.mac, *(changes.c[name] for name in (*_CHANGED, "created_us")))
)


class Problem(NamedTuple):
    """A defect of a thread in the journal.

    `place`: namespace and ID of the checkpoint, `None`: the thread as a whole; `damage`: damage of
    a value, which a certified copy can repair.
    """

    text: str
    place: Place | None = None
    damage: Damage | None = None

    def __str__(self) -> str:
        if self.place is None:
            return self.text
        checkpoint_ns, checkpoint_id = self.place
        return f"checkpoint '{checkpoint_id}' in namespace '{checkpoint_ns}': {self.text}"


class CheckPosition(NamedTuple):
    """Progress of a check: the part, and the key of the last checked row."""

    part: int
    after: tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class ThreadCheck:
    """The result of checking one part of a thread.

    `next`: start of the next check; `None`: the whole thread was checked, or does not exist.
    """

    problems: tuple[Problem, ...] = ()
    next: CheckPosition | None = None
    size_bytes: int = 0


_PartCheck = tuple[list[Problem], int, tuple[str | int, ...] | None]


def check_rows(connection: Connection, row: ThreadRow) -> None:
    """Check that a thread has all of its rows of checkpoints and writes, and no others.

    The content of the rows is not checked here: each reader of a row checks it.

    Raises:
        Refusal: `JOURNAL_DAMAGED`.
    """
    if not has_its_rows(connection, row):
        raise journal_damaged(row.thread_id, problem=MISSING)


def has_its_rows(connection: Connection, row: ThreadRow) -> bool:
    """Return whether a thread has exactly its rows of checkpoints and writes."""
    is_bound = binder_of(connection).is_complete
    return not is_bound or hash_rows(connection, row.number) == row.bound_rows


def hash_rows(connection: Connection, number: int) -> int:
    """Return the hash of a thread's stored rows."""
    return binder_of(connection).total(_macs(connection, number))


def _macs(connection: Connection, number: int) -> Iterator[bytes]:
    for statement in _MACS:
        for (mac,) in statement.run(connection, of_thread=number).fetchall():
            yield mac or b""


def damaged_rows(connection: Connection, numbers: Collection[int]) -> dict[int, Refusal]:
    """Return refusals for changed rows of checkpoints, by number.

    For readers that use a few columns of many rows, and need all columns only for this check. Rows
    of threads that were put back to an earlier state are included.
    """
    binder = binder_of(connection)
    if not binder.is_complete or not numbers:
        return {}
    refusals: dict[int, Refusal] = {}
    rows = _NUMBERED.run_listed(connection, sorted(numbers))
    for number, tenant, thread_id, thread, certified_seq, stored_through, *columns in rows:
        place = (columns[0], columns[1])
        checkpoint = CachedCheckpoint(*columns[2:])
        if not checkpoint.is_bound(binder, ThreadRef(tenant, thread_id, thread), place):
            refusals[number] = journal_damaged(thread_id, *place)
        elif put_back.is_older(certified_seq, stored_through):
            why = put_back.problem(certified_seq, stored_through)
            refusals[number] = journal_damaged(thread_id, problem=why)
    return refusals


def check_some(
    connection: Connection,
    tenant: str,
    thread_id: str,
    at: CheckPosition | None,
    sound: set[bytes],
) -> ThreadCheck:
    """Check the next part of a thread: its rows, and its values in the journal.

    An evicted value is sound.

    Args:
        connection: A connection whose reads see the same moment.
        tenant: Tenant of the thread.
        thread_id: Name of the thread; deleted threads are checked, too.
        at: `ThreadCheck.next` of the previous part; `None`: start with the first part.
        sound: Digests of checked values; the check adds the sound values of this part.
    """
    log = find_log(connection, tenant, thread_id)
    if log is None:
        return ThreadCheck()
    damage = [] if log.damage is None else [Problem(str(log.damage.metadata["problem"]))]
    if damage and not log.put_back:
        return ThreadCheck(tuple(damage))
    part, after = at if at is not None else (0, ())
    look, first = _PARTS[part]
    problems, size, last = look(connection, log.row, after or first, sound)
    if at is None:
        problems += damage
    following: CheckPosition | None = None
    last_part = len(_PARTS) - (1 if seal_of(connection) is not None else 2)
    if last is not None:
        following = CheckPosition(part, last)
    elif part < last_part:
        following = CheckPosition(part + 1, ())
    return ThreadCheck(tuple(problems), following, size)


def _look_at_thread(
    connection: Connection, row: ThreadRow, _: object, __: set[bytes]
) -> _PartCheck:
    problems: list[Problem] = []
    count = 0
    if binder_of(connection).is_complete:
        macs = list(_macs(connection, row.number))
        count = len(macs)
        if binder_of(connection).total(macs) != row.bound_rows:
            problems.append(Problem(MISSING))
    # Threads of store items have no latest checkpoint.
    head = greatest_id(connection, row.number, "") if row.head_id else ""
    if head != row.head_id:
        problems.append(Problem(f"it lacks its latest checkpoint, '{row.head_id}'"))
    return problems, ROW_BYTES * (1 + count), None


def _look_at_changes(
    connection: Connection, row: ThreadRow, after: tuple[int], _: set[bytes]
) -> _PartCheck:
    binder, problems = binder_of(connection), list[Problem]()
    if not binder.is_complete:
        return [], ROW_BYTES, None
    seq = max(after[0], row.compacted_seq)
    parameters = {"of_thread": row.number, "after_seq": seq, "max_rows": PART_ROWS}
    rows = _CHANGES.run(connection, **parameters).fetchall()
    for _seq, mac, *columns in rows:
        seq += 1
        if columns[1] != seq:
            problems.append(Problem(f"its log lacks change {seq}"))
            seq = columns[1]
        if mac is None or not equal(mac, binder.change(*columns)):
            problems.append(
                Problem(f"change {seq} of its log was changed behind the server's back")
            )
    size = ROW_BYTES * (1 + len(rows))
    if len(rows) == PART_ROWS:
        return problems, size, (seq,)
    if seq != row.seq:
        problems.append(Problem(f"its log ends with change {seq}, and not with {row.seq}"))
    return problems, size, None


def _look_at_checkpoints(
    connection: Connection, row: ThreadRow, after: tuple[str, str], sound: set[bytes]
) -> _PartCheck:
    binder, problems = binder_of(connection), list[Problem]()
    places: dict[bytes, Place] = {}
    size, last = ROW_BYTES, None
    parameters = {"after_checkpoint_ns": after[0], "after_checkpoint_id": after[1]}
    rows = _ROWS.run(connection, of_thread=row.number, max_rows=PART_ROWS, **parameters)
    while size < PART_BYTES and (found_row := rows.fetchone()) is not None:
        checkpoint_ns, checkpoint_id, *columns = found_row
        last, checkpoint = (checkpoint_ns, checkpoint_id), CachedCheckpoint(*columns)
        size += (
            ROW_BYTES
            + len(checkpoint.state)
            + len(checkpoint.metadata)
            + len(checkpoint.delta_base or b"")
        )
        own_mac = checkpoint.bind(binder, row.tenant, row.number, last)
        if binder.is_complete and not equal(checkpoint.mac or b"", own_mac):
            problems.append(Problem(CHANGED, last))
            continue
        try:
            sizes = _needed_digests(checkpoint)
        except (DecodeError, Refusal):  # a row that is not bound may have any bytes
            problems.append(Problem("its state cannot be read", last))
            continue
        for digest in sizes.keys() - sound - places.keys():
            places[digest] = last
            size += sizes[digest]
    rows.close()
    damaged = dict(contents.find_damaged(connection, row.family, places))
    problems += (
        Problem(_of_value(damage), places[digest], damage) for digest, damage in damaged.items()
    )
    sound |= places.keys() - damaged.keys()
    return problems, size, last


def _needed_digests(checkpoint: CachedCheckpoint) -> dict[bytes, int]:
    """Return the values that a checkpoint needs besides its writes: digests with sizes."""
    state = CheckpointState.FromString(checkpoint.state)
    sizes = {channel.digest: channel.size_bytes for channel in state.channels if channel.digest}
    for channel in decode_delta_base(checkpoint.delta_base, "") if checkpoint.delta_base else ():
        if channel.seed is not None:
            sizes[channel.seed.digest] = channel.seed.size
        sizes |= {write.digest: write.size for write in channel.writes}
    return sizes


def _look_at_writes(
    connection: Connection, row: ThreadRow, after: tuple[str, str, str, int], _: set[bytes]
) -> _PartCheck:
    binder, problems = binder_of(connection), list[Problem]()
    size, last = ROW_BYTES, None
    parameters = {f"after_{name}": part for name, part in zip(_WRITE_KEY, after, strict=True)}
    rows = _WRITES.run(connection, of_thread=row.number, max_rows=PART_ROWS, **parameters)
    while size < PART_BYTES and (found_row := rows.fetchone()) is not None:
        checkpoint_ns, checkpoint_id, task_id, idx, mac, *columns = found_row
        last, write = (checkpoint_ns, checkpoint_id, task_id, idx), StoredWrite(*columns)
        place = (checkpoint_ns, checkpoint_id)
        size += ROW_BYTES + len(write.data or b"")
        own_mac = write.mac(binder, row.number, place)
        if binder.is_complete and not equal(mac or b"", own_mac):
            problems.append(Problem(WRITE_CHANGED, place))
            continue
        content = (write.digest, write.type, write.size, write.encoding, write.data)
        value = contents.stored_value(row.number, *content)
        if isinstance(value, DamagedValue):
            problems.append(Problem(_of_value(value.damage), place, value.damage))
    rows.close()
    return problems, size, last


def _look_at_keys(
    connection: Connection, row: ThreadRow, after: tuple[str], _: set[bytes]
) -> _PartCheck:
    """Check the keys of the segments that the thread needs, its own and others."""
    parameters = {"of_thread": row.number, "after": bytes.fromhex(after[0]), "max_rows": PART_ROWS}
    rows = _KEYS.run(connection, **parameters).fetchall()
    problems = [
        Problem(f"the key of segment {sha256.hex()} in blob {blob_id} is damaged: {key.problem}")
        for sha256, blob_id, key in rows
        if isinstance(key, UnopenedBytes)
    ]
    last = (rows[-1][0].hex(),) if len(rows) == PART_ROWS else None
    return problems, ROW_BYTES * len(rows), last


def _of_value(damage: Damage) -> str:
    return f"value {damage.digest.hex()} is damaged: {damage.problem}"


_PARTS: tuple[tuple[Callable[..., _PartCheck], tuple[str | int, ...]], ...] = (
    (_look_at_thread, ()),
    (_look_at_changes, (0,)),
    (_look_at_checkpoints, ("", "")),
    (_look_at_writes, ("", "", "", -1)),
    (_look_at_keys, ("",)),
)
"""The checks of the parts, each with a key before its first row.

The last part exists only in a sealed journal.
"""
