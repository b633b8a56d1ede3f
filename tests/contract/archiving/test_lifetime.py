"""What is needed outlasts its blobs; what is lost is stored again, or said to be lost."""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.integration.archive.recover.recovered import newest, recover
from tests.kit.archives import check_certified, house, shown
from tests.kit.drafts import TENANT, data_of, draft, key, refused
from tests.kit.epoch_store import UNIT_BYTES, UNIT_COST
from tests.kit.epochs import EPOCH_S, EPOCH_US, Years, years
from tests.kit.stores import MemoryStore
from tuskpoint_server.blobs.api import Receipt
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.formats.segment_reading import decode_segment
from tuskpoint_server.domain.formats.stored_json import Kind
from tuskpoint_server.domain.model import BlobLocation, View
from tuskpoint_server.journal.lineage.handoffs import Handoffs
from tuskpoint_server.journal.lineage.lineage import Lineage


async def loaded(time: Years, checkpoint_id: str, thread_id: str = "t") -> object:
    found = await time.home.journal.load(TENANT, key(checkpoint_id, thread_id), View.FULL)
    assert found is not None
    return shown(found)


async def stored(time: Years, checkpoint_id: str, thread_id: str = "t") -> object:
    return shown(await time.home.from_blobs(key(checkpoint_id, thread_id)))


# --- renewing ----------------------------------------------------------------------------


@pytest.mark.parametrize("epochs", [2, 4])
async def test_live_threads_stay_readable_and_deleted_ones_lapse(
    tmp_path: Path, epochs: int
) -> None:
    async with years(tmp_path, epochs=epochs) as time:
        await time.save("1", content=b"keep", thread_id="live")
        await time.flush()
        await time.save("1", content=b"drop", thread_id="doomed")
        await time.flush()
        doomed = await time.blob_of("1", "doomed")
        await time.delete("doomed")
        for number in range(24):
            time.advance(0.7)
            await time.look()
            await time.save(f"{number:02}", thread_id=f"busy{number % 2}")
            await time.flush()
            assert (await time.home.manifest("doomed")).ended
            await check_certified(time.home)
        assert await time.blob_of("1", "live") in time.store.live()
        assert doomed not in time.store.live()
        assert doomed not in await time.blobs()
        # Merges and dense packs keep what has to be renewed few.
        assert len(await time.blobs()) < 20


async def test_blob_is_renewed_once_an_epoch(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=3) as time:
        for number in range(6):
            await time.save(f"{number}")
            await time.flush()
        for _ in range(6):
            time.store.renewals.clear()
            puts = len(time.store.puts)
            for _ in range(4):
                time.advance(0.25)
                await time.look()
            assert len(time.store.renewals) == len(set(time.store.renewals)) <= 6
            assert len(time.store.puts) - puts <= 8
            assert await check_certified(time.home) == 6


async def test_looking_for_an_epoch_that_has_not_begun_takes_one_blob(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=2) as time:
        time.home.clock.now_us -= time.home.clock.now_us % EPOCH_US
        for number in range(6):
            await time.save(f"{number}", content=b"%d" % number * 4000)
            await time.flush()
        for _ in range(3):
            time.advance(0.2)
            await time.look()
        assert len(time.store.renewals) <= 3
        time.advance(0.4)
        await time.look()
        assert {time.store.quilts[name].end_epoch for name in await time.blobs()} == {
            time.store.epoch + 2
        }


async def test_blob_that_cannot_be_renewed_keeps_none_from_being(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=2) as time:
        for number in range(3):
            await time.save(f"{number}", thread_id=f"t{number}", content=b"%d" % number * 4000)
            await time.flush()
        stuck = await time.blob_of("0", "t0")
        time.store.refuse = lambda name: name == stuck
        time.advance(0.4)
        for _ in range(20):
            time.advance(0.3)
            await time.keep()
            assert await check_certified(time.home) == 3


