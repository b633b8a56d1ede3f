"""Tasks of search: one indexes the threads' logs, one embeds documents."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import KW_ONLY, dataclass, field, replace
from typing import NamedTuple

from ..core.errors import Reason, Refusal
from ..core.limits import LIMITS
from ..core.pacing import pause
from ..journal.database.database import Waiter
from .change_feed import IndexBacklog, Stretch
from .embedders import Embedder, EmbedderError
from .finding import OwedVectors
from .index import IndexRows, UnembeddedDocument
from .pacing import IndexSettings, IndexTrouble, Pause
from .searchable import body_of
from .searched_values import Document
from .telemetry import SearchInstruments

BATCH = 64  # changes indexed in one transaction: few, because a save that arrives meanwhile waits
HURRIED_BATCH = 256  # batch size while a search waits: fewer transactions take less time in all
PATIENCE = 3  # refusals in a row after which a single checkpoint, not the journal, may be the cause
FOLLOW_S = 0.25  # seconds between two checks of what another server has indexed
COUNT_S = 10.0  # seconds between two counts of a long backlog
QUERY_S = 10.0  # deadline of a query's embedding
# pause after an unanswered query, during which searches do not wait for the embedder
QUERY_PAUSE_S = 30.0
AWAITED = 256  # most owed vectors that a search waits for; more would take too long
# longest pause after an embedder refused a text; the pause doubles with every refusal
REFUSED_RETRY_S = 3600.0
# texts that an embedder may refuse while it embeds others; more count as a failure of the embedder
MAX_REFUSED = 10_000
LOGGED_REFUSAL = 3  # fewer refusals of a text may be caused by the end of an outage
PROBE = "probe"  # embedded to find out whether a failure is caused by the embedder or by a text
_log = logging.getLogger(__name__)


@dataclass(eq=False)
class IndexTask:
    """Keeps the index up to date until `stop`, while saves come first.

    Changes are indexed oldest first, in small batches. While nobody searches, the task works for
    only a share of the time. `backlog` counts the unindexed checkpoints by tenant. While another
    server is the leader of a shared journal, this task follows that server's progress.
    """

    _rows: IndexRows
    _listen: Callable[[], AbstractContextManager[Waiter]]
    _settings: IndexSettings
    _: KW_ONLY
    remember: bool  # whether to record the summaries that MemWal must get
    stored: Callable[[], None]  # called after documents were stored
    instruments: SearchInstruments = field(default_factory=SearchInstruments)
    keeps: Callable[[], bool] = lambda: True  # whether this server is the leader
    clock: Callable[[], float] = time.monotonic
    wait: Pause = pause

    def __post_init__(self) -> None:
        """Start with the changes that are due."""
        self.trouble = IndexTrouble(self._settings, _log, "indexing")
        self.backlog: dict[str, IndexBacklog] = {}
        self._logged_of_body = ""
        self._searches = 0
        self._batch_ended = asyncio.Condition()
        self._passed: dict[int, int] = {}
        self._hurried = asyncio.Event()
        self._stopping = asyncio.Event()
        self._changes: Waiter | None = None
        self._count_at = -math.inf
        self._task = asyncio.create_task(self._run(), name="search-index")

    async def stop(self) -> None:
        """Finish the current batch; the rest is due at the next start."""
        self._stopping.set()
        self._hurry()
        await asyncio.wait({self._task})
        await self._wake_searches()

    async def catch_up(self, tenant: str) -> int:
        """Wait a short time until the index has all changes so far; return how many it lacks."""
        self._searches += 1
        try:
            seqs = await self._rows.now(tenant)
            if seqs and not self.keeps():
                await self._follow(seqs)

            def came() -> bool:
                return all(
                    self._passed.get(thread, -1) >= seq or self._rows.is_damaged(thread, seq)
                    for thread, seq in seqs.items()
                )

            if not came():
                self._hurry()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._settings.catch_up_s), self._batch_ended:
                        await self._batch_ended.wait_for(lambda: came() or not self._is_working)
            if came():
                return 0
        finally:
            self._searches -= 1
            if not self._searches:
                self._passed.clear()
        return sum(
            entry.checkpoints for entry in await self._rows.backlog() if entry.tenant == tenant
        )

    async def _follow(self, seqs: Mapping[int, int]) -> None:
        """Wait a short time for the changes that another server indexes."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.catch_up_s):
                while not await self._rows.reached(seqs):
                    await self.wait(FOLLOW_S, self._stopping)
                self._passed.update(seqs)

    @property
    def _is_working(self) -> bool:
        return self.keeps() and not self._stopping.is_set() and not self.trouble.failures

    def _hurry(self) -> None:
        self._hurried.set()
        if self._changes is not None:
            self._changes.wake()

    async def _wake_searches(self) -> None:
        """Let waiting searches check the progress of the index."""
        async with self._batch_ended:
            self._batch_ended.notify_all()

    async def _run(self) -> None:
        with self._listen() as changes:
            self._changes = changes
            while not self._stopping.is_set():
                began = self.clock()
                try:
                    has_more = await self._round()
                except Exception as error:  # noqa: BLE001 - a defect must not end the task; it is logged and retried
                    await self._failed(error)
                    continue
                if has_more:
                    resting = 1 / self._settings.busy_share - 1
                    await self.wait((self.clock() - began) * resting, self._hurried)
                elif await changes.wait(self._settings.longest_retry_s):
                    await self.wait(self._settings.gather_s, self._hurried)

    async def _round(self) -> bool:
        if not self._searches:
            self._hurried.clear()
        if not self.keeps():
            self._rows.forget()
            await self._count(complete=True)
            return False
        stretch = await self._rows.take(HURRIED_BATCH if self._searches else BATCH)
        if stretch.advances:
            documents = await asyncio.to_thread(lambda: list(map(self._document, stretch.due)))
            stored = await self._store(stretch, documents)
            if stored:
                self.instruments.indexed.add(stored)
                self.stored()
        if self._searches:
            self._passed.update((advance.thread, advance.through) for advance in stretch.advances)
            await self._wake_searches()
        await self._count(complete=stretch.complete)
        self.trouble.succeeded()
        return not stretch.complete

    async def _failed(self, error: Exception) -> None:
        wait_s = self.trouble.met(error)
        self.instruments.failures.add(1, {"task": "index"})
        await self._wake_searches()
        # Searches may request another attempt, but not one immediately after the other.
        first_s = min(wait_s, self._settings.first_retry_s)
        await self.wait(first_s, self._stopping)
        await self.wait(wait_s - first_s, self._hurried)

    async def _count(self, *, complete: bool) -> None:
        lacking: list[IndexBacklog] = []
        if not complete:
            if self.clock() < self._count_at:
                return
            lacking = await self._rows.backlog()
            self._count_at = self.clock() + COUNT_S
        # Tenants without a backlog are reported too.
        zeros = {tenant: IndexBacklog(tenant, 0, 0) for tenant in self.backlog}
        self.backlog = zeros | {entry.tenant: entry for entry in lacking}

    def _document(self, document: Document) -> Document:
        try:
            excluded, maximum = self._settings.excluded, LIMITS.max_search_text
            body = body_of(document.channels, excluded, maximum, document.label)
        except Exception as error:  # noqa: BLE001 - a state that defeats it is found by its summary
            problem = f"{type(error).__name__}: {error}"
            if problem != self._logged_of_body:
                self._logged_of_body = problem
                _log.exception(
                    "the state of checkpoint '%s' of thread '%s' cannot be made searchable; it is "
                    "indexed with its summary alone",
                    document.key.checkpoint_id,
                    document.key.thread_id,
                )
            return document._replace(truncated=True)
        # A plan is the whole text of its state: the rest of the state is left out anyway.
        truncated = (
            body.truncated or document.words_cut or (document.truncated and not body.planned)
        )
        return document._replace(body=body.text, planned=body.planned, truncated=truncated)

    async def _store(self, stretch: Stretch, documents: Sequence[Document]) -> int:
        """Store a batch; leave out documents that cannot be stored while others can."""
        try:
            return await self._rows.store(stretch, documents, remember=self.remember)
        except Exception as error:
            if isinstance(error, Refusal) and self.trouble.failures < PATIENCE:
                raise
        advances = tuple(replace(advance, through=advance.before) for advance in stretch.advances)
        alone = replace(stretch, advances=advances, walk=None)
        stored, failed = await self._store_each(alone, documents)
        # If the journal accepts none of the documents, no single document is the cause.
        if len(failed) == len(documents):
            raise failed[-1][1] if failed else RuntimeError("a batch without documents failed")
        # If the failures were temporary, the journal accepts the documents now; documents that it
        # refuses again are left out.
        while failed:
            await self.wait(self._settings.first_retry_s, self._stopping)
            waiting = [document for document, _ in failed]
            count, failed = await self._store_each(alone, waiting)
            stored += count
            if len(failed) == len(waiting):
                break
        await self._rows.store(stretch, (), remember=self.remember)
        for document, reason in failed:
            _log.error(
                "checkpoint '%s' of thread '%s' cannot be indexed; search does not find it until "
                "it is saved again",
                document.key.checkpoint_id,
                document.key.thread_id,
                exc_info=reason,
            )
        return stored

    async def _store_each(
        self, alone: Stretch, documents: Sequence[Document]
    ) -> tuple[int, list[tuple[Document, Exception]]]:
        """Store documents one by one; return the number of new ones, and failures with errors."""
        stored = 0
        failed: list[tuple[Document, Exception]] = []
        for document in documents:
            try:
                stored += await self._rows.store(alone, (document,), remember=self.remember)
            except Exception as error:  # noqa: BLE001 - the caller logs or raises it
                failed.append((document, error))
        return stored, failed


