"""The journal's database: opening, reads in snapshots, and changes by its one writer."""

from __future__ import annotations

import asyncio
import logging
import secrets
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection

from ...core.errors import Reason, Refusal
from ...core.model import ThreadName
from ..migrations import LATEST
from ..sql.backend import Backend
from ..sql.journal_metadata import GENERATION, JOURNAL_ID, backend_of, finish, has_threads, prepare
from ..sql.notifications import KEEPING, POLL_S, Notices, Waiter, Waiters
from ..sql.sealing import Seal, seal_of
from ..sql.statements import SqlRow, Statement
from .binding import Binder
from .journal_keys import OpenKey, bind, in_the_clear, unseal
from .thread_cache import ThreadCache
from .unit_of_work import UnitOfWork
from .witness import Witness
from .writer import CommittedChanges, Writer, journal_unavailable, raise_unavailable

__all__ = ["KEEPING", "POLL_S", "Connection", "Database", "Waiter", "Waiters"]

T = TypeVar("T")

_log = logging.getLogger(__name__)


class Database:
    """A journal in a database. Created by `open`; every call can raise `JOURNAL_UNAVAILABLE`.

    Attributes:
        waiters: Waiters for changes of threads.
        added: Callbacks, called in the event loop after each commit, for each tenant with changes,
            with the number of changes and the bytes of their new content.
        journal_id: ID of this journal; a recovered journal has another ID.
        generation: Raised by each recovery; with `seq` it orders stored content.
        seal: Encrypts the values of the journal; `None` if they are not encrypted.
        heads: Checkpoints in memory.
        subscriptions: The webhooks that get events of threads.
        binder: Creates and checks the MACs of the journal's rows.
    """

    _notices: Notices | None = None
    _keeps_room = False

    def __init__(
        self,
        backend: Backend,
        facts: dict[str, str],
        binder: Binder,
        clock_us: Callable[[], int],
        entropy: Callable[[], int],
        *,
        alone: bool,
        witness: Witness | None = None,
    ) -> None:
        self._backend = backend
        self._understood = 0  # the layout that all writers of the journal know, as far as asked
        self._witness = witness
        self.binder = binder
        self.now_us = clock_us  # microseconds since the Unix epoch
        self.random_bits = entropy  # 62 random bits
        self.journal_id = facts[JOURNAL_ID]
        self.generation = int(facts[GENERATION])
        self.seal = seal_of(backend.engine)
        self.waiters = Waiters(POLL_S) if backend.is_shared else Waiters()
        self.added: list[Callable[[str, int, int], None]] = []
        logs = ThreadCache()
        self.full = logs.full
        self.heads = logs.heads
        self.subscriptions = logs.subscriptions
        self._writer = Writer(
            backend, clock_us, self._committed, logs, alone=alone, witness=witness
        )
        self._readers = ThreadPoolExecutor(
            backend.reader_threads, thread_name_prefix="journal-reader"
        )
        self._reader = threading.local()
        self._connections: list[Connection] = []
        self._closed = False
        if backend.is_shared:
            self._past_batches = ThreadPoolExecutor(1, thread_name_prefix="journal-past-batches")
            self._notices = Notices(backend, self.journal_id, self.write_past_batches, self.waiters)

    @classmethod
    async def open(
        cls,
        where: Path | str,
        *,
        generation: int | None = None,
        alone: bool = False,
        migrates: bool = True,
        open_key: OpenKey | None = None,
        open_row_key: OpenKey = in_the_clear,
        accepts_rows: bool = False,
        witness: Path | None = None,
        accepts_older: Collection[str] = (),
        clock_us: Callable[[], int] = lambda: time.time_ns() // 1000,
        entropy: Callable[[], int] = lambda: secrets.randbits(62),
    ) -> Database:
        """Open a journal, and create missing tables.

        Args:
            where: A file of SQLite, or the URL of a database in PostgreSQL.
            generation: Generation of a journal that the caller will fill. The journal must be empty
                or unfinished; an unfinished journal is dropped. No other process opens the journal
                until `finish`.
            alone: Whether to keep servers from the journal while it is open.
            migrates: Whether the tables of an older journal are migrated; if not, an older journal
                is refused.
            open_key: Opens the key of a sealed journal; `None` if the journal is not sealed.
            open_row_key: Opens the key that binds the rows.
            accepts_rows: Whether to bind all rows again as they are, with another key.
            witness: File that notes the last acknowledged change (`Witness`).
            accepts_older: Changes that the journal may lack, as the errors of the witness name
                them.
            clock_us: Returns microseconds since the Unix epoch.
            entropy: Returns 62 random bits.

        Raises:
            RuntimeError: Commits would not be fsynced; or another program or another version of the
                server wrote the journal; or the journal is sealed and `open_key` is missing, or the
                reverse; or the journal to be filled exists already.
            Refusal: `JOURNAL_UNAVAILABLE`: the database cannot be used; or a refusal of `open_key`.
        """
        backend = backend_of(where)
        facts: dict[str, str] = {}
        noting: Witness | None = None
        try:
            facts = await asyncio.to_thread(
                _prepare_journal, backend, generation, migrates=migrates, accepts_rows=accepts_rows
            )
            noting = Witness(witness) if witness is not None else None
            approve_seal = partial(_approve_seal, noting, accepts_older)
            await unseal(backend, facts, open_key, approve_seal)
            approve = partial(_approve, noting, accepts_older, backend)
            binder = await bind(backend, facts, open_row_key, approve)
        except Exception as error:
            if facts and generation is not None:
                await asyncio.to_thread(backend.remove)
            if noting is not None:
                noting.close()
            backend.engine.dispose()
            raise_unavailable(backend, error)
            raise
        alone = alone or generation is not None
        database = cls(backend, facts, binder, clock_us, entropy, alone=alone, witness=noting)
        try:
            await database.change(lambda _: None)  # fails if the writer cannot use the database
            # loads inline need an open connection, even if later connections fail
            if database.is_local:
                database.query_inline(lambda _: None)
            await database.query(backend.warn)
            if noting is not None:
                await database.query(partial(noting.check, accepted=accepts_older))
        except (Refusal, RuntimeError):
            await (database.close() if generation is None else database.remove())
            raise
        if generation is None:
            await asyncio.to_thread(backend.keep_room)
            database._keeps_room = True
        return database

    @property
    def is_shared(self) -> bool:
        """Whether several servers may use the journal at once."""
        return self._backend.is_shared

    @property
    def is_local(self) -> bool:
        """Whether `query_inline` is faster than a read in another thread."""
        return self._backend.is_local

    @property
    def problem(self) -> str:
        """Reason why the journal cannot be used, for people; empty if none is known."""
        return self._backend.problem()

    @property
    def is_sealed(self) -> bool:
        """Whether values in the journal are encrypted."""
        return self.seal is not None

    def has_older_servers(self, connection: Connection, layout: int) -> bool:
        """Return whether servers that do not know a layout use the journal, too."""
        return self._backend.has_older(connection, layout)

    def oldest_writer(self, connection: Connection) -> int:
        """Return the first layout whose servers can change the journal; 0: every layout."""
        return self._backend.oldest_writer(connection)

    async def refuse_older_writers(self) -> bool:
        """Refuse all changes by older servers; return `False` while such servers are connected.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        if self._understood < LATEST and self.is_shared:
            self._understood = await self.write_past_batches(self._backend.refuse_older)
        return self._understood >= LATEST or not self.is_shared

    def require_layout(self, connection: Connection, layout: int, what: str) -> None:
        """Refuse a change that servers before a layout would not understand, and could undo.

        A server asks until no older server can change the journal.

        Raises:
            Refusal: `OLDER_SERVERS`.
        """
        if layout > self._understood:
            self._understood = self.oldest_writer(connection)
        if layout > self._understood:
            raise Refusal(Reason.OLDER_SERVERS, what=what)

    def lock_facts(self, connection: Connection) -> None:
        """Make the batches of servers that read the sealing format wait for this transaction."""
        self._backend.lock_facts(connection)

    def refuse_unbound(self, connection: Connection) -> None:
        """Refuse all writes by servers that do not bind rows."""
        self._backend.refuse_unbound(connection)

    def refuse_unplaced(self, connection: Connection, table: str, column: str) -> None:
        """Refuse all writes to a sealed column that do not bind the value to a place."""
        self._backend.refuse_unplaced(connection, table, column)

    def note_seal(self) -> None:
        """Note beside the journal that all sealed values are bound to their places."""
        if self._witness is not None and self.seal is not None:
            self._witness.note_seal(self.seal)

    async def finish(self) -> None:
        """Allow servers to open a journal that was filled; durable on return."""
        await self.transact(lambda batch: finish(batch.connection))

    async def remove(self) -> None:
        """Close a journal that was not finished, and remove it."""
        await self.close()
        try:
            await asyncio.to_thread(self._backend.remove)
        except Exception as error:
            problem = self._backend.storage_problem(error)
            if problem is None:
                raise
            _log.warning("an unfinished journal stays, which the next `recover` drops: %s", problem)

    @property
    def backend(self) -> str:
        """Kind of database, such as "sqlite"."""
        return self._backend.name

    async def close(self) -> None:
        """Finish running transactions and release the database."""
        if self._closed:
            return
        self._closed = True
        await self._writer.close()
        self.heads.clear()
        if self._witness is not None:
            self._witness.close()
        await asyncio.to_thread(self._readers.shutdown)
        if self._notices is not None:
            await self._notices.stop()
            await asyncio.to_thread(self._past_batches.shutdown)
        for connection in self._connections:
            connection.invalidate()  # a rollback would fail if the database is gone
            connection.close()
        self._backend.engine.dispose()
        if self._keeps_room:  # opening may have used the reserve, and closing has freed space
            await asyncio.to_thread(self._backend.keep_room)

    def change(
        self, work: Callable[[UnitOfWork], T], size_bytes: int = 0, thread: ThreadName | None = None
    ) -> asyncio.Future[T]:
        """Enqueue a change that uses the batch's unit of work; see `Writer.submit`."""
        return self._writer.submit(work, size_bytes, thread=thread)

    def transact(
        self, work: Callable[[UnitOfWork], T], size_bytes: int = 0, *, keeps_heads: bool = False
    ) -> asyncio.Future[T]:
        """Enqueue a change that has its own savepoint; see `Writer.submit`."""
        return self._writer.submit(work, size_bytes, alone=True, keeps_heads=keeps_heads)

    async def query(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a read transaction, in which all reads see the same moment."""
        if self._closed:
            raise journal_unavailable("it is closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    async def scrub(self) -> bool:
        """Remove deleted bytes from the database's log; `False`: they are removed later."""
        if self._closed:
            raise journal_unavailable("it is closed")
        try:
            return await asyncio.to_thread(self._backend.scrub)
        except Exception as error:
            raise_unavailable(self._backend, error)
            raise

    async def may_keep_removed(self) -> bool:
        """Return whether free space of the file may have content that older builds removed."""
        return await self.query(self._backend.may_keep_removed)

    async def write_past_batches(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a write transaction outside the writer, one after another.

        For rows that no batch changes. `work` may run twice, if the connection breaks. Only a
        shared journal has such transactions.
        """
        if self._closed:
            raise journal_unavailable("it is closed")
        if not self.is_shared:
            return await self.transact(lambda batch: work(batch.connection))
        write = partial(self._retried, work, writes=True)
        return await asyncio.get_running_loop().run_in_executor(self._past_batches, write)

    def announce(self, changed: Collection[tuple[str, str]]) -> None:
        """Wake the waiters of these threads, here and on the other servers of a shared journal."""
        self.waiters.wake(changed)
        if self._notices is not None:
            self._notices.add(changed)

    async def rows(self, statement: Statement, **values: object) -> Sequence[SqlRow]:
        """Return the rows of one statement, as `query` does."""
        return await self.query(lambda connection: statement.run(connection, **values).fetchall())

    async def listed_rows(
        self, statement: Statement, items: Iterable[object], **values: object
    ) -> list[SqlRow]:
        """Return the rows of one statement about a list, which needs no transaction."""
        if self._closed:
            raise journal_unavailable("it is closed")

        def work(connection: Connection) -> list[SqlRow]:
            return list(statement.run_listed(connection, items, **values))

        read = partial(self._retried, work, is_alone=True)
        return await asyncio.get_running_loop().run_in_executor(self._readers, read)

    def query_inline(self, work: Callable[[Connection], T]) -> T:
        """Run a read of a few rows as `query` does, but in this thread; only if `is_local`."""
        if self._closed:
            raise journal_unavailable("it is closed")
        return self._read(work)

    async def size_bytes(self) -> int:
        """Return the size of the database and its log, in bytes."""
        return await self.query(self._backend.size_bytes)

    async def used_bytes(self) -> int:
        """Return the bytes of the used pages."""
        return await self.query(self._backend.used_bytes)

    def _committed(self, committed: CommittedChanges) -> None:
        self.subscriptions.events += committed.events
        self.announce(committed.threads)
        for tenant, added in committed.added.items():
            for callback in self.added:
                callback(tenant, *added)

    def _read(self, work: Callable[[Connection], T]) -> T:
        return self._retried(work)

    def _retried(
        self, work: Callable[[Connection], T], *, writes: bool = False, is_alone: bool = False
    ) -> T:
        try:
            try:
                return self._once(work, writes=writes, is_alone=is_alone)
            except Exception:
                if not self._forget_lost():
                    raise
                return self._once(work, writes=writes, is_alone=is_alone)
        except Exception as error:
            raise_unavailable(self._backend, error)
            raise

    def _once(self, work: Callable[[Connection], T], *, writes: bool, is_alone: bool) -> T:
        connection: Connection | None = getattr(self._reader, "connection", None)
        if connection is None:
            connection = self._reader.connection = self._backend.engine.connect()
            self._connections.append(connection)
        if is_alone:
            with self._backend.statement(connection):
                return work(connection)
        with self._backend.transaction(connection, writes=writes):
            return work(connection)

    def _forget_lost(self) -> bool:
        """Drop this thread's connection if it is lost; return whether it was lost."""
        connection: Connection | None = getattr(self._reader, "connection", None)
        if connection is None or not self._backend.is_lost(connection):
            return False
        self._reader.connection = None
        self._connections.remove(connection)
        connection.invalidate()
        connection.close()
        return True


def _prepare_journal(
    backend: Backend, generation: int | None, *, migrates: bool, accepts_rows: bool
) -> dict[str, str]:
    """Prepare a journal; on a full disk, use the reserved space."""
    prepared = partial(prepare, backend, generation, migrates=migrates, accepts_rows=accepts_rows)
    try:
        return prepared()
    except Exception as error:
        if backend.storage_problem(error) is None or not backend.make_room():
            raise
    return prepared()


def _approve_seal(witness: Witness | None, accepted: Collection[str], seal: Seal) -> None:
    if witness is not None:
        witness.check_seal(seal, accepted)


def _approve(
    witness: Witness | None, accepted: Collection[str], backend: Backend, binder: Binder
) -> None:
    if witness is not None:
        witness.check_key(binder, accepted, lambda: has_threads(backend))
