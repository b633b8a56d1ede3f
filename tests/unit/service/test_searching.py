"""A search uses the right mode, and reports the modes that cannot answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from tuskpoint_server.core.errors import Reason, Refusal, Status
from tuskpoint_server.core.model import CheckpointKey
from tuskpoint_server.core.search import (
    Metric,
    SearchAnswer,
    SearchHit,
    SearchMode,
    SearchQuery,
    SearchScope,
    Words,
    pack_vector,
)
from tuskpoint_server.features.searching import RETRY_S, Search
from tuskpoint_server.search.embedders import EmbedderError
from tuskpoint_server.search.finding import IndexStatus
from tuskpoint_server.search.memwal.api import RelayerError, RelayerTrouble
from tuskpoint_server.search.search import SearchStatus

LEXICAL, VECTOR, MEMWAL = SearchMode.LEXICAL, SearchMode.VECTOR, SearchMode.MEMWAL
VECTOR_OF_QUERY = pack_vector([1.0, 0.0])


def hit(checkpoint_id: str, distance: float = 0.5) -> SearchHit:
    return SearchHit(CheckpointKey("thread", "", checkpoint_id), "summary", "text", b"{}", distance)


@dataclass
class ScriptedRecall:
    """Returns the given results in each mode, and records the searches."""

    modes: Sequence[SearchMode] = (LEXICAL,)
    is_sealed: bool = False
    embedder_name: str = ""
    worded: Sequence[SearchHit] = (hit("worded"),)
    exact: Sequence[SearchHit] | None = None
    near: Sequence[SearchHit] = (hit("near"),)
    recalled: SearchAnswer | RelayerError = field(
        default_factory=lambda: SearchAnswer(
            (hit("recalled"),), MEMWAL, "cosine", truncated=True, dropped=3, unindexed=7
        )
    )
    embedder_error: EmbedderError | None = None
    known_dimension: int = 0
    owed: int = 0
    truncated: int = 0
    unindexed: Sequence[Refusal] = ()
    calls: list[object] = field(default_factory=list)
    measured: list[tuple[SearchMode, bool]] = field(default_factory=list)

    @property
    def finding(self) -> ScriptedRecall:
        return self

    async def catch_up(self, tenant: str) -> int:
        self.calls.append("catch up")
        return 2

    async def vectors_owed(self, tenant: str) -> int:
        self.calls.append("vectors")
        return self.owed

    async def cut(self, tenant: str, scope: SearchScope, but: set[CheckpointKey]) -> int:
        self.calls.append(("cut", {checkpoint_key.checkpoint_id for checkpoint_key in but}))
        return self.truncated

    async def dimension(self, tenant: str) -> int:
        return self.known_dimension

    async def lexical(
        self, tenant: str, words: Words, scope: SearchScope, limit: int
    ) -> list[SearchHit]:
        self.calls.append(("words", words))
        exactly = bool(words.phrases) and self.exact is not None
        return list(self.exact or ()) if exactly else list(self.worded)

    async def nearest(
        self, tenant: str, vector: bytes, metric: Metric, scope: SearchScope, limit: int
    ) -> list[SearchHit]:
        self.calls.append(("vector", vector, metric))
        return list(self.near)

    async def embed(self, text: str) -> bytes:
        if self.embedder_error is not None:
            raise self.embedder_error
        return VECTOR_OF_QUERY

    async def by_memwal(
        self, tenant: str, text: str, scope: SearchScope, limit: int
    ) -> SearchAnswer:
        self.calls.append(("memwal", text))
        if isinstance(self.recalled, RelayerError):
            raise self.recalled
        return self.recalled

    async def status(self, tenant: str) -> SearchStatus:
        return SearchStatus(IndexStatus(), "", None, None)

    async def damaged(self, tenant: str) -> list[Refusal]:
        return list(self.unindexed)

    def searched(self, mode: SearchMode, seconds: float, *, fell_back: bool) -> None:
        self.measured.append((mode, fell_back))


async def search(recall: ScriptedRecall, **query_fields: object) -> SearchAnswer:
    return await Search(recall).search("default", SearchQuery(**query_fields))  # type: ignore[arg-type]


def ids(answer: SearchAnswer) -> list[str]:
    return [result.key.checkpoint_id for result in answer.results]


async def refusal(recall: ScriptedRecall | None, **query_fields: object) -> Refusal:
    with pytest.raises(Refusal) as raised:
        await Search(recall).search("default", SearchQuery(**query_fields))  # type: ignore[arg-type]
    return raised.value


async def test_a_server_without_an_index_refuses_searches() -> None:
    refused = await refusal(None, text="the writer")
    assert refused.reason is Reason.SEARCH_UNAVAILABLE
    assert "--no-search" in refused.message


async def test_without_an_embedder_text_is_searched_by_words() -> None:
    recall = ScriptedRecall()
    answer = await search(recall, text="when did the writer start")
    assert (ids(answer), answer.mode, answer.metric) == (["worded"], LEXICAL, "bm25")
    assert (answer.unindexed, answer.fell_back) == (2, "")
    assert recall.measured == [(LEXICAL, False)]


async def test_an_embedder_searches_text_by_meaning() -> None:
    recall = ScriptedRecall(modes=(LEXICAL, VECTOR))
    answer = await search(recall, text="when did the writer start", metric=Metric.L2)
    assert (ids(answer), answer.mode, answer.metric) == (["near"], VECTOR, "l2")
    compared = ("vector", VECTOR_OF_QUERY, Metric.L2)
    assert recall.calls == ["catch up", "vectors", compared, ("cut", {"near"})]


async def test_text_that_was_cut_is_looked_for_where_a_search_may_have_missed_it() -> None:
    recall = ScriptedRecall(modes=(LEXICAL, VECTOR, MEMWAL), truncated=4, exact=[])
    assert (await search(recall, text="the writer", mode=LEXICAL)).cut == 4
    assert recall.calls[-1] == ("cut", {"worded"})
    assert (await search(recall, text="the writer", mode=LEXICAL, limit=1)).cut == 0
    assert (await search(recall, text="the writer", mode=VECTOR)).cut == 4
    assert (await search(recall, text="the writer", mode=VECTOR, limit=1)).cut == 0
    assert (await search(recall, text="PAY-1234", mode=VECTOR, limit=1)).cut == 4
    assert (await search(recall, text="the writer", mode=MEMWAL)).cut == 0
    assert (await search(recall, text="PAY-1234")).cut == 4
    assert (await search(recall, vector=VECTOR_OF_QUERY)).cut == 0
    recall.is_sealed = True
    assert (await search(recall, text="the writer", mode=LEXICAL)).cut == 0


async def test_threads_that_are_not_indexed_are_named_where_they_were_searched() -> None:
    damage = Refusal(Reason.JOURNAL_DAMAGED, event="its row is damaged", thread_id="run-1")
    recall = ScriptedRecall(unindexed=[damage])
    assert (await search(recall, text="the writer")).damaged == (str(damage),)
    of_thread, of_another = SearchScope(thread_id="run-1"), SearchScope(thread_id="run-2")
    assert (await search(recall, text="the writer", scope=of_thread)).damaged == (str(damage),)
    assert (await search(recall, text="the writer", scope=of_another)).damaged == ()


async def test_checkpoints_without_a_vector_are_not_indexed_for_a_search_by_vectors() -> None:
    recall = ScriptedRecall(modes=(LEXICAL, VECTOR), owed=3)
    assert (await search(recall, text="when did the writer start")).unindexed == 5
    assert (await search(recall, vector=VECTOR_OF_QUERY)).unindexed == 5
    assert (await search(recall, text="the writer", mode=LEXICAL)).unindexed == 2


@pytest.mark.parametrize("text", ['what about "the draft"', "who closed PAY-1234"])
@pytest.mark.parametrize("others", [(VECTOR,), (MEMWAL,), (VECTOR, MEMWAL)])
async def test_exact_names_are_searched_by_words_first(
    text: str, others: Sequence[SearchMode]
) -> None:
    recall = ScriptedRecall(modes=(LEXICAL, *others), exact=[hit("exact")])
    answer = await search(recall, text=text)
    assert (ids(answer), answer.mode, answer.fell_back) == (["exact"], LEXICAL, "")


async def test_a_name_that_no_text_has_is_searched_by_meaning() -> None:
    recall = ScriptedRecall(modes=(LEXICAL, VECTOR), exact=[])
    answer = await search(recall, text="who closed PAY-1234")
    assert (ids(answer), answer.mode) == (["near"], VECTOR)


async def test_an_embedder_that_does_not_answer_leaves_the_words() -> None:
    recall = ScriptedRecall(
        modes=(LEXICAL, VECTOR), embedder_error=EmbedderError("HTTP status 503")
    )
    answer = await search(recall, text="when did the writer start")
    assert (ids(answer), answer.mode) == (["worded"], LEXICAL)
    assert answer.fell_back == "the embedder does not answer: HTTP status 503"
    assert recall.measured == [(LEXICAL, True)]


async def test_memwal_answers_text_where_there_is_one() -> None:
    recall = ScriptedRecall(modes=(LEXICAL, VECTOR, MEMWAL))
    answer = await search(recall, text="who closed the ticket")
    assert (ids(answer), answer.mode, answer.metric) == (["recalled"], MEMWAL, "cosine")
    assert (answer.truncated, answer.dropped, answer.unindexed) == (True, 3, 7)
    assert recall.calls == [("memwal", "who closed the ticket")]


async def test_a_name_that_no_text_has_is_left_to_memwal() -> None:
    recall = ScriptedRecall(modes=(LEXICAL, MEMWAL), exact=[])
    answer = await search(recall, text="who closed PAY-1234")
    assert (ids(answer), answer.mode, answer.fell_back) == (["recalled"], MEMWAL, "")


async def test_words_in_quotes_are_not_left_to_memwal() -> None:
    recall = ScriptedRecall(modes=(LEXICAL, MEMWAL))
    answer = await search(recall, text='"exactly this"')
    assert (answer.mode, answer.fell_back) == (LEXICAL, "")
    assert ("memwal", '"exactly this"') not in recall.calls


@pytest.mark.parametrize(
    ("recalled", "reason"),
    [
        (
            RelayerError(RelayerTrouble.UNAVAILABLE, "no answer in 5 s"),
            "MemWal does not answer: no",
        ),
        (
            SearchAnswer((), MEMWAL, "cosine"),
            "MemWal recalled no existing checkpoint",
        ),
    ],
    ids=["no answer", "nothing"],
)
async def test_the_own_index_answers_where_memwal_has_no_answer(
    recalled: SearchAnswer | RelayerError, reason: str
) -> None:
    recall = ScriptedRecall(
        modes=(LEXICAL, VECTOR, MEMWAL), recalled=recalled, embedder_error=EmbedderError("busy")
    )
    answer = await search(recall, text="when did the writer start")
    assert (ids(answer), answer.mode) == (["worded"], LEXICAL)
    assert answer.fell_back.startswith(reason)
    assert answer.fell_back.endswith("; the embedder does not answer: busy")


async def test_a_mode_that_is_asked_for_is_used() -> None:
    recall = ScriptedRecall(modes=(LEXICAL, VECTOR, MEMWAL))
    for mode in (LEXICAL, VECTOR, MEMWAL):
        answer = await search(recall, text="the writer", mode=mode)
        assert answer.mode is mode


async def test_a_mode_that_is_asked_for_and_lacking_is_refused() -> None:
    for mode, missing in ((VECTOR, "--embedder"), (MEMWAL, "MEMWAL_PRIVATE_KEY")):
        refused = await refusal(ScriptedRecall(), text="the writer", mode=mode)
        assert refused.reason is Reason.SEARCH_UNAVAILABLE
        assert refused.status is Status.FAILED_PRECONDITION
        assert missing in refused.message


async def test_a_mode_that_is_asked_for_does_not_fall_back() -> None:
    recall = ScriptedRecall(
        modes=(LEXICAL, MEMWAL), recalled=RelayerError(RelayerTrouble.UNAVAILABLE, "no answer")
    )
    refused = await refusal(recall, text="the writer", mode=MEMWAL)
    assert (refused.reason, refused.status) == (Reason.SEARCH_UNAVAILABLE, Status.UNAVAILABLE)


@pytest.mark.parametrize(
    ("error", "status", "retry_after_s"),
    [
        (RelayerError(RelayerTrouble.UNAVAILABLE, "no answer"), Status.UNAVAILABLE, RETRY_S),
        (
            RelayerError(RelayerTrouble.UNAVAILABLE, "-", retry_after_s=80.0),
            Status.UNAVAILABLE,
            80.0,
        ),
        (RelayerError(RelayerTrouble.LIMITED, "-", retry_after_s=0.01), Status.UNAVAILABLE, 1.0),
        (RelayerError(RelayerTrouble.DENIED, "the key"), Status.FAILED_PRECONDITION, None),
        (RelayerError(RelayerTrouble.REFUSED, "malformed"), Status.FAILED_PRECONDITION, None),
        (EmbedderError("busy"), Status.UNAVAILABLE, RETRY_S),
        (EmbedderError("busy", 30.0), Status.UNAVAILABLE, 30.0),
    ],
)
async def test_a_required_mode_that_does_not_answer_gives_the_time_to_retry(
    error: RelayerError | EmbedderError, status: Status, retry_after_s: float | None
) -> None:
    recall = ScriptedRecall(modes=(LEXICAL, VECTOR, MEMWAL))
    if isinstance(error, RelayerError):
        recall.recalled = error
    else:
        recall.embedder_error = error
    mode = MEMWAL if isinstance(error, RelayerError) else VECTOR
    refused = await refusal(recall, text="the writer", mode=mode)
    assert refused.reason is Reason.SEARCH_UNAVAILABLE
    assert (refused.status, refused.retry_after_s) == (status, retry_after_s)
    assert str(error) in refused.message


async def test_a_vector_is_searched_for_by_vectors_whatever_else_there_is() -> None:
    recall = ScriptedRecall(modes=(LEXICAL, MEMWAL), known_dimension=2)
    answer = await search(recall, vector=pack_vector([0.0, 1.0]))
    assert (ids(answer), answer.mode, answer.unindexed) == (["near"], VECTOR, 2)


async def test_a_vector_of_another_dimension_is_refused() -> None:
    refused = await refusal(ScriptedRecall(known_dimension=3), vector=pack_vector([0.0, 1.0]))
    assert [violation.field for violation in refused.violations] == ["vector.values"]
    assert "3 components" in refused.message


async def test_a_vector_goes_with_no_mode_of_words() -> None:
    refused = await refusal(ScriptedRecall(), vector=pack_vector([1.0]), mode=LEXICAL)
    assert [violation.field for violation in refused.violations] == ["mode"]
