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


RETRY_S = 5.0
"""When to ask again for a mode that did not answer, where nobody knows better."""

_LEAST_RETRY_S = 1.0


@dataclass(frozen=True, slots=True)
class _Fallen:
    """A mode could not answer; `reason` is for people.

    `retry_after_s`: when it is worth asking again; `None`: not before something is mended.
    """

    reason: str
    retry_after_s: float | None = RETRY_S


class Search:
    """Searches of all tenants.

    Args:
        recall: Ways to find checkpoints; `None` if the server does not index.
    """

    def __init__(self, recall: Recall | None) -> None:
        self._recall = recall

    async def search(self, tenant: str, query: SearchQuery) -> SearchAnswer:
        """Find checkpoints.

        Raises:
            Refusal: `SEARCH_UNAVAILABLE`, also if the mode that is asked for does not answer:
                `UNAVAILABLE` if it may later, with the time when it is worth asking again;
                `INVALID_FIELD` for a vector of another dimension than those in the index, and
                for a mode that does not go with the query.
        """
        if self._recall is None:
            raise _unavailable("this server does not index checkpoints: it runs with --no-search")
        began = time.monotonic()
        answer = await self._answer(self._recall, tenant, query)
        self._recall.searched(
            answer.mode, time.monotonic() - began, fell_back=bool(answer.fell_back)
        )
        return answer

    async def _answer(self, recall: Recall, tenant: str, query: SearchQuery) -> SearchAnswer:
        if query.vector:
            return await self._by_vector(recall, tenant, query)
        if query.mode is not None:
            return await self._asked_for(recall, tenant, query, query.mode)
        return await self._best(recall, tenant, query)

    async def _by_vector(self, recall: Recall, tenant: str, query: SearchQuery) -> SearchAnswer:
        if query.mode not in (None, SearchMode.VECTOR):
            raise invalid_field("mode", "a vector is searched for by vectors only")
        expected = await recall.finding.dimension(tenant)
        if expected and expected != vector_dimension(query.vector):
            raise invalid_field(
                "vector.values",
                f"must have {expected} components as the vectors in the index have, not "
                f"{vector_dimension(query.vector)}",
            )
        unindexed = await recall.catch_up(tenant)
        return await self._near(recall, tenant, query, query.vector, unindexed)

    async def _asked_for(
        self, recall: Recall, tenant: str, query: SearchQuery, mode: SearchMode
    ) -> SearchAnswer:
        """Search in one mode, or refuse."""
        if mode not in recall.modes:
            raise _unavailable(f"this server lacks what SEARCH_MODE_{mode.name} needs: ", mode)
        answer = await self._try(recall, tenant, query, mode, analyse(query.text))
        if isinstance(answer, _Fallen):
            raise _unanswered(answer)
        return answer

    async def _best(self, recall: Recall, tenant: str, query: SearchQuery) -> SearchAnswer:
        """Search in the best mode that answers.

        Vectors know nothing of names and numbers, and words nothing of meaning: what names
        something exactly goes to the full text first, and what is in quotes nowhere else
        than to the server's own index.
        """
        words = analyse(query.text)
        if words.asks_exactly and len(recall.modes) > 1:
            exact = await self._worded(recall, tenant, query, words.required())
            if exact.results:
                return exact
        fell_back = ""
        if SearchMode.MEMWAL in recall.modes and not words.phrases:
            answer = await self._try(recall, tenant, query, SearchMode.MEMWAL, words)
            if isinstance(answer, SearchAnswer) and answer.results:
                return answer
            fell_back = (
                answer.reason
                if isinstance(answer, _Fallen)
                else "MemWal recalled nothing that is live and in scope"
            )
        answer = await self._embedded(recall, tenant, query, words)
        return _because(answer, fell_back)

    async def _embedded(
        self, recall: Recall, tenant: str, query: SearchQuery, words: Words
    ) -> SearchAnswer:
        """Search in the server's own index: by meaning, else by words."""
        if SearchMode.VECTOR not in recall.modes:
            return await self._worded(recall, tenant, query, words)
        answer = await self._try(recall, tenant, query, SearchMode.VECTOR, words)
        if isinstance(answer, _Fallen):
            lexical = await self._worded(recall, tenant, query, words)
            return _because(lexical, answer.reason)
        return answer

    # --- one mode ----------------------------------------------------------------------

    async def _try(
        self, recall: Recall, tenant: str, query: SearchQuery, mode: SearchMode, words: Words
    ) -> SearchAnswer | _Fallen:
        """Search words in one mode."""
        if mode is SearchMode.MEMWAL:
            return await self._recalled(recall, tenant, query)
        if mode is SearchMode.LEXICAL:
            return await self._worded(recall, tenant, query, words)
        unindexed = await recall.catch_up(tenant)
        try:
            vector = await recall.embed(query.text)
        except EmbedderError as error:
            return _Fallen(
                f"the embedder does not answer: {error}",
                max(error.retry_after_s or RETRY_S, _LEAST_RETRY_S),
            )
        return await self._near(recall, tenant, query, vector, unindexed)

    async def _recalled(
        self, recall: Recall, tenant: str, query: SearchQuery
    ) -> SearchAnswer | _Fallen:
        try:
            return await recall.by_memwal(tenant, query.text, query.scope, query.limit)
        except RelayerError as error:
            failing = "is not used" if error.trouble is Trouble.DENIED else "does not answer"
            return _Fallen(f"MemWal {failing}: {error}", _worth_asking_again(error))

    async def _near(
        self, recall: Recall, tenant: str, query: SearchQuery, vector: bytes, unindexed: int
    ) -> SearchAnswer:
        found = await recall.nearest(tenant, vector, query.metric, query.scope, query.limit)
        return SearchAnswer(
            tuple(found), SearchMode.VECTOR, _METRICS[query.metric], unindexed=unindexed
        )

    async def _worded(
        self, recall: Recall, tenant: str, query: SearchQuery, words: Words
    ) -> SearchAnswer:
        unindexed = await recall.catch_up(tenant)
        found = await recall.finding.lexical(tenant, words, query.scope, query.limit)
        return SearchAnswer(tuple(found), SearchMode.LEXICAL, BM25, unindexed=unindexed)


def _because(answer: SearchAnswer, fell_back: str) -> SearchAnswer:
    """Return an answer that also says why a better mode did not give it."""
    if not fell_back:
        return answer
    told = f"{fell_back}; {answer.fell_back}" if answer.fell_back else fell_back
    return replace(answer, fell_back=told)


def _worth_asking_again(error: RelayerError) -> float | None:
    """Return when MemWal may answer; `None` if waiting mends nothing."""
    if error.trouble in (Trouble.DENIED, Trouble.REFUSED):
        return None
    known_s = RETRY_S if error.retry_after_s is None else error.retry_after_s
    return max(known_s, _LEAST_RETRY_S)


def _unanswered(fallen: _Fallen) -> Refusal:
    """Return the refusal of a mode that was asked for and did not answer.

    Clients repeat what is `UNAVAILABLE`; what only an operator can mend must not cost them
    their deadline, nor MemWal a recall each time.
    """
    return Refusal(
        Reason.SEARCH_UNAVAILABLE,
        status=Status.UNAVAILABLE if fallen.retry_after_s is not None else None,
        retry_after_s=fallen.retry_after_s,
        problem=fallen.reason,
    )


def _unavailable(problem: str, mode: SearchMode | None = None) -> Refusal:
    lacking = _LACKING[mode] if mode is not None else ""
    return Refusal(Reason.SEARCH_UNAVAILABLE, problem=problem + lacking)
