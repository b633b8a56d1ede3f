"""Flushes into a blob directory store files that can be found again."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from pathlib import Path

from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader

from tests.kit.archives import EAGER, check_certified, house, keys_of
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, Reference, channel, data_of, draft, key, refused, write
from tuskpoint_server.archive.evict.eviction import evict_family
from tuskpoint_server.blobs.directory import DirectoryStore
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import EVICTED, View
from tuskpoint_server.features.removal.removal_rows import RemovalRows
from tuskpoint_server.journal.values import segment_refs


async def test_a_flush_is_one_file_and_the_pointer_names_it(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "blobs")
    async with house(tmp_path, store) as home:
        for name in ("t", "u"):
            await home.journal.save_checkpoint(
                TENANT, draft("a", "", {"x": b"1"}, thread_id=name, writes=(write("c", b"w"),))
            )
        await home.flush()
        files = [file.blob_id async for file in store.blobs()]
        assert [(tmp_path / "catalog").read_text().strip()] == files
        assert await check_certified(home) == 2
    async with house(tmp_path, DirectoryStore(tmp_path / "blobs")) as home:
        assert await check_certified(home) == 2
        assert await home.flush() == 0


async def test_changes_are_flushed_by_age(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "blobs")
    async with house(tmp_path, store, flush_interval_s=0.01) as home:
        with home.journal.database.waiters.subscribe(TENANT, "t") as waiter:
            await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}))
            while await home.watermark() != (1, 1):
                assert await waiter.wait(20.0)


async def test_changes_are_flushed_by_size(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "blobs")
    async with house(tmp_path, store, max_pack_bytes=1000) as home:
        data = random.Random(1).randbytes(2000)
        with home.journal.database.waiters.subscribe(TENANT, "t") as waiter:
            await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": data}))
            while await home.watermark() != (1, 1):
                assert await waiter.wait(20.0)


async def test_a_thread_beyond_the_bounds_of_a_flush_is_certified_by_several(
    tmp_path: Path,
) -> None:
    store = DirectoryStore(tmp_path / "blobs")
    async with house(tmp_path, store, max_pack_checkpoints=10) as home:
        for number in range(35):
            await home.journal.save_checkpoint(
                TENANT, draft(f"{number:03d}", "", {"x": b"%d" % number})
            )
        await home.flush()
        assert len([file async for file in store.blobs()]) >= 4
        assert await check_certified(home) == 35


async def test_waits_share_flushes_and_pass_failures_by(tmp_path: Path) -> None:
    store = MemoryStore()
    failures = [Reason.BLOB_UNAVAILABLE] * 3
    store.verdict = lambda members: failures.pop() if failures else None
    async with house(tmp_path, store, **EAGER) as home:
        saved = [
            await home.journal.save_checkpoint(TENANT, draft(f"{number}", "", {"x": b"1"}))
            for number in range(20)
        ]
        catalogs = await asyncio.gather(
            *(home.archive.certify(TENANT, change.key, change.seq) for change in saved)
        )
        assert len({catalog.blob_id for catalog in catalogs}) <= 2
        assert failures == []


async def test_a_wait_for_a_missing_checkpoint_is_refused(tmp_path: Path) -> None:
    async with house(tmp_path, MemoryStore()) as home:
        await refused(home.archive.certify(TENANT, key("no"), 1), Reason.CHECKPOINT_MISSING)
        await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}))
        await refused(home.archive.certify(TENANT, key("a"), 2), Reason.CHECKPOINT_MISSING)
        await refused(home.archive.certify(TENANT, key("b"), 1), Reason.CHECKPOINT_MISSING)


async def test_a_wait_for_a_thread_that_is_deleted_meanwhile_is_refused(tmp_path: Path) -> None:
    store = MemoryStore()
    async with house(tmp_path, store) as home:
        removal = RemovalRows(home.journal.database)
        saved = await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}))

        async def delete(members: object) -> None:
            await removal.delete_thread(TENANT, "t")

        store.on_put = delete
        await refused(home.archive.certify(TENANT, saved.key, saved.seq), Reason.CHECKPOINT_MISSING)


async def test_waits_end_with_the_server(tmp_path: Path) -> None:
    store = MemoryStore()
    store.verdict = lambda members: Reason.BLOB_UNAVAILABLE
    async with house(tmp_path, store) as home:
        saved = await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}))
        waiting = asyncio.create_task(home.archive.certify(TENANT, saved.key, saved.seq))
        await asyncio.sleep(0)
        stopping = asyncio.create_task(home.archive.stop())
        await refused(waiting, Reason.DRAINING)
        await stopping


async def test_evicted_values_are_read_from_the_segments_that_hold_them(tmp_path: Path) -> None:
    store = DirectoryStore(tmp_path / "blobs")
    async with house(tmp_path, store) as home:
        text = random.Random(2).randbytes(6000)
        parent = ""
        for number in range(6):
            text += b"%d" % number * 200
            channels = (
                channel("grows", text, number),
                channel("stays", b"x" * 900) if not number else channel("stays", Reference.INHERIT),
            )
            await home.journal.save_checkpoint(TENANT, draft(f"{number}", parent, channels))
            parent = f"{number}"
            if number % 2:
                await home.flush()
        await home.flush()
        home.clock.advance(10)
        [[family]] = await home.ask("SELECT family FROM threads")
        gone = await evict_family(
            home.journal.database, int(str(family)), home.clock.now_us, 1 << 30
        )
        assert gone.values > 0
        for checkpoint_key in await keys_of(home, "t"):
            checkpoint = await home.journal.load(TENANT, checkpoint_key, View.FULL)
            assert checkpoint is not None
            assert checkpoint.state is not None
            digests = [
                c.digest for c in checkpoint.state.channels if c.value is EVICTED and c.digest
            ]
            places = await home.journal.database.query(
                partial(
                    segment_refs.of_values, tenant=TENANT, family=int(str(family)), digests=digests
                )
            )
            values = await home.archive.read_values(places, digests)
            assert values.keys() == set(digests)
        assert data_of(await home.from_blobs(key("3")))["stays"] == b"x" * 900
        # A label creates a row that needs evicted values again.
        await home.journal.set_label(TENANT, key("0"), "first")
        await home.flush()
        assert await check_certified(home) == 6
        assert (await home.archive.status(TENANT)).evicted_bytes > 0


async def test_flushes_and_failures_are_measured(tmp_path: Path) -> None:
    reader = InMemoryMetricReader()
    store = MemoryStore()
    async with house(tmp_path, store, meters=MeterProvider([reader])) as home:
        store.verdict = lambda members: Reason.BLOB_UNAVAILABLE
        await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1" * 2000}))
        await refused(home.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
        store.verdict = lambda members: None
        await home.flush()
        data = reader.get_metrics_data()
        assert data is not None
        points = {
            metric.name: [
                (dict(point.attributes or {}), getattr(point, "value", None))
                for point in metric.data.data_points
            ]
            for resource in data.resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        }
        assert points["tuskpoint.archive.certified"] == [({"tenant": TENANT}, 1)]
        [(attributes, count)] = points["tuskpoint.archive.retries"]
        assert attributes == {"reason": "BLOB_UNAVAILABLE"}
        assert isinstance(count, int)
        assert count >= 1
        assert points["tuskpoint.archive.backlog.size"] == [({"tenant": TENANT}, 0)]


async def test_a_pointer_that_cannot_be_written_is_an_error_of_the_status(tmp_path: Path) -> None:
    async with house(tmp_path, MemoryStore()) as home:
        (tmp_path / "catalog").mkdir()
        await home.journal.save_checkpoint(TENANT, draft("a", "", {"x": b"1"}))
        await home.flush()
        assert "pointer file" in (await home.archive.status(TENANT)).last_error
        assert await check_certified(home) == 1
