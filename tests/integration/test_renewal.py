from __future__ import annotations

import logging
from pathlib import Path

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.integration.archive_kit import TENANT, write
from tests.integration.epoch_kit import EPOCH_S, EPOCH_US, open_epochs
from tests.integration.epoch_store import UNIT_BYTES, UNIT_COST
from tuskpoint_server.domain.catalog import FAN_OUT
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.journal import schema


@pytest.mark.parametrize("epochs", [2, 4])
async def test_live_threads_stay_readable_and_deleted_ones_lapse(
    tmp_path: Path, epochs: int
) -> None:
    async with open_epochs(tmp_path, epochs=epochs) as kit:
        await kit.save("1", content=b"keep", thread_id="live")
        await kit.certify()
        await kit.save("1", content=b"drop", thread_id="doomed")
        await kit.certify()
        doomed = await kit.blob_of("1", "doomed")
        await kit.journal.delete_thread(TENANT, "doomed")
        kit.archive.changed(TENANT, 0)
        await kit.certify()
        # A blob also lasts while the catalog lists the changes in it: for some flushes.
        for number in range(24):
            kit.advance(0.7)
            await kit.archive.renewer.renew_now()
            await kit.save(f"{number}", thread_id=f"busy{number % 2}")
            await kit.certify()
            assert (await kit.stored("1", "live")).state is not None
            heads = await kit.heads()
            assert heads["doomed"].ended
            assert not heads["live"].ended
        assert await kit.blob_of("1", "live") in kit.store.live()
        assert doomed not in kit.store.live()
        assert doomed not in await kit.rows()


async def test_blob_is_renewed_once_an_epoch(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=3) as kit:
        for number in range(6):
            await kit.save(f"{number}")
            await kit.certify()
        for _ in range(6):
            kit.store.renewals.clear()
            for _ in range(4):
                kit.advance(0.25)
                await kit.archive.renewer.renew_now()
            assert len(kit.store.renewals) == len(set(kit.store.renewals)) <= 6
            assert len(await kit.manifest()) == 6


async def test_looking_for_an_epoch_that_has_not_begun_takes_one_blob(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=2) as kit:
        kit.clock.now_us -= kit.clock.now_us % EPOCH_US
        for number in range(6):
            await kit.save(f"{number}")
            await kit.certify()
        for _ in range(3):
            kit.advance(0.2)
            await kit.archive.renewer.renew_now()
        assert len(kit.store.renewals) == 3
        assert {quilt.end_epoch for quilt in kit.store.quilts.values()} == {kit.store.epoch + 2}
        kit.advance(0.4)
        await kit.archive.renewer.renew_now()
        assert {kit.store.quilts[name].end_epoch for name in await kit.rows()} == {
            kit.store.epoch + 2
        }


async def test_blob_that_cannot_be_renewed_keeps_none_from_being(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=2) as kit:
        for number in range(3):
            await kit.save(f"{number}", thread_id=f"t{number}")
            await kit.certify()
        stuck = await kit.blob_of("0", "t0")
        kit.store.refuse = lambda name: name == stuck
        kit.advance(0.4)
        for _ in range(20):
            kit.advance(0.3)
            await kit.archive.renewer.renew_now()
            await kit.certify()
            for number in range(3):
                assert (await kit.stored(f"{number}", f"t{number}")).state is not None


async def test_new_epoch_starts_renewals(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=2, background=True) as kit:
        await kit.save("1")
        await kit.certify()
        first = await kit.blob_of("1")
        kit.advance(1)
        await kit.save("2")
        await kit.certify()
        while first not in kit.store.renewals:
            await kit.archive.status(TENANT)
        assert kit.store.quilts[first].end_epoch == kit.store.epoch + 2


async def test_status_tells_what_is_stored_and_when_it_expires(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=5) as kit:
        before = await kit.archive.status(TENANT)
        assert (before.earliest_expire_us, before.stored_blobs, before.cost) == (None, 0, 0)
        await kit.save("1")
        await kit.certify()
        status = await kit.archive.status(TENANT)
        assert status.stored_blobs == 1
        assert (status.billed_bytes, status.cost) == (UNIT_BYTES, UNIT_COST)
        assert status.earliest_expire_us is not None
        assert 3.99 < (status.earliest_expire_us - kit.clock.now_us) / EPOCH_US <= 4
        detail = await kit.journal.thread(TENANT, "t")
        assert detail is not None
        assert detail.expire_us == status.earliest_expire_us
        kit.advance(4)
        await kit.archive.renewer.renew_now()
        after = await kit.archive.status(TENANT)
        assert (after.billed_bytes, after.cost) == (2 * UNIT_BYTES, 2 * UNIT_COST)
        assert after.earliest_expire_us is not None
        assert after.earliest_expire_us > status.earliest_expire_us


