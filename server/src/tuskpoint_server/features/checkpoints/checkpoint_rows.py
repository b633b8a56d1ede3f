"""Saves and loads of checkpoints in the journal."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from weakref import WeakValueDictionary

from ...core.model import (
    NONE_HELD,
    Checkpoint,
    CheckpointKey,
    CheckpointQuery,
    DeltaHistory,
    HeldDigests,
    SaveOutcome,
    ThreadName,
    View,
)
from ...core.state import RawCheckpoint
from ...core.threads import Thread, ThreadDetail
from ...journal.database.database import Connection, Database
from ...journal.database.pending_writes import StoredWrite
from ...journal.database.thread_rows import find_thread
from ...journal.database.unit_of_work import UnitOfWork
from ...journal.values import delta_history, load
from ...journal.values.listing import CheckpointPage, ListPosition, read_page
from ...journal.values.load_head import learn, load_current_heads, load_head
from . import listed_threads as threads
from . import save
from .incoming import IncomingCheckpoint, pack_writes, size_of
from .listed_threads import ThreadQuery
from .value_groups import Keyframes

_Change = Callable[[UnitOfWork], SaveOutcome]
_StoredState = RawCheckpoint | None
_Request = tuple[CheckpointKey, HeldDigests, asyncio.Future[_StoredState]]

LARGE_BYTES = 64 * 1024
"""Bytes from which a save is packed, or a checkpoint is read, in a thread."""

_READS_AT_ONCE = 2  # small checkpoints in a batch; more would not fill a transaction


def _answer(requests: Sequence[_Request], checkpoints: Sequence[_StoredState]) -> None:
    """Answer the requests whose checkpoints were read."""
    for (_, _, answer), checkpoint in zip(requests, checkpoints, strict=True):
        if checkpoint is not None and not answer.done():
            answer.set_result(checkpoint)


class CheckpointRows:
    """Checkpoints of a journal.

    A mutation is a plain call that enqueues a change; the future is resolved after the fsync of the
    change. Changes of a thread take effect in the order of the calls. Cancelling the future
    withdraws a change that the writer has not started; a started change continues.
    Every call can refuse with `JOURNAL_UNAVAILABLE`.

    Args:
        database: The journal.
        late_save_grace_s: Seconds after a thread was deleted in which a save that repeats one of
            its checkpoint IDs starts the thread again.

    Attributes:
        keyframes: Keyframes of channels, for patches of the next values.
    """

    def __init__(self, database: Database, late_save_grace_s: float = 0) -> None:
        self._database = database
        self._late_save_grace_us = int(late_save_grace_s * 1e6)
        self._lines: WeakValueDictionary[ThreadName, asyncio.Lock] = WeakValueDictionary()
        # Requests that wait in `load_batched`, by tenant.
        self._asked: dict[str, list[_Request]] = {}
        self._reads = 0
        self._reading: set[asyncio.Task[None]] = set()
        self.keyframes = Keyframes()

    def save_checkpoint(self, tenant: str, sent: IncomingCheckpoint) -> asyncio.Future[SaveOutcome]:
        """Insert or replace a checkpoint.

        Raises:
            Refusal: `VALUES_MISSING`, `HEAD_MOVED`, `THREAD_DELETED`,
                `VERSION_TYPE_CHANGED`, `INVALID_FIELD` (no ID can be minted), `THREAD_BUSY`,
                `LEASE_LOST`.
        """
        # Only a minted ID needs randomness, and reading it takes as long as the SQL.
        entropy = 0 if sent.key.checkpoint_id else self._database.random_bits()

        def pack() -> _Change:
            sent.pack(tenant, self.keyframes)
            return lambda batch: save.save_checkpoint(
                batch, tenant, sent, entropy, self._late_save_grace_us
            )

        return self._submit((tenant, sent.key.thread_id), pack, sent.size_bytes)

    def save_writes(
        self,
        tenant: str,
        key: CheckpointKey,
        writes: Sequence[StoredWrite],
        lease_id: str = "",
        *,
        early: bool = True,
    ) -> asyncio.Future[SaveOutcome]:
        """Insert pending writes: at `idx` 0 and above the first write wins, below 0 the last.

        `early`: the checkpoint need not exist yet.

        Raises:
            Refusal: `THREAD_DELETED`, `LIMIT_EXCEEDED`, `CHECKPOINT_MISSING`, `THREAD_BUSY`,
                `LEASE_LOST`.
        """

        def pack() -> _Change:
            packed_writes = pack_writes(writes)
            return lambda batch: save.save_writes(
                batch, tenant, key, packed_writes, early=early, lease_id=lease_id
            )

        return self._submit((tenant, key.thread_id), pack, size_of(writes))

    def set_label(self, tenant: str, key: CheckpointKey, label: str) -> asyncio.Future[SaveOutcome]:
        """Set or clear a label; an empty `checkpoint_id` means the latest.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`.
        """

        def change(batch: UnitOfWork) -> SaveOutcome:
            return save.set_label(batch, tenant, key, label)

        return self._submit((tenant, key.thread_id), lambda: change, len(label))

    def _submit(
        self, thread: ThreadName, pack: Callable[[], _Change], size_bytes: int
    ) -> asyncio.Future[SaveOutcome]:
        """Pack a change and enqueue it behind other changes of its thread."""
        line = self._lines.get(thread)
        if line is None and size_bytes < LARGE_BYTES:
            return self._database.change(pack(), size_bytes, thread)
        if line is None:
            line = self._lines[thread] = asyncio.Lock()
        return asyncio.create_task(self._later(thread, line, pack, size_bytes))

    async def _later(
        self, thread: ThreadName, line: asyncio.Lock, pack: Callable[[], _Change], size_bytes: int
    ) -> SaveOutcome:
        async with line:  # served in the order of arrival
            answer = self._database.change(await asyncio.to_thread(pack), size_bytes, thread)
        del line, pack
        return await answer

    def load_inline(
        self, tenant: str, keys: Sequence[CheckpointKey], held: Sequence[HeldDigests] = ()
    ) -> list[RawCheckpoint | None]:
        """Return stored checkpoints; `None`: call `load` instead.

        See `load.load_stored`. The method raises nothing: `load` raises the error of each
        checkpoint.
        """
        if not self._database.is_local:
            return [None] * len(keys)
        heads, held = self._database.heads, held or [NONE_HELD] * len(keys)
        loads = zip(keys, held, strict=True)
        loaded = [load_head(heads, tenant, key, key_held) for key, key_held in loads]
        absent = [index for index, checkpoint in enumerate(loaded) if checkpoint is None]
        if absent:
            absent_keys = [keys[index] for index in absent]
            absent_held = [held[index] for index in absent]
            with suppress(Exception):  # `load` raises the error for the damaged ones
                checkpoints = self._database.query_inline(
                    lambda connection: load.load_stored(
                        connection, tenant, absent_keys, LARGE_BYTES, absent_held
                    )
                )
                for index, checkpoint in zip(absent, checkpoints, strict=True):
                    loaded[index] = checkpoint
                    if checkpoint is not None:
                        learn(heads, tenant, checkpoint)
        return loaded

    async def load_batched(
        self, tenant: str, key: CheckpointKey, held: HeldDigests = NONE_HELD
    ) -> RawCheckpoint | None:
        """Return a checkpoint like `load_inline`, for databases that `load_inline` does not read.

        Requests that arrive during a read are read together: one statement shows which heads in
        memory are current, and one transaction reads the other checkpoints.
        """
        if self._database.is_local:
            return None
        answer: asyncio.Future[_StoredState] = asyncio.get_running_loop().create_future()
        self._asked.setdefault(tenant, []).append((key, held, answer))
        if self._reads < _READS_AT_ONCE:
            self._reads += 1
            task = asyncio.create_task(self._read_asked())
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        return await answer

    async def _read_asked(self) -> None:
        try:
            while self._asked:
                tenant, requests = self._asked.popitem()
                with suppress(Exception):  # `load` raises the error for the damaged ones
                    await self._read_batch(tenant, requests)
                for _, _, answer in requests:
                    if not answer.done():
                        answer.set_result(None)
        finally:  # before the read: later requests need another reader
            self._reads -= 1

    async def _read_batch(self, tenant: str, requests: Sequence[_Request]) -> None:
        """Answer with current heads in memory, then with other small enough checkpoints."""
        keys, held, _ = zip(*requests, strict=True)
        _answer(requests, await load_current_heads(self._database, tenant, keys, held))
        requests = [request for request in requests if not request[2].done()]
        if not requests:
            return
        keys, held, _ = zip(*requests, strict=True)
        checkpoints = await self._database.query(
            partial(load.load_stored, tenant=tenant, keys=keys, max_bytes=LARGE_BYTES, held=held)
        )
        _answer(requests, checkpoints)
        for checkpoint in checkpoints:
            if checkpoint is not None:
                learn(self._database.heads, tenant, checkpoint)

    async def load(
        self, tenant: str, key: CheckpointKey, view: View, held: HeldDigests = NONE_HELD
    ) -> Checkpoint | None:
        """Return a checkpoint, or `None`; see `load.load`."""
        query = partial(load.load, tenant=tenant, key=key, view=view, held=held)
        # A step may read megabytes, whatever its size: too long for the event loop.
        if self._database.is_local and view is not View.STEP:
            with suppress(load.CheckpointTooLargeError):
                return self._database.query_inline(partial(query, max_bytes=LARGE_BYTES))
        return await self._database.query(query)

    async def read_page(
        self,
        tenant: str,
        query: CheckpointQuery,
        view: View,
        after: ListPosition | None,
        *,
        max_count: int,
        max_bytes: int,
    ) -> CheckpointPage:
        """Return the next checkpoints of a listing or a replay; see `listing.read_page`."""
        bounds = {"max_count": max_count, "max_bytes": max_bytes}
        return await self._database.query(
            lambda connection: read_page(connection, tenant, query, view, after, **bounds)
        )

    async def delta_history(
        self, tenant: str, key: CheckpointKey, channels: Sequence[str]
    ) -> tuple[DeltaHistory, ...]:
        """Return the history of each channel, in the order asked."""
        return await self._database.query(
            lambda connection: delta_history.delta_history(connection, tenant, key, channels)
        )

    async def stored_by(self, tenant: str) -> tuple[int, int]:
        """Return the number of a tenant's threads, and the bytes of their content."""
        return await self._database.query(lambda connection: threads.stored_by(connection, tenant))

    def limit_threads(self, tenant: str, limit: int | None, count: int) -> None:
        """Set whether a tenant is at its limit of threads, and may start no more."""
        if limit is not None and count >= limit:
            self._database.full[tenant] = limit
        else:
            self._database.full.pop(tenant, None)

    async def thread(self, tenant: str, thread_id: str) -> ThreadDetail | None:
        """Return a thread; `None` if it does not exist, or was deleted.

        Raises:
            Refusal: `JOURNAL_DAMAGED`.
        """

        def read(connection: Connection) -> ThreadDetail | None:
            find_thread(connection, tenant, thread_id)
            return threads.thread(connection, tenant, thread_id, self._database.now_us())

        return await self._database.query(read)

    async def list_threads(
        self, tenant: str, query: ThreadQuery, after: threads.After, limit: int
    ) -> list[Thread]:
        """Return threads in the order of the query."""
        return await self._database.query(
            lambda connection: threads.list_threads(
                connection, tenant, query, after, limit, self._database.now_us()
            )
        )
