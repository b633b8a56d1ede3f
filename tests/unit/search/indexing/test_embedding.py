"""Documents get vectors whenever the embedder answers, and no text keeps others from it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import pairwise

import pytest

from tests.unit.search.indexing.index_rows import Rows
from tuskpoint_server.core.errors import Reason, Refusal, invalid_field
from tuskpoint_server.core.search import pack_vector
from tuskpoint_server.search import tasks as embedding_module
from tuskpoint_server.search.embedders import EmbedderError
from tuskpoint_server.search.finding import OwedVectors
from tuskpoint_server.search.index import UnembeddedDocument
from tuskpoint_server.search.pacing import IndexSettings
from tuskpoint_server.search.tasks import PROBE, EmbeddingTask

SETTINGS = IndexSettings(first_retry_s=1.0, longest_retry_s=8.0)


def accept(_: Sequence[str]) -> None:
    """Accept a call."""


@dataclass
class Scripted:
    """An embedder; `before` may raise."""

    before: Callable[[Sequence[str]], None] = accept
    name: str = "scripted"
    batch: int = 4
    calls: list[list[str]] = field(default_factory=list)

    async def dimension(self) -> int:
        self.before([])
        return 2

    async def embed(self, texts: Sequence[str]) -> list[bytes]:
        self.calls.append(list(texts))
        self.before(texts)
        return [vector_of(text) for text in texts]

    async def close(self) -> None:
        raise AssertionError("whoever made it closes it")


def vector_of(text: str) -> bytes:
    return pack_vector([1.0, float(len(text))])


@dataclass
class Kit:
    """An embedding task and the objects around it; pauses after failures take no time."""

    rows: Rows = field(default_factory=Rows)
    embedder: Scripted = field(default_factory=Scripted)
    seconds: float = 0.0
    pauses: list[float] = field(default_factory=list)

    def add(self, number: int, text: str = "") -> None:
        self.rows.texts.append(UnembeddedDocument(number, number, text or f"text {number}"))

    async def wait(self, seconds: float, ended: asyncio.Event) -> None:
        self.pauses.append(seconds)
        if not self.rows.texts or len(self.rows.vectors) >= len(self.rows.texts):
            await ended.wait()
        self.seconds += seconds
        await self.rows.report()
        await asyncio.sleep(0)

    @asynccontextmanager
    async def running(self) -> AsyncIterator[EmbeddingTask]:
        embedding = EmbeddingTask(
            self.rows, self.embedder, SETTINGS, clock=lambda: self.seconds, wait=self.wait
        )
        try:
            yield embedding
        finally:
            await asyncio.wait_for(embedding.stop(), 30)

    async def until_embedded(self, *numbers: int) -> None:
        await self.rows.until(lambda: set(self.rows.vectors) == set(numbers))


def refusing(*texts: str, retry_after_s: float | None = None) -> Callable[[Sequence[str]], None]:
    """Fail if one of some texts is to be embedded; without texts, fail always."""

    def before(batch: Sequence[str]) -> None:
        if not texts or set(texts) & set(batch):
            raise EmbedderError("no", retry_after_s)

    return before


async def test_documents_are_embedded_in_batches_and_stored_with_the_embedders_name() -> None:
    kit = Kit()
    for number in range(1, 11):
        kit.add(number)
    async with kit.running() as embedding:
        await kit.until_embedded(*range(1, 11))
        assert embedding.ready
        assert await embedding.query("a query") == vector_of("a query")
        kit.add(11)
        embedding.wake()
        await kit.until_embedded(*range(1, 12))
    assert kit.rows.adopted == [("scripted", 2)]
    assert kit.rows.vectors[10] == vector_of("text 10")
    assert [len(call) for call in kit.embedder.calls[:3]] == [4, 4, 2]


async def test_nothing_is_embedded_before_the_embedder_is_adopted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = Kit()
    kit.add(1)
    failures: list[Exception] = [
        EmbedderError("no answer"),
        EmbedderError("no answer"),
        Refusal(Reason.JOURNAL_UNAVAILABLE, problem="no"),
    ]

    def before(_: Sequence[object]) -> None:
        assert not kit.embedder.calls
        if failures and isinstance(failures[0], EmbedderError) is asking_embedder:
            raise failures.pop(0)

    asking_embedder = True

    def before_dimension(texts: Sequence[str]) -> None:
        nonlocal asking_embedder
        if not kit.rows.adopted:
            asking_embedder = True
            before(texts)

    def before_adopt(_: Sequence[object]) -> None:
        nonlocal asking_embedder
        asking_embedder = False
        before(())

    kit.embedder.before, kit.rows.before_adopt = before_dimension, before_adopt
    async with kit.running() as embedding:
        with pytest.raises(EmbedderError, match="has not answered yet"):
            await embedding.query("too early")
        await kit.until_embedded(1)
    assert not failures
    reported = [record.getMessage() for record in caplog.records]
    assert [text for text in reported if "no answer" in text] == ["embedding is delayed: no answer"]
    assert len(reported) == 2


async def test_an_embedder_that_fails_for_a_while_is_asked_ever_more_rarely() -> None:
    kit = Kit()
    for number in (1, 2):
        kit.add(number)
    async with kit.running() as embedding:
        await kit.until_embedded(1, 2)
        asked_at: list[float] = []

        def refuse(texts: Sequence[str]) -> None:
            if texts == ["text 3"]:
                asked_at.append(kit.seconds)
            raise EmbedderError("no")

        kit.embedder.before = refuse
        kit.add(3)
        embedding.wake()
        await kit.rows.until(lambda: len(asked_at) >= 7)
        assert embedding.trouble.problem == "no"
        assert embedding.ready
        with pytest.raises(EmbedderError, match="no"):
            await embedding.query("now")
        kit.embedder.before = accept
        await kit.until_embedded(1, 2, 3)
        await kit.rows.until(lambda: embedding.trouble.problem == "")
    pauses = [after - before for before, after in pairwise(asked_at)]
    for pause, bound in zip(pauses, (1, 2, 4, 8, 8, 8), strict=False):
        assert bound / 2 <= pause <= bound


async def test_an_answer_to_a_query_ends_the_pause_after_an_outage() -> None:
    kit = Kit()
    async with kit.running() as embedding:
        await kit.rows.until(lambda: embedding.ready)
        kit.embedder.before = refusing()
        kit.add(1)
        embedding.wake()
        await kit.rows.until(lambda: len(kit.pauses) >= 8)
        waited: list[tuple[float, asyncio.Event]] = []
        resting = asyncio.Event()

        async def wait(seconds: float, ended: asyncio.Event) -> None:
            waited.append((seconds, ended))
            if seconds > SETTINGS.first_retry_s:
                resting.set()
                await ended.wait()

        embedding.wait = wait
        await asyncio.wait_for(resting.wait(), 30)
        kit.embedder.before = accept
        assert not kit.rows.vectors
        await embedding.query("a query")
        await kit.until_embedded(1)


async def test_what_is_owed_is_waited_for_once() -> None:
    kit = Kit()
    async with kit.running() as embedding:
        await kit.rows.until(lambda: embedding.ready)
        looks = [
            OwedVectors(frozenset({1, 2})),
            OwedVectors(frozenset({2})),
            OwedVectors(frozenset()),
        ]

        async def look() -> OwedVectors:
            return looks.pop(0) if len(looks) > 1 else looks[0]

        async def wait(_: float, __: asyncio.Event) -> None:
            await asyncio.sleep(0)

        embedding.wait = wait
        assert await embedding.arrive("tenant", look) == 0
        looks[:] = [OwedVectors(frozenset({9}))]
        embedding.trouble.met(EmbedderError("no"))
        assert await embedding.arrive("tenant", look) == 1
        embedding.trouble.succeeded()
        assert await embedding.arrive("tenant", look) == 1  # the second call does not wait
        assert await embedding.arrive("other", more) == 1


async def more() -> OwedVectors:
    """Return that more vectors are owed than were counted."""
    return OwedVectors(frozenset(), more=True)


async def test_nothing_is_asked_before_the_time_that_the_embedder_gave() -> None:
    kit = Kit()
    async with kit.running() as embedding:
        await kit.rows.until(lambda: embedding.ready)
        kit.embedder.before = refusing(retry_after_s=77.0)
        kit.pauses.clear()
        kit.add(1)
        embedding.wake()
        await kit.rows.until(lambda: 77.0 in kit.pauses)
        kit.embedder.before = accept
        await kit.until_embedded(1)
    assert [PROBE] not in kit.embedder.calls


async def test_a_text_that_is_refused_alone_does_not_keep_others_from_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING, embedding_module.__name__)
    kit = Kit()
    for number in range(1, 11):
        kit.add(number)
    kit.embedder.before = refusing("text 1", "text 2", "text 7")
    async with kit.running() as embedding:
        await kit.until_embedded(3, 4, 5, 6, 8, 9, 10)
        assert embedding.trouble.problem == ""
        kit.add(11)
        embedding.wake()
        await kit.until_embedded(3, 4, 5, 6, 8, 9, 10, 11)
        calls = [call for call in kit.embedder.calls if call != [PROBE]]
        while kit.seconds < 3 * embedding_module.REFUSED_RETRY_S:
            kit.seconds += embedding_module.REFUSED_RETRY_S
            embedding.wake()
            await kit.rows.until(lambda: kit.embedder.calls[-1] == [PROBE])
        kit.embedder.before = accept
        kit.seconds += embedding_module.REFUSED_RETRY_S
        embedding.wake()
        await kit.until_embedded(*range(1, 12))
        assert calls != kit.embedder.calls
    reported = [record.getMessage() for record in caplog.records]
    assert [text for text in reported if "refuses" in text] == [
        f"the embedder refuses the text of document {number}; search by meaning does not find its "
        "checkpoint until the embedder accepts it: no"
        for number in (1, 2, 7)
    ]


async def test_a_text_is_refused_by_the_end_of_an_outage_and_embedded_soon_after() -> None:
    """The text fails and the probe succeeds, because the outage ends between the two calls."""
    kit = Kit()
    kit.add(1)
    failures = 1

    def before(texts: Sequence[str]) -> None:
        nonlocal failures
        if "text 1" in texts and failures:
            failures -= 1
            raise EmbedderError("no answer")

    kit.embedder.before = before
    async with kit.running():
        await kit.until_embedded(1)
    assert kit.seconds <= SETTINGS.first_retry_s


async def test_a_text_is_tried_ever_more_rarely_and_another_text_at_once() -> None:
    kit = Kit()
    kit.add(1)
    asked_at: list[float] = []

    def before(texts: Sequence[str]) -> None:
        if "text 1" in texts:
            asked_at.append(kit.seconds)
            raise EmbedderError("no")

    kit.embedder.before = before
    async with kit.running() as embedding:
        await kit.rows.until(lambda: len(asked_at) >= 20)
        kit.rows.texts[:] = [UnembeddedDocument(1, 2, "other text")]
        embedding.wake()
        await kit.until_embedded(1)
    pauses = [after - before for before, after in pairwise(asked_at)]
    assert pauses[:4] == [1.0, 2.0, 4.0, 8.0]
    assert max(pauses) >= embedding_module.REFUSED_RETRY_S / 2
    assert max(pauses) <= embedding_module.REFUSED_RETRY_S + SETTINGS.longest_retry_s


async def test_more_refused_texts_than_an_embedder_may_refuse_are_its_failure(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(embedding_module, "MAX_REFUSED", 2)
    kit = Kit()
    for number in (1, 2, 3):
        kit.add(number)
    kit.embedder.before = refusing("text 1", "text 2", "text 3")
    async with kit.running() as embedding:
        await kit.rows.until(lambda: embedding.trouble.problem == "no")


async def test_a_defect_of_an_embedder_is_logged_and_does_not_end_the_task(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = Kit()
    kit.add(1)
    left = 4

    def before(texts: Sequence[str]) -> None:
        nonlocal left
        if texts and left:
            left -= 1
            raise ZeroDivisionError("a defect")

    kit.embedder.before = before
    async with kit.running():
        await kit.until_embedded(1)
    assert [record.exc_info is not None for record in caplog.records] == [True]


async def test_vectors_of_another_dimension_that_came_first_are_dropped_as_at_the_start() -> None:
    kit = Kit()
    kit.add(1)

    def before(_: Sequence[object]) -> None:
        if len(kit.rows.adopted) == 1:
            raise invalid_field("vector", "must have 3 components")

    kit.rows.before_embed = before
    async with kit.running() as embedding:
        await kit.until_embedded(1)
        assert embedding.ready
    assert kit.rows.adopted == [("scripted", 2)] * 2


async def test_a_query_has_a_deadline_and_the_next_ones_do_not_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kit = Kit()
    async with kit.running() as embedding:
        await kit.rows.until(lambda: embedding.ready)

        async def hanging(_: Sequence[str]) -> list[bytes]:
            await asyncio.Event().wait()
            raise AssertionError("it never ends")

        answering = kit.embedder.embed
        monkeypatch.setattr(kit.embedder, "embed", hanging)
        monkeypatch.setattr(embedding_module, "QUERY_S", 0.01)
        with pytest.raises(EmbedderError, match=r"no answer within 0\.01 s"):
            await embedding.query("a query")
        monkeypatch.setattr(kit.embedder, "embed", answering)
        with pytest.raises(EmbedderError, match="suspended") as refused:
            await embedding.query("a query")
        assert refused.value.retry_after_s == embedding_module.QUERY_PAUSE_S
        kit.seconds += embedding_module.QUERY_PAUSE_S
        assert await embedding.query("a query") == vector_of("a query")