async def test_end_is_known_after_a_restart(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=5) as kit:
        await kit.save("1")
        await kit.certify()
        expected = (await kit.archive.status(TENANT)).earliest_expire_us
        store, clock = kit.store, kit.clock
    async with open_epochs(tmp_path, store=store, clock=clock) as kit:
        assert (await kit.archive.status(TENANT)).earliest_expire_us == expected
        kit.advance(2.9)
        await kit.archive.renewer.renew_now()
        assert kit.store.renewals == []
        kit.advance(0.2)
        await kit.archive.renewer.renew_now()
        assert kit.store.renewals == [await kit.blob_of("1")]


async def test_renewing_tells_the_end_of_a_blob_that_nothing_told(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=5) as kit:
        await kit.save("1")
        await kit.certify()
        await kit.journal.transact(lambda connection: connection.execute(schema.blobs.delete()))
        assert (await kit.archive.status(TENANT)).earliest_expire_us is None
        await kit.archive.renewer.renew_now()
        assert (await kit.archive.status(TENANT)).earliest_expire_us is not None
        await kit.archive.renewer.renew_now()
        assert len(kit.store.renewals) == 1


async def test_failing_renewal_is_told_and_rehydrates_in_time(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    async with open_epochs(tmp_path, epochs=4, meters=MeterProvider([reader])) as kit:
        await kit.save("1", content=b"old" * 100, writes=(write(b"asked"),))
        await kit.save("2", "1", content=b"new" * 100)
        await kit.certify()
        saved = await kit.journaled("1")
        assert await kit.evict_all() > 0
        first = await kit.blob_of("1")
        kit.store.refuse = lambda _: True
        kit.advance(2.2)
        done = await kit.archive.renewer.renew_now()
        assert (done.renewed, done.failed, done.rehydrated) == (0, 1, 0)
        status = await kit.archive.status(TENANT)
        assert status.failing_renewals == 1
        assert first in status.last_error
        assert status.evicted_bytes > 0
        assert metric(reader, "tuskpoint.archive.renewals.failing") == 1
        assert 0 < metric(reader, "tuskpoint.archive.expiry") <= EPOCH_S

        kit.advance(0.4)
        assert first in kit.store.live()
        done = await kit.archive.renewer.renew_now()
        assert (done.rehydrated, done.lost) == (2, 0)
        here = await kit.journaled("1")
        assert (here.state, here.writes) == (saved.state, saved.writes)
        status = await kit.archive.status(TENANT)
        assert (status.failing_renewals, status.evicted_bytes) == (0, 0)
        assert status.backlog_checkpoints == 2

        kit.advance(2)
        assert first not in kit.store.live()
        kit.store.refuse = lambda _: False
        await kit.certify()
        assert await kit.blob_of("1") != first
        assert (await kit.stored("1")).state == saved.state
        assert (await kit.stored("1")).writes == saved.writes
        assert set(await kit.manifest()) == {"1", "2"}
        assert await kit.archive.chain_problem(TENANT, "t") == ""


async def test_renewal_that_works_again_is_no_trouble_any_more(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=4) as kit:
        await kit.save("1")
        await kit.certify()
        kit.advance(2.2)
        kit.store.refuse = lambda _: True
        await kit.archive.renewer.renew_now()
        assert (await kit.archive.status(TENANT)).failing_renewals == 1
        kit.store.refuse = lambda _: False
        await kit.archive.renewer.renew_now()
        status = await kit.archive.status(TENANT)
        assert (status.failing_renewals, status.last_error) == (0, "")


async def test_renewal_that_was_not_recorded_is_repeated_for_nothing(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=4) as kit:
        await kit.save("1")
        await kit.certify()
        await kit.archive.renewer.renew_now()
        kit.advance(3)
        transact = kit.journal.transact

        async def refuse(work: object, **_: object) -> None:
            raise Refusal(Reason.JOURNAL_UNAVAILABLE, problem="on purpose")

        kit.journal.transact = refuse  # type: ignore[method-assign, assignment]
        with pytest.raises(Refusal):
            await kit.archive.renewer.renew_now()
        kit.journal.transact = transact  # type: ignore[method-assign]
        assert kit.store.renewals != []
        await kit.archive.renewer.renew_now()
        status = await kit.archive.status(TENANT)
        assert status.cost == UNIT_COST
        assert status.earliest_expire_us is not None
        assert 2.99 < (status.earliest_expire_us - kit.clock.now_us) / EPOCH_US <= 3
        assert status.failing_renewals == 0


async def test_lost_blob_is_stored_anew_from_the_journal(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=4) as kit:
        for number in range(3):
            await kit.save(f"{number}")
            await kit.save("0", thread_id=f"other{number}", content=b"%d" % number)
            await kit.certify()
        catalog = (await kit.archive.status(TENANT)).catalog
        assert catalog is not None
        for blob_id in list(kit.store.quilts):
            kit.store.lose(blob_id)
        with pytest.raises(Refusal):
            await kit.stored("1")
        kit.advance(3)
        done = await kit.archive.renewer.renew_now()
        assert (done.rehydrated, done.lost) == (6, 0)
        await kit.certify()
        assert set(await kit.heads()) == {"t", "other0", "other1", "other2"}
        assert set(await kit.manifest()) == {"0", "1", "2"}
        for number in range(3):
            assert (await kit.stored(f"{number}")).state is not None
        assert await kit.archive.chain_problem(TENANT, "t") == ""
        assert (await kit.archive.status(TENANT)).failing_renewals == 0
        await kit.save("9")
        await kit.certify()
        assert set(await kit.manifest()) == {"0", "1", "2", "9"}


async def test_deleted_threads_stay_deleted_when_the_catalog_is_lost(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=4) as kit:
        await kit.save("1")
        await kit.save("1", thread_id="gone")
        await kit.certify()
        await kit.journal.delete_thread(TENANT, "gone")
        kit.archive.changed(TENANT, 0)
        await kit.certify()
        for blob_id in list(kit.store.quilts):
            kit.store.lose(blob_id)
        kit.advance(3)
        await kit.archive.renewer.renew_now()
        await kit.certify()
        heads = await kit.heads()
        assert (heads["gone"].ended, heads["t"].ended) == (True, False)


async def test_catalog_lets_go_of_a_lost_manifest_without_checkpoints(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=4) as kit:
        await kit.save("1", metadata={"run_id": "r"}, thread_id="emptied")
        await kit.certify()
        await kit.journal.delete_runs(TENANT, ["r"])
        kit.archive.changed(TENANT, 0)
        await kit.certify()
        for number in range(FAN_OUT + 2):  # until the catalog lists it in another blob
            await kit.save(f"{number:02}")
            await kit.certify()
        emptied = (await kit.heads())["emptied"].manifest
        assert emptied is not None
        kit.store.lose(emptied.location.blob_id)
        kit.advance(3)
        await kit.archive.renewer.renew_now()
        await kit.certify()
        heads = await kit.heads()
        assert heads["emptied"].manifest is None
        assert not heads["emptied"].ended
        assert len(await kit.manifest()) == FAN_OUT + 2


async def test_lost_catalog_without_threads_of_its_own_is_written_anew(tmp_path: Path) -> None:
    async with open_epochs(tmp_path, epochs=4) as kit:
        await kit.save("1")
        await kit.certify()
        await kit.save("2")
        await kit.certify()
        catalog = (await kit.archive.status(TENANT)).catalog
        assert catalog is not None
        kit.store.lose(catalog.blob_id)
        kit.advance(3)
        await kit.archive.renewer.renew_now()
        await kit.certify()
        assert set(await kit.manifest()) == {"1", "2"}


async def test_loss_is_told(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    reader = InMemoryMetricReader()
    async with open_epochs(tmp_path, epochs=4, meters=MeterProvider([reader])) as kit:
        await kit.save("1", content=b"only copy")
        await kit.certify()
        await kit.save("2", "1", content=b"head")
        await kit.certify()
        assert await kit.evict_all() == len(b"only copy")
        lost = await kit.blob_of("1")
        kit.store.lose(lost)
        kit.advance(3)
        with caplog.at_level(logging.ERROR):
            done = await kit.archive.renewer.renew_now()
        assert done.lost == 1
        assert "LOST: checkpoint '1'" in caplog.text
        assert metric(reader, "tuskpoint.archive.losses") == 1
        status = await kit.archive.status(TENANT)
        assert status.failing_renewals == 1
        assert lost in status.last_error
        await kit.certify()
        with pytest.raises(Refusal) as refused:
            await kit.stored("1")
        assert refused.value.reason is Reason.BLOB_NOT_FOUND
        assert (await kit.stored("2")).state is not None
        await kit.archive.renewer.renew_now()
        assert metric(reader, "tuskpoint.archive.losses") == 1


async def test_flush_that_was_on_its_way_does_not_bring_a_lost_manifest_back(
    tmp_path: Path,
) -> None:
    async with open_epochs(tmp_path, epochs=4) as kit:
        await kit.save("1")
        await kit.certify()
        kit.store.lose(await kit.blob_of("1"))
        kit.advance(3)
        await kit.save("2")
        refused = []

        def lose_meanwhile(name: str) -> bool:
            refused.append(name)
            return len(refused) == 1

        kit.store.refuse = lose_meanwhile
        with pytest.raises(Refusal):
            await kit.certify()
        await kit.archive.renewer.renew_now()
        await kit.certify()
        assert set(await kit.manifest()) == {"1", "2"}
        assert await kit.archive.chain_problem(TENANT, "t") == ""
        assert (await kit.stored("1")).state is not None


def metric(reader: InMemoryMetricReader, name: str) -> float:
    """Sum of a counter or a gauge over its attributes."""
    data = reader.get_metrics_data()
    assert data is not None
    total = 0.0
    for resource in data.resource_metrics:
        for scope in resource.scope_metrics:
            for found in scope.metrics:
                if found.name == name:
                    total += sum(point.value for point in found.data.data_points)  # type: ignore[union-attr, misc]
    return total
