"""Blobs that threads need are renewed before they expire."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.kit.archives import check_certified
from tests.kit.blobs.epoch_store import UNIT_BYTES, UNIT_COST
from tests.kit.drafts import TENANT, refused
from tests.kit.epochs import EPOCH_US, years
from tuskpoint_server.blobs.api import PutReceipt
from tuskpoint_server.core.errors import Reason, Refusal

# The database makes no difference to renewal.
pytestmark = pytest.mark.sqlite


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
        # Merges and dense packs limit the number of blobs to renew.
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


async def test_the_status_reports_stored_blobs_cost_and_expiry(tmp_path: Path) -> None:
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
        assert status.cost == UNIT_COST  # the second put found blobs that were paid for
        assert status.earliest_expire_us is not None
        assert status.earliest_expire_us > time.home.clock.now_us + EPOCH_US
        assert status.failing_renewals == 0


async def test_checkpoints_that_are_blobs_of_their_own_keep_their_ids(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=3, standalone=True, max_put_bytes=1_000_000) as time:
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

        async def renew(blob_id: str) -> PutReceipt:
            members = list(time.store.quilts[blob_id].members.values())
            return await time.store.put(members[::-1])

        monkeypatch.setattr(time.store, "renew", renew)
        for _ in range(10):
            time.advance(0.6)
            await time.keep()
        assert await check_certified(time.home) == 1
        assert (await time.home.archive.status(TENANT)).failing_renewals == 0
