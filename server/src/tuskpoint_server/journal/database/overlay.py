"""A batch of changes, decided against `Log`s in memory; each row is written once per batch."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

from sqlalchemy import Connection, bindparam, case, func, select, update
from sqlalchemy.sql.elements import ClauseElement

from ...domain.model import Lineage
from ...domain.threads import EventKind
from ...domain.values import Encoding
from .logs import (
    Known,
    KnownChannel,
    KnownWrite,
    Log,
    Logs,
    Place,
    ThreadRow,
    find_thread_with_early,
    greatest_numbers,
    insert_threads,
    update_threads,
)
from .schema import changes, checkpoints, contents, writes
from .statements import (
    Statement,
    inserting,
    of_checkpoint,
    of_namespace,
    parameters_of,
    putting,
)


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


# --- statements --------------------------------------------------------------------------

CHECKPOINT_COLUMNS = tuple(column.name for column in checkpoints.columns if column.name != "number")
"""What a row of `Batch.put_checkpoint` holds, in this order."""

CONTENT_COLUMNS = tuple(column.name for column in contents.columns if column.name != "number")
WRITE_COLUMNS = ("thread", "checkpoint_ns", "checkpoint_id", *StoredWrite._fields)
CHANGE_COLUMNS = tuple(column.name for column in changes.columns)
_SIZE, _ENCODING = CONTENT_COLUMNS.index("size"), CONTENT_COLUMNS.index("encoding")
_LINEAGE = ("forked_from", "rolled_back_from", "adopted_from")
_FIRST_SAVE = {"created_us", *_LINEAGE, "delta_base", "held"}


def _put_content() -> ClauseElement:
    statement = inserting(contents, CONTENT_COLUMNS)
    new = statement.excluded
    # One that comes back belongs to the change that brings it: that one's segment holds it.
    back = ("encoding", "data", "keyframe", "patches", "patch_bytes", "thread", "seq")
    return statement.on_conflict_do_update(
        index_elements=["family", "digest"],
        set_={**{name: new[name] for name in back}, "segment": None},
        where=contents.c.data.is_(None),
    )


def _put_checkpoint() -> ClauseElement:
    statement = inserting(checkpoints, CHECKPOINT_COLUMNS)
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


_PUT_CHECKPOINT = Statement(_put_checkpoint())
_PUT_WRITE = Statement(
    putting(
        writes, ("thread", "checkpoint_ns", "checkpoint_id", "task_id", "idx"), names=WRITE_COLUMNS
    )
)
_PUT_CONTENT = Statement(_put_content())
_PUT_CHANGE = Statement(inserting(changes))
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
            found = find_thread_with_early(self.connection, tenant, thread_id)
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
        insert_threads(self.connection, list(rows.new_threads.values()))
        rows.new_threads = {}
        if rows.contents:
            _PUT_CONTENT.run_rows(self.connection, CONTENT_COLUMNS, list(rows.contents.values()))
            rows.contents = {}
        self.write_out_checkpoints()
        self.write_out_writes()
        if rows.changes:
            _PUT_CHANGE.run_rows(self.connection, CHANGE_COLUMNS, rows.changes)
            rows.changes = []
        update_threads(self.connection, list(rows.threads.values()))
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
        self._thread, self._family = greatest_numbers(connection)

    def thread(self) -> int:
        """Return the number of the next thread."""
        self._thread += 1
        return self._thread

    def family(self) -> int:
        """Return the number of the next family."""
        self._family += 1
        return self._family


def checkpoint_row(
    log: Log,
    place: Place,
    known: Known,
    *,
    lineage: Lineage = Lineage(),  # noqa: B008 - frozen
    delta_base: bytes | None = None,
    held: bytes | None = None,
) -> tuple[object, ...]:
    """Return the row of a checkpoint, in the order of `overlay.CHECKPOINT_COLUMNS`."""
    return (
        log.row.tenant,
        log.row.number,
        *place,
        known.seq,
        known.parent_id,
        known.state,
        known.metadata,
        known.run_id,
        known.root_id,
        known.delta_channels,
        delta_base,
        known.label,
        known.summary,
        lineage.forked_from,
        lineage.rolled_back_from,
        lineage.adopted_from,
        known.created_us,
        held,
    )


def content_row(
    log: Log,
    seq: int,
    digest: bytes,
    kind: str,
    size: int,
    encoding: int,
    data: bytes | None,
    keyframe: bytes | None = None,
    patches: int = 0,
    patch_bytes: int = 0,
    segment: bytes | None = None,
) -> tuple[object, ...]:
    """Return the row of a value, in the order of `overlay.CONTENT_COLUMNS`."""
    return (
        log.row.family,
        digest,
        kind,
        size,
        encoding,
        keyframe,
        patches,
        patch_bytes,
        log.row.number,
        seq,
        segment,
        data,
    )
