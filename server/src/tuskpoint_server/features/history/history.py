"""Replays and watches: checkpoints of a thread in their order, and what changes in it."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ...core.errors import Reason, Refusal, invalid_field
from ...core.model import (
    Checkpoint,
    CheckpointKey,
    CheckpointQuery,
    Source,
    View,
)
from ...core.threads import Event, EventKind
from ...journal.database.thread_rows import ThreadRow
from ..call_memory import Holder
from ..checkpoints.checkpoint_rows import CheckpointRows
from ..checkpoints.completing import Completer, content_bytes
from ..cursors import decode_cursor, encode_cursor
from .changes import Events, EventsCompacted

EVENTS_AT_ONCE = 256  # most events that a watch takes from the journal at once


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event on its way to a watcher."""

    event: Event
    cursor: bytes  # where to resume after it
    # the checkpoint concerned in its current state; `None` if none is concerned, or if it is gone
    checkpoint: Checkpoint | None = None


class WatchPosition(NamedTuple):
    """Position of a watch: after this number of the thread's sequence."""

    incarnation: int  # of the thread then
    seq: int
    certified_seq: int  # the watermark that was delivered last


@dataclass(frozen=True, slots=True)
class History:
    """Events of the threads of all tenants."""

    _journal: CheckpointRows
    _log: Events
    _completer: Completer
    _clock_us: Callable[[], int]

    async def replay(
        self, tenant: str, query: CheckpointQuery, view: View, source: Source
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield the checkpoints of a thread, least (ID, namespace) first."""
        thread_id = query.thread_id or ""
        kept = await self._log.kept(tenant, thread_id)
        if kept is None or kept.deleted:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        async with aclosing(self._completer.listed(tenant, query, view, source)) as found:
            async for loaded in found:
                yield loaded

    async def watch(
        self,
        tenant: str,
        thread_id: str,
        cursor: bytes,
        kinds: Collection[EventKind],
        view: View,
        progress_s: float,
        holder: Holder,
        *,
        from_now: bool = False,
    ) -> AsyncGenerator[Delivery, None]:
        """Yield the events of a thread after a cursor, then new ones as they happen; endless.

        Without a cursor it begins with the thread, or `from_now`: then progress comes first.

        Events are read from the journal on demand, so a slow watcher holds none of them in
        memory; if they are dropped meanwhile, the watch ends with `CURSOR_COMPACTED`.
        """
        wanted = frozenset(kinds) or frozenset(EventKind)
        # Before anything is read, so that nothing falls between the reading and the waiting.
        with self._log.subscribe(tenant, thread_id) as waiter:
            at = await self._begin(tenant, thread_id, cursor, from_now=from_now)
            clock = asyncio.get_running_loop().time
            heard = clock()
            if from_now and not cursor:
                yield self._unnumbered(tenant, thread_id, EventKind.PROGRESS, at)
            while True:
                try:
                    news = await self._log.after(tenant, thread_id, at.seq, EVENTS_AT_ONCE)
                except EventsCompacted as gone:
                    raise self._compacted(tenant, thread_id, gone.kept) from None
                for event in news.events:
                    at = at._replace(incarnation=event.incarnation, seq=event.seq)
                    if event.kind in wanted:
                        held = holder.held_bytes
                        yield await self._delivery(tenant, event, at, view, holder)
                        holder.give(holder.held_bytes - held)
                        heard = clock()
                if at.certified_seq < news.certified_seq <= at.seq:
                    at = at._replace(certified_seq=news.certified_seq)
                    if EventKind.CERTIFIED in wanted:
                        yield self._unnumbered(tenant, thread_id, EventKind.CERTIFIED, at)
                        heard = clock()
                if clock() >= heard + progress_s:
                    yield self._unnumbered(tenant, thread_id, EventKind.PROGRESS, at)
                    heard = clock()
                if not news.events:
                    await waiter.wait(heard + progress_s - clock())

    async def _begin(
        self, tenant: str, thread_id: str, cursor: bytes, *, from_now: bool
    ) -> WatchPosition:
        position = None
        if cursor:
            try:
                carried = cursor.decode(errors="replace")
                of, *at = decode_cursor(("watch", tenant, thread_id), carried, str, int, int, int)
            except Refusal:
                problem = "must be the cursor of an event of this thread"
                raise invalid_field("cursor", problem) from None
            position = WatchPosition(*at) if of == self._log.journal_id else None
        kept = await self._log.kept(tenant, thread_id)
        if kept is None or (kept.deleted and not cursor):
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        if not cursor and from_now:
            return WatchPosition(kept.incarnation, kept.seq, kept.certified_seq)
        if not cursor:
            position = WatchPosition(kept.incarnation, kept.begun_seq, kept.begun_seq)
        if position is None or position.seq < kept.compacted_seq:
            raise self._compacted(tenant, thread_id, kept)
        if position.seq > kept.seq:
            raise invalid_field("cursor", "is ahead of the thread")
        return position

    def _cursor(self, tenant: str, thread_id: str, at: WatchPosition) -> bytes:
        return encode_cursor(("watch", tenant, thread_id), (self._log.journal_id, *at)).encode()

    async def _delivery(
        self, tenant: str, event: Event, at: WatchPosition, view: View, holder: Holder
    ) -> Delivery:
        cursor = self._cursor(tenant, event.key.thread_id, at)
        if event.kind is not EventKind.CHECKPOINT_SAVED:
            view = View.ENTRY
        load = partial(self._load, tenant, event, view)
        if not event.key.checkpoint_id:
            loaded = None
        elif view is View.ENTRY:
            loaded = await load()
        else:
            loaded = await holder.whole(load, lambda one: content_bytes(one) if one else 0)
        return Delivery(event, cursor, loaded)

    async def _load(self, tenant: str, event: Event, view: View) -> Checkpoint | None:
        """Return the checkpoint of an event, unless it is deleted."""
        loaded = await self._journal.load(tenant, event.key, view)
        # One of a later incarnation has the same name and is another.
        if loaded is None or loaded.entry.incarnation != event.incarnation:
            return None
        try:
            whole = await self._completer.checkpoint(tenant, loaded)
            return await self._completer.shown(tenant, whole, view)
        except Refusal as refusal:
            if refusal.reason is not Reason.JOURNAL_DAMAGED:
                raise
            return Checkpoint(loaded.entry)  # loading it says what is damaged; the watch goes on

    def _unnumbered(
        self, tenant: str, thread_id: str, kind: EventKind, at: WatchPosition
    ) -> Delivery:
        """Return an event that takes no number: `PROGRESS`, or `CERTIFIED` with the watermark."""
        seq = at.certified_seq if kind is EventKind.CERTIFIED else at.seq
        nothing = CheckpointKey(thread_id, "", "")
        event = Event(kind, seq, at.incarnation, nothing, 0, self._clock_us())
        return Delivery(event, self._cursor(tenant, thread_id, at))

    def _compacted(self, tenant: str, thread_id: str, kept: ThreadRow) -> Refusal:
        oldest = WatchPosition(kept.incarnation, kept.compacted_seq, kept.compacted_seq)
        cursor = self._cursor(tenant, thread_id, oldest)
        return Refusal(
            Reason.CURSOR_COMPACTED,
            thread_id=thread_id,
            oldest_cursor=base64.b64encode(cursor).decode(),
        )
