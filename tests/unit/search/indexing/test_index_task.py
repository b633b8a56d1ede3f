"""The index follows the logs: saves come first, searches wait briefly, and no failure stops it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.unit.search.indexing.index_rows import TENANT, Rows, due
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import Value
from tuskpoint_server.journal.database.database import Waiters
from tuskpoint_server.search import tasks as indexing
from tuskpoint_server.search.pacing import IndexSettings
from tuskpoint_server.search.searched_values import Document
from tuskpoint_server.search.tasks import BATCH, HURRIED_BATCH, IndexTask
from tuskpoint_server.search.telemetry import SearchInstruments

HURRIED = IndexSettings(gather_s=0, busy_share=1, catch_up_s=30, first_retry_s=0)
PATIENT = IndexSettings(gather_s=3600, busy_share=0.25, catch_up_s=30)
DOWN = Refusal(Reason.JOURNAL_UNAVAILABLE, problem="the disk is full")
NOW_US = 1_000_000


@dataclass
class Kit:
    """An index task and the objects around it; its clock stands still until a test moves it."""

    rows: Rows = field(default_factory=Rows)
    waiters: Waiters = field(default_factory=Waiters)
    reported: int = 0
    now_us: int = NOW_US
    seconds: float = 0.0
    pauses: list[float] = field(default_factory=list)
    paused: asyncio.Event = field(default_factory=asyncio.Event)

    def commit(self, number: int, thread: int = 1) -> None:
        """Make a checkpoint due, as a save does."""
        self.rows.waiting.append(due(number, thread))
        self.waiters.wake({(TENANT, f"t{thread}")})

    def stored(self) -> None:
        self.reported += 1

    async def pass_by(self, seconds: float, ended: asyncio.Event) -> None:
        """Skip the pause."""
        self.pauses.append(seconds)
        self.seconds += seconds
        await asyncio.sleep(0)

    async def hold(self, seconds: float, ended: asyncio.Event) -> None:
        """Wait until the pause is ended, whatever its length."""
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
        instruments: SearchInstruments | None = None,
    ) -> AsyncIterator[IndexTask]:
        task = IndexTask(
            self.rows,
            self.waiters.subscribe,
            settings,
            remember=remember,
            stored=self.stored,
            instruments=instruments or SearchInstruments(),
            clock=lambda: self.seconds,
            wait=self.hold if hold else self.pass_by,
        )
        try:
            yield task
        finally:
            await asyncio.wait_for(task.stop(), 30)


def indexed(rows: Rows) -> list[int]:
    """Return the numbers of the stored documents, in order."""
    return [document.number for document in rows.stored]


def kit_of(*numbers: int) -> Kit:
    return Kit(Rows([due(number) for number in numbers]))


def refusing(*numbers: int, error: Exception | None = None) -> Callable[[Sequence[Document]], None]:
    """Fail whenever one of some checkpoints is to be stored."""

    def before_store(documents: Sequence[Document]) -> None:
        if {document.number for document in documents} & set(numbers):
            raise error or ValueError("it cannot be stored")

    return before_store


async def test_a_backlog_is_indexed_in_order_and_in_small_batches() -> None:
    kit = kit_of(*range(1, 101))
    async with kit.running(remember=True):
        await kit.rows.until(lambda: not kit.rows.waiting)
    assert indexed(kit.rows) == list(range(1, 101))
    assert max(kit.rows.batches) <= BATCH
    assert kit.rows.remembered
    assert kit.reported == len(kit.rows.batches)
    assert (kit.rows.stored[6].body, kit.rows.stored[6].planned) == ("step 7", True)
    assert kit.rows.watermarks == {1: 100}


async def test_changes_are_gathered_unless_a_search_waits() -> None:
    kit = Kit()
    async with kit.running(PATIENT, hold=True) as task:
        await kit.rows.until(lambda: kit.rows.takes > 0)
        kit.commit(1)
        await asyncio.wait_for(kit.paused.wait(), 30)
        assert kit.pauses == [3600]
        kit.commit(2)
        assert not kit.rows.stored
        assert await task.catch_up(TENANT) == 0
    assert indexed(kit.rows) == [1, 2]
    assert kit.rows.batches == [2]


async def test_it_rests_for_three_times_as_long_as_it_works() -> None:
    kit = kit_of(*range(1, 3 * BATCH + 1))

    def work(_: Sequence[Document]) -> None:
        kit.seconds += 2.0

    kit.rows.before_store = work
    async with kit.running(IndexSettings(gather_s=0, busy_share=0.25)):
        await kit.rows.until(lambda: not kit.rows.waiting)
    assert kit.pauses[:2] == [6.0, 6.0]


async def test_a_search_waits_only_for_changes_logged_before_it() -> None:
    """Other threads may continue to save: an index that is never complete still answers."""
    kit = kit_of(*range(1, 3 * BATCH + 1))

    def work(_: Sequence[Document]) -> None:
        kit.seconds += 1.0
        last = kit.rows.waiting[-1].seq
        kit.rows.waiting += [due(last + more, 2) for more in range(1, 2 * HURRIED_BATCH)]

    kit.rows.before_store = work
    async with kit.running(PATIENT, hold=True) as task:
        await asyncio.wait_for(kit.paused.wait(), 30)
        numbers = [checkpoint.number for checkpoint in kit.rows.waiting if checkpoint.thread == 1]
        assert await asyncio.gather(*(task.catch_up(TENANT) for _ in range(5))) == [0] * 5
        assert set(numbers) <= set(indexed(kit.rows))
        await asyncio.wait_for(kit.paused.wait(), 30)
        assert kit.rows.waiting
    assert kit.pauses.count(3.0) >= 1


async def test_a_batch_that_ends_while_a_search_asks_how_far_the_logs_are_counts() -> None:
    kit = kit_of(1)
    now = kit.rows.now

    async def late(tenant: str) -> dict[int, int]:
        seqs = await now(tenant)
        await kit.rows.until(lambda: not kit.rows.waiting)
        return seqs

    release = asyncio.Event()
    take = kit.rows.take

    async def held(limit: int) -> object:
        await release.wait()
        return await take(limit)

    kit.rows.take = held  # type: ignore[method-assign, assignment]
    kit.rows.now = late  # type: ignore[method-assign]
    async with kit.running() as task:
        search = asyncio.create_task(task.catch_up(TENANT))
        await asyncio.sleep(0)
        release.set()
        assert await asyncio.wait_for(search, 10) == 0


async def test_nobody_waits_where_nothing_is_due_or_nothing_runs() -> None:
    kit = Kit()
    async with kit.running(PATIENT, hold=True) as task:
        assert await task.catch_up(TENANT) == 0
    kit.rows.waiting.append(due(1))
    assert await task.catch_up(TENANT) == 1
    assert await task.catch_up("another") == 0


async def test_a_journal_that_fails_is_tried_again_and_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = kit_of(*range(1, 11))
    left = 3

    def failing(_: object) -> None:
        nonlocal left
        left -= 1
        if left >= 0:
            raise DOWN

    kit.rows.before_take = failing
    settings = IndexSettings(first_retry_s=1.0, longest_retry_s=3.0, gather_s=0)
    async with kit.running(settings) as task:
        await kit.rows.until(lambda: not kit.rows.waiting)
        kit.commit(11)
        await kit.rows.until(lambda: kit.rows.takes > 4)
        assert task.trouble.problem == ""
    reported = [record for record in caplog.records if record.name == indexing.__name__]
    assert [record.levelno for record in reported] == [logging.WARNING]
    assert "the disk is full" in reported[0].getMessage()
    rests = [first + more for first, more in zip(kit.pauses[:6:2], kit.pauses[1:6:2], strict=True)]
    assert 0.5 <= rests[0] <= 1 <= rests[1] <= 2
    assert 1.5 <= rests[2] <= 3


async def test_a_search_does_not_wait_for_a_journal_that_fails_but_has_it_tried() -> None:
    kit = kit_of(1)

    def failing(_: Sequence[Document]) -> None:
        raise DOWN

    kit.rows.before_store = failing
    settings = IndexSettings(first_retry_s=0.0, longest_retry_s=3600, catch_up_s=3600)
    async with kit.running(settings, hold=True) as task:
        search = asyncio.create_task(task.catch_up(TENANT))
        assert await asyncio.wait_for(search, 30) == 1
        assert task.trouble.problem == DOWN.message
        kit.rows.before_store = lambda _: None
        assert await asyncio.wait_for(task.catch_up(TENANT), 30) in (0, 1)
        await kit.rows.until(lambda: not kit.rows.waiting)


@pytest.mark.parametrize("error", [ValueError("a defect"), DOWN])
async def test_a_checkpoint_that_cannot_be_stored_does_not_keep_others_from_it(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    kit = kit_of(*range(1, 101))
    kit.rows.before_store = refusing(1, 7, 8, error=error)
    async with kit.running() as task:
        await kit.rows.until(lambda: not kit.rows.waiting)
        kit.rows.before_store = refusing(1, 8, error=error)
        kit.rows.waiting.append(due(7)._replace(seq=101))  # the thread saved again
        kit.waiters.wake({(TENANT, "t1")})
        await kit.rows.until(lambda: not kit.rows.waiting)
        assert await task.catch_up(TENANT) == 0
    assert len(indexed(kit.rows)) == 98
    assert indexed(kit.rows)[-1] == 7
    reported = [
        record.message for record in caplog.records if "cannot be indexed" in record.message
    ]
    assert len(reported) == 3


@pytest.mark.parametrize("accepted", [1, 4])
async def test_a_journal_that_recovers_between_two_checkpoints_loses_neither(
    accepted: int, caplog: pytest.LogCaptureFixture
) -> None:
    """The journal fails until the batch is stored one by one, and then for one of two stores."""
    kit = kit_of(*range(1, 11))
    alone = 0

    def before_store(documents: Sequence[Document]) -> None:
        nonlocal alone
        if len(documents) > 1:
            raise DOWN
        alone += len(documents)
        if documents and alone <= 10 and alone % (accepted + 1):
            raise DOWN

    kit.rows.before_store = before_store
    async with kit.running():
        await kit.rows.until(lambda: not kit.rows.waiting)
    assert sorted(indexed(kit.rows)) == list(range(1, 11))
    assert "cannot be indexed" not in caplog.text


async def test_if_nothing_can_be_stored_the_watermark_stays(
    caplog: pytest.LogCaptureFixture,
) -> None:
    kit = kit_of(*range(1, 41))
    kit.rows.before_store = refusing(*range(1, 41))
    async with kit.running() as task:
        await kit.rows.until(lambda: kit.rows.takes == 3)
        assert task.trouble.problem
        assert "it cannot be stored" not in task.trouble.problem
        assert await task.catch_up(TENANT) == 40
    assert kit.rows.watermarks.get(1, 0) == 0
    assert any(record.exc_info for record in caplog.records)


async def test_a_state_that_cannot_be_made_searchable_is_found_by_its_summary(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def failing(*_: object) -> None:
        raise RecursionError("a defect")

    monkeypatch.setattr(indexing, "body_of", failing)
    kit = kit_of(1, 2)
    async with kit.running():
        await kit.rows.until(lambda: not kit.rows.waiting)
    assert [(document.body, document.truncated) for document in kit.rows.stored] == [("", True)] * 2
    reported = [
        record.getMessage() for record in caplog.records if record.name == indexing.__name__
    ]
    assert len(reported) == 1
    assert "checkpoint '1' of thread 't1'" in reported[0]


async def test_a_document_records_whether_text_was_left_out() -> None:
    state = (("a", Value("json", b'"word"')),)
    long = (("a", Value("json", b'"%s"' % (b"word " * 5000))),)
    kit = Kit(
        Rows(
            [
                due(1)._replace(channels=state),
                due(2)._replace(channels=state, truncated=True),
                due(3)._replace(channels=long),
                due(4)._replace(truncated=True),  # has a plan, which alone is indexed
            ]
        )
    )
    async with kit.running():
        await kit.rows.until(lambda: not kit.rows.waiting)
    assert [document.truncated for document in kit.rows.stored] == [False, True, True, False]


async def test_stopping_finishes_the_batch_under_way_and_leaves_the_rest() -> None:
    kit = kit_of(*range(1, 3 * BATCH))
    held, begun = asyncio.Event(), asyncio.Event()
    store = kit.rows.store

    async def hanging(*arguments: object, **named: object) -> int:
        begun.set()
        await held.wait()
        return await store(*arguments, **named)  # type: ignore[arg-type]

    kit.rows.store = hanging  # type: ignore[method-assign]
    async with kit.running() as task:
        await begun.wait()
        search = asyncio.create_task(task.catch_up(TENANT))
        stopping = asyncio.create_task(task.stop())
        await asyncio.sleep(0)
        held.set()
        await stopping
        assert indexed(kit.rows) == list(range(1, BATCH + 1))
        assert await asyncio.wait_for(search, 30) == 2 * BATCH - 1


async def test_it_can_be_stopped_while_it_waits_after_a_failure_or_at_once() -> None:
    kit = kit_of(1)

    def failing(_: object) -> None:
        raise DOWN

    kit.rows.before_take = failing
    async with kit.running(IndexSettings(first_retry_s=3600, longest_retry_s=3600), hold=True):
        await asyncio.wait_for(kit.paused.wait(), 30)
    async with kit.running() as never:
        pass
    assert await never.catch_up(TENANT) == 1


async def test_the_backlog_is_measured() -> None:
    reader = InMemoryMetricReader()
    kit = kit_of(*range(1, 101))
    kit.rows.waiting += [due(number, 2, "other") for number in range(5, 15)]
    async with kit.running(
        IndexSettings(gather_s=0, busy_share=0.5),
        hold=True,
        instruments=SearchInstruments(provider=MeterProvider([reader])),
    ) as task:

        def work(_: Sequence[Document]) -> None:
            kit.seconds += 1.0

        kit.rows.before_store = work
        await asyncio.wait_for(kit.paused.wait(), 30)
        readings = {backlog.tenant: backlog for backlog in task.backlog.values()}
        assert readings[TENANT].checkpoints == 100 - BATCH
        assert readings[TENANT].since_us == BATCH + 1
        assert readings["other"].checkpoints == 10
        assert await task.catch_up(TENANT) == await task.catch_up("other") == 0
        assert {backlog.checkpoints for backlog in task.backlog.values()} == {0}
    data = reader.get_metrics_data()
    assert data is not None
    points = {
        metric.name: [getattr(point, "value", 0) for point in metric.data.data_points]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for metric in scope.metrics
    }
    assert points["tuskpoint.search.indexed"] == [110]