async def test_new_epoch_starts_renewals(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=2, background=True) as time:
        await time.save("1", content=b"1" * 4000)
        await time.flush()
        first = await time.blob_of("1")
        time.advance(1)
        await time.save("2")
        await time.flush()
        while first not in time.store.renewals:
            await time.home.archive.status(TENANT)
        assert time.store.quilts[first].end_epoch == time.store.epoch + 2


async def test_status_says_what_is_stored_and_when_it_expires(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=5) as time:
        before = await time.home.archive.status(TENANT)
        assert (before.earliest_expire_us, before.stored_blobs, before.cost) == (None, 0, 0)
        await time.save("1")
        await time.flush()
        status = await time.home.archive.status(TENANT)
        assert status.stored_blobs == 1
        assert (status.billed_bytes, status.cost) == (UNIT_BYTES, UNIT_COST)
        assert status.earliest_expire_us is not None
        assert 3.99 < (status.earliest_expire_us - time.home.clock.now_us) / EPOCH_US <= 4
        detail = await time.home.journal.thread(TENANT, "t")
        assert detail is not None
        assert detail.expire_us == status.earliest_expire_us
        time.advance(4)
        await time.look()
        after = await time.home.archive.status(TENANT)
        assert (after.billed_bytes, after.cost) == (2 * UNIT_BYTES, 2 * UNIT_COST)
        assert after.earliest_expire_us is not None
        assert after.earliest_expire_us > status.earliest_expire_us


async def test_end_is_known_after_a_restart(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=5) as time:
        await time.save("1")
        await time.flush()
        expected = (await time.home.archive.status(TENANT)).earliest_expire_us
        store, clock = time.store, time.home.clock
    async with years(tmp_path, store=store, clock=clock) as time:
        assert (await time.home.archive.status(TENANT)).earliest_expire_us == expected
        time.advance(2.9)
        await time.look()
        assert time.store.renewals == []
        time.advance(0.2)
        await time.look()
        assert time.store.renewals == [await time.blob_of("1")]


async def test_blob_of_unknown_end_is_due(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=5) as time:
        await time.save("1")
        await time.flush()
        await time.home.journal.database.transact(
            lambda batch: batch.connection.exec_driver_sql("DELETE FROM blobs")
        )
        assert (await time.home.archive.status(TENANT)).earliest_expire_us is None
        await time.look()
        assert (await time.home.archive.status(TENANT)).earliest_expire_us is not None
        await time.look()
        assert len(time.store.renewals) == 1


async def test_renewal_that_works_again_is_no_trouble_any_more(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=4) as time:
        await time.save("1")
        await time.flush()
        time.advance(2.2)
        time.store.refuse = lambda _: True
        await time.look()
        assert (await time.home.archive.status(TENANT)).failing_renewals == 1
        time.store.refuse = lambda _: False
        await time.look()
        status = await time.home.archive.status(TENANT)
        assert (status.failing_renewals, status.last_error) == (0, "")


async def test_renewal_that_was_not_recorded_is_repeated_for_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with years(tmp_path, epochs=4) as time:
        await time.save("1")
        await time.flush()
        await time.look()
        time.advance(3)

        async def refuse(*_: object) -> None:
            raise Refusal(Reason.JOURNAL_UNAVAILABLE, problem="on purpose")

        with monkeypatch.context() as patched:
            patched.setattr(time.home.journal.database, "transact", refuse)
            await refused(time.look(), Reason.JOURNAL_UNAVAILABLE)
        await time.look()
        status = await time.home.archive.status(TENANT)
        assert status.cost == UNIT_COST  # what the second put found had been paid
        assert status.earliest_expire_us is not None
        assert status.earliest_expire_us > time.home.clock.now_us + EPOCH_US
        assert status.failing_renewals == 0


# --- dense packs -------------------------------------------------------------------------


