"""The journal in SQLite: the rooms of this package put together."""

from __future__ import annotations

import asyncio
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TypeVar

from sqlalchemy import Connection, Engine, select

from ..domain.limits import LIMITS
from ..domain.model import (
    Checkpoint,
    CheckpointDraft,
    CheckpointKey,
    CheckpointQuery,
    DeltaHistory,
    Entry,
    PruneStrategy,
    Removed,
    Saved,
    Thread,
    ThreadDetail,
    Value,
    View,
    Write,
)
from . import (
    copies,
    deltas,
    pages,
    reads,
    removals,
    retention,
    saves,
    searchability,
    sqlite,
    sweeping,
    thread_reads,
)
from .api import ListPosition, Page, ReplayQuery, Swept, ThreadQuery
from .migrations.upgrade import upgrade
from .schema import journal_info
from .statements import insert_into
from .waking import Waiters
from .writer import Writer, raise_unavailable, unavailable

T = TypeVar("T")

READER_THREADS = 4
_JOURNAL_ID = "journal_id"


def _now_us() -> int:
    return time.time_ns() // 1000


def _random_bits() -> int:
    return secrets.randbits(62)


class SqlJournal:
    """A journal in a database file; satisfies `api.Journal`. Made by `open`.

    Attributes:
        waiters: Who waits for changes of threads.
    """

    def __init__(
        self,
        path: Path,
        engine: Engine,
        journal_id: str,
        clock_us: Callable[[], int],
        entropy: Callable[[], int],
    ) -> None:
        self._path = path
        self._engine = engine
        self._journal_id = journal_id
        self._clock_us = clock_us
        self._entropy = entropy
        self.waiters = Waiters()
        self._writer = Writer(engine, self.waiters.wake)
        self._readers = ThreadPoolExecutor(READER_THREADS, thread_name_prefix="journal-reader")
        self._reader = threading.local()
        self._connections: list[Connection] = []
        self._closed = False

    @classmethod
    async def open(
        cls,
        path: Path,
        *,
        clock_us: Callable[[], int] = _now_us,
        entropy: Callable[[], int] = _random_bits,
    ) -> SqlJournal:
        """Open a journal, making or upgrading its tables.

        Args:
            path: The database file; its directory must exist.
            clock_us: Microseconds since the Unix epoch.
            entropy: 62 random bits.

        Raises:
            RuntimeError: Commits would not be fsynced there, or a newer server wrote it.
            Refusal: `JOURNAL_UNAVAILABLE`: the file cannot be used.
        """
        engine = sqlite.make_engine(path)
        try:
            journal_id = await asyncio.to_thread(_prepare, engine)
        except Exception as error:
            raise_unavailable(error)
            raise
        return cls(path, engine, journal_id, clock_us, entropy)

    @property
    def backend(self) -> str:
        """Kind of database."""
        return self._engine.dialect.name

    @property
    def journal_id(self) -> str:
        """Identity of this journal."""
        return self._journal_id

    def now_us(self) -> int:
        """Return the time in microseconds since the Unix epoch."""
        return self._clock_us()

    def random_bits(self) -> int:
        """Return 62 random bits."""
        return self._entropy()

    async def close(self) -> None:
        """Finish running transactions and release the database."""
        if self._closed:
            return
        self._closed = True
        await self._writer.close()
        await asyncio.to_thread(self._readers.shutdown)
        for connection in self._connections:
            connection.close()
        self._engine.dispose()

    # --- transactions ----------------------------------------------------------------

    async def transact(self, work: Callable[[Connection], T], *, size_bytes: int = 0) -> T:
        """Run `work` in a write transaction and return its result once that is fsynced.

        It shares a commit with others. Cancelling the caller does not take it back.

        Args:
            work: Runs in the writer's thread; must not begin, commit or roll back.
            size_bytes: About how many bytes it writes, if they are many.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`; nothing of it is stored.
            Exception: Whatever `work` raised; nothing of it is stored.
        """
        return await self._writer.submit(work, size_bytes)

    async def query(self, work: Callable[[Connection], T]) -> T:
        """Run `work` in a read transaction, in which all reads see one moment.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        if self._closed:
            raise unavailable("it is closed")
        return await asyncio.get_running_loop().run_in_executor(self._readers, self._read, work)

    def _read(self, work: Callable[[Connection], T]) -> T:
        try:
            connection = self._reading()
            with connection.begin():
                return work(connection)
        except Exception as error:
            raise_unavailable(error)
            raise

    def _reading(self) -> Connection:
        """Return the connection of this reader thread."""
        connection: Connection | None = getattr(self._reader, "connection", None)
        if connection is None:
            connection = self._engine.connect()
            self._reader.connection = connection
            self._connections.append(connection)
        return connection

    async def size_bytes(self) -> int:
        """Return the bytes that the database and its log take."""
        return await self.query(lambda connection: sqlite.size_bytes(connection, self._path))

    # --- mutations -------------------------------------------------------------------

    async def save_checkpoint(
        self, tenant: str, draft: CheckpointDraft, restored: Sequence[Write] = ()
    ) -> Saved:
        """Insert or replace a checkpoint; see `api.Journal.save_checkpoint`."""
        now_us = self._clock_us()
        # Only a minted ID needs randomness; asking the system for it takes as long as the SQL.
        entropy = 0 if draft.key.checkpoint_id else self._entropy()
        return await self.transact(
            lambda connection: saves.save_checkpoint(
                connection, tenant, draft, now_us, entropy, restored
            ),
            size_bytes=_draft_size(draft) + _writes_size(restored),
        )

    async def save_writes(self, tenant: str, key: CheckpointKey, writes: Sequence[Write]) -> Saved:
        """Insert pending writes; see `api.Journal.save_writes`."""
        now_us = self._clock_us()
        return await self.transact(
            lambda connection: saves.save_writes(connection, tenant, key, writes, now_us),
            size_bytes=_writes_size(writes),
        )

    async def set_label(self, tenant: str, key: CheckpointKey, label: str) -> Saved:
        """Set or clear a label; see `api.Journal.set_label`."""
        now_us = self._clock_us()
        return await self.transact(
            lambda connection: saves.set_label(connection, tenant, key, label, now_us)
        )

    async def delete_thread(self, tenant: str, thread_id: str) -> Removed:
        """Delete a thread; see `api.Journal.delete_thread`."""
        now_us = self._clock_us()
        return await self.transact(
            lambda connection: removals.delete_thread(connection, tenant, thread_id, now_us)
        )

    async def copy_thread(self, tenant: str, source: str, target: str, request_id: str) -> int:
        """Copy a thread; see `api.Journal.copy_thread`."""
        now_us = self._clock_us()
        return await self.transact(
            lambda connection: copies.copy_thread(
                connection, tenant, source, target, request_id, now_us
            )
        )

    async def prune_thread(self, tenant: str, thread_id: str, strategy: PruneStrategy) -> Removed:
        """Delete old checkpoints; see `api.Journal.prune_thread`."""
        now_us = self._clock_us()
        prune = (
            removals.delete_thread if strategy is PruneStrategy.DELETE_ALL else removals.keep_latest
        )
        return await self.transact(lambda connection: prune(connection, tenant, thread_id, now_us))

    async def delete_runs(self, tenant: str, run_ids: Sequence[str]) -> Removed:
        """Delete the checkpoints of runs; see `api.Journal.delete_runs`."""
        now_us = self._clock_us()
        return await self.transact(
            lambda connection: removals.delete_runs(connection, tenant, run_ids, now_us)
        )

    async def set_retention(self, tenant: str, thread_id: str, retention_s: int) -> None:
        """Set how long a thread is kept; see `api.Journal.set_retention`."""
        now_us = self._clock_us()
        await self.transact(
            lambda connection: retention.set_retention(
                connection, tenant, thread_id, retention_s, now_us
            )
        )

    async def set_searchable(self, tenant: str, thread_id: str, searchable: bool) -> None:
        """Set whether search finds a thread; see `api.Journal.set_searchable`."""
        now_us = self._clock_us()
        await self.transact(
            lambda connection: searchability.set_searchable(
                connection, tenant, thread_id, searchable, now_us
            )
        )

    async def past_retention(self, limit: int) -> list[tuple[str, str]]:
        """Return threads past their retention; see `api.Journal.past_retention`."""
        now_us = self._clock_us()
        return await self.query(lambda connection: retention.past(connection, now_us, limit))

    async def delete_if_past(self, tenant: str, thread_id: str) -> Removed | None:
        """Delete a thread past its retention; see `api.Journal.delete_if_past`."""
        now_us = self._clock_us()
        return await self.transact(
            lambda connection: retention.delete_if_past(connection, tenant, thread_id, now_us)
        )

    async def sweep(self, *, content_grace_s: float, early_write_ttl_s: float) -> Swept:
        """Remove what nothing needs; see `api.Journal.sweep`."""
        now_us = self._clock_us()
        contents = await self._sweep_contents(now_us - int(content_grace_s * 1e6))
        early_before_us = now_us - int(early_write_ttl_s * 1e6)
        requests_before_us = now_us - LIMITS.request_id_ttl_s * 1_000_000
        early, requests = await self.transact(
            lambda connection: (
                sweeping.drop_early_writes(connection, early_before_us),
                sweeping.drop_requests(connection, requests_before_us),
            )
        )
        events = await self._sweep_events(now_us - LIMITS.event_ttl_s * 1_000_000)
        return Swept(contents, early, requests, events)

    async def _sweep_events(self, before_us: int) -> int:
        """Remove older events in short turns."""
        count = 0
        while dropped := await self.transact(partial(sweeping.drop_events, before_us=before_us)):
            count += dropped
        return count

    async def _sweep_contents(self, before_us: int) -> int:
        """Look for unreferenced contents beside the writer; remove them in short turns."""
        count = 0
        position: sweeping.ContentKey | None = ("", b"")
        while position is not None:
            found, position = await self.query(partial(sweeping.unreferenced, after=position))
            if found:
                count += await self.transact(
                    partial(sweeping.drop_contents, found=found, before_us=before_us)
                )
        return count

    # --- reads -----------------------------------------------------------------------

    async def load(self, tenant: str, key: CheckpointKey, view: View) -> Checkpoint | None:
        """Return a checkpoint, or `None`; see `api.Journal.load`."""
        return await self.query(lambda connection: reads.load(connection, tenant, key, view))

    async def list_page(
        self,
        tenant: str,
        query: CheckpointQuery,
        view: View,
        after: ListPosition | None,
        *,
        max_count: int,
        max_bytes: int,
    ) -> Page:
        """Return the next checkpoints; see `api.Journal.list_page`."""
        return await self.query(
            lambda connection: pages.list_page(
                connection, tenant, query, view, after, max_count=max_count, max_bytes=max_bytes
            )
        )

    async def replay_page(
        self,
        tenant: str,
        query: ReplayQuery,
        view: View,
        after: ListPosition | None,
        *,
        max_count: int,
        max_bytes: int,
    ) -> Page:
        """Return the next checkpoints of a thread; see `api.Journal.replay_page`."""
        return await self.query(
            lambda connection: pages.replay_page(
                connection, tenant, query, view, after, max_count=max_count, max_bytes=max_bytes
            )
        )

    async def delta_history(
        self, tenant: str, key: CheckpointKey, channels: Sequence[str]
    ) -> tuple[DeltaHistory, ...]:
        """Return the history of each channel; see `api.Journal.delta_history`."""
        return await self.query(
            lambda connection: deltas.delta_history(connection, tenant, key, channels)
        )

    async def thread(self, tenant: str, thread_id: str) -> ThreadDetail | None:
        """Return a thread, or `None`; see `api.Journal.thread`."""
        return await self.query(
            lambda connection: thread_reads.thread(connection, tenant, thread_id)
        )

    async def list_threads(
        self, tenant: str, query: ThreadQuery, after: str, limit: int
    ) -> list[Thread]:
        """Return threads by ID; see `api.Journal.list_threads`."""
        return await self.query(
            lambda connection: thread_reads.list_threads(connection, tenant, query, after, limit)
        )

    async def list_certified(
        self, tenant: str, thread_id: str, after: tuple[str, str] | None, limit: int
    ) -> list[Entry]:
        """Return certified checkpoints; see `api.Journal.list_certified`."""
        return await self.query(
            lambda connection: reads.list_certified(connection, tenant, thread_id, after, limit)
        )


def _prepare(engine: Engine) -> str:
    """Make or upgrade the tables and return the journal's identity."""
    with sqlite.connect_writer(engine) as connection:
        sqlite.check_durability(connection)
        connection.rollback()
        with connection.begin():
            upgrade(connection)
            fresh = insert_into(connection.dialect.name)(journal_info).values(
                name=_JOURNAL_ID, value=uuid.uuid4().hex
            )
            connection.execute(fresh.on_conflict_do_nothing())
            stored = select(journal_info.c.value).where(journal_info.c.name == _JOURNAL_ID)
            return str(connection.execute(stored).scalar_one())


def _draft_size(draft: CheckpointDraft) -> int:
    size = len(draft.frame) + len(draft.metadata.raw) + len(draft.vector)
    size += _writes_size(draft.writes)
    for channel in draft.channels:
        if isinstance(channel.content, Value):
            size += len(channel.content.data)
    return size


def _writes_size(writes: Sequence[Write]) -> int:
    return sum(len(write.value.data) for write in writes)
