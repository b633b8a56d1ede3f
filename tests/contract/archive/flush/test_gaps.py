"""A checkpoint that cannot be stored becomes a gap: shown, retried, and no obstacle to others."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.contract.archive.flush.test_damaged_threads import damage
from tests.kit.archives import House, check_certified, house
from tests.kit.blobs.stores import MemoryStore, rejecting
from tests.kit.drafts import TENANT, data_of, draft, key, refused, write, written
from tests.kit.journal import bind_again
from tuskpoint_server.archive.formats import segments
from tuskpoint_server.archive.formats.segments import Segment, encode_segment
from tuskpoint_server.archive.rows import gaps
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.model import View


async def save(home: House, name: str, thread_id: str = "t", data: bytes = b"1") -> int:
    saved = await home.journal.save_checkpoint(
        TENANT, draft(name, "", {"x": data + name.encode()}, thread_id=thread_id)
    )
    return saved.seq


@pytest.fixture
def unbuildable(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Return the set of names of checkpoints that cannot be encoded; a test adds names."""
    names: set[str] = set()

    def fails(segment: Segment) -> bytes:
        if any(row.checkpoint_id in names for row in segment.checkpoints):
            raise ValueError("a defect")
        return encode_segment(segment)

    monkeypatch.setattr(segments, "encode_segment", fails)
    return names


async def test_one_rejected_checkpoint_in_a_busy_tenant_holds_up_nothing(
    home: House, store: MemoryStore
) -> None:
    rejecting(store, "bad")
    for number in range(6):
        await save(home, f"{number}", f"t{number % 3}")
    await save(home, "bad", "t1")
    await save(home, "later", "t1")
    refusal = await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    assert "'bad'" in str(refusal)
    assert "blocked" in str(refusal)
    for name in ("t0", "t1", "t2"):
        seq, certified_seq = await home.watermark(name)
        assert seq == certified_seq
    assert await check_certified(home, gaps=True) == 7
    checkpoint = await home.journal.load(TENANT, key("later", "t1"), View.ENTRY)
    assert checkpoint is not None
    assert checkpoint.entry.certified
    [gap] = (await home.manifest("t1")).gaps
    assert (gap.checkpoint_id, gap.seq) == ("bad", 3)


async def test_the_waiter_of_a_gap_gets_its_error_and_others_their_catalog(
    home: House, store: MemoryStore
) -> None:
    rejecting(store, "bad")
    bad = await save(home, "bad")
    good = await save(home, "good")
    waits = [
        asyncio.create_task(home.archive.certify(TENANT, key("bad"), bad)),
        asyncio.create_task(home.archive.certify(TENANT, key("good"), good)),
    ]
    await refused(waits[0], Reason.CERTIFICATION_FAILED)
    assert (await waits[1]).blob_id
    await refused(home.archive.certify(TENANT, key("bad"), bad), Reason.CERTIFICATION_FAILED)


async def test_waiting_for_threads_is_not_refused_for_the_gap_of_another(
    home: House, store: MemoryStore
) -> None:
    rejecting(store, "bad")
    await save(home, "bad")
    await save(home, "good", "u")
    done = await home.archive.certify_all(TENANT, lambda name: name == "u")
    assert done.catalog is not None
    waiting = home.archive.certify_all(TENANT, lambda name: name == "t")
    await refused(waiting, Reason.CERTIFICATION_FAILED)


async def test_a_gap_is_shown_and_is_no_backlog(home: House, store: MemoryStore) -> None:
    rejecting(store, "bad")
    await save(home, "bad", data=b"1" * 1000)
    await save(home, "good")
    await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    status = await home.archive.status(TENANT)
    assert (status.gaps, status.backlog_bytes) == (1, 0)
    assert (status.certified_checkpoints, status.backlog_checkpoints) == (1, 1)
    assert "'bad'" in status.last_error
    assert home.archive._flusher(TENANT).backlog.size_bytes == 0


async def test_a_gap_is_filled_when_it_is_asked_for(home: House, store: MemoryStore) -> None:
    rejecting(store, "bad")
    await save(home, "bad")
    await home.journal.save_writes(TENANT, key("bad"), [write("c", b"w")])
    await save(home, "good")
    await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    rejecting(store)
    await home.flush()
    assert await home.ask("SELECT * FROM holes") == []
    checkpoint = await home.from_blobs(key("bad"))
    assert data_of(checkpoint)["x"] == b"1bad"
    assert [row[4] for row in written(checkpoint)] == [b"w"]
    manifest = await home.manifest()
    assert manifest.gaps == ()
    assert set(manifest.entries) == {("", "bad"), ("", "good")}
    assert await check_certified(home) == 2
    status = await home.archive.status(TENANT)
    assert (status.gaps, status.last_error) == (0, "")


async def test_a_gap_is_tried_again_after_ten_minutes(home: House, store: MemoryStore) -> None:
    rejecting(store, "bad")
    bad = await save(home, "bad")
    await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    rejecting(store)
    puts = len(store.packs)
    home.archive._flusher(TENANT).flush_soon()
    await save(home, "other", "u")
    await home.archive.certify(TENANT, key("other", "u"), 1)
    assert await home.ask("SELECT count(*) FROM holes") == [(1,)], "it is not due yet"
    async with home.archive._flusher(TENANT).turn:  # a flush must see both changes together
        home.clock.advance(601)
        await save(home, "third", "u")
    await home.archive.certify(TENANT, key("third", "u"), 2)
    assert await home.ask("SELECT count(*) FROM holes") == [(0,)]
    assert len(store.packs) == puts + 2
    assert (await home.archive.certify(TENANT, key("bad"), bad)).blob_id


