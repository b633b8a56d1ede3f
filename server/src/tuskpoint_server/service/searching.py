"""What a search means: which mode answers it, and what happens where that mode cannot."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ..domain.errors import Reason, Refusal, Status, invalid_field
from ..domain.search import (
    Metric,
    SearchAnswer,
    SearchMode,
    SearchQuery,
    Words,
    analyse,
    vector_dimension,
)
from ..recall.embedders.api import EmbedderError
from ..recall.memwal.api import RelayerError, Trouble
from ..recall.recall import Recall

BM25 = "bm25"
_METRICS = {Metric.COSINE: "cosine", Metric.L2: "l2"}
_LACKING = {
    SearchMode.LEXICAL: "",
    SearchMode.VECTOR: "it has no embedder to make a vector of words: set --embedder, or search "
    "with a vector",
    SearchMode.MEMWAL: "it is not set up for MemWal: set MEMWAL_PRIVATE_KEY and MEMWAL_ACCOUNT_ID",
}


RETRY_S = 5.0  # when to ask again for a mode that did not answer, where nobody knows better

_LEAST_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Fallen:
    """A mode could not answer."""

    reason: str  # for people
    retry_after_s: float | None  # when to ask again; `None`: not before something is mended


@dataclass(frozen=True, slots=True)
class Search:
    """Searches of all tenants. `recall` is `None` if the server does not index."""

    _recall: Recall | None

    async def search(self, tenant: str, query: SearchQuery) -> SearchAnswer:
        """Find checkpoints."""
        recall = self._recall
        if recall is None:
            raise _unavailable("this server does not index checkpoints: it runs with --no-search")
        began = time.monotonic()
        asked = _Asked(recall, tenant, query, analyse("" if query.vector else query.text))
        if query.vector:
            answer = await asked.by_vector()
        elif query.mode is not None:
            answer = await asked.in_mode(query.mode)
        else:
            answer = await asked.best()
        took = time.monotonic() - began
        recall.searched(answer.mode, took, fell_back=bool(answer.fell_back))
        return answer


@dataclass(frozen=True, slots=True)
class _Asked:
    """One search."""

    recall: Recall
    tenant: str
    query: SearchQuery
    words: Words

    async def by_vector(self) -> SearchAnswer:
        if self.query.mode not in (None, SearchMode.VECTOR):
            raise invalid_field("mode", "a vector is searched for by vectors only")
        expected = await self.recall.finding.dimension(self.tenant)
        given = vector_dimension(self.query.vector)
        if expected and expected != given:
            raise invalid_field(
                "vector.values",
                f"must have {expected} components as the vectors in the index have, not {given}",
            )
        unindexed = await self.recall.catch_up(self.tenant)
        return await self._near(self.query.vector, unindexed)

    async def in_mode(self, mode: SearchMode) -> SearchAnswer:
        """Search in one mode, or refuse."""
        if mode not in self.recall.modes:
            raise _unavailable(f"this server lacks what SEARCH_MODE_{mode.name} needs: ", mode)
        answer = await self._try(mode)
        if isinstance(answer, _Fallen):
            # Clients repeat what is `UNAVAILABLE`; what only an operator can mend must not cost
            # them their deadline, nor MemWal a recall each time.
            raise Refusal(
                Reason.SEARCH_UNAVAILABLE,
                status=Status.UNAVAILABLE if answer.retry_after_s is not None else None,
                retry_after_s=answer.retry_after_s,
                problem=answer.reason,
            )
        return answer

    async def best(self) -> SearchAnswer:
        """Search in the best mode that answers.

        Vectors know nothing of names and numbers, and words nothing of meaning: what names
        something exactly goes to the full text first, and what is in quotes nowhere else
        than to the server's own index.
        """
        modes, words = self.recall.modes, self.words
        if words.asks_exactly and len(modes) > 1:
            exact = await self._worded(words.required())
            if exact.results:
                return exact
        fell_back = []
        if SearchMode.MEMWAL in modes and not words.phrases:
            recalled = await self._try(SearchMode.MEMWAL)
            if isinstance(recalled, SearchAnswer) and recalled.results:
                return recalled
            nothing = "MemWal recalled nothing that is live and in scope"
            fell_back.append(recalled.reason if isinstance(recalled, _Fallen) else nothing)
        answer: SearchAnswer | None = None
        if SearchMode.VECTOR in modes:
            near = await self._try(SearchMode.VECTOR)
            if isinstance(near, _Fallen):
                fell_back.append(near.reason)
            else:
                answer = near
        answer = answer or await self._worded(words)
        return replace(answer, fell_back="; ".join(fell_back))

    async def _try(self, mode: SearchMode) -> SearchAnswer | _Fallen:
        if mode is SearchMode.LEXICAL:
            return await self._worded(self.words)
        if mode is SearchMode.MEMWAL:
            return await self._recalled()
        unindexed = await self.recall.catch_up(self.tenant)
        try:
            vector = await self.recall.embed(self.query.text)
        except EmbedderError as error:
            retry_after_s = max(error.retry_after_s or RETRY_S, _LEAST_RETRY_S)
            return _Fallen(f"the embedder does not answer: {error}", retry_after_s)
        return await self._near(vector, unindexed)

    async def _recalled(self) -> SearchAnswer | _Fallen:
        query = self.query
        try:
            return await self.recall.by_memwal(self.tenant, query.text, query.scope, query.limit)
        except RelayerError as error:
            failing = "is not used" if error.trouble is Trouble.DENIED else "does not answer"
            retry_after_s = RETRY_S if error.retry_after_s is None else error.retry_after_s
            mended = error.trouble not in (Trouble.DENIED, Trouble.REFUSED)  # by waiting
            return _Fallen(
                f"MemWal {failing}: {error}",
                max(retry_after_s, _LEAST_RETRY_S) if mended else None,
            )

    async def _near(self, vector: bytes, unindexed: int) -> SearchAnswer:
        query, nearest = self.query, self.recall.nearest
        found = await nearest(self.tenant, vector, query.metric, query.scope, query.limit)
        metric = _METRICS[query.metric]
        return SearchAnswer(tuple(found), SearchMode.VECTOR, metric, unindexed=unindexed)

    async def _worded(self, words: Words) -> SearchAnswer:
        unindexed = await self.recall.catch_up(self.tenant)
        query, lexical = self.query, self.recall.finding.lexical
        found = await lexical(self.tenant, words, query.scope, query.limit)
        return SearchAnswer(tuple(found), SearchMode.LEXICAL, BM25, unindexed=unindexed)


def _unavailable(problem: str, mode: SearchMode | None = None) -> Refusal:
    lacking = _LACKING[mode] if mode is not None else ""
    return Refusal(Reason.SEARCH_UNAVAILABLE, problem=problem + lacking)
