"""The index follows the journal: saves first, searches soon, and nothing gets stuck."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.unit.search_rows import TENANT, Rows, due
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.journal.search_api import Document
from tuskpoint_server.journal.waking import Waiters
from tuskpoint_server.recall import indexer as indexing
from tuskpoint_server.recall.indexer import BATCH, HURRIED_BATCH, Indexer
from tuskpoint_server.recall.settings import IndexSettings
from tuskpoint_server.recall.telemetry import Instruments

HURRIED = IndexSettings(gather_s=0, busy_share=1, catch_up_s=30, first_retry_s=0)
PATIENT = IndexSettings(gather_s=3600, busy_share=0.25, catch_up_s=30)
DOWN = Refusal(Reason.JOURNAL_UNAVAILABLE, problem="the disk is full")
NOW_US = 1_000_000


@dataclass
class Kit:
    """An indexer with all around it; its clock stands still until a test moves it."""

    rows: Rows = field(default_factory=Rows)
    waiters: Waiters = field(default_factory=Waiters)
    told: int = 0
    now_us: int = NOW_US
    seconds: float = 0.0
    pauses: list[float] = field(default_factory=list)
    endless: asyncio.Event = field(default_factory=asyncio.Event)
    paused: asyncio.Event = field(default_factory=asyncio.Event)

    def commit(self, number: int) -> None:
        """Make a checkpoint due, as a save does."""
        self.rows.waiting.append(due(number))
        self.waiters.wake({(TENANT, "t")})

    def stored(self) -> None:
        self.told += 1

    async def pass_by(self, seconds: float, ended: asyncio.Event) -> None:
        """Do not wait at all."""
        self.pauses.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)

    async def hold(self, seconds: float, ended: asyncio.Event) -> None:
        """Wait until the pause is ended, however long it is to be."""
        self.pauses.append(seconds)
        if seconds > 0:
            self.paused.set()
            await ended.wait()
            self.paused.clear()

    @asynccontextmanager
    async def running(
        self,
        settings: IndexSettings = HURRIED,
        *,
        hold: bool = False,
        remember: bool = False,
        instruments: Instruments | None = None,
    ) -> AsyncIterator[Indexer]:
        indexer = Indexer(
            self.rows,
            self.waiters.listen,
            settings,
            remember=remember,
            stored=self.stored,
            clock_us=lambda: self.now_us,
            instruments=instruments,
            clock=lambda: self.seconds,
            wait=self.hold if hold else self.pass_by,
        )
        indexer.start()
        try:
            yield indexer
        finally:
            await asyncio.wait_for(indexer.stop(), 30)


def indexed(rows: Rows) -> list[int]:
    """Return numbers of what was stored, in order."""
    return [int(document.due.key.checkpoint_id) for document in rows.stored]


def refusing(*numbers: int, error: Exception | None = None) -> Callable[[Sequence[Document]], None]:
    """Fail whenever one of some checkpoints is to be stored."""

    def before_store(documents: Sequence[Document]) -> None:
        if {int(one.due.key.checkpoint_id) for one in documents} & set(numbers):
            raise error or ValueError("it cannot be stored")

    return before_store


async def test_a_backlog_is_indexed_in_order_and_in_small_batches() -> None:
    kit = Kit(Rows([due(number) for number in range(1, 101)]))
    async with kit.running(remember=True):
        await kit.rows.until(lambda: not kit.rows.waiting)
    assert indexed(kit.rows) == list(range(1, 101))
    assert max(kit.rows.batches) <= BATCH
    assert kit.rows.remembered
    assert kit.told == len(kit.rows.batches)
    assert kit.rows.stored[6].body == "step 7"
    assert kit.rows.stored[6].planned


async def test_a_commit_is_indexed() -> None:
    kit = Kit()
    async with kit.running():
        await kit.rows.until(lambda: kit.rows.looks > 0)
        for number in (1, 2, 3):
            kit.commit(number)
            await kit.rows.until(lambda: not kit.rows.waiting)
    assert indexed(kit.rows) == [1, 2, 3]


async def test_what_comes_together_is_gathered_unless_someone_searches() -> None:
    kit = Kit()
    async with kit.running(PATIENT, hold=True) as indexer:
        await kit.rows.until(lambda: kit.rows.looks > 0)
        kit.commit(1)
        await asyncio.wait_for(kit.paused.wait(), 30)
        assert kit.pauses == [3600]
        kit.commit(2)
        assert not kit.rows.stored
        assert await indexer.catch_up(TENANT) == 0
    assert indexed(kit.rows) == [1, 2]
    assert kit.rows.batches == [2]


async def test_it_rests_for_three_times_as_long_as_it_works() -> None:
    kit = Kit(Rows([due(number) for number in range(1, 2 * BATCH + 1)]))

    def work(_: Sequence[Document]) -> None:
        kit.seconds += 2.0

    kit.rows.before_store = work
    async with kit.running(IndexSettings(gather_s=0, busy_share=0.25)):
        await kit.rows.until(lambda: not kit.rows.waiting and kit.rows.looks > 2)
    assert kit.pauses[:2] == [6.0, 6.0]


async def test_a_search_lifts_the_rest_until_what_came_before_it_is_indexed() -> None:
    kit = Kit(Rows([due(number) for number in range(1, 3 * BATCH + 1)]))

    def work(_: Sequence[Document]) -> None:
        kit.seconds += 1.0
        if len(kit.rows.batches) == 1:  # since the searches came
            kit.rows.waiting += [due(NOW_US + number) for number in range(1, 5 * HURRIED_BATCH)]

    kit.rows.before_store = work
    async with kit.running(PATIENT, hold=True) as indexer:
        await asyncio.wait_for(kit.paused.wait(), 30)
        assert indexed(kit.rows) == list(range(1, BATCH + 1))
        assert await asyncio.gather(*(indexer.catch_up(TENANT) for _ in range(5))) == [0] * 5
        assert set(range(1, 3 * BATCH + 1)) <= set(indexed(kit.rows))
        await asyncio.wait_for(kit.paused.wait(), 30)
        assert len(kit.rows.waiting) >= 2 * HURRIED_BATCH
    assert kit.pauses.count(3.0) >= 1


async def test_a_search_waits_for_what_was_journaled_before_the_clock_was_set_back() -> None:
    kit = Kit(Rows([due(NOW_US), due(NOW_US + 60_000_000)]))
    async with kit.running(HURRIED) as indexer:
        assert await indexer.catch_up(TENANT) == 0
        assert indexed(kit.rows) == [NOW_US, NOW_US + 60_000_000]


async def test_a_search_waits_no_longer_than_it_may() -> None:
    kit = Kit(Rows([due(1)]))
    held, begun = asyncio.Event(), asyncio.Event()
    store = kit.rows.store

    async def hanging(documents: Sequence[Document], *, remember: bool) -> int:
        begun.set()
        await held.wait()
        return await store(documents, remember=remember)

    kit.rows.store = hanging  # type: ignore[method-assign]
    async with kit.running(IndexSettings(catch_up_s=0.01)) as indexer:
        await begun.wait()
        assert await indexer.catch_up(TENANT) == 1
        held.set()
        await kit.rows.until(lambda: not kit.rows.waiting)
        assert await indexer.catch_up(TENANT) == 0


async def test_nobody_waits_where_nothing_is_due_or_nothing_runs() -> None:
    kit = Kit()
    async with kit.running(PATIENT, hold=True) as indexer:
        assert await indexer.catch_up(TENANT) == 0
    kit.rows.waiting.append(due(1))
    assert await indexer.catch_up(TENANT) == 1


async def test_a_journal_that_fails_is_tried_again_and_told_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = Kit(Rows([due(number) for number in range(1, 11)]))
    left = 3

    def failing(_: object) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise DOWN

    kit.rows.before_due = failing
    async with kit.running(IndexSettings(first_retry_s=1.0, longest_retry_s=3.0, gather_s=0)) as it:
        await kit.rows.until(lambda: not kit.rows.waiting and kit.rows.looks > 4)
        assert it.last_error == ""
    told = [record for record in caplog.records if record.name == indexing.__name__]
    assert [record.levelno for record in told] == [logging.WARNING]
    assert "the disk is full" in told[0].getMessage()
    rests = [first + more for first, more in zip(kit.pauses[:6:2], kit.pauses[1:6:2], strict=True)]
    assert 0.5 <= rests[0] <= 1 <= rests[1] <= 2
    assert 1.5 <= rests[2] <= 3


async def test_a_search_does_not_wait_for_a_journal_that_fails_but_has_it_tried() -> None:
    kit = Kit(Rows([due(1)]))

    def failing(_: Sequence[Document]) -> None:
        raise DOWN

    kit.rows.before_store = failing
    settings = IndexSettings(first_retry_s=0.0, longest_retry_s=3600, catch_up_s=3600)
    async with kit.running(settings, hold=True) as indexer:
        search = asyncio.create_task(indexer.catch_up(TENANT))
        assert await asyncio.wait_for(search, 30) == 1
        assert indexer.last_error == DOWN.message
        looks = kit.rows.looks
        kit.rows.before_store = lambda _: None
        assert await asyncio.wait_for(indexer.catch_up(TENANT), 30) in (0, 1)
        await kit.rows.until(lambda: kit.rows.looks > looks and not kit.rows.waiting)


@pytest.mark.parametrize("error", [ValueError("a defect"), DOWN])
async def test_a_checkpoint_that_cannot_be_stored_does_not_keep_others_from_it(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    kit = Kit(Rows([due(number) for number in range(1, 101)]))
    kit.rows.before_store = refusing(1, 7, 8, error=error)
    async with kit.running() as indexer:
        await kit.rows.until(lambda: len(kit.rows.stored) == 97)
        assert await indexer.catch_up(TENANT) == 3
        assert indexer.last_error.startswith("3 checkpoints cannot be indexed: ")
        kit.commit(200)
        await kit.rows.until(lambda: len(kit.rows.stored) == 98)
        kit.rows.waiting = [due(7, since_us=NOW_US - 5), *kit.rows.waiting]
        kit.rows.before_store = refusing(1, 8, error=error)
        kit.waiters.wake({(TENANT, "t")})
        await kit.rows.until(lambda: len(kit.rows.stored) == 99)
    assert indexed(kit.rows)[-1] == 7
    told = [record.getMessage() for record in caplog.records if "set aside" in record.message]
    assert len(told) == 3


async def test_what_was_set_aside_is_tried_again_later() -> None:
    kit = Kit(Rows([due(1), due(2)]))
    kit.rows.before_store = refusing(1)
    async with kit.running(IndexSettings(gather_s=0, longest_retry_s=60)) as indexer:
        await kit.rows.until(lambda: indexed(kit.rows) == [2])
        kit.rows.before_store = lambda _: None
        kit.seconds += 61
        kit.waiters.wake({(TENANT, "t")})
        await kit.rows.until(lambda: indexed(kit.rows) == [2, 1])
        kit.commit(3)
        await kit.rows.until(lambda: indexed(kit.rows) == [2, 1, 3])
        assert indexer.last_error == ""


async def test_if_nothing_can_be_stored_for_a_defect_it_is_told_as_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = Kit(Rows([due(number) for number in range(1, 41)]))
    kit.rows.before_store = refusing(*range(1, 41))
    async with kit.running() as indexer:
        await kit.rows.until(lambda: kit.rows.looks == 3)
        assert indexer.last_error
        assert "it cannot be stored" not in indexer.last_error
        assert await indexer.catch_up(TENANT) == 40
    assert any(record.exc_info for record in caplog.records)


async def test_a_state_that_cannot_be_made_searchable_is_found_by_its_summary(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: object) -> tuple[str, bool]:
        raise RecursionError("a defect")

    monkeypatch.setattr(indexing, "body_of", failing)
    kit = Kit(Rows([due(1), due(2), due(3, shown=False)]))
    async with kit.running():
        await kit.rows.until(lambda: not kit.rows.waiting)
    assert indexed(kit.rows) == [1, 2, 3]
    assert [document.body for document in kit.rows.stored] == ["", "", ""]
    told = [record.getMessage() for record in caplog.records if record.name == indexing.__name__]
    assert len(told) == 1
    assert "checkpoint '1' of thread 't'" in told[0]


async def test_stopping_finishes_the_batch_under_way_and_leaves_the_rest() -> None:
    kit = Kit(Rows([due(number) for number in range(1, 3 * BATCH)]))
    held, begun = asyncio.Event(), asyncio.Event()
    store = kit.rows.store

    async def hanging(documents: Sequence[Document], *, remember: bool) -> int:
        begun.set()
        await held.wait()
        return await store(documents, remember=remember)

    kit.rows.store = hanging  # type: ignore[method-assign]
    async with kit.running() as indexer:
        await begun.wait()
        search = asyncio.create_task(indexer.catch_up(TENANT))
        stopping = asyncio.create_task(indexer.stop())
        await asyncio.sleep(0)
        held.set()
        await stopping
        assert indexed(kit.rows) == list(range(1, BATCH + 1))
        assert await asyncio.wait_for(search, 30) == 2 * BATCH - 1


async def test_it_can_be_stopped_while_it_waits_after_a_failure_or_before_it_began() -> None:
    kit = Kit(Rows([due(1)]))

    def failing(_: object) -> None:
        raise DOWN

    kit.rows.before_due = failing
    async with kit.running(IndexSettings(first_retry_s=3600, longest_retry_s=3600), hold=True):
        await asyncio.wait_for(kit.paused.wait(), 30)
    listen = kit.waiters.listen
    never = Indexer(
        kit.rows, listen, HURRIED, remember=False, stored=kit.stored, clock_us=lambda: NOW_US
    )
    await never.stop()
    assert await never.catch_up(TENANT) == 1


async def test_the_backlog_is_measured() -> None:
    reader = InMemoryMetricReader()
    kit = Kit(Rows([due(number) for number in range(1, 101)]))
    kit.rows.waiting += [due(number, tenant="other") for number in range(5, 15)]
    kit.rows.before_store = refusing(3)
    async with kit.running(instruments=Instruments(provider=MeterProvider([reader]))) as indexer:
        await kit.rows.until(lambda: len(kit.rows.stored) == 109)
        await indexer.catch_up(TENANT)
        readings = {one.tenant: one for one in indexer.backlog()}
    assert readings[TENANT].checkpoints == 1
    assert readings[TENANT].age_s == pytest.approx((NOW_US - 3) / 1e6)
    assert readings["other"].checkpoints == 0
    data = reader.get_metrics_data()
    assert data is not None
    points = {
        metric.name: [getattr(point, "value", 0) for point in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert points["tuskpoint.search.indexed"] == [109]