async def test_what_lives_in_a_sparse_blob_goes_byte_for_byte_into_a_dense_one(
    tmp_path: Path,
) -> None:
    async with years(tmp_path, epochs=3) as time:
        for number in range(8):
            await time.save("1", thread_id=f"t{number}", content=b"%d" % number * 4000)
        await time.save("1", thread_id="last", content=b"last" * 10)
        await time.flush()
        sparse = await time.blob_of("1", "last")
        [entry] = (await time.home.manifest("last")).entries.values()
        before = await loaded(time, "1", "last")
        for number in range(8):
            await time.delete(f"t{number}")
        time.advance(2)
        await time.keep()
        assert sparse not in time.store.renewals
        assert await time.blob_of("1", "last") != sparse
        [moved] = (await time.home.manifest("last")).entries.values()
        assert moved.record.segment == entry.record.segment
        assert sparse not in await time.blobs()
        for _ in range(12):
            time.advance(0.5)
            await time.keep()
        assert sparse not in time.store.live()
        assert await stored(time, "1", "last") == before
        assert await check_certified(time.home) == 1
        assert _threads(time) == {"last"}


def _threads(time: Years) -> set[str]:
    """Return the threads of which segments are in blobs that have not expired."""
    return {
        decode_segment(one.data, "").thread_id
        for name in time.store.live()
        for one in time.store.quilts[name].members.values()
        if one.kind == Kind.SEGMENT
    }


async def test_one_small_quilt_for_every_flush_becomes_few(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=3, max_put_bytes=1_000_000) as time:
        for number in range(20):
            await time.save("1", thread_id=f"t{number}", content=b"%d" % number)
            await time.flush()
        assert len(await time.blobs()) > 10
        time.advance(2)
        await time.keep()
        assert len(await time.blobs()) <= 2
        assert await check_certified(time.home) == 20
        for _ in range(8):
            time.advance(0.5)
            await time.keep()
        assert await check_certified(time.home) == 20


