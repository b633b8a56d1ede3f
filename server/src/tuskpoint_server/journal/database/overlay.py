"""What the writer knows of recent threads, and what a batch changes of them.

A batch of changes is decided against `Log`s: the thread's row, the greatest ID of each
namespace and some recent checkpoints, in memory. Each row that results is written once per
batch. Logs stay between batches, bounded in bytes; a commit that fails forgets all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, case, func, insert, select, update

from ...domain import thread_state
from ...domain.compression import Encoding
from ...domain.lineage import EventKind
from ...domain.model import ThreadState, Version
from ...domain.state import decode_channels, encode_channel
from . import thread_rows
from .schema import changes, checkpoints, contents, writes
from .statements import (
    Insert,
    InsertInto,
    Statement,
    of_checkpoint,
    of_namespace,
    parameters_of,
)
from .thread_rows import ThreadRow

CACHED_BYTES = 64 * 1024 * 1024
_RECENT = 8
_LOG_BYTES = 1500
_KNOWN_BYTES = 1500

Place = tuple[str, str]
"""Namespace and checkpoint ID, inside a thread."""


class KnownChannel(NamedTuple):
    """A channel of a stored checkpoint; `encoded` is its part of the stored state."""

    version: Version | None
    digest: bytes | None
    size: int
    encoded: bytes


class KnownWrite(NamedTuple):
    """A stored pending write, without its value."""

    task_path: str
    channel: str
    type: str
    digest: bytes
    size: int
    seq: int


class StoredWrite(NamedTuple):
    """A pending write, in the order of the columns; without data if it was evicted."""

    task_id: str
    idx: int
    task_path: str
    channel: str
    type: str
    digest: bytes
    size: int
    encoding: int
    seq: int
    early_us: int | None
    data: bytes | None


@dataclass(slots=True)
class Known:
    """A stored checkpoint as far as saves ask for it; `pending` is `None` until it is read."""

    seq: int
    parent_id: str
    state: bytes
    metadata: bytes
    run_id: str
    root_id: str
    delta_channels: bytes
    label: str
    summary: str
    created_us: int
    pending: dict[tuple[str, int], KnownWrite] | None = None
    _channels: dict[str, KnownChannel] | None = None

    @property
    def channels(self) -> dict[str, KnownChannel]:
        """Its channels by name."""
        if self._channels is None:
            self._channels = {
                channel.name: KnownChannel(
                    channel.version, channel.digest, channel.size, encode_channel(channel)
                )
                for channel in decode_channels(self.state)
            }
        return self._channels

    def set_channels(self, channels: dict[str, KnownChannel]) -> None:
        """Give the channels that `state` holds, where they are at hand."""
        self._channels = channels


class Log:
    """A thread as the writer knows it."""

    __slots__ = ("early", "fresh", "greatest", "keyframes", "known", "new", "row", "size", "whole")

    def __init__(self, row: ThreadRow, *, new: bool, early: bool) -> None:
        self.row = row
        self.new = new
        self.early = early
        self.fresh = new
        self.keyframes: set[bytes] = set()
        self.greatest: dict[str, str] = {}
        self.whole: set[str] = set()
        self.known: OrderedDict[Place, Known] = OrderedDict()
        self.size = _LOG_BYTES

    def add(self, place: Place, known: Known) -> None:
        """Remember a checkpoint as the most recent one, and forget those long ago."""
        if place in self.known:
            self.known.move_to_end(place)
        self.known[place] = known
        self.size += _KNOWN_BYTES + 2 * len(known.state) + len(known.metadata)
        while len(self.known) > _RECENT:
            _, old = self.known.popitem(last=False)
            self.size -= _KNOWN_BYTES + 2 * len(old.state) + len(old.metadata)

    def set_head(self, head_id: str, pending: Mapping[tuple[str, int], KnownWrite]) -> None:
        """Set the latest root checkpoint, whose writes say what the thread waits for."""
        self.row.head_id = head_id
        self.row.state = ThreadState.IDLE
        if pending:
            self.row.state = thread_state.judge(
                (task_id, write.channel, write.seq) for (task_id, _), write in pending.items()
            )

    def forget_checkpoints(self) -> None:
        """Read checkpoints again when they are asked for."""
        self.known.clear()
        self.greatest.clear()
        self.whole.clear()
        self.fresh = False
        self.size = _LOG_BYTES


class Logs:
    """Recent threads by (tenant, thread), the most recently used last."""

    def __init__(self, limit_bytes: int = CACHED_BYTES) -> None:
        self._limit = limit_bytes
        self._logs: OrderedDict[tuple[str, str], Log] = OrderedDict()

    def get(self, tenant: str, thread_id: str) -> Log | None:
        """Return a thread that is here."""
        log = self._logs.get((tenant, thread_id))
        if log is not None:
            self._logs.move_to_end((tenant, thread_id))
        return log

    def put(self, log: Log) -> None:
        """Keep a thread."""
        self._logs[(log.row.tenant, log.row.thread_id)] = log

    def forget(self, tenant: str, thread_id: str) -> None:
        """Drop one thread."""
        self._logs.pop((tenant, thread_id), None)

    def clear(self) -> None:
        """Drop all."""
        self._logs.clear()

    def trim(self) -> None:
        """Drop the least recently used ones beyond the bound."""
        total = sum(log.size for log in self._logs.values())
        while total > self._limit and self._logs:
            _, log = self._logs.popitem(last=False)
            total -= log.size


# --- statements --------------------------------------------------------------------------

CHECKPOINT_COLUMNS = tuple(column.name for column in checkpoints.columns if column.name != "number")
"""What a row of `Batch.put_checkpoint` holds, in this order."""

CONTENT_COLUMNS = tuple(column.name for column in contents.columns if column.name != "number")
WRITE_COLUMNS = ("thread", "checkpoint_ns", "checkpoint_id", *StoredWrite._fields)
CHANGE_COLUMNS = tuple(column.name for column in changes.columns)
_SIZE, _ENCODING = CONTENT_COLUMNS.index("size"), CONTENT_COLUMNS.index("encoding")
_LINEAGE = ("forked_from", "rolled_back_from", "adopted_from")
_FIRST_SAVE = {"created_us", *_LINEAGE, "delta_base", "held"}


def _put_write(insert_into: InsertInto) -> Insert:
    statement = insert_into(writes).values({name: bindparam(name) for name in WRITE_COLUMNS})
    key = ("thread", "checkpoint_ns", "checkpoint_id", "task_id", "idx")
    replaced = {name: statement.excluded[name] for name in WRITE_COLUMNS if name not in key}
    return statement.on_conflict_do_update(index_elements=list(key), set_=replaced)


def _put_content(insert_into: InsertInto) -> Insert:
    statement = insert_into(contents).values({name: bindparam(name) for name in CONTENT_COLUMNS})
    new = statement.excluded
    # One that comes back belongs to the change that brings it: that one's segment holds it.
    back = ("encoding", "data", "keyframe", "patches", "patch_bytes", "thread", "seq")
    return statement.on_conflict_do_update(
        index_elements=["family", "digest"],
        set_={**{name: new[name] for name in back}, "segment": None},
        where=contents.c.data.is_(None),
    )


def _put_checkpoint(insert_into: InsertInto) -> Insert:
    statement = insert_into(checkpoints).values(
        {name: bindparam(name) for name in CHECKPOINT_COLUMNS}
    )
    key = ("thread", "checkpoint_ns", "checkpoint_id")
    new = statement.excluded
    replaced: dict[str, Any] = {
        name: new[name] for name in CHECKPOINT_COLUMNS if name not in (*key, *_FIRST_SAVE)
    }
    # What removed ancestors left is of no use to what follows others.
    replaced["delta_base"] = case(
        (checkpoints.c.parent_id == new.parent_id, checkpoints.c.delta_base), else_=new.delta_base
    )
    return statement.on_conflict_do_update(index_elements=list(key), set_=replaced)


_PUT_CHECKPOINT = Statement(_put_checkpoint)
_PUT_WRITE = Statement(_put_write)
_PUT_CONTENT = Statement(_put_content)
_PUT_CHANGE = Statement(insert(changes).values({name: bindparam(name) for name in CHANGE_COLUMNS}))
_of_known = (checkpoints.c[one.name] for one in fields(Known) if one.name in checkpoints.c)
_KNOWN = Statement(select(*_of_known).where(of_checkpoint(checkpoints)))
_of_pending = (writes.c[name] for name in ("task_id", "idx", *KnownWrite._fields))
_PENDING = Statement(select(*_of_pending).where(of_checkpoint(writes)))
_GREATEST = Statement(
    select(func.max(checkpoints.c.checkpoint_id)).where(of_namespace(checkpoints))
)
_CLAIM = Statement(
    update(writes).where(of_checkpoint(writes)).values(seq=bindparam("claimed"), early_us=None)
)
_SET_LABEL = Statement(
    update(checkpoints)
    .where(of_checkpoint(checkpoints))
    .values(label=bindparam("new_label"), seq=bindparam("new_seq"))
)
_SIBLING_BASE = Statement(
    select(checkpoints.c.delta_base)
    .where(
        of_namespace(checkpoints),
        checkpoints.c.parent_id == bindparam("of_parent"),
        checkpoints.c.delta_base.is_not(None),
    )
    .order_by(checkpoints.c.checkpoint_id.desc())
    .limit(1)
)
_VALUE = Statement(
    select(contents.c.size, contents.c.encoding).where(
        contents.c.family == bindparam("of_family"),
        contents.c.digest == bindparam("of_digest"),
        contents.c.data.is_not(None),
    )
)


@dataclass(slots=True)
class _Rows:
    """Rows that a batch has yet to write out."""

    new_threads: dict[int, ThreadRow] = field(default_factory=dict)
    threads: dict[int, ThreadRow] = field(default_factory=dict)
    checkpoints: dict[tuple[int, str, str], tuple[object, ...]] = field(default_factory=dict)
    contents: dict[tuple[int, bytes], tuple[object, ...]] = field(default_factory=dict)
    writes: dict[tuple[int, str, str, str, int], tuple[object, ...]] = field(default_factory=dict)
    claims: list[dict[str, object]] = field(default_factory=list)
    changes: list[tuple[object, ...]] = field(default_factory=list)


class Batch:
    """An open write transaction, with what its changes have done so far.

    Reads through `connection` see what `write_out` has written.

    Args:
        connection: In a write transaction.
        logs: What is known from earlier batches; changed in place.
        numbers: Makes numbers of threads and families.
        now_us: Time of the batch.

    Attributes:
        connection: The connection.
        now_us: Microseconds since the epoch.
        changed: Tenant and name of threads with changes; watchers of these are woken.
        noted: Family to digests of values that the batch stored or refers to.
    """

    def __init__(self, connection: Connection, logs: Logs, numbers: Numbers, now_us: int) -> None:
        self.connection = connection
        self.now_us = now_us
        self.changed: set[tuple[str, str]] = set()
        self.noted: dict[int, set[bytes]] = {}
        self._logs = logs
        self._numbers = numbers
        self._rows = _Rows()

    # --- threads -------------------------------------------------------------------------

    def find(self, tenant: str, thread_id: str) -> Log | None:
        """Return a thread, deleted or not, or `None` if it never was."""
        log = self._logs.get(tenant, thread_id)
        if log is None:
            found = thread_rows.find_with_early(self.connection, tenant, thread_id)
            if found is None:
                return None
            log = Log(found[0], new=False, early=found[1])
            self._logs.put(log)
        return log

    def begin(self, tenant: str, thread_id: str, family: int | None = None) -> Log:
        """Return a thread that begins; it is kept once it changes.

        Args:
            tenant: The tenant.
            thread_id: The thread; it must not exist.
            family: The family whose values it shares; `None` founds one.
        """
        number = self._numbers.thread()
        founded = self._numbers.family() if family is None else family
        row = ThreadRow(
            number, tenant, thread_id, founded, created_us=self.now_us, updated_us=self.now_us
        )
        return Log(row, new=True, early=False)

    def new_family(self) -> int:
        """Return the number of a family that nobody belongs to."""
        return self._numbers.family()

    def forget(self, tenant: str, thread_id: str) -> None:
        """Read a thread again when it is asked for: its rows were changed beside the batch."""
        self._logs.forget(tenant, thread_id)

    def forget_all(self) -> None:
        """Read all threads again when they are asked for."""
        self._logs.clear()

    def store(self, log: Log) -> None:
        """Write the thread's row with this batch."""
        if log.new:
            log.new = False
            self._logs.put(log)
            self._rows.new_threads[log.row.number] = log.row
        elif log.row.number not in self._rows.new_threads:
            self._rows.threads[log.row.number] = log.row

    def change(
        self,
        log: Log,
        kind: EventKind,
        place: Place = ("", ""),
        *,
        size_bytes: int = 0,
        deleted: int = 0,
        indexed: bool = False,
    ) -> int:
        """Take the thread's next number for a change that has to be stored.

        Args:
            log: The thread; its row is stored.
            kind: What happens.
            place: The checkpoint concerned, if one is.
            size_bytes: Bytes of new content.
            deleted: How many checkpoints are deleted.
            indexed: Search has to know of it.

        Returns:
            The number.
        """
        row = log.row
        row.seq += 1
        row.set_updated(self.now_us)
        if row.dirty_since_us is None:
            row.dirty_since_us = self.now_us
        row.dirty_bytes += size_bytes
        row.added_bytes += size_bytes
        if row.unindexed_since_us is None:
            if indexed:
                row.unindexed_since_us = self.now_us
            else:
                row.indexed_seq = row.seq
        # What follows a deletion belongs to the next incarnation: writes that overtook it.
        incarnation = row.incarnation + bool(row.deleted)
        self._rows.changes.append(
            (row.number, row.seq, incarnation, int(kind), *place, deleted, self.now_us)
        )
        self.store(log)
        self.changed.add((row.tenant, row.thread_id))
        return row.seq

    # --- checkpoints ---------------------------------------------------------------------

    def greatest(self, log: Log, checkpoint_ns: str) -> str:
        """Return the greatest ID of a namespace; empty if it has none."""
        found = log.greatest.get(checkpoint_ns)
        if found is None:
            found = ""
            if not log.fresh:
                row = _GREATEST.run(
                    self.connection, of_thread=log.row.number, of_ns=checkpoint_ns
                ).fetchone()
                found = row[0] or "" if row else ""
                for number, namespace, checkpoint_id in self._rows.checkpoints:
                    if number == log.row.number and namespace == checkpoint_ns:
                        found = max(found, checkpoint_id)
            log.greatest[checkpoint_ns] = found
        return found

    def checkpoint(self, log: Log, place: Place) -> Known | None:
        """Return a stored checkpoint, or `None`."""
        known = log.known.get(place)
        if known is not None:
            return known
        if place[1] > self.greatest(log, place[0]):
            return None
        self.write_out_checkpoints()
        of = parameters_of(log.row.number, *place)
        row = _KNOWN.run(self.connection, **of).fetchone()
        if row is None:
            return None
        known = Known(*row)
        log.add(place, known)
        return known

    def pending(
        self, log: Log, place: Place, known: Known | None
    ) -> dict[tuple[str, int], KnownWrite]:
        """Return the stored writes of a checkpoint, which need not exist yet, by task and slot."""
        if known is not None and known.pending is not None:
            return known.pending
        found: dict[tuple[str, int], KnownWrite] = {}
        if known is not None or log.early:
            self.write_out_writes()
            of = parameters_of(log.row.number, *place)
            found = {
                (row[0], row[1]): KnownWrite(*row[2:])
                for row in _PENDING.run(self.connection, **of).fetchall()
            }
        if known is not None:
            known.pending = found
        return found

    def sibling_base(self, log: Log, checkpoint_ns: str, parent_id: str) -> bytes | None:
        """Return what delta channels are rebuilt from at a parent that is not stored.

        A checkpoint that stayed when the parent went, or that was copied without it, has it.
        """
        self.write_out_checkpoints()
        of = {"of_thread": log.row.number, "of_ns": checkpoint_ns, "of_parent": parent_id}
        row = _SIBLING_BASE.run(self.connection, **of).fetchone()
        return bytes(row[0]) if row is not None else None

    def brings(self, log: Log, digest: bytes) -> bool:
        """Tell whether the batch has yet to write a value of the thread's family."""
        return (log.row.family, digest) in self._rows.contents

    def value(self, log: Log, digest: bytes) -> tuple[int, int] | None:
        """Return size and encoding of a value of the thread's family whose data is here."""
        family = log.row.family
        found = _VALUE.run(self.connection, of_family=family, of_digest=digest).fetchone()
        if found is None:
            row: Any = self._rows.contents.get((family, digest))
            found = row and (row[_SIZE], row[_ENCODING])
        return found

    def is_keyframe(self, log: Log, digest: bytes) -> bool:
        """Tell whether a value of the thread's family is here, with its data, and no patch."""
        if digest not in log.keyframes:
            found = self.value(log, digest)
            if found is None or found[1] == Encoding.PATCH:
                return False
            log.keyframes.add(digest)
        self.noted.setdefault(log.row.family, set()).add(digest)
        return True

    def note(self, log: Log, channels: Iterable[KnownChannel]) -> None:
        """Note that a checkpoint refers to the values of these channels."""
        named = (channel.digest for channel in channels if channel.digest is not None)
        self.note_digests(log, named)

    def note_digests(self, log: Log, digests: Iterable[bytes]) -> None:
        """Note that a change refers to these values of the thread's family."""
        self.noted.setdefault(log.row.family, set()).update(digests)

    # --- rows ----------------------------------------------------------------------------

    def put_checkpoint(self, log: Log, place: Place, row: tuple[object, ...]) -> None:
        """Insert or replace a checkpoint; `row` is in the order of `CHECKPOINT_COLUMNS`."""
        self._rows.checkpoints[(log.row.number, *place)] = row
        if place[1] >= self.greatest(log, place[0]):
            log.greatest[place[0]] = place[1]
            log.whole.discard(place[0])  # a copy may name values that were evicted

    def put_content(self, family: int, digest: bytes, row: tuple[object, ...]) -> None:
        """Insert a value, or bring an evicted one back; `row` as in `CONTENT_COLUMNS`."""
        self._rows.contents.setdefault((family, digest), row)
        self.noted.setdefault(family, set()).add(digest)

    def put_write(self, log: Log, place: Place, write: StoredWrite) -> None:
        """Insert or replace a write."""
        row = (log.row.number, *place, *write)
        self._rows.writes[row[:5]] = row

    def set_label(self, log: Log, place: Place, label: str, seq: int) -> None:
        """Change the label of a stored checkpoint."""
        self.write_out_checkpoints()
        of = parameters_of(log.row.number, *place)
        _SET_LABEL.run(self.connection, **of, new_label=label, new_seq=seq)

    def claim_early(self, log: Log, place: Place, seq: int) -> None:
        """Give the writes that came before their checkpoint the number of its save."""
        self.write_out_writes()
        self._rows.claims.append({**parameters_of(log.row.number, *place), "claimed": seq})

    def discard(self) -> None:
        """Forget what is not written out: its change was undone."""
        self._rows = _Rows()

    # --- writing out ---------------------------------------------------------------------

    def write_out(self) -> None:
        """Write what the changes so far have done; nothing is left to be written after."""
        rows = self._rows
        thread_rows.insert_rows(self.connection, list(rows.new_threads.values()))
        rows.new_threads = {}
        if rows.contents:
            _PUT_CONTENT.run_rows(self.connection, CONTENT_COLUMNS, list(rows.contents.values()))
            rows.contents = {}
        self.write_out_checkpoints()
        self.write_out_writes()
        if rows.changes:
            _PUT_CHANGE.run_rows(self.connection, CHANGE_COLUMNS, rows.changes)
            rows.changes = []
        thread_rows.update_rows(self.connection, list(rows.threads.values()))
        rows.threads = {}

    def write_out_checkpoints(self) -> None:
        """Write the checkpoints so far, so that a read finds them."""
        rows = self._rows
        if rows.checkpoints:
            _PUT_CHECKPOINT.run_rows(
                self.connection, CHECKPOINT_COLUMNS, list(rows.checkpoints.values())
            )
            rows.checkpoints = {}

    def write_out_writes(self) -> None:
        """Write the pending writes so far, so that a read finds them."""
        rows = self._rows
        if rows.claims:
            _CLAIM.run_many(self.connection, rows.claims)
            rows.claims = []
        if rows.writes:
            _PUT_WRITE.run_rows(self.connection, WRITE_COLUMNS, list(rows.writes.values()))
            rows.writes = {}


class Numbers:
    """Makes numbers of threads and families, each used once.

    Args:
        connection: Where those that are taken stand.
    """

    def __init__(self, connection: Connection) -> None:
        self._thread, self._family = thread_rows.greatest(connection)

    def thread(self) -> int:
        """Return the number of the next thread."""
        self._thread += 1
        return self._thread

    def family(self) -> int:
        """Return the number of the next family."""
        self._family += 1
        return self._family
