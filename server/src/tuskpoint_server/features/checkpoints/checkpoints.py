"""Calls on checkpoints: save, load, list, label; replay and watch a thread."""

from __future__ import annotations

import asyncio
import base64
import logging
import time
from collections.abc import AsyncGenerator, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from functools import partial
from itertools import compress
from typing import NamedTuple

from ...archive.archive import Archive
from ...core.errors import Reason, Refusal, checkpoint_not_found, invalid_field
from ...core.json_view.differences import Diff, Side, diff
from ...core.limits import LIMITS
from ...core.model import (
    Checkpoint,
    CheckpointKey,
    CheckpointQuery,
    DeltaHistory,
    Durability,
    Saved,
    Source,
    View,
)
from ...core.state import RawCheckpoint
from ...core.threads import Event, EventKind
from ...journal.database.thread_rows import StoredWrite, ThreadRow
from ..call_memory import Holder
from ..history.changes import Events, EventsCompacted
from ..positions import seal, unseal
from .checkpoint_rows import CheckpointRows
from .completing import Completer, apart, content_bytes, history_bytes
from .incoming import IncomingCheckpoint

_LOG_SECONDS = 60.0  # between two lines about saves of a tenant that sort below the latest
_log = logging.getLogger(__name__)

EVENTS_AT_ONCE = 256  # most events that a watch takes from the journal at once


@dataclass(frozen=True, slots=True)
class Checkpoints:
    """Checkpoints of all tenants.

    A save is a plain call that enqueues a change, or raises a `Refusal`; its future is resolved
    once the change is journaled. Changes of a thread take effect in the order of the calls.
    Cancelling the future withdraws a change that the journal has not begun with; otherwise the
    change goes on. `reach` waits until it has the durability asked for.
    """

    _journal: CheckpointRows
    _archive: Archive
    completer: Completer
    _logged: dict[str, float] = field(default_factory=dict)  # tenant to a time

    def save(self, tenant: str, sent: IncomingCheckpoint) -> asyncio.Future[Saved]:
        """Journal a checkpoint."""
        self._archive.backlog(tenant).admit()
        return self._journal.save_checkpoint(tenant, sent)

    def save_writes(
        self, tenant: str, key: CheckpointKey, writes: Sequence[StoredWrite], wanted: Durability
    ) -> asyncio.Future[Saved]:
        """Journal pending writes; those of no checkpoint are refused if they cannot be `wanted`."""
        self._archive.backlog(tenant).admit()
        early = wanted is not Durability.CERTIFIED
        return self._journal.save_writes(tenant, key, writes, early=early)

    def set_label(self, tenant: str, key: CheckpointKey, label: str) -> asyncio.Future[Saved]:
        """Journal the label of a checkpoint; an empty ID means the latest."""
        return self._journal.set_label(tenant, key, label)

    def warns(self, tenant: str) -> bool:
        """Return whether the backlog is so large that answers to saves carry a warning."""
        return self._archive.backlog(tenant).warning()

    def log_below_latest(self, tenant: str, saved: Saved) -> None:
        """Log that a new checkpoint is not the latest because of its ID; once a minute."""
        now = time.monotonic()
        if now - self._logged.get(tenant, -_LOG_SECONDS) >= _LOG_SECONDS:
            self._logged[tenant] = now
            _log.warning(
                "checkpoint %r of thread %r in namespace %r of tenant %r was saved below the "
                "latest, %r: the clock of its client is behind, or a program chose the ID",
                saved.key.checkpoint_id,
                saved.key.thread_id,
                saved.key.checkpoint_ns,
                tenant,
                saved.latest,
            )

    async def reach(self, tenant: str, saved: Saved, wanted: Durability) -> str:
        """Wait until a journaled change has the durability asked for.

        Returns:
            The blob of a catalog that leads to it; empty unless it is certified.
        """
        if wanted is Durability.JOURNALED:
            return ""
        return (await self._archive.certify(tenant, saved.key, saved.seq)).blob_id

    def glance(
        self, tenant: str, asked: Sequence[tuple[CheckpointKey, View, Source]]
    ) -> list[RawCheckpoint | None]:
        """Return checkpoints, all of one moment; `None` where `load` has to be called.

        This is for small ones whose values are all in the journal: a task costs more than they.
        """
        plain = [_is_plain(view, source) for _, view, source in asked]
        found = iter(self._journal.glance(tenant, [one[0] for one in compress(asked, plain)]))
        return [next(found) if is_plain else None for is_plain in plain]

    async def stored(
        self, tenant: str, key: CheckpointKey, view: View, source: Source
    ) -> RawCheckpoint | None:
        """Return a checkpoint as `glance` does, where the database is not at hand."""
        return await self._journal.stored(tenant, key) if _is_plain(view, source) else None

    async def load(
        self, tenant: str, key: CheckpointKey, view: View, source: Source, holder: Holder
    ) -> Checkpoint:
        """Return a checkpoint, which the holder holds; an empty ID means the latest."""
        if view is View.ENTRY:
            return await self._load(tenant, key, view, source)
        return await holder.whole(partial(self._load, tenant, key, view, source), content_bytes)

    async def _load(
        self, tenant: str, key: CheckpointKey, view: View, source: Source
    ) -> Checkpoint:
        stored = View.ENTRY if source is Source.BLOB else view
        loaded = await self._journal.load(tenant, key, stored)
        if loaded is None:
            raise checkpoint_not_found(key.thread_id, key.checkpoint_ns, key.checkpoint_id)
        if source is Source.BLOB:
            return await self.completer.from_blob(tenant, loaded.entry, view)
        whole = await self.completer.checkpoint(tenant, loaded)
        return await self.completer.shown(tenant, whole, view)

    async def delta_history(
        self, tenant: str, key: CheckpointKey, channels: Sequence[str], holder: Holder
    ) -> tuple[DeltaHistory, ...]:
        """Return the history of each of these channels, in the order asked; the holder holds it."""

        async def load() -> tuple[DeltaHistory, ...]:
            return await self.completer.delta_history(tenant, key, channels)

        return await holder.whole(load, history_bytes)

    async def diff(
        self,
        tenant: str,
        before: CheckpointKey,
        after: CheckpointKey,
        max_changes: int,
        holder: Holder,
    ) -> Diff:
        """Compare the states of two checkpoints; an empty ID means the latest."""
        first = await self._side(tenant, before, holder)
        second = await self._side(tenant, after, holder)
        most = min(max_changes or LIMITS.default_diff_changes, LIMITS.max_diff_changes)
        return await apart(diff, first, second, most)

    async def _side(self, tenant: str, key: CheckpointKey, holder: Holder) -> Side:
        loaded = await self.load(tenant, key, View.FULL, Source.ANY, holder)
        histories = await self.completer.rebuilding(tenant, loaded)
        channels = loaded.state.channels if loaded.state is not None else ()
        return Side(channels, {history.channel: history for history in histories})


def _is_plain(view: View, source: Source) -> bool:
    return view is View.FULL and source is Source.ANY


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
                of, *at = unseal(("watch", tenant, thread_id), carried, str, int, int, int)
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
        return seal(("watch", tenant, thread_id), (self._log.journal_id, *at)).encode()

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
