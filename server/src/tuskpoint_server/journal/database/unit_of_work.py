"""The unit of work: a batch of changes, decided against the thread cache.

Each row is written once per batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Set

from sqlalchemy import Connection

from ...core.errors import journal_damaged, quota_exceeded
from ...core.lineage import generated_us, random_end_of
from ...core.model import ThreadName
from ...core.threads import EventKind, is_reserved
from ...core.values import Encoding
from ..sql.backend import Numbers
from ..sql.statements import SqlRow, parameters_of
from .binding import Binder, binder_of, equal, new_nonce
from .floor import find_or_floor
from .outbox import Outbox
from .pending_writes import PendingWrites, StoredWrite, read_writes
from .row_statements import (
    AMEND,
    AMENDED,
    CHANGE_COLUMNS,
    CHANGED,
    CHANGED_OR_RAISED,
    CHECKPOINT_COLUMNS,
    CONTENT_COLUMNS,
    PUT_CHANGE,
    PUT_CHECKPOINT,
    PUT_CONTENT,
    PUT_WRITE,
    RAISED,
    READ_CHECKPOINT,
    READ_VALUE,
    RENUMBER_WRITE,
    SIBLING_WITH_BASE,
    WRITE_COLUMNS,
    WRITE_NUMBERS,
)
from .thread_cache import ThreadCache
from .thread_rows import (
    CachedCheckpoint,
    Place,
    ThreadCacheEntry,
    ThreadRow,
    greatest_id,
    insert_threads,
    lock_logs,
    update_threads,
)

_SIZE, _ENCODING = CONTENT_COLUMNS.index("size"), CONTENT_COLUMNS.index("encoding")
_CONTENT, _WRITE = (*CONTENT_COLUMNS, "tenant"), (*WRITE_COLUMNS, "tenant")


class UnitOfWork:
    """An open write transaction, with the effects of its changes so far.

    Reads through `connection` see the rows that `write_out` has written. In a shared database, the
    first access to a thread locks the thread until the end of the transaction: so no other server
    changes the thread, and its cache entry is valid if its row is unchanged.

    Attributes:
        now_us: Time of the batch, microseconds since the epoch.
        changed: Threads with changes, whose watchers are woken, with the checkpoint changed last.
        is_shared: Whether other servers may use the journal at the same time.
        added: Tenant to the number of its changes and the bytes of their new content.
        last: The last change: the number of its thread and its own number; `None`: nothing changed.
        logs: Entries of threads, to be dropped where rows are changed outside the batch.
        binder: Creates the MACs of rows.
        outbox: Events for webhooks.
    """

    def __init__(
        self,
        connection: Connection,
        logs: ThreadCache,
        numbers: Numbers,
        now_us: int,
        *,
        shared: bool = False,
    ) -> None:
        self.connection = connection
        self.is_shared = shared
        self.binder = binder_of(connection)
        self._locked: set[ThreadName] = set()
        self._floors: dict[str, ThreadCacheEntry | None] = {}  # as of the last search for a thread
        self.now_us = now_us
        self.changed: dict[ThreadName, Place] = {}
        self.added: dict[str, tuple[int, int]] = {}
        self.last: tuple[int, int] | None = None
        self.logs = logs
        self._numbers = numbers
        self.outbox = Outbox(logs.subscriptions)
        self.discard()

    def discard(self) -> None:
        """Forget all rows that are not written out: their change was undone."""
        self._new_threads: dict[int, ThreadRow] = {}
        self._threads: dict[int, ThreadRow] = {}
        self._checkpoints: dict[tuple[int, str, str], tuple[object, ...]] = {}
        self._contents: dict[tuple[int, bytes], SqlRow] = {}
        self._writes: dict[tuple[object, ...], tuple[object, ...]] = {}
        self._changes: list[tuple[object, ...]] = []
        self.outbox.discard()

    def undone(self) -> None:
        """Forget all rows that are not written out, and the locks of the undone change."""
        self.discard()
        self.logs.clear()
        self._locked.clear()
        self._floors.clear()

    def lock(self, names: Iterable[ThreadName]) -> None:
        """Lock threads, existing or not, until the transaction ends.

        A change of several threads locks all of them at once, in a fixed order, so that two servers
        seldom wait for each other.
        """
        self.locking(names)()

    def locking(
        self, names: Iterable[ThreadName], *, wait: bool = True
    ) -> Callable[[], Set[ThreadName]]:
        """Send the statement that locks threads; the returned function reads the answers.

        The function returns the threads that another transaction has locked, if this transaction
        does not `wait` for the locks.
        """
        names_to_lock = set(names) - self._locked if self.is_shared else set()
        if not names_to_lock:
            return frozenset
        receive = lock_logs(self.connection, names_to_lock, wait=wait)

        def received() -> Set[ThreadName]:
            logs, locked = receive()
            logs_by_name = {(log.row.tenant, log.row.thread_id): log for log in logs}
            busy = {name for name, log in logs_by_name.items() if log.row.number not in locked}
            for name in names_to_lock - busy:
                self.logs.refresh(name, logs_by_name.get(name))
            self._locked |= names_to_lock - busy
            return busy

        return received

    def find(self, tenant: str, thread_id: str) -> ThreadCacheEntry | None:
        """Return a thread, deleted or not, or `None` if the thread never existed.

        Raises:
            Refusal: `JOURNAL_DAMAGED`.
        """
        log = self.find_any(tenant, thread_id)
        if log is not None and log.damage is not None:
            raise log.damage
        return log

    def find_any(self, tenant: str, thread_id: str) -> ThreadCacheEntry | None:
        """Return a thread as `find` does, even if its row is damaged: for a deletion."""
        if self.is_shared:
            self.lock([(tenant, thread_id)])
        log = self.logs.get(tenant, thread_id)
        if log is None:
            log, self._floors[tenant] = find_or_floor(self.connection, tenant, thread_id)
            if log is not None:
                self.logs.put(log)
        return log

    def begin(self, tenant: str, thread_id: str, family: int | None = None) -> ThreadCacheEntry:
        """Return a new thread, which must not exist; the thread is kept once it changes.

        `family`: the family whose values the thread shares; `None` founds a family. Refused if the
        tenant has as many threads as it may have.
        """
        if tenant in self.logs.full and not is_reserved(thread_id):
            raise quota_exceeded(tenant, "threads", self.logs.full[tenant], "delete threads first")
        row = ThreadRow(
            self._numbers.next(self.connection),
            tenant,
            thread_id,
            self.new_family() if family is None else family,
            created_us=self.now_us,
            updated_us=self.now_us,
        )
        if (floor := self._floor(tenant, thread_id)) is not None:
            row.begin_above(floor)
        return ThreadCacheEntry(row, new=True, early=False, fresh=True)

    def _floor(self, tenant: str, thread_id: str) -> ThreadRow | None:
        """Return the floor of a tenant's removed threads; `None`: no thread was removed.

        The search for the thread, before its start, has read the floor.
        """
        if tenant not in self._floors:
            _, self._floors[tenant] = find_or_floor(self.connection, tenant, thread_id)
        floor = self._floors[tenant]
        if floor is not None and floor.damage is not None:
            raise floor.damage
        return floor.row if floor is not None else None

    def new_family(self) -> int:
        """Return the number of a new family without members."""
        return self._numbers.next(self.connection)

    def store(self, log: ThreadCacheEntry) -> None:
        """Write the thread's row with this batch."""
        if log.new:
            log.new = False
            self.logs.put(log)
            self._new_threads[log.row.number] = log.row
        elif log.row.number not in self._new_threads:
            self._threads[log.row.number] = log.row

    def change(
        self,
        log: ThreadCacheEntry,
        kind: EventKind,
        place: Place = ("", ""),
        *,
        size_bytes: int = 0,
        deleted: int = 0,
        indexed: bool = False,
    ) -> int:
        """Return the thread's next number, for a change that has to be stored.

        `size_bytes`: bytes of new content; `deleted`: number of deleted checkpoints; `indexed`:
        whether search has to index the change.
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
        # Changes after a deletion belong to the next incarnation: writes that arrived before its
        # save.
        incarnation = row.incarnation + bool(row.deleted)
        change = (row.number, row.seq, incarnation, int(kind), *place, deleted, self.now_us)
        self._changes.append((*change, self.binder.change(*change)))
        self.store(log)
        self.changed[row.tenant, row.thread_id] = place
        self.last = row.number, row.seq
        count, added_bytes = self.added.get(row.tenant, (0, 0))
        self.added[row.tenant] = (count + 1, added_bytes + size_bytes)
        return row.seq

    def greatest(self, log: ThreadCacheEntry, checkpoint_ns: str) -> str:
        """Return the greatest ID of a namespace; empty if the namespace has none."""
        maximum = log.greatest.get(checkpoint_ns)
        if maximum is None:
            maximum = ""
            if not log.fresh:
                maximum = greatest_id(self.connection, log.row.number, checkpoint_ns)
                for number, namespace, checkpoint_id in self._checkpoints:
                    if number == log.row.number and namespace == checkpoint_ns:
                        maximum = max(maximum, checkpoint_id)
            log.greatest[checkpoint_ns] = maximum
        return maximum

    def checkpoint(self, log: ThreadCacheEntry, place: Place) -> CachedCheckpoint | None:
        """Return a stored checkpoint, or `None`."""
        checkpoint = log.known.get(place)
        if checkpoint is not None or place[1] > self.greatest(log, place[0]):
            return checkpoint
        self._write_out_checkpoints()
        row = READ_CHECKPOINT.run(
            self.connection, **parameters_of(log.row.number, *place)
        ).fetchone()
        if row is None:
            return None
        checkpoint = CachedCheckpoint(*row)
        if self.binder.is_complete:
            self._check(log, place, checkpoint.mac, checkpoint.bind(*self._binding_of(log, place)))
        log.add(place, checkpoint)
        return checkpoint

    def raised_from(self, log: ThreadCacheEntry, checkpoint_ns: str, checkpoint_id: str) -> str:
        """Return the ID that a save with a generated ID got instead; empty if there is none.

        Both IDs end with the same random bits.
        """
        self._write_out_checkpoints()
        parameters = {"of_thread": log.row.number, "of_ns": checkpoint_ns, "after": checkpoint_id}
        ending = f"%{random_end_of(checkpoint_id)}"
        row = RAISED.run(self.connection, **parameters, ending=ending).fetchone()
        return str(row[0]) if row is not None else ""

    def is_of_ended(self, log: ThreadCacheEntry, place: Place, *, raised: bool) -> bool:
        """Return whether a checkpoint ID belongs to an ended incarnation of a thread.

        The thread's changes show the incarnation. Where old changes were dropped, an ID belongs to
        the ended incarnation unless the ID was generated after the thread was deleted. `raised`:
        the save may have got another ID instead.
        """
        row = log.row
        if place[1] > row.deleted_through:
            return False
        ended = row.incarnation if row.deleted else row.incarnation - 1
        parameters = {"of_thread": row.number, "of_ns": place[0], "ended": ended}
        if raised:
            parameters["ending"] = f"%{random_end_of(place[1])}"
        else:
            parameters["of_id"] = place[1]
        statement = CHANGED_OR_RAISED if raised else CHANGED
        if statement.run(self.connection, **parameters).fetchone() is not None:
            return True
        ended_us = row.updated_us if row.deleted else row.created_us
        return row.compacted_seq > 0 and generated_us(place[1]) <= ended_us

    def _binding_of(self, log: ThreadCacheEntry, place: Place) -> tuple[Binder, str, int, Place]:
        return self.binder, log.row.tenant, log.row.number, place

    def _check(self, log: ThreadCacheEntry, place: Place, stored: bytes | None, mac: bytes) -> None:
        """Compare the stored MAC of a row with the MAC that the row should have."""
        if stored is None or not equal(stored, mac):
            raise journal_damaged(log.row.thread_id, *place)

    def pending(
        self, log: ThreadCacheEntry, place: Place, known: CachedCheckpoint | None
    ) -> PendingWrites:
        """Return the stored writes of a checkpoint; the checkpoint need not exist yet.

        A caller that stores further writes adds them there, and keeps them in `log.writes` again.
        """
        pending = log.writes.get(place)
        if pending is None and known is None and not log.early:
            pending = PendingWrites()
        elif pending is None or pending.seq < log.shared_seq:
            self._write_out_writes()
            pending = read_writes(self.connection, log, place, pending)
        pending.seq, pending.is_early = log.row.seq, known is None
        log.writes.keep(place, pending)
        return pending

    def sibling_base(
        self, log: ThreadCacheEntry, checkpoint_ns: str, parent_id: str
    ) -> bytes | None:
        """Return the base that delta channels are rebuilt from at a parent that is not stored.

        A checkpoint that stayed when the parent was removed, or that was copied without its parent,
        has the base.
        """
        self._write_out_checkpoints()
        parameters = {"of_thread": log.row.number, "of_ns": checkpoint_ns, "of_parent": parent_id}
        row = SIBLING_WITH_BASE.run(self.connection, **parameters).fetchone()
        sibling = self.checkpoint(log, (checkpoint_ns, row[0])) if row is not None else None
        return sibling.delta_base if sibling is not None else None

    def brings(self, log: ThreadCacheEntry, digest: bytes) -> bool:
        """Return whether the batch still has to write a value of the thread's family."""
        return (log.row.family, digest) in self._contents

    def value(self, log: ThreadCacheEntry, digest: bytes) -> tuple[int, int] | None:
        """Return size and encoding of a value of the thread's family that is stored with data."""
        parameters = {"of_family": log.row.family, "of_digest": digest}
        stored_row = READ_VALUE.run(self.connection, **parameters).fetchone()
        if stored_row is None:
            row = self._contents.get((log.row.family, digest))
            return row and (row[_SIZE], row[_ENCODING])
        size, encoding = stored_row
        return size, encoding

    def is_keyframe(self, log: ThreadCacheEntry, digest: bytes) -> bool:
        """Return whether a value of the thread's family is stored with data, and not as a patch."""
        if digest not in log.keyframes:
            value = self.value(log, digest)
            if value is None or value[1] == Encoding.PATCH:
                return False
            log.keyframes.add(digest)
        return True

    def put_checkpoint(
        self,
        log: ThreadCacheEntry,
        place: Place,
        known: CachedCheckpoint,
        *,
        before: CachedCheckpoint | None = None,
        held: bytes | None = None,
    ) -> None:
        """Insert a checkpoint, or replace the row `before`."""
        if before is not None:
            known.forked_from, known.rolled_back_from = before.forked_from, before.rolled_back_from
            known.adopted_from, known.created_us = before.adopted_from, before.created_us
            # delta_base belongs to the parent that it was computed for; a new parent gets a new
            # one.
            if before.parent_id == known.parent_id:
                known.delta_base = before.delta_base
        known.held = held if before is None else before.held
        self._bind(log, place, known, before.mac if before is not None else None)
        self._checkpoints[(log.row.number, *place)] = (
            *(log.row.tenant, log.row.number, *place),
            *(known.seq, known.parent_id, known.state, known.metadata, known.run_id),
            *(known.root_id, known.delta_channels, known.delta_base, known.label, known.summary),
            *(known.forked_from, known.rolled_back_from, known.adopted_from),
            *(known.created_us, held, known.mac),
        )
        if place[1] >= self.greatest(log, place[0]):
            log.greatest[place[0]] = place[1]
            log.whole.discard(place[0])  # a copy may name evicted values

    def _bind(
        self, log: ThreadCacheEntry, place: Place, known: CachedCheckpoint, before: bytes | None
    ) -> None:
        """Give a row of a checkpoint its MAC; `before`: the MAC of the row that it replaces."""
        known.mac = known.bind(*self._binding_of(log, place))
        log.row.move(self.binder, known.mac, before)

    def put_content(
        self,
        log: ThreadCacheEntry,
        seq: int,
        value: SqlRow,
        keyframe: bytes | None = None,
        patches: int = 0,
        patch_bytes: int = 0,
        segment: bytes | None = None,
    ) -> None:
        """Insert the value of a change, or bring an evicted value back.

        `value` starts with digest, type, size, encoding and data.
        """
        family, thread = log.row.family, log.row.number
        digest, kind, size, encoding, data, *_ = value
        row = (family, digest, kind, size, encoding, keyframe, patches, patch_bytes, thread, seq)
        self._contents.setdefault((family, digest), (*row, segment, data, log.row.tenant))

    def put_write(
        self,
        log: ThreadCacheEntry,
        place: Place,
        write: StoredWrite,
        seq: int,
        early_us: int | None = None,
        before: StoredWrite | None = None,
    ) -> None:
        """Insert a write of a change, or replace the row `before`."""
        number, binder = log.row.number, self.binder
        mac = write._replace(seq=seq, early_us=early_us).mac(binder, number, place)
        old = before.mac(binder, number, place) if before is not None else None
        log.row.move(binder, mac, old)
        row = (number, *place, *write[:-3], seq, early_us, mac, write.data, log.row.tenant)
        self._writes[row[:5]] = row

    def amend_checkpoint(
        self, log: ThreadCacheEntry, place: Place, known: CachedCheckpoint
    ) -> None:
        """Store a checkpoint with another number, label or `delta_base`."""
        self._write_out_checkpoints()
        self._bind(log, place, known, known.mac)
        new = {f"new_{name}": getattr(known, name) for name in AMENDED}
        AMEND.run(self.connection, **parameters_of(log.row.number, *place), **new)

    def renumber_writes(
        self, log: ThreadCacheEntry, place: Place, written: Iterable[StoredWrite], seq: int
    ) -> list[StoredWrite]:
        """Move stored writes of a checkpoint to another change; return the moved writes.

        Writes that came before their checkpoint belong to the checkpoint's save from then on.
        """
        self._write_out_writes()
        number, binder = log.row.number, self.binder
        renumbered, rows = [], []
        for write in written:
            new = write._replace(seq=seq, early_us=None)
            mac = new.mac(binder, number, place)
            log.row.move(binder, mac, write.mac(binder, number, place))
            rows.append((seq, mac, number, *place, write.task_id, write.idx))
            renumbered.append(new)
        RENUMBER_WRITE.run_rows(self.connection, WRITE_NUMBERS, rows)
        return renumbered

    def write_out(self) -> None:
        """Write the rows of all changes so far; nothing is left to write afterwards."""
        nonce = new_nonce()
        insert_threads(self.connection, list(self._new_threads.values()), nonce)
        PUT_CONTENT.run_rows(self.connection, _CONTENT, list(self._contents.values()))
        self._write_out_checkpoints()
        self._write_out_writes()
        PUT_CHANGE.run_rows(self.connection, CHANGE_COLUMNS, self._changes)
        update_threads(self.connection, list(self._threads.values()), nonce)
        self.outbox.write_out(self.connection)
        self.discard()

    def _write_out_checkpoints(self) -> None:
        rows = list(self._checkpoints.values())
        PUT_CHECKPOINT.run_rows(self.connection, CHECKPOINT_COLUMNS, rows)
        self._checkpoints = {}

    def _write_out_writes(self) -> None:
        PUT_WRITE.run_rows(self.connection, _WRITE, list(self._writes.values()))
        self._writes = {}
