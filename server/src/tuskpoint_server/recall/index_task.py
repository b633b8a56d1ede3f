"""The one task that has the search index follow the threads' logs."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace

from ..domain.errors import Refusal
from ..domain.limits import LIMITS
from ..domain.searchable import body_of
from ..journal.database.database import Waiter
from ..journal.search.documents import Document
from ..journal.search.following import Backlog, Stretch
from ..journal.search.index import IndexRows
from ..journal.search.searched_values import Due
from .pacing import Pause, Trouble, pause, rest_after
from .settings import IndexSettings
from .telemetry import Instruments

BATCH = 64  # changes indexed in one transaction: few, because a save that comes meanwhile waits
HURRIED_BATCH = 256  # the same while a search waits: fewer transactions take less time in all
PATIENCE = 3  # refusals in a row after which one checkpoint may be the reason, not the journal
COUNT_S = 10.0  # seconds between two counts of a long backlog
_log = logging.getLogger(__name__)


class _Search:
    """A search that waits until the index has come as far as the logs were at the call.

    Attributes:
        ended: It waits no longer.
        came: The index has come as far.
    """

    def __init__(self) -> None:
        self.ended = asyncio.Event()
        self.came = False
        self._wanted: dict[int, int] | None = None
        self._passed: dict[int, int] = {}

    def want(self, wanted: dict[int, int]) -> None:
        """Say how far which threads have to come; batches may have ended since the call."""
        self._wanted = wanted
        self._look()

    def advance(self, stretch: Stretch) -> None:
        """Note how far a stored batch brought the threads."""
        self._passed.update((one.thread, one.through) for one in stretch.advances)
        self._look()

    def _look(self) -> None:
        if self._wanted is not None and all(
            self._passed.get(thread, -1) >= seq for thread, seq in self._wanted.items()
        ):
            self.came = True
            self.ended.set()


class IndexTask:
    """Keeps the index up to date, while saves come first.

    Changes are taken oldest first, in small batches. While nobody searches, it is busy for a
    share of the time only; a search is not kept waiting for that.

    Attributes:
        trouble: What goes wrong; a search does not wait while there is any.
        backlog: By tenant what is not indexed, as far as it was counted.
    """

    def __init__(
        self,
        rows: IndexRows,
        listen: Callable[[], AbstractContextManager[Waiter]],
        settings: IndexSettings,
        *,
        remember: bool,  # also note the summaries that MemWal has to have
        stored: Callable[[], None],  # called after documents were stored
        instruments: Instruments | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Pause = pause,
    ) -> None:
        self._rows = rows
        self._listen = listen
        self._settings = settings
        self._remember = remember
        self._stored = stored
        self._instruments = instruments or Instruments()
        self._clock = clock
        self._wait = wait
        self.trouble = Trouble(
            settings.first_retry_s,
            settings.longest_retry_s,
            log=_log,
            waits="indexing waits",
            failed="indexing failed",
        )
        self.backlog: dict[str, Backlog] = {}
        self._logged_of_body = ""
        self._searches: set[_Search] = set()
        self._hurried = asyncio.Event()
        self._stopping = asyncio.Event()
        self._changes: Waiter | None = None
        self._counted_at: float | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to index, with what is due already."""
        self._task = asyncio.create_task(self._run(), name="search-index")

    async def stop(self) -> None:
        """Finish the batch under way; what is left is due at the next start."""
        self._stopping.set()
        self._hurry()
        if self._task is not None:
            await asyncio.wait({self._task})
        self._end_waits()

    async def catch_up(self, tenant: str) -> int:
        """Wait until the index is where the tenant's logs are now, but not for long.

        Where indexing fails, this does not wait for it.

        Returns:
            How many checkpoints of the tenant are not indexed, if it is not there.

        Raises:
            Refusal: `JOURNAL_UNAVAILABLE`.
        """
        search = _Search()
        self._searches.add(search)
        try:
            search.want(await self._rows.now(tenant))
            if not search.came:
                self._hurry()
                stopped = self._task is None or self._stopping.is_set()
                if not stopped and not self.trouble.failures:
                    await pause(self._settings.catch_up_s, search.ended)
        finally:
            self._searches.discard(search)
        if search.came:
            return 0
        return sum(one.checkpoints for one in await self._rows.backlog() if one.tenant == tenant)

    def _hurry(self) -> None:
        """End pauses."""
        self._hurried.set()
        if self._changes is not None:
            self._changes.wake()

    def _end_waits(self) -> None:
        for search in self._searches:
            search.ended.set()

    # --- the loop ----------------------------------------------------------------------

    async def _run(self) -> None:
        with self._listen() as changes:
            self._changes = changes
            while not self._stopping.is_set():
                began = self._clock()
                try:
                    more = await self._round()
                except Exception as error:  # noqa: BLE001 - a defect must not end the task; it is logged and retried
                    await self._failed(error)
                    continue
                if more:
                    rest = rest_after(self._clock() - began, self._settings.busy_share)
                    await self._wait(rest, self._hurried)
                elif await changes.wait(self._settings.longest_retry_s):
                    await self._wait(self._settings.gather_s, self._hurried)

    async def _round(self) -> bool:
        """Index a batch; tell whether there is more."""
        if not self._searches:
            self._hurried.clear()
        stretch = await self._rows.take(HURRIED_BATCH if self._searches else BATCH)
        if stretch.advances:
            documents = await asyncio.to_thread(lambda: list(map(self._document, stretch.due)))
            stored = await self._store(stretch, documents)
            if stored:
                self._instruments.indexed.add(stored)
                self._stored()
        for search in self._searches:
            search.advance(stretch)
        await self._count(complete=stretch.complete)
        self.trouble.succeeded()
        return not stretch.complete

    async def _failed(self, error: Exception) -> None:
        """Report a failure, let searches go on without, and wait before the next attempt."""
        wait_s = self.trouble.met(error)
        self._instruments.failures.add(1, {"task": "index"})
        self._end_waits()
        # Searches ask for another attempt, but not for one after the other.
        first_s = min(wait_s, self._settings.first_retry_s)
        await self._wait(first_s, self._stopping)
        await self._wait(wait_s - first_s, self._hurried)

    async def _count(self, *, complete: bool) -> None:
        """Note how much is not indexed; a long backlog is counted from time to time."""
        now = self._clock()
        if not complete and self._counted_at is not None and now < self._counted_at + COUNT_S:
            return
        lacking = [] if complete else await self._rows.backlog()
        # Tenants that lack nothing any more are told of, too.
        nothing = {tenant: Backlog(tenant, 0, 0) for tenant in self.backlog}
        self.backlog = nothing | {one.tenant: one for one in lacking}
        if not complete:
            self._counted_at = now

    # --- one batch ---------------------------------------------------------------------

    def _document(self, due: Due) -> Document:
        """Build a document; in a thread."""
        try:
            body = body_of(due.channels, self._settings.excluded, LIMITS.max_search_text)
        except Exception as error:  # noqa: BLE001 - a state that defeats it is found by its summary
            seen = f"{type(error).__name__}: {error}"
            if seen != self._logged_of_body:
                self._logged_of_body = seen
                _log.exception(
                    "the state of checkpoint '%s' of thread '%s' cannot be made searchable; it is "
                    "indexed with its summary alone",
                    due.key.checkpoint_id,
                    due.key.thread_id,
                )
            return Document(due, truncated=True)
        # A plan is the whole text of its state: what else is there is left out anyway.
        truncated = body.truncated or (due.truncated and not body.planned)
        return Document(due, body.text, body.planned, truncated)

    async def _store(self, stretch: Stretch, documents: Sequence[Document]) -> int:
        """Store a batch, without those documents that cannot be stored while others can.

        Raises:
            Exception: None could be stored; the last reason.
        """
        try:
            return await self._rows.store(stretch, documents, remember=self._remember)
        except Exception as error:
            if isinstance(error, Refusal) and self.trouble.failures < PATIENCE:
                raise
        standing = tuple(replace(one, through=one.before, walk=None) for one in stretch.advances)
        alone = replace(stretch, advances=standing)
        stored = 0
        failed: list[tuple[Document, Exception]] = []
        for document in documents:
            try:
                stored += await self._rows.store(alone, (document,), remember=self._remember)
            except Exception as error:  # noqa: BLE001 - it is logged, and raised if all fail
                failed.append((document, error))
        # If the journal takes none of them, that says nothing about one.
        if len(failed) == len(documents):
            raise failed[-1][1] if failed else RuntimeError("a batch without documents failed")
        await self._rows.store(stretch, (), remember=self._remember)
        for document, reason in failed:
            _log.error(
                "checkpoint '%s' of thread '%s' cannot be indexed; search does not find it until "
                "it is saved again",
                document.due.key.checkpoint_id,
                document.due.key.thread_id,
                exc_info=reason,
            )
        return stored