async def test_a_gap_that_fails_again_waits_again(home: House, store: MemoryStore) -> None:
    rejecting(store, "bad")
    await save(home, "bad")
    await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    [[first]] = await home.ask("SELECT retry_us FROM holes")
    home.clock.advance(601)
    puts = len(store.packs)
    await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    [[second]] = await home.ask("SELECT retry_us FROM holes")
    assert int(str(second)) > int(str(first))
    assert len(store.packs) == puts, "nothing new is stored for it"


async def test_a_gap_of_a_damaged_thread_is_not_tried_all_the_time(
    home: House, store: MemoryStore
) -> None:
    rejecting(store, "bad")
    await save(home, "bad")
    await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    await damage(home, "t")
    home.clock.advance(601)
    await save(home, "other", "u")
    await home.archive.certify(TENANT, key("other", "u"), 1)
    flusher = home.archive._flusher(TENANT)
    async with flusher.turn:  # after the end of the flush
        assert flusher._look_at is not None
        assert flusher._look_at - flusher.now > 500


async def test_a_segment_that_cannot_be_built_is_a_gap(home: House, unbuildable: set[str]) -> None:
    unbuildable.add("bad")
    await save(home, "good")
    await save(home, "bad")
    await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    assert await home.watermark() == (2, 2)
    unbuildable.clear()
    await home.flush()
    assert await check_certified(home) == 2


async def test_a_checkpoint_whose_value_is_gone_is_a_gap(home: House) -> None:
    await save(home, "good")
    await save(home, "bad", data=b"gone" * 100)
    home.journal.is_edited = True
    await home.journal.database.transact(
        lambda batch: batch.connection.connection.cursor().execute(
            "DELETE FROM contents WHERE size > 100"
        )
    )
    refusal = await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    assert "is not stored" in str(refusal)
    assert set((await home.manifest()).entries) == {("", "good")}
    assert data_of(await home.from_blobs(key("good")))["x"] == b"1good"


async def test_a_re_save_of_a_gap_fills_it(home: House, store: MemoryStore) -> None:
    rejecting(store, "bad")
    await save(home, "bad")
    await home.journal.save_writes(TENANT, key("bad"), [write("c", b"w")])
    await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    rejecting(store)
    seq = await save(home, "bad", data=b"2")
    await home.archive.certify(TENANT, key("bad"), seq)
    checkpoint = await home.from_blobs(key("bad"))
    assert data_of(checkpoint)["x"] == b"2bad"
    assert [row[4] for row in written(checkpoint)] == [b"w"]
    await home.journal.save_writes(TENANT, key("bad"), [write("c", b"later", idx=1)])
    await home.flush()
    assert [row[4] for row in written(await home.from_blobs(key("bad")))] == [b"w", b"later"]
    assert await check_certified(home) == 1


async def test_a_late_write_to_a_gap_stays_in_it(home: House, store: MemoryStore) -> None:
    rejecting(store, "bad")
    await save(home, "bad")
    await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    saved = await home.journal.save_writes(TENANT, key("bad"), [write("c", b"w")])
    await refused(home.archive.certify(TENANT, key("bad"), saved.seq), Reason.CERTIFICATION_FAILED)
    assert await home.watermark() == (2, 2)
    rejecting(store)
    await home.flush()
    assert [row[4] for row in written(await home.from_blobs(key("bad")))] == [b"w"]


async def test_a_gap_of_a_checkpoint_that_was_removed_is_no_more(
    home: House, store: MemoryStore
) -> None:
    rejecting(store, "bad")
    await save(home, "bad")
    await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    home.journal.is_edited = True
    await home.journal.database.transact(
        lambda batch: batch.connection.connection.cursor().execute("DELETE FROM checkpoints")
    )
    await bind_again(home.journal.database)
    await home.flush()
    assert await home.ask("SELECT * FROM holes") == []


async def test_a_flush_that_fills_a_gap_forgets_no_other(home: House, store: MemoryStore) -> None:
    """During its put, the gap's thread is deleted, and a flush of another tenant leaves a gap."""
    rejecting(store, "bad", "worse")
    await save(home, "bad")
    await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    [[filled]] = await home.ask("SELECT number FROM holes")
    await home.journal.removal.delete_thread(TENANT, "t")
    await home.journal.save_checkpoint("other", draft("worse", "", {"x": b"1"}))
    await refused(home.archive.certify_all("other"), Reason.CERTIFICATION_FAILED)
    await home.journal.database.transact(lambda batch: gaps.forget(batch.connection, [filled]))
    assert await home.ask("SELECT checkpoint_id FROM holes") == [("worse",)]


async def test_a_store_that_rejects_everything_is_an_error_and_no_gap(
    home: House, store: MemoryStore
) -> None:
    store.verdict = lambda members: Reason.BLOB_REJECTED
    await save(home, "good")
    await refused(home.archive.certify_all(TENANT), Reason.BLOB_REJECTED)
    store.verdict = lambda members: None
    await home.flush()
    assert await check_certified(home) == 1


async def test_a_rejected_blob_of_one_checkpoint_is_a_gap(
    tmp_path: Path, store: MemoryStore
) -> None:
    async with house(tmp_path, store, standalone=True) as home:
        rejecting(store, "bad")
        for name in ("one", "bad", "two"):
            await save(home, name)
        await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
        assert await home.watermark() == (3, 3)
        assert await check_certified(home, gaps=True) == 2
        await home.journal.save_writes(TENANT, key("bad"), [write("c", b"w")])
        await refused(home.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
        assert await home.ask("SELECT seq FROM holes") == [(4,)]
        rejecting(store)
        await home.flush()
        assert await check_certified(home) == 3
