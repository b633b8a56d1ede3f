"""A checkpoint whose blobs are lost is stored again, or is reported as lost."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.integration.archive.recover.recovered import newest, recover
from tests.kit.archives import check_certified, house
from tests.kit.blobs.epoch_store import EpochStore
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, key, refused, write
from tests.kit.epochs import EPOCH_S, years
from tests.kit.journal import Clock
from tests.kit.verdicts import intact
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.blobs.cache import CachedStore
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import View
from tuskpoint_server.core.threads import VerdictKind


def metric(reader: InMemoryMetricReader, name: str) -> float:
    """Return the sum of a counter or a gauge over its attributes."""
    data = reader.get_metrics_data()
    assert data is not None
    return sum(
        point.value  # type: ignore[union-attr, misc]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for instrument in scope.metrics
        if instrument.name == name
        for point in instrument.data.data_points
    )


async def test_a_failing_renewal_is_reported_and_values_return_in_time(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    async with years(tmp_path, epochs=4, meters=MeterProvider([reader])) as time:
        await time.save("1", content=b"old" * 100, question=b"asked")
        await time.save("2", "1", content=b"new" * 100)
        await time.flush()
        saved = await time.load("1")
        assert await time.evict() > 0
        first = await time.blob_of("1")
        time.store.refuse = lambda _: True
        time.advance(2.2)
        done = await time.look()
        assert (done.renewed, done.failed, done.stored_again) == (0, 1, 0)
        status = await time.home.archive.status(TENANT)
        assert status.failing_renewals == 1
        assert first in status.last_error
        assert status.evicted_bytes > 0
        assert metric(reader, "tuskpoint.archive.renewals.failing") == 1
        assert 0 < metric(reader, "tuskpoint.archive.expiry") <= EPOCH_S

        time.advance(0.4)
        assert first in time.store.live()
        done = await time.look()
        assert (done.stored_again, done.lost) == (2, 0)
        assert await time.load("1") == saved
        status = await time.home.archive.status(TENANT)
        assert status.evicted_bytes == 0
        assert status.backlog_checkpoints == 2

        time.advance(2)
        assert first not in time.store.live()
        time.store.refuse = lambda _: False
        await time.keep()
        await time.keep()
        assert await time.blob_of("1") != first
        assert await time.stored("1") == saved
        assert await check_certified(time.home) == 2
        assert (await time.home.archive.status(TENANT)).failing_renewals == 0


async def test_lost_blobs_are_stored_again_from_the_journal(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=4) as time:
        for number in range(3):
            await time.save(f"{number}")
            await time.save("0", thread_id=f"other{number}", content=b"%d" % number)
            await time.flush()
        time.store.quilts.clear()
        with pytest.raises(Refusal):
            await time.stored("1")
        time.advance(3)
        done = await time.look()
        assert (done.stored_again, done.lost) == (6, 0)
        await time.flush()
        assert await check_certified(time.home) == 6
        await time.look()
        status = await time.home.archive.status(TENANT)
        assert (status.failing_renewals, status.gaps) == (0, 0)
        await time.save("9")
        await time.flush()
        assert await check_certified(time.home) == 7


async def test_cached_blobs_are_stored_again_unchanged(tmp_path: Path) -> None:

    clock = Clock()
    store = EpochStore(clock, EPOCH_S, 4)
    cached = CachedStore(store, tmp_path / "cache", 1 << 20)
    async with years(tmp_path, store=store, blobs=cached, clock=clock) as time:
        await time.save("1", content=b"old" * 100)
        await time.save("2", "1", content=b"new" * 100)
        await time.flush()
        saved = await time.load("1")
        entry = await time.home.journal.load(TENANT, key("1"), View.ENTRY)
        assert entry is not None
        await time.home.archive.read_values(entry.entry.segments, ())
        await time.evict()
        store.quilts.clear()
        time.advance(3)
        done = await time.keep()
        assert done.lost == 0
        assert await time.stored("1") == saved


async def test_deleted_threads_stay_deleted_when_the_catalog_is_lost(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=4) as time:
        await time.save("1")
        await time.save("1", thread_id="gone")
        await time.flush()
        await time.delete("gone")
        time.store.quilts.clear()
        time.advance(3)
        await time.keep()
        assert (await time.home.manifest("gone")).ended
        assert not (await time.home.manifest("t")).ended
        assert await check_certified(time.home) == 1


async def test_runs_that_are_lost_stall_no_store_whose_blobs_never_expire(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    async with house(tmp_path, store) as home:
        for number in range(12):
            await home.journal.save_checkpoint(
                TENANT, draft("1", "", {"x": b"1"}, thread_id=f"t{number}")
            )
            store.lost |= {member.sha256 for member in store.members(Kind.RUN.value)}
            with suppress(Refusal):  # a merge needs a lost run, and another catalog is created
                await home.flush()
        await home.archive.lifetime.check_now()
        await home.flush()
        store.lost.clear()
        assert await check_certified(home) == 12


async def test_a_loss_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = InMemoryMetricReader()
    async with years(tmp_path, epochs=4, meters=MeterProvider([reader])) as time:
        await time.save("1", content=b"only copy")
        await time.flush()
        await time.save("2", "1", content=b"head")
        await time.flush()
        assert await time.evict() > 0
        lost = await time.blob_of("1")
        time.store.lose(lost)
        time.advance(3)
        with caplog.at_level(logging.ERROR):
            done = await time.look()
        assert done.lost == 1
        assert "LOST: checkpoint '1'" in caplog.text
        assert metric(reader, "tuskpoint.archive.losses") == 1
        status = await time.home.archive.status(TENANT)
        assert status.failing_renewals == 1
        assert status.gaps == 1
        assert lost in status.last_error
        await time.flush()
        refusal = await refused(time.stored("1"), Reason.BLOB_NOT_FOUND)
        assert refusal.metadata["blob_id"] == lost
        assert await time.stored("2") == await time.load("2")
        [gap] = (await time.home.manifest()).gaps
        assert gap.segment
        assert lost in gap.reason
        puts = len(time.store.puts)
        await time.look()
        assert metric(reader, "tuskpoint.archive.losses") == 1
        assert len(time.store.puts) == puts


async def test_a_lost_segment_that_comes_back_is_no_gap_any_more(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=4) as time:
        await time.save("1", content=b"only copy")
        await time.flush()
        await time.save("2", "1", content=b"head")
        await time.flush()
        assert await time.evict() > 0
        lost = await time.blob_of("1")
        quilt = time.store.quilts[lost]
        time.store.lose(lost)
        time.advance(3)
        assert (await time.look()).lost == 1
        await time.flush()
        assert (await intact(time.home))["1"] is VerdictKind.FAIL
        time.store.quilts[lost] = quilt
        # No pass has looked for the segment yet, but it is back and has the saved values.
        assert (await intact(time.home))["1"] is VerdictKind.UNVERIFIED
        await time.look()
        assert (await time.home.archive.status(TENANT)).gaps == 1, "it is not due yet"
        time.advance(0.01)
        await time.look()
        assert (await time.home.archive.status(TENANT)).gaps == 0
        assert (await time.home.manifest()).gaps == ()
        assert (await intact(time.home))["1"] is VerdictKind.PASS
        assert await time.stored("1") == await time.load("1")


async def test_a_lost_late_write_is_a_gap(tmp_path: Path) -> None:

    async with years(tmp_path, epochs=4) as time:
        await time.save("1", content=b"first")
        await time.flush()
        await time.home.journal.save_writes(TENANT, key("1"), (write("late", b"answer"),))
        await time.flush()
        await time.save("2", "1", content=b"second")
        await time.flush()
        [entry] = [entry for entry in (await time.home.manifest()).entries.values() if entry.writes]
        place = (await time.home.manifest()).location(entry.writes[0].segment)
        assert place is not None
        assert await time.evict() > 0
        time.store.lose(place.blob_id)
        time.advance(3)
        done = await time.look()
        assert done.lost == 1
        gaps = (await time.home.manifest()).gaps
        assert entry.writes[0].segment in {gap.segment for gap in gaps}
        assert (await time.home.archive.status(TENANT)).gaps == 1


async def test_flush_that_was_on_its_way_does_not_bring_lost_runs_back(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=4) as time:
        await time.save("1")
        await time.flush()
        time.store.lose(await time.blob_of("1"))
        time.advance(3)
        await time.save("2")
        tried = []

        def refuse_once(name: str) -> bool:
            tried.append(name)
            return len(tried) == 1

        time.store.refuse = refuse_once
        with pytest.raises(Refusal):
            await time.flush()
        await time.look()
        await time.flush()
        assert await check_certified(time.home) == 2


async def test_epoch_that_falls_makes_everything_due(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with years(tmp_path, epochs=4) as time:
        for number in range(5):
            await time.save(f"{number}", thread_id=f"t{number % 2}", content=b"%d" % number * 99)
            await time.flush()
        time.store.wipe()
        time.advance(0.1)
        await time.save("new", thread_id="t9")
        with caplog.at_level(logging.ERROR):
            for _ in range(3):
                try:
                    await time.flush()
                except Refusal:
                    pass
                await time.look()
        assert "the network was wiped" in caplog.text
        await time.keep()
        assert await check_certified(time.home) == 6
        assert await time.blobs() <= time.store.live()
        await time.look()
        status = await time.home.archive.status(TENANT)
        assert (status.failing_renewals, status.gaps, status.last_error) == (0, 0, "")


async def test_saves_certify_again_after_all_blobs_were_lost_and_idle_rounds(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with years(tmp_path, epochs=4) as time:
        for number in range(30):
            await time.save(f"{number:02}", thread_id=f"t{number % 3}", content=b"%d" % number)
            await time.flush()
        time.store.wipe()
        for _ in range(6):
            time.advance(0.7)
            await time.look()
        with caplog.at_level(logging.WARNING):
            for number in range(3):
                await time.save("99", thread_id=f"t{number}")
                await time.flush()
        assert "is abandoned" not in caplog.text
        for _ in range(3):
            await time.keep()
        assert await check_certified(time.home) == 33
        assert (await time.home.archive.status(TENANT)).backlog_checkpoints == 0


async def test_recovery_follows_moves_losses_and_repairs(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    async with years(tmp_path, epochs=3, max_put_bytes=1_000_000) as time:
        for number in range(6):
            await time.save(f"{number}", f"{number - 1}" if number else "", content=content)
            await time.save("1", thread_id=f"t{number}", question=b"asked")
            content += b"%04d" % number * 30
            await time.flush()
        await time.delete("t3")
        for _ in range(8):
            time.advance(0.5)
            await time.keep()
        time.store.lose(await time.blob_of("1", "t1"))
        time.advance(3)
        for _ in range(3):
            await time.keep()
        recovered = tmp_path / "recovered"
        done = await recover(recovered, time.store, await newest(time.home), time.home.clock)
        assert done.left_out == []
        assert (done.threads, done.ended, done.checkpoints) == (6, 1, 11)
        async with years(recovered, store=time.store, clock=time.home.clock) as again:
            assert await check_certified(again.home) == 11
            for _ in range(3):
                again.advance(0.9)
                await again.keep()
            assert await check_certified(again.home) == 11
