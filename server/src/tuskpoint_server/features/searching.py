"""Calls to search: the mode that answers a query, and its fallback."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass, replace

from ..core.errors import Reason, Refusal, Status, invalid_field
from ..core.search import SearchAnswer, SearchMode, SearchQuery, Words, analyse, vector_dimension
from ..search.embedders import EmbedderError
from ..search.memwal.api import RelayerError, RelayerTrouble
from ..search.search import SearchEngine

_LACKING = {
    SearchMode.VECTOR: "it has no embedder to make a vector of words: set --embedder, or search "
    "with a vector",
    SearchMode.MEMWAL: "it is not set up for MemWal: set MEMWAL_PRIVATE_KEY and MEMWAL_ACCOUNT_ID",
}

_log = logging.getLogger(__name__)

RETRY_S = 5.0  # seconds until a retry of a mode that failed without a time of its own
_LEAST_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class Search:
    """Searches of all tenants. `engine` is `None` without a search index."""

    _engine: SearchEngine | None

    async def search(self, tenant: str, query: SearchQuery) -> SearchAnswer:
        """Find checkpoints."""
        engine = self._engine
        if engine is None:
            raise _mode_unavailable(
                "this server does not index checkpoints: it runs with --no-search"
            )
        start = time.monotonic()
        request = _SearchRun(engine, tenant, query, analyse("" if query.vector else query.text))
        if query.vector:
            answer = await request.by_vector()
        elif query.mode is None:
            answer = await request.best()
        elif query.mode in engine.modes:
            answer = await request.in_mode(query.mode)
        else:
            problem = f"this server lacks what SEARCH_MODE_{query.mode.name} needs: "
            raise _mode_unavailable(problem + _LACKING[query.mode])
        if engine.finding.is_sealed:
            answer = replace(answer, sealed=True)
        elif request.may_miss(answer):
            keys = {result.key for result in answer.results}
            answer = replace(answer, cut=await engine.finding.cut(tenant, query.scope, keys))
        took = time.monotonic() - start
        engine.searched(answer.mode, took, fell_back=bool(answer.fell_back))
        damaged = dict.fromkeys(result.damage for result in answer.results if result.damage)
        for damage in damaged:
            _log.error("left out of a search: %s", damage)
        for refusal in await engine.damaged(tenant):  # the log has the reasons
            if query.scope.thread_id in ("", refusal.metadata["thread_id"]):
                damaged[str(refusal)] = None
        return replace(answer, results=answer.sound, damaged=tuple(damaged))


@dataclass(frozen=True, slots=True)
class _SearchRun:
    """One search."""

    engine: SearchEngine
    tenant: str
    query: SearchQuery
    words: Words

    def may_miss(self, answer: SearchAnswer) -> bool:
        """Return whether unindexed text could be among the results.

        A full answer may have more results anyway, except if no indexed text has the phrases or
        identifiers. MemWal has no cut text.
        """
        if self.query.vector:
            return False
        if answer.mode is not SearchMode.LEXICAL and self.words.asks_exactly:
            return True
        return answer.mode is not SearchMode.MEMWAL and len(answer.sound) < self.query.limit

    async def by_vector(self) -> SearchAnswer:
        if self.query.mode not in (None, SearchMode.VECTOR):
            raise invalid_field("mode", "a vector is searched for by vectors only")
        expected = await self.engine.finding.dimension(self.tenant)
        actual = vector_dimension(self.query.vector)
        if expected and expected != actual:
            raise invalid_field(
                "vector.values",
                f"must have {expected} components as the vectors in the index have, not {actual}",
            )
        return await self._near(self.query.vector, await self.engine.catch_up(self.tenant))

    async def best(self) -> SearchAnswer:
        """Search in the best mode that answers.

        Vectors do not capture names and numbers, and words do not capture meaning. So a query with
        an identifier uses the full text first, and a query with quotes uses only the server's own
        index.
        """
        modes, words = self.engine.modes, self.words
        if words.asks_exactly and len(modes) > 1:
            exact = await self._worded(words.required())
            if exact.results:
                return exact
        fell_back = []
        for mode in (SearchMode.MEMWAL, SearchMode.VECTOR):
            if mode not in modes or (mode is SearchMode.MEMWAL and words.phrases):
                continue
            try:
                answer = await self.in_mode(mode)
            except Refusal as refusal:
                if refusal.reason is not Reason.SEARCH_UNAVAILABLE:
                    raise
                fell_back.append(refusal.metadata["problem"])
                continue
            if mode is SearchMode.VECTOR:
                return replace(answer, fell_back="; ".join(fell_back))
            if answer.results:
                return answer
            fell_back.append(
                "MemWal recalled no existing checkpoint within the limits of the search"
            )
        return replace(await self._worded(words), fell_back="; ".join(fell_back))

    async def in_mode(self, mode: SearchMode) -> SearchAnswer:
        """Search in one mode, or refuse: clients repeat `UNAVAILABLE` calls at their own cost."""
        query = self.query
        try:
            if mode is SearchMode.LEXICAL:
                return await self._worded(self.words)
            if mode is SearchMode.MEMWAL:
                by_memwal = self.engine.by_memwal
                return await by_memwal(self.tenant, query.text, query.scope, query.limit)
            unindexed = await self.engine.catch_up(self.tenant)
            return await self._near(await self.engine.embed(query.text), unindexed)
        except EmbedderError as error:
            retry_s = error.retry_after_s or RETRY_S
            raise _mode_unavailable(f"the embedder does not answer: {error}", retry_s) from error
        except RelayerError as error:
            failing = "is not used" if error.trouble is RelayerTrouble.DENIED else "does not answer"
            problem = f"MemWal {failing}: {error}"
            if error.trouble in (RelayerTrouble.DENIED, RelayerTrouble.REFUSED):
                raise _mode_unavailable(problem) from error
            retry = RETRY_S if error.retry_after_s is None else error.retry_after_s
            raise _mode_unavailable(problem, retry) from error

    async def _near(self, vector: bytes, unindexed: int) -> SearchAnswer:
        query, nearest = self.query, self.engine.nearest
        # Counted first: checkpoints that get a vector in between are found, and counted too.
        unindexed += await self.engine.vectors_owed(self.tenant)
        results = await nearest(self.tenant, vector, query.metric, query.scope, query.limit)
        return SearchAnswer(
            tuple(results),
            SearchMode.VECTOR,
            query.metric.name.lower(),
            unindexed=unindexed,
            no_vectors="" if results else await self._lacking(),
        )

    async def _lacking(self) -> str:
        """Return why the scope of the search has no vector; empty if it has one."""
        finding, thread_id = self.engine.finding, self.query.scope.thread_id
        if not await finding.scan(self.tenant, 0, 1):
            problem = "no checkpoint has a vector"
        elif thread_id and not await finding.scan_thread(self.tenant, thread_id):
            problem = f"no checkpoint of thread '{thread_id}' has a vector"
        else:
            return ""
        if SearchMode.VECTOR in self.engine.modes:
            return f"{problem} yet: the embedder makes them after the save"
        return f"{problem}: save with one, or start the server with --embedder"

    async def _worded(self, words: Words) -> SearchAnswer:
        unindexed = await self.engine.catch_up(self.tenant)
        query, lexical = self.query, self.engine.finding.lexical
        results = await lexical(self.tenant, words, query.scope, query.limit)
        return SearchAnswer(tuple(results), SearchMode.LEXICAL, "bm25", unindexed=unindexed)


def _mode_unavailable(problem: str, retry_after_s: float | None = None) -> Refusal:
    """Return the refusal of a mode; without a time, only an operator can repair the mode."""
    if retry_after_s is None:
        return Refusal(Reason.SEARCH_UNAVAILABLE, problem=problem)
    return Refusal(
        Reason.SEARCH_UNAVAILABLE,
        status=Status.UNAVAILABLE,
        retry_after_s=max(retry_after_s, _LEAST_RETRY_S),
        problem=problem,
    )
