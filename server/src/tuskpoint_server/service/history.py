"""What the calls on a thread's history mean: replaying it, watching it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass, replace

from ..domain.errors import Reason, Refusal, invalid_field
from ..domain.model import Checkpoint, CheckpointKey, Source, View
from ..domain.threads import Event, EventKind
from ..journal.changes import Events, EventsCompacted, Extent, News
from ..journal.checkpoints.load import ListPosition, ReplayQuery
from ..journal.checkpoints.store import Checkpoints
from .checkpoints import PAGE_BYTES, PAGE_COUNT
from .completing import Completer
from .cursors import Cursors, Position

EVENTS_AT_ONCE = 256
"""Most events that a watch takes from the journal at once."""


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event on its way to a watcher.

    Attributes:
        event: What happened.
        cursor: Where to resume after it.
        checkpoint: The checkpoint concerned as it stands now; `None` if none is, or if it
            is gone.
    """

    event: Event
    cursor: bytes
    checkpoint: Checkpoint | None = None


class History:
    """What happened on the threads of all tenants."""

    def __init__(
        self,
        journal: Checkpoints,
        log: Events,
        completer: Completer,
        *,
        clock_us: Callable[[], int],
    ) -> None:
        self._journal = journal
        self._log = log
        self._completer = completer
        self._cursors = Cursors(log.journal_id)
        self._clock_us = clock_us

    async def replay(
        self, tenant: str, query: ReplayQuery, view: View, source: Source
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield the checkpoints of a thread, least (ID, namespace) first, page by page.

        Nothing of the journal is held while the reader is slow.

        Raises:
            Refusal: `THREAD_NOT_FOUND`; those of `Completer.from_source`.
        """
        extent = await self._log.extent(tenant, query.thread_id)
        if extent is None or extent.deleted:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=query.thread_id)
        stored = View.ENTRY if source is Source.BLOB else view
        after: ListPosition | None = None
        while True:
            page = await self._journal.read_page(
                tenant, query, stored, after, max_count=PAGE_COUNT, max_bytes=PAGE_BYTES
            )
            found = self._completer.from_source(tenant, page.checkpoints, view, source)
            async with aclosing(found):
                async for loaded in found:
                    yield loaded
            if page.next is None:
                return
            after = page.next

    async def watch(
        self,
        tenant: str,
        thread_id: str,
        cursor: bytes,
        kinds: Collection[EventKind],
        view: View,
        progress_s: float,
    ) -> AsyncGenerator[Delivery, None]:
        """Yield what happened on a thread after a cursor, and then what happens; endless.

        Events are read from the journal when they are asked for, so a slow watcher holds
        none of them; if they are dropped meanwhile, it is told.

        Args:
            tenant: The tenant.
            thread_id: The thread.
            cursor: Where to begin; empty: with the current incarnation.
            kinds: Only these; empty: all.
            view: How much of a checkpoint comes with `CHECKPOINT_SAVED`.
            progress_s: Longest silence, in seconds, before a `PROGRESS`.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, `INVALID_FIELD` for the cursor, `CURSOR_COMPACTED`;
                those of `Completer.checkpoint`.
        """
        wanted = frozenset(kinds) or frozenset(EventKind)
        # Before anything is read, so that nothing falls between the reading and the waiting.
        with self._log.subscribe(tenant, thread_id) as waiter:
            at = await self._begin(tenant, thread_id, cursor)
            silence = _Silence(progress_s)
            while True:
                news = await self._after(tenant, thread_id, at)
                for event in news.events:
                    at = replace(at, incarnation=event.incarnation, seq=event.seq)
                    if event.kind in wanted:
                        yield await self._delivery(tenant, event, at, view)
                        silence.broken()
                if at.certified_seq < news.certified_seq <= at.seq:
                    at = replace(at, certified_seq=news.certified_seq)
                    if EventKind.CERTIFIED in wanted:
                        yield self._unnumbered(tenant, thread_id, EventKind.CERTIFIED, at)
                        silence.broken()
                if silence.left_s <= 0:
                    yield self._unnumbered(tenant, thread_id, EventKind.PROGRESS, at)
                    silence.broken()
                if not news.events:
                    await waiter.wait(silence.left_s)

    async def _begin(self, tenant: str, thread_id: str, cursor: bytes) -> Position:
        """Return where a watch with this cursor begins."""
        position = self._cursors.open(tenant, thread_id, cursor) if cursor else None
        extent = await self._log.extent(tenant, thread_id)
        if extent is None or (extent.deleted and not cursor):
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        if not cursor:
            position = Position(extent.incarnation, extent.begun_seq, extent.begun_seq)
        if position is None or position.seq < extent.compacted_seq:
            raise self._compacted(tenant, thread_id, extent)
        if position.seq > extent.seq:
            raise invalid_field("cursor", "is ahead of the thread")
        return position

    async def _after(self, tenant: str, thread_id: str, at: Position) -> News:
        try:
            return await self._log.after(tenant, thread_id, at.seq, EVENTS_AT_ONCE)
        except EventsCompacted as gone:
            raise self._compacted(tenant, thread_id, gone.extent) from None

    async def _delivery(self, tenant: str, event: Event, at: Position, view: View) -> Delivery:
        shown = view if event.kind is EventKind.CHECKPOINT_SAVED else View.ENTRY
        return Delivery(
            event,
            self._cursors.seal(tenant, event.key.thread_id, at),
            await self._load(tenant, event, shown) if event.key.checkpoint_id else None,
        )

    async def _load(self, tenant: str, event: Event, view: View) -> Checkpoint | None:
        loaded = await self._journal.load(tenant, event.key, view)
        # One of a later incarnation has the same name and is another.
        if loaded is None or loaded.entry.incarnation != event.incarnation:
            return None
        whole = await self._completer.checkpoint(tenant, loaded)
        return await self._completer.shown(tenant, whole, view)

    def _unnumbered(self, tenant: str, thread_id: str, kind: EventKind, at: Position) -> Delivery:
        """Return an event that takes no number: `PROGRESS`, or `CERTIFIED` with the watermark."""
        seq = at.certified_seq if kind is EventKind.CERTIFIED else at.seq
        nothing = CheckpointKey(thread_id, "", "")
        event = Event(kind, seq, at.incarnation, nothing, 0, self._clock_us())
        return Delivery(event, self._cursors.seal(tenant, thread_id, at))

    def _compacted(self, tenant: str, thread_id: str, extent: Extent) -> Refusal:
        oldest = Position(extent.incarnation, extent.compacted_seq, extent.compacted_seq)
        cursor = self._cursors.seal(tenant, thread_id, oldest)
        return Refusal(
            Reason.CURSOR_COMPACTED,
            thread_id=thread_id,
            oldest_cursor=base64.b64encode(cursor).decode(),
        )


class _Silence:
    """How long a watcher has heard nothing."""

    def __init__(self, longest_s: float) -> None:
        self._longest_s = longest_s
        self._time = asyncio.get_running_loop().time
        self.broken()

    def broken(self) -> None:
        """Note that something was delivered."""
        self._ends = self._time() + self._longest_s

    @property
    def left_s(self) -> float:
        """Seconds until it has been long enough."""
        return self._ends - self._time()
