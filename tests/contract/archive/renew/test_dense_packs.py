"""Values that are needed of a sparse blob move to a dense blob, and their bytes stay the same."""

from __future__ import annotations

from pathlib import Path

from tests.kit.archives import check_certified
from tests.kit.drafts import TENANT, data_of, key
from tests.kit.epochs import Years, years
from tuskpoint_server.archive.formats.segment_reading import decode_segment
from tuskpoint_server.archive.formats.stored_json import Kind


def _threads(time: Years) -> set[str]:
    """Return the threads with segments in blobs that have not expired."""
    return {
        decode_segment(member.data, "").thread_id
        for name in time.store.live()
        for member in time.store.quilts[name].members.values()
        if member.kind == Kind.SEGMENT
    }


async def test_live_members_of_a_sparse_blob_move_to_a_dense_one_unchanged(
    tmp_path: Path,
) -> None:
    async with years(tmp_path, epochs=3) as time:
        for number in range(8):
            await time.save("1", thread_id=f"t{number}", content=b"%d" % number * 4000)
        await time.save("1", thread_id="last", content=b"last" * 10)
        await time.flush()
        sparse = await time.blob_of("1", "last")
        [entry] = (await time.home.manifest("last")).entries.values()
        before = await time.load("1", "last")
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
        assert await time.stored("1", "last") == before
        assert await check_certified(time.home) == 1
        assert _threads(time) == {"last"}


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
            checkpoint = await time.home.from_blobs(key(f"{number:02}"))
            assert data_of(checkpoint)["x"].startswith(bytes(range(256)) * 40)


async def test_fork_of_a_deleted_thread_stops_needing_its_bytes(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=3) as time:
        await time.save("1", content=b"shared" * 700, question=b"a question")
        await time.save("2", "1", content=b"secret" * 700)
        await time.flush()
        await time.home.journal.lineage.fork(TENANT, key("1"), "fork", "")
        await time.flush()
        origin = await time.blob_of("1", "fork")
        before = await time.load("1", "fork")
        await time.delete("t")
        for _ in range(14):
            time.advance(0.5)
            await time.keep()
            assert await time.stored("1", "fork") == before
        assert origin not in await time.blobs()
        assert _threads(time) == {"fork"}
        assert await check_certified(time.home) == 1


async def test_a_pack_that_records_a_move_continues_after_a_restart(tmp_path: Path) -> None:
    async with years(tmp_path, epochs=4, max_put_bytes=1_000_000) as time:
        for number in range(4):
            await time.save("1", thread_id=f"t{number}", content=b"%d" % number * 100)
            await time.flush()
        time.advance(3)
        puts = len(time.store.puts)
        time.store.refuse = lambda _: len(time.store.puts) > puts
        await time.look()
        # the moved members; the put of the catalog was refused
        assert len(time.store.puts) == puts + 1
        store, clock = time.store, time.home.clock
    store.refuse = lambda _: False
    async with years(tmp_path, store=store, clock=clock) as time:
        await time.flush()
        assert await check_certified(time.home) == 4
        time.advance(1)
        await time.keep()
        assert await check_certified(time.home) == 4
