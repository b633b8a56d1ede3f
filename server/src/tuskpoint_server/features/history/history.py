"""Replays of a thread's checkpoints in order, and watches of its changes."""

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
from .changes import Events, EventsCompactedError

EVENTS_AT_ONCE = 256  # most events that a watch reads from the journal at once


@dataclass(frozen=True, slots=True)
class Delivery:
    """An event for a watcher."""

    event: Event
    cursor: bytes  # position after the event, to resume from
    # the event's checkpoint in its current state; `None` if the event has none, or it was deleted
    checkpoint: Checkpoint | None = None


class WatchPosition(NamedTuple):
    """Position of a watch: after this number of the thread's sequence."""

    incarnation: int  # of the thread then
    seq: int
    certified_seq: int  # last delivered watermark of certification


@dataclass(frozen=True, slots=True)
class History:
    """Replays and watches of the threads of all tenants."""

    _journal: CheckpointRows
    _log: Events
    _completer: Completer
    _clock_us: Callable[[], int]

    async def replay(
        self, tenant: str, query: CheckpointQuery, view: View, source: Source
    ) -> AsyncGenerator[Checkpoint, None]:
        """Yield the checkpoints of a thread, least (ID, namespace) first."""
        thread_id = query.thread_id or ""
        thread = await self._log.kept(tenant, thread_id)
        if thread is None or thread.deleted:
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        async with aclosing(self._completer.listed(tenant, query, view, source)) as checkpoints:
            async for loaded in checkpoints:
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

        Without a cursor the watch starts at the beginning of the thread, or `from_now` with a
        progress event.

        Events are read from the journal on demand, so a slow watcher holds none in memory; if the
        journal drops the next events, the watch ends with `CURSOR_COMPACTED`.
        """
        wanted_kinds = frozenset(kinds) or frozenset(EventKind)
        # Subscribe before the first read, so that no change is missed between read and wait.
        with self._log.subscribe(tenant, thread_id) as waiter:
            position = await self._begin(tenant, thread_id, cursor, from_now=from_now)
            clock = asyncio.get_running_loop().time
            heard = clock()
            if from_now and not cursor:
                yield self._unnumbered(tenant, thread_id, EventKind.PROGRESS, position)
            while True:
                try:
                    news = await self._log.after(tenant, thread_id, position.seq, EVENTS_AT_ONCE)
                except EventsCompactedError as error:
                    raise self._compacted(tenant, thread_id, error.kept) from None
                for event in news.events:
                    position = position._replace(incarnation=event.incarnation, seq=event.seq)
                    if event.kind in wanted_kinds:
                        held_bytes = holder.held_bytes
                        yield await self._delivery(tenant, event, position, view, holder)
                        holder.give(holder.held_bytes - held_bytes)
                        heard = clock()
                if position.certified_seq < news.certified_seq <= position.seq:
                    position = position._replace(certified_seq=news.certified_seq)
                    if EventKind.CERTIFIED in wanted_kinds:
                        yield self._unnumbered(tenant, thread_id, EventKind.CERTIFIED, position)
                        heard = clock()
                if clock() >= heard + progress_s:
                    yield self._unnumbered(tenant, thread_id, EventKind.PROGRESS, position)
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
                journal_id, *numbers = decode_cursor(
                    ("watch", tenant, thread_id), carried, str, int, int, int
                )
            except Refusal:
                problem = "must be the cursor of an event of this thread"
                raise invalid_field("cursor", problem) from None
            position = WatchPosition(*numbers) if journal_id == self._log.journal_id else None
        thread = await self._log.kept(tenant, thread_id)
        if thread is None or (thread.deleted and not cursor):
            raise Refusal(Reason.THREAD_NOT_FOUND, thread_id=thread_id)
        if not cursor and from_now:
            return WatchPosition(thread.incarnation, thread.seq, thread.certified_seq)
        if not cursor:
            position = WatchPosition(thread.incarnation, thread.begun_seq, thread.begun_seq)
        if position is None or position.seq < thread.compacted_seq:
            raise self._compacted(tenant, thread_id, thread)
        if position.seq > thread.seq:
            raise invalid_field("cursor", "must not be ahead of the thread")
        return position

    def _cursor(self, tenant: str, thread_id: str, position: WatchPosition) -> bytes:
        return encode_cursor(
            ("watch", tenant, thread_id), (self._log.journal_id, *position)
        ).encode()

    async def _delivery(
        self, tenant: str, event: Event, position: WatchPosition, view: View, holder: Holder
    ) -> Delivery:
        cursor = self._cursor(tenant, event.key.thread_id, position)
        if event.kind is not EventKind.CHECKPOINT_SAVED and view.has_values:
            view = View.ENTRY
        load = partial(self._load, tenant, event, view)
        if not event.key.checkpoint_id:
            loaded = None
        elif view.has_values:
            loaded = await holder.whole(
                load, lambda checkpoint: content_bytes(checkpoint) if checkpoint else 0
            )
        else:
            loaded = await load()
        return Delivery(event, cursor, loaded)

    async def _load(self, tenant: str, event: Event, view: View) -> Checkpoint | None:
        """Return the checkpoint of an event, unless the checkpoint was deleted."""
        loaded = await self._journal.load(tenant, event.key, view)
        # A checkpoint of a later incarnation can have the same ID.
        if loaded is None or loaded.entry.incarnation != event.incarnation:
            return None
        try:
            checkpoint = await self._completer.checkpoint(tenant, loaded)
            return await self._completer.shown(tenant, checkpoint, view)
        except Refusal as refusal:
            if refusal.reason is not Reason.JOURNAL_DAMAGED:
                raise
            return Checkpoint(loaded.entry)  # a load reports the damage

    def _unnumbered(
        self, tenant: str, thread_id: str, kind: EventKind, position: WatchPosition
    ) -> Delivery:
        """Return an event without a number: `PROGRESS`, or `CERTIFIED` with the watermark."""
        seq = position.certified_seq if kind is EventKind.CERTIFIED else position.seq
        nothing = CheckpointKey(thread_id, "", "")
        event = Event(kind, seq, position.incarnation, nothing, 0, self._clock_us())
        return Delivery(event, self._cursor(tenant, thread_id, position))

    def _compacted(self, tenant: str, thread_id: str, thread: ThreadRow) -> Refusal:
        oldest = WatchPosition(thread.incarnation, thread.compacted_seq, thread.compacted_seq)
        cursor = self._cursor(tenant, thread_id, oldest)
        return Refusal(
            Reason.CURSOR_COMPACTED,
            thread_id=thread_id,
            oldest_cursor=base64.b64encode(cursor).decode(),
        )
