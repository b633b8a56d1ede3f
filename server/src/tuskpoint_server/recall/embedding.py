"""The one task that has documents embedded, and the embedding of queries."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from ..domain.errors import Reason, Refusal
from ..journal.search.index import IndexRows, Unembedded
from .embedders.api import Embedder, EmbedderError
from .pacing import Pause, Trouble, pause
from .settings import IndexSettings
from .telemetry import Instruments

QUERY_S = 10.0  # deadline of a query's embedding
# after a query that was not answered, searches do not wait for the embedder for so long
QUERY_PAUSE_S = 30.0
PROBE = "probe"  # embedded to find out whether a failure is due to the embedder or to a text
_log = logging.getLogger(__name__)


class Embedding:
    """Gives documents vectors, oldest first.

    Attributes:
        ready: The index holds vectors of this embedder, so that queries find some.
        trouble: What goes wrong.
    """

    def __init__(
        self,
        rows: IndexRows,
        embedder: Embedder,
        settings: IndexSettings,
        *,
        instruments: Instruments | None = None,
        clock: Callable[[], float] = time.monotonic,
        wait: Pause = pause,
    ) -> None:
        self._rows = rows
        self._embedder = embedder
        self._settings = settings
        self._instruments = instruments or Instruments()
        self._clock = clock
        self._wait = wait
        self._queries_from = clock()
        self.trouble = Trouble(settings, _log, "embedding")
        self._more = asyncio.Event()
        self._never = asyncio.Event()
        self.ready = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin, with what has no vector yet."""
        self._task = asyncio.create_task(self._run(), name="search-embedding")

    async def stop(self) -> None:
        """Stop; what is left is embedded after the next start."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def wake(self) -> None:
        """Say that documents were stored."""
        self._more.set()

    async def query(self, text: str) -> bytes:
        """Return the vector of a query.

        Raises:
            EmbedderError: It cannot be had, or not in time, or was not in time lately.
        """
        if not self.ready:
            raise EmbedderError(self.trouble.problem or "it has not answered yet")
        left_s = self._queries_from - self._clock()
        if left_s > 0:
            raise EmbedderError("it is left alone for a while: a query was not answered", left_s)
        try:
            async with asyncio.timeout(QUERY_S):
                [vector] = await self._embedder.embed([text])
        except TimeoutError:
            self._queries_from = self._clock() + QUERY_PAUSE_S
            raise EmbedderError(f"no answer within {QUERY_S:g} s", QUERY_PAUSE_S) from None
        return vector

    async def _run(self) -> None:
        while True:
            self._more.clear()
            try:
                if not self.ready:
                    await self._adopt()
                more = await self._batch()
            except Exception as error:  # noqa: BLE001 - a defect must not end the task; it is told and retried
                await self._failed(error)
                continue
            self.trouble.succeeded()
            if not more:
                await self._wait(self._settings.longest_retry_s, self._more)

    async def _adopt(self) -> None:
        """Have the index ready for vectors of this embedder."""
        dimension = await self._embedder.dimension()
        dropped = await self._rows.adopt_embedder(self._embedder.name, dimension)
        if dropped:
            _log.info(
                "%d vectors do not go with embedder %s and were dropped; their text is embedded "
                "again",
                dropped,
                self._embedder.name,
            )
        self.ready = True

    async def _batch(self) -> bool:
        """Embed some documents; tell whether there were any."""
        texts = await self._rows.unembedded(self._embedder.batch)
        if not texts:
            return False
        vectors = await self._embed(texts)
        if not vectors:
            return True
        try:
            await self._rows.embed(self._embedder.name, vectors)
        except Refusal as refusal:
            if refusal.reason is Reason.INVALID_FIELD:
                # A caller's vector of another dimension came first: it does not go with these.
                self.ready = False
            raise
        self._instruments.embedded.add(len(vectors))
        return True

    async def _embed(self, texts: Sequence[Unembedded]) -> list[tuple[Unembedded, bytes]]:
        """Return vectors of the texts that the embedder takes; give the others up.

        Raises:
            EmbedderError: It is the embedder that fails, not a text.
        """
        try:
            vectors = await self._embedder.embed([text.text for text in texts])
            return list(zip(texts, vectors, strict=True))
        except Exception as error:
            if isinstance(error, EmbedderError) and error.retry_after_s is not None:
                raise
            await self._embedder.embed([PROBE])
            if len(texts) == 1:
                await self._give_up(texts[0], error)
                return []
        half = len(texts) // 2
        return await self._embed(texts[:half]) + await self._embed(texts[half:])

    async def _give_up(self, text: Unembedded, error: Exception) -> None:
        self._instruments.failures.add(1, {"task": "embed"})
        await self._rows.give_up(text.number)
        _log.warning(
            "the embedder refuses the text of document %d, which has no vector until its "
            "checkpoint is saved again: %s",
            text.number,
            error,
            exc_info=None if isinstance(error, EmbedderError) else error,
        )

    async def _failed(self, error: Exception) -> None:
        """Tell of a failure, and wait before the next attempt."""
        wait_s = self.trouble.met(error)
        if isinstance(error, EmbedderError) and error.retry_after_s is not None:
            wait_s = max(wait_s, error.retry_after_s)
        self._instruments.failures.add(1, {"task": "embed"})
        await self._wait(wait_s, self._never)