class _RefusedText(NamedTuple):
    """Number of refusals of a text, and the time of the next attempt."""

    times: int
    due: float


@dataclass(eq=False)
class EmbeddingTask:
    """Gives documents vectors until `stop`, oldest first; `ready` when queries can be embedded.

    While another server is the leader of a shared journal, this task embeds only queries.
    """

    _rows: IndexRows
    _embedder: Embedder
    _settings: IndexSettings
    _: KW_ONLY
    instruments: SearchInstruments = field(default_factory=SearchInstruments)
    keeps: Callable[[], bool] = lambda: True  # whether this server is the leader
    clock: Callable[[], float] = time.monotonic
    wait: Pause = pause

    def __post_init__(self) -> None:
        """Start with the documents that have no vector yet."""
        self._queries_from = self.clock()
        self.trouble = IndexTrouble(self._settings, _log, "embedding")
        self._more, self._embedded = asyncio.Event(), asyncio.Event()
        self._answered = asyncio.Event()  # set when a query was answered after a failure
        # documents for which a search waited in vain, by tenant; see `arrive`
        self._late: dict[str, frozenset[int]] = {}
        self._refused: dict[
            tuple[int, int], _RefusedText
        ] = {}  # refused texts by number and `seq` of the document
        self.ready = self._adopted = False
        self._task = asyncio.create_task(self._run(), name="search-embedding")

    async def stop(self) -> None:
        """Stop; the rest is embedded after the next start."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    def wake(self) -> None:
        """Note that documents were stored."""
        self._more.set()

    async def query(self, text: str) -> bytes:
        """Return the vector of a query, or raise `EmbedderError`, within `QUERY_S`."""
        if not self.ready:
            raise EmbedderError(self.trouble.problem or "it has not answered yet")
        left_s = self._queries_from - self.clock()
        if left_s > 0:
            raise EmbedderError("it is suspended after a query without an answer", left_s)
        try:
            async with asyncio.timeout(QUERY_S):
                [vector] = await self._embedder.embed([text])
        except TimeoutError:
            self._queries_from = self.clock() + QUERY_PAUSE_S
            raise EmbedderError(f"no answer within {QUERY_S:g} s", QUERY_PAUSE_S) from None
        self._answered.set()
        return vector

    async def arrive(self, tenant: str, look: Callable[[], Awaitable[OwedVectors]]) -> int:
        """Wait a short time for owed vectors; return the number of checkpoints still without one.

        A search does not wait for documents that an earlier search waited for in vain.
        """
        owed = await look()
        late = self._late.pop(tenant, frozenset()) & owed.numbers
        awaited = owed.numbers - late
        if not owed.more and len(awaited) <= AWAITED:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.catch_up_s):
                    while awaited & owed.numbers and self._is_working:
                        self._embedded.clear()
                        await self.wait(FOLLOW_S, self._embedded)
                        owed = await look()
            late |= awaited & owed.numbers
        if late:
            self._late[tenant] = late
        return owed.missed

    @property
    def _is_working(self) -> bool:
        return not self.trouble.failures or self._answered.is_set()

    async def settle(self, owed: Callable[[], Awaitable[bool]]) -> None:
        """Wait a short time while vectors that a caller looks for are `owed`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._settings.catch_up_s):
                while self._is_working and await owed():
                    self._embedded.clear()
                    await self.wait(FOLLOW_S, self._embedded)

    async def _run(self) -> None:
        while True:
            self._more.clear()
            try:
                has_more = await self._batch()
            except Exception as error:  # noqa: BLE001 - a defect must not end the task; it is logged and retried
                await self._failed(error)
                continue
            self.trouble.succeeded()
            if not has_more:
                dues = [entry.due - self.clock() for entry in self._refused.values()]
                wait_s = min([self._settings.longest_retry_s, *dues])
                await self.wait(max(wait_s, 0.0), self._more)

    async def _failed(self, error: Exception) -> None:
        self._answered.clear()
        wait_s = self.trouble.met(error)
        self.instruments.failures.add(1, {"task": "embed"})
        named_s = error.retry_after_s if isinstance(error, EmbedderError) else None
        # An answered query shows that an outage is over, unless the embedder named its end.
        first_s = min(wait_s, self._settings.first_retry_s) if named_s is None else named_s
        await self.wait(first_s, asyncio.Event())
        if wait_s > first_s:
            await self.wait(wait_s - first_s, self._answered)

    async def _batch(self) -> bool:
        """Embed some documents; return whether there were any."""
        name = self._embedder.name
        if not self.ready or (self.keeps() and not self._adopted):
            dimension = await self._embedder.dimension()
            if self.keeps():
                await self._adopt(name, dimension)
            self.ready = True
        if not self.keeps():
            self._refused.clear()
            return False
        now = self.clock()
        resting = {place: entry for place, entry in self._refused.items() if entry.due > now}
        texts = await self._rows.unembedded(self._embedder.batch, resting)
        if not texts:
            self._refused = resting  # the other documents were removed, or have another text
            return False
        vectors = await self._embed(texts)
        for text, _ in vectors:
            self._refused.pop(text.place, None)
        try:
            await self._rows.embed(name, vectors)
        except Refusal as refusal:
            if refusal.reason is Reason.INVALID_FIELD:
                # A caller's vector of another dimension came first; it excludes the embedder's
                # vectors.
                self.ready = self._adopted = False
            raise
        self.instruments.embedded.add(len(vectors))
        self._embedded.set()
        return True

    async def _adopt(self, name: str, dimension: int) -> None:
        if dropped := await self._rows.adopt_embedder(name, dimension):
            _log.info(
                "%d vectors do not fit embedder %s and were dropped; their text is embedded again",
                dropped,
                name,
            )
        self._adopted = True

    async def _embed(
        self, texts: Sequence[UnembeddedDocument]
    ) -> list[tuple[UnembeddedDocument, bytes]]:
        """Return vectors of the texts that the embedder accepts; retry the others later.

        If the embedder also fails for a probe, or names a time for a retry, its error is raised.
        """
        try:
            vectors = await self._embedder.embed([text.text for text in texts])
            return list(zip(texts, vectors, strict=True))
        except Exception as error:
            if isinstance(error, EmbedderError) and error.retry_after_s is not None:
                raise
            await self._embedder.embed([PROBE])
            if len(texts) == 1:
                self._refuse(texts[0], error)
                return []
        half = len(texts) // 2
        return await self._embed(texts[:half]) + await self._embed(texts[half:])

    def _refuse(self, text: UnembeddedDocument, error: Exception) -> None:
        """Note a text that the embedder refused alone; raise the error if there are too many.

        The outage may have ended between the text and the probe, so the text is tried again, at
        growing intervals. Until the text has a vector, searches count its checkpoint as not
        indexed.
        """
        if len(self._refused) >= MAX_REFUSED and text.place not in self._refused:
            raise error
        times = self._refused.get(text.place, _RefusedText(0, 0.0)).times + 1
        # The exponent is bounded because floats are: long before, the pause has reached its bound.
        pause_s = min(self._settings.first_retry_s * 2.0 ** min(times - 1, 64), REFUSED_RETRY_S)
        self._refused[text.place] = _RefusedText(times, self.clock() + pause_s)
        self.instruments.failures.add(1, {"task": "embed"})
        if times == LOGGED_REFUSAL:
            _log.warning(
                "the embedder refuses the text of document %d; search by meaning does not find "
                "its checkpoint until the embedder accepts it: %s",
                text.number,
                error,
                exc_info=None if isinstance(error, EmbedderError) else error,
            )
