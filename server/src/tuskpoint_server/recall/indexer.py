"""The one task that turns what is due in the journal into the index."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from ..domain.errors import Refusal
from ..domain.limits import LIMITS
from ..domain.model import CheckpointKey
from ..domain.searchable import body_of
from ..journal.search_api import Document, Due, Indexing
from ..journal.waking import Waiter
from .pacing import Aside, Backoff, Pause, pause, rest_after, text_of
from .settings import IndexSettings
from .telemetry import BacklogReading, Instruments

BATCH = 8
"""Checkpoints indexed in one transaction: few, because a save that comes meanwhile waits."""

HURRIED_BATCH = 32
"""The same while a search waits: fewer transactions take less time in all."""

PATIENCE = 3
"""Refusals in a row after which one checkpoint may be the reason, not the journal."""

COUNT_S = 10.0
"""Seconds between two counts of a long backlog."""

_log = logging.getLogger(__name__)

_AsideKey = tuple[str, CheckpointKey, bytes]


class _Search:
    """A search that waits until what was journaled before a time is indexed."""

    def __init__(self, before_us: int) -> None:
        self.before_us = before_us
        self.answered = asyncio.Event()


class Indexer:
    """Keeps the index up to date, while saves come first.

    What is due is taken oldest first, in small batches. While nobody searches, it is busy
    for a share of the time only; a search is not kept waiting for that.

    Args:
        rows: The index.
        listen: Wakes whoever is in the context after each commit that changed a thread.
        settings: Settings.
        remember: Also note the summaries that MemWal is to be told.
        stored: Called after documents were stored.
        clock_us: Microseconds since the Unix epoch; the journal's.
        instruments: What is measured.
        clock: Seconds of a monotonic clock.
        wait: Waits for seconds, but not longer than until an event.
    """

    def __init__(
        self,
        rows: Indexing,
        listen: Callable[[], AbstractContextManager[Waiter]],
        settings: IndexSettings,
        *,
        remember: bool,
        stored: Callable[[], None],
        clock_us: Callable[[], int],
        instruments: Instruments | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Pause = pause,
    ) -> None:
        self._rows = rows
        self._listen = listen
        self._settings = settings
        self._remember = remember
        self._stored = stored
        self._clock_us = clock_us
        self._instruments = instruments or Instruments()
        self._clock = clock
        self._wait = wait
        self._backoff = Backoff(settings.first_retry_s, settings.longest_retry_s)
        self._aside: Aside[_AsideKey] = Aside(settings.longest_retry_s, clock)
        self._problem = ""
        self._told = ""
        self._told_of_body = ""
        self._searches: set[_Search] = set()
        self._hurried = asyncio.Event()
        self._stopping = asyncio.Event()
        self._changes: Waiter | None = None
        self._backlog: dict[str, tuple[int, int]] = {}
        self._counted_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to index, with what is due already."""
        self._task = asyncio.create_task(self._run(), name="search-indexer")

    async def stop(self) -> None:
        """Finish the batch under way; what is left is due at the next start."""
        self._stopping.set()
        self._hurry()
        if self._task is not None:
            await asyncio.wait({self._task})
        self._answer(self._searches)

    @property
    def last_error(self) -> str:
        """What went wrong last, or still does, for people; empty since the last success."""
        if self._problem or not len(self._aside):
            return self._problem
        return f"{len(self._aside)} checkpoints cannot be indexed: {self._aside.problem}"

    def backlog(self) -> list[BacklogReading]:
        """Return what is not indexed, as far as it was counted; from any thread."""
        now_us = self._clock_us()
        return [
            BacklogReading(tenant, count, max(0.0, (now_us - oldest_us) / 1e6) if count else 0.0)
            for tenant, (count, oldest_us) in list(self._backlog.items())
        ]

    async def catch_up(self, tenant: str) -> int:
        """Wait until what is journaled by now is indexed, but not for long.

        Where indexing fails, this does not wait for it.

        Returns:
            How many checkpoints of the tenant are not indexed.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        left, before_us = await self._rows.due_now(tenant)
        if not left:
            return 0
        if self._backoff.failures or self._task is None or self._stopping.is_set():
            self._hurry()
            return left
        search = _Search(before_us)
        self._searches.add(search)
        self._hurry()
        try:
            await pause(self._settings.catch_up_s, search.answered)
        finally:
            self._searches.discard(search)
        return await self._rows.due_before(tenant, before_us)

    def _hurry(self) -> None:
        """End pauses."""
        self._hurried.set()
        if self._changes is not None:
            self._changes.wake()

    @staticmethod
    def _answer(searches: Sequence[_Search] | set[_Search]) -> None:
        for search in searches:
            search.answered.set()

    # --- the loop ----------------------------------------------------------------------

    async def _run(self) -> None:
        with self._listen() as changes:
            self._changes = changes
            while not self._stopping.is_set():
                began = self._clock()
                try:
                    more = await self._round()
                except Exception as error:  # noqa: BLE001 - a defect must not end the task; it is told and retried
                    await self._failed(error)
                    continue
                if more:
                    rest = rest_after(self._clock() - began, self._settings.busy_share)
                    await self._wait(rest, self._hurried)
                elif await changes.wait(self._settings.longest_retry_s):
                    await self._wait(self._settings.gather_s, self._hurried)

    async def _round(self) -> bool:
        """Index a batch; tell whether there was one."""
        searches = list(self._searches)
        if not searches:
            self._hurried.clear()
        due = await self._take(HURRIED_BATCH if searches else BATCH)
        self._answer([s for s in searches if not due or due[0].since_us >= s.before_us])
        if due:
            documents = await asyncio.to_thread(self._documents, due)
            stored = await self._store(documents)
            if stored:
                self._instruments.indexed(stored)
                self._stored()
        self._backoff.succeeded()
        self._problem = self._told = ""
        return bool(due)

    async def _failed(self, error: Exception) -> None:
        """Tell of a failure, let searches go on without, and wait before the next attempt."""
        wait_s = self._backoff.failed()
        self._problem = text_of(error)
        self._instruments.index_failed()
        told = f"{type(error).__name__}: {error}"
        if told != self._told:
            self._told = told
            if isinstance(error, Refusal):
                _log.warning("indexing waits: %s", error)
            else:
                _log.error("indexing failed", exc_info=error)
        self._answer(self._searches)
        # Searches ask for another attempt, but not for one after the other.
        first_s = min(wait_s, self._settings.first_retry_s)
        await self._wait(first_s, self._stopping)
        await self._wait(wait_s - first_s, self._hurried)

    # --- one batch ---------------------------------------------------------------------

    async def _take(self, most: int) -> list[Due]:
        """Return what is to be indexed next, `most` at most; what is set aside is not."""
        limit = most + len(self._aside)
        due = await self._rows.due(limit)
        if len(due) < limit:
            self._aside.keep({_aside_key(one) for one in due})
        await self._count(due, complete=len(due) < limit)
        return [one for one in due if not self._aside.holds(_aside_key(one))][:most]

    async def _count(self, due: Sequence[Due], *, complete: bool) -> None:
        """Note how much is due; a long backlog is counted from time to time."""
        oldest = {one.tenant: one.since_us for one in reversed(due)}
        if complete:
            counts: dict[str, int] = dict(Counter(one.tenant for one in due))
        elif self._counted_at is not None and self._clock() < self._counted_at + COUNT_S:
            return
        else:
            counts = {tenant: (await self._rows.due_now(tenant))[0] for tenant in oldest}
            self._counted_at = self._clock()
        known = [*self._backlog, *(tenant for tenant in oldest if tenant not in self._backlog)]
        self._backlog = {tenant: (counts.get(tenant, 0), oldest.get(tenant, 0)) for tenant in known}

    def _documents(self, due: Sequence[Due]) -> list[Document]:
        """Build documents; in a thread."""
        return [self._document(one) for one in due]

    def _document(self, due: Due) -> Document:
        if not due.shown:
            return Document(due)
        try:
            body, planned, _ = body_of(
                due.channels, self._settings.excluded, LIMITS.max_search_text
            )
        except Exception as error:  # noqa: BLE001 - a state that defeats it is found by its summary
            told = f"{type(error).__name__}: {error}"
            if told != self._told_of_body:
                self._told_of_body = told
                _log.exception(
                    "the state of checkpoint '%s' of thread '%s' cannot be made searchable; it is "
                    "indexed with its summary alone",
                    due.key.checkpoint_id,
                    due.key.thread_id,
                )
            return Document(due)
        return Document(due, body, planned)

    async def _store(self, documents: Sequence[Document]) -> int:
        """Store documents; set aside those that fail while others do not.

        Raises:
            Exception: None could be stored; the last reason.
        """
        failed: list[tuple[Document, Exception]] = []
        stored = await self._store_parts(documents, failed)
        for document, error in failed:
            # If the journal takes none of them, that says nothing about one.
            if len(failed) < len(documents) or not isinstance(error, Refusal):
                self._set_aside(document, error)
        if failed and len(failed) == len(documents):
            raise failed[-1][1]
        return stored

    async def _store_parts(
        self, documents: Sequence[Document], failed: list[tuple[Document, Exception]]
    ) -> int:
        """Store documents, in halves if they cannot be stored together."""
        try:
            stored = await self._rows.store(documents, remember=self._remember)
        except Exception as error:
            if isinstance(error, Refusal) and self._backoff.failures < PATIENCE:
                raise
            if len(documents) == 1:
                failed.append((documents[0], error))
                return 0
        else:
            self._aside.release([_aside_key(document.due) for document in documents])
            return stored
        half = len(documents) // 2
        return await self._store_parts(documents[:half], failed) + await self._store_parts(
            documents[half:], failed
        )

    def _set_aside(self, document: Document, error: Exception) -> None:
        key = document.due.key
        if self._aside.put(_aside_key(document.due), text_of(error)):
            _log.error(
                "checkpoint '%s' of thread '%s' cannot be indexed and is set aside",
                key.checkpoint_id,
                key.thread_id,
                exc_info=error,
            )


def _aside_key(due: Due) -> _AsideKey:
    """Name a checkpoint with this content; another content is tried at once."""
    return due.tenant, due.key, due.content