async def test_patches_find_their_keyframes_after_both_were_moved(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    async with years(tmp_path, epochs=3, max_put_bytes=1_000_000) as time:
        for number in range(12):
            await time.save(f"{number:02}", f"{number - 1:02}" if number else "", content=content)
            content += b"%04d" % number * 30
            await time.flush()
        assert await time.evict() > 0
        for _ in range(10):
            time.advance(0.5)
            await time.look()
        assert len(await time.blobs()) <= 3
        for number in range(12):
            found = await time.home.from_blobs(key(f"{number:02}"))
            assert data_of(found)["x"].startswith(bytes(range(256)) * 40)


async def test_fork_of_a_deleted_thread_stops_needing_its_bytes(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=3) as time:
        await time.save("1", content=b"shared" * 700, asked=b"a question")
        await time.save("2", "1", content=b"secret" * 700)
        await time.flush()
        await Lineage(time.home.journal.database).fork(TENANT, key("1"), "fork", "")
        await time.flush()
        origin = await time.blob_of("1", "fork")
        before = await loaded(time, "1", "fork")
        await time.delete("t")
        for _ in range(14):
            time.advance(0.5)
            await time.keep()
            assert await stored(time, "1", "fork") == before
        assert origin not in await time.blobs()
        assert _threads(time) == {"fork"}
        assert await check_certified(time.home) == 1


# --- what cannot be renewed, and what is lost ---------------------------------------------


async def test_failing_renewal_is_said_and_taken_back_in_time(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    async with years(tmp_path, epochs=4, meters=MeterProvider([reader])) as time:
        await time.save("1", content=b"old" * 100, asked=b"asked")
        await time.save("2", "1", content=b"new" * 100)
        await time.flush()
        saved = await loaded(time, "1")
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
        assert await loaded(time, "1") == saved
        status = await time.home.archive.status(TENANT)
        assert status.evicted_bytes == 0
        assert status.backlog_checkpoints == 2

        time.advance(2)
        assert first not in time.store.live()
        time.store.refuse = lambda _: False
        await time.keep()
        await time.keep()
        assert await time.blob_of("1") != first
        assert await stored(time, "1") == saved
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
            await stored(time, "1")
        time.advance(3)
        done = await time.look()
        assert (done.stored_again, done.lost) == (6, 0)
        await time.flush()
        assert await check_certified(time.home) == 6
        await time.look()
        status = await time.home.archive.status(TENANT)
        assert (status.failing_renewals, status.holes) == (0, 0)
        await time.save("9")
        await time.flush()
        assert await check_certified(time.home) == 7


async def test_what_the_cache_holds_is_stored_again_byte_for_byte(tmp_path: Path) -> None:
    from tests.kit.epoch_store import EpochStore
    from tests.kit.journal import Clock
    from tuskpoint_server.blobs.cache import CachedStore

    clock = Clock()
    store = EpochStore(clock, EPOCH_S, 4)
    cached = CachedStore(store, tmp_path / "cache", 1 << 20)
    async with years(tmp_path, store=store, blobs=cached, clock=clock) as time:
        await time.save("1", content=b"old" * 100)
        await time.save("2", "1", content=b"new" * 100)
        await time.flush()
        saved = await loaded(time, "1")
        entry = await time.home.journal.load(TENANT, key("1"), View.ENTRY)
        assert entry is not None
        await time.home.archive.read_values(entry.entry.segments, ())
        await time.evict()
        store.quilts.clear()
        time.advance(3)
        done = await time.keep()
        assert done.lost == 0
        assert await stored(time, "1") == saved


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
            store.lost |= {one.sha256 for one in store.members(Kind.RUN.value)}
            with suppress(Refusal):  # a merge asks for a run, and another catalog is made
                await home.flush()
        await home.archive.lifetime.look_now()
        await home.flush()
        store.lost.clear()
        assert await check_certified(home) == 12


async def test_loss_is_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
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
        assert status.holes == 1
        assert lost in status.last_error
        await time.flush()
        found = await refused(stored(time, "1"), Reason.BLOB_NOT_FOUND)
        assert found.metadata["blob_id"] == lost
        assert await stored(time, "2") == await loaded(time, "2")
        [gap] = (await time.home.manifest()).gaps
        assert gap.segment
        assert lost in gap.reason
        puts = len(time.store.puts)
        await time.look()
        assert metric(reader, "tuskpoint.archive.losses") == 1
        assert len(time.store.puts) == puts


async def test_a_lost_late_write_is_a_gap(tmp_path: Path) -> None:
    from tests.kit.drafts import write

    async with years(tmp_path, epochs=4) as time:
        await time.save("1", content=b"first")
        await time.flush()
        await time.home.journal.save_writes(TENANT, key("1"), (write("late", b"answer"),))
        await time.flush()
        await time.save("2", "1", content=b"second")
        await time.flush()
        [entry] = [one for one in (await time.home.manifest()).entries.values() if one.writes]
        place = (await time.home.manifest()).location(entry.writes[0].segment)
        assert place is not None
        assert await time.evict() > 0
        time.store.lose(place.blob_id)
        time.advance(3)
        done = await time.look()
        assert done.lost == 1
        gaps = (await time.home.manifest()).gaps
        assert entry.writes[0].segment in {gap.segment for gap in gaps}
        assert (await time.home.archive.status(TENANT)).holes == 1


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


# --- a wiped network ---------------------------------------------------------------------


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
        assert (status.failing_renewals, status.holes, status.last_error) == (0, 0, "")


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


def metric(reader: InMemoryMetricReader, name: str) -> float:
    """Sum of a counter or a gauge over its attributes."""
    data = reader.get_metrics_data()
    assert data is not None
    return sum(
        point.value  # type: ignore[union-attr, misc]
        for resource in data.resource_metrics
        for scope in resource.scope_metrics
        for found in scope.metrics
        if found.name == name
        for point in found.data.data_points
    )


# --- recovery ----------------------------------------------------------------------------


async def test_recovery_follows_what_was_moved_lost_and_stored_again(tmp_path: Path) -> None:
    content = bytes(range(256)) * 40
    async with years(tmp_path, epochs=3, max_put_bytes=1_000_000) as time:
        for number in range(6):
            await time.save(f"{number}", f"{number - 1}" if number else "", content=content)
            await time.save("1", thread_id=f"t{number}", asked=b"asked")
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


# --- blobs whose ID others know ------------------------------------------------------------


async def hand_off(time: Years, checkpoint_id: str) -> BlobLocation:
    journal, archive = time.home.journal.database, time.home.archive
    closure = await Lineage(journal).closure(TENANT, key(checkpoint_id))
    assert closure is not None
    bundle = await archive.apart.store_bundle(TENANT, closure)
    await Handoffs(journal).keep_handoff(
        TENANT, key(checkpoint_id), bundle.location, bundle.parts, "", b"", b"answer",
        content_seq=1,
    )  # fmt: skip
    await time.flush()
    return bundle.location


async def test_bundle_keeps_its_blob_as_long_as_its_thread_lives(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=3, max_put_bytes=1_000_000) as time:
        await time.save("1")
        await time.flush()
        bundle = await hand_off(time, "1")
        for _ in range(10):
            time.advance(0.6)
            await time.keep()
            await time.home.archive.apart.fetch(bundle, lambda count: None)
        await time.delete("t")
        for _ in range(8):
            time.advance(0.6)
            await time.keep()
        assert bundle.blob_id not in time.store.live()
        assert (await time.home.archive.status(TENANT)).failing_renewals == 0


async def test_bundle_that_is_gone_past_its_end_is_given_up_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with years(tmp_path, epochs=3) as time:
        await time.save("1")
        await time.flush()
        bundle = await hand_off(time, "1")
        time.store.lose(bundle.blob_id)
        time.advance(2)
        done = await time.look()
        assert done.bundles_lost == 0  # it may be there again: it should still last
        assert (await time.home.archive.status(TENANT)).failing_renewals == 1
        time.advance(1.1)
        with caplog.at_level(logging.ERROR):
            done = await time.look()
        assert done.bundles_lost == 1
        assert "hand it off again" in caplog.text
        await time.keep()
        status = await time.home.archive.status(TENANT)
        assert (status.failing_renewals, status.holes) == (0, 0)
        assert await check_certified(time.home) == 1


async def test_checkpoints_that_are_blobs_of_their_own_keep_their_ids(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=3, apart=True, max_put_bytes=1_000_000) as time:
        for number in range(3):
            await time.save(f"{number}", content=b"%d" % number * 2000)
        await time.flush()
        before = [await time.blob_of(f"{number}") for number in range(3)]
        for _ in range(10):
            time.advance(0.6)
            await time.keep()
        assert [await time.blob_of(f"{number}") for number in range(3)] == before
        assert await check_certified(time.home) == 3


async def test_blob_that_the_store_makes_another_of_is_found_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with years(tmp_path, epochs=3) as time:
        await time.save("1")
        await time.flush()

        async def renew(blob_id: str) -> Receipt:
            members = list(time.store.quilts[blob_id].members.values())
            return await time.store.put(members[::-1])

        monkeypatch.setattr(time.store, "renew", renew)
        for _ in range(10):
            time.advance(0.6)
            await time.keep()
        assert await check_certified(time.home) == 1
        assert (await time.home.archive.status(TENANT)).failing_renewals == 0


async def test_pack_that_says_what_was_moved_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=4, max_put_bytes=1_000_000) as time:
        for number in range(4):
            await time.save("1", thread_id=f"t{number}", content=b"%d" % number * 100)
            await time.flush()
        time.advance(3)
        puts = len(time.store.puts)
        time.store.refuse = lambda _: len(time.store.puts) > puts
        await time.look()
        assert len(time.store.puts) == puts + 1  # what was moved; the catalog is on its way
        store, clock = time.store, time.home.clock
    store.refuse = lambda _: False
    async with years(tmp_path, store=store, clock=clock) as time:
        await time.flush()
        assert await check_certified(time.home) == 4
        time.advance(1)
        await time.keep()
        assert await check_certified(time.home) == 4
