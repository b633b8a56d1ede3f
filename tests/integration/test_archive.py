from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path

import pytest

from tests.integration.archive_kit import TENANT, Kit, open_kit, write
from tuskpoint_server.archive import FlushOutcome
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.manifest import decode_segment
from tuskpoint_server.domain.model import CheckpointKey, PruneStrategy


async def test_certified_checkpoint_is_found_from_the_pointer_alone(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        saved = await kit.save("1", writes=(write(b"w"),), label="first")
        catalog = await kit.archive.certify(TENANT, saved.key, saved.revision)
        entry = await kit.entry("1")
        assert entry.certified_revision == entry.revision == saved.revision
        assert (tmp_path / "catalog").read_text() == f"{catalog.blob_id}\n"
        read = await kit.stored("1")
        journaled = await kit.journaled("1")
        assert read.state == journaled.state
        assert read.writes == journaled.writes
        manifest = await kit.manifest()
        assert manifest["1"].label == "first"
        assert manifest["1"].envelope == entry.envelopes[0]
        assert list((tmp_path / "spool").iterdir()) == []


async def test_waiters_share_one_flush(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        saves = [await kit.save(str(number), thread_id=f"t{number}") for number in range(50)]
        catalogs = await asyncio.gather(
            *(kit.archive.certify(TENANT, saved.key, saved.revision) for saved in saves)
        )
        assert len(kit.blobs.puts) == 1
        assert len(set(catalogs)) == 1


async def test_certify_waits_for_its_revision(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        first = await kit.save("1")
        await kit.archive.certify(TENANT, first.key, first.revision)
        later = await kit.save_writes("1", write(b"late"))
        assert (await kit.entry("1")).certified_revision == first.revision
        await kit.archive.certify(TENANT, later.key, later.revision)
        assert (await kit.entry("1")).certified_revision == later.revision > first.revision


async def test_certify_of_a_certified_revision_stores_nothing(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        saved = await kit.save("1")
        catalog = await kit.archive.certify(TENANT, saved.key, saved.revision)
        assert await kit.archive.certify(TENANT, saved.key, saved.revision) == catalog
        assert await kit.archive.certify_all(TENANT) == FlushOutcome(0, catalog)
        assert len(kit.blobs.puts) == 1


async def test_certify_of_what_does_not_exist_is_refused(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        with pytest.raises(Refusal) as refused:
            await kit.archive.certify(TENANT, CheckpointKey("t", "", "1"), 1)
        assert refused.value.reason is Reason.CHECKPOINT_MISSING


async def test_certify_ends_when_its_checkpoint_is_deleted(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        kit.blobs.before_put = fail
        saved = await kit.save("1")
        waiting = asyncio.create_task(kit.archive.certify(TENANT, saved.key, saved.revision))
        await first_error(kit)
        await kit.journal.delete_thread(TENANT, "t")
        kit.blobs.before_put = lambda: None
        with pytest.raises(Refusal) as refused:
            await waiting
        assert refused.value.reason is Reason.CHECKPOINT_MISSING
        await kit.archive.certify_all(TENANT)
        assert (await kit.heads())["t"].ended


async def test_flush_by_age_needs_nobody_who_waits(tmp_path: Path) -> None:
    async with open_kit(tmp_path, interval_s=0.01) as kit:
        stored = asyncio.Event()
        kit.blobs.after_put = stored.set
        await kit.save("1")
        await stored.wait()


async def test_flush_by_count_comes_before_its_age(tmp_path: Path) -> None:
    async with open_kit(tmp_path, max_pack_checkpoints=3) as kit:
        stored = asyncio.Event()
        kit.blobs.after_put = stored.set
        for number in range(3):
            await kit.save(str(number))
        await stored.wait()


async def test_flush_by_size_comes_before_its_age(tmp_path: Path) -> None:
    async with open_kit(tmp_path, max_pack_bytes=1000) as kit:
        stored = asyncio.Event()
        kit.blobs.after_put = stored.set
        await kit.save("1", content=b"x" * 2000)
        await stored.wait()


async def test_large_backlog_becomes_several_packs(tmp_path: Path) -> None:
    async with open_kit(tmp_path, max_pack_checkpoints=10, start=False) as kit:
        for number in range(35):
            await kit.save(f"{number:03}", thread_id=f"t{number % 3}")
        await kit.archive.start()
        outcome = await kit.archive.certify_all(TENANT)
        assert outcome.certified <= 35
        assert len(kit.blobs.puts) == 4
        assert len(await kit.heads()) == 3
        status = await kit.archive.status(TENANT)
        assert (status.backlog_checkpoints, status.certified_checkpoints) == (0, 35)
        assert status.catalog_seq == 4


async def test_late_writes_go_into_an_addendum(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1", writes=(write(b"early"), write(b"old", task="b", idx=-3)))
        await kit.archive.certify_all(TENANT)
        await kit.save_writes("1", write(b"late", idx=1), write(b"new", task="b", idx=-3))
        await kit.archive.certify_all(TENANT)
        entry = await kit.entry("1")
        assert len(entry.envelopes) == 2
        read = await kit.stored("1")
        assert [item.value.data for item in read.writes] == [b"new", b"early", b"late"]
        assert read.writes == (await kit.journaled("1")).writes
        manifest = await kit.manifest()
        assert manifest["1"].addenda == entry.envelopes[1:]
        assert manifest["1"].revision == entry.revision


async def test_label_is_told_without_a_new_envelope(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        saved = await kit.save("1")
        await kit.archive.certify_all(TENANT)
        await kit.journal.set_label(TENANT, saved.key, "done")
        await kit.archive.certify_all(TENANT)
        entry = await kit.entry("1")
        assert len(entry.envelopes) == 1
        assert entry.certified_revision == entry.revision
        assert (await kit.manifest())["1"].label == "done"


async def test_saving_an_id_again_replaces_its_envelopes(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1", content=b"one")
        await kit.archive.certify_all(TENANT)
        await kit.save_writes("1", write(b"late"))
        await kit.archive.certify_all(TENANT)
        await kit.save("1", content=b"two")
        await kit.archive.certify_all(TENANT)
        read = await kit.stored("1")
        assert read.state == (await kit.journaled("1")).state
        assert [item.value.data for item in read.writes] == [b"late"]
        manifest = await kit.manifest()
        assert manifest["1"].addenda == ()
        assert (manifest["1"].envelope,) == (await kit.entry("1")).envelopes


async def test_what_changed_during_a_flush_waits_for_the_next(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        kit.blobs.before_put = fail
        saved = await kit.save("1", content=b"one")
        waiting = asyncio.create_task(kit.archive.certify(TENANT, saved.key, saved.revision))
        await first_error(kit)
        again = await kit.save("1", content=b"two")
        kit.blobs.before_put = lambda: None
        await waiting
        await kit.archive.certify(TENANT, again.key, again.revision)
        assert (await kit.stored("1")).state == (await kit.journaled("1")).state


async def test_pruned_checkpoints_are_retracted(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1")
        await kit.save("2", "1")
        await kit.archive.certify_all(TENANT)
        await kit.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
        await kit.archive.certify_all(TENANT)
        assert set(await kit.manifest()) == {"2"}
        assert await kit.archive.chain_problem(TENANT, "t") == ""


async def test_pruned_during_a_flush_is_retracted_by_the_next(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        kit.blobs.before_put = fail
        await kit.save("1")
        newest = await kit.save("2", "1")
        waiting = asyncio.create_task(kit.archive.certify(TENANT, newest.key, newest.revision))
        await first_error(kit)
        await kit.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
        kit.blobs.before_put = lambda: None
        await waiting
        await kit.archive.certify_all(TENANT)
        assert set(await kit.manifest()) == {"2"}


async def test_saved_again_after_pruning_is_not_taken_for_the_old_one(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        kit.blobs.before_put = fail
        old = await kit.save("1", content=b"old")
        await kit.save("2", "1")
        waiting = asyncio.create_task(kit.archive.certify(TENANT, old.key, old.revision))
        await first_error(kit)
        await kit.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
        await kit.save("1", content=b"new")
        kit.blobs.before_put = lambda: None
        await waiting
        await kit.archive.certify_all(TENANT)
        entry = await kit.entry("1")
        assert entry.certified_revision == entry.revision
        assert (await kit.stored("1")).state == (await kit.journaled("1")).state
        assert ((await kit.manifest())["1"].envelope,) == entry.envelopes


@pytest.mark.parametrize("again", [False, True], ids=["pruned", "pruned and saved again"])
async def test_pruned_between_collecting_and_packing(tmp_path: Path, again: bool) -> None:
    async with open_kit(tmp_path) as kit:
        transact = kit.journal.transact

        async def prune_first(work: Callable[[object], object]) -> object:
            kit.journal.transact = transact  # type: ignore[method-assign]
            await kit.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
            if again:
                await kit.save("1", content=b"new")
            return await transact(work)

        await kit.save("1", content=b"old")
        await kit.save("2", "1")
        kit.journal.transact = prune_first  # type: ignore[method-assign, assignment]
        await kit.archive.certify_all(TENANT)
        await kit.archive.certify_all(TENANT)
        assert set(await kit.manifest()) == ({"1", "2"} if again else {"2"})
        if again:
            entry = await kit.entry("1")
            assert entry.certified_revision == entry.revision
            assert (await kit.stored("1")).state == (await kit.journaled("1")).state


async def test_deleted_thread_ends_in_the_catalog_and_can_begin_again(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1")
        await kit.archive.certify_all(TENANT)
        await kit.journal.delete_thread(TENANT, "t")
        await kit.archive.certify_all(TENANT)
        head = (await kit.heads())["t"]
        assert (head.ended, head.incarnation, head.deleted_through) == (True, 1, "1")
        assert await kit.archive.manifest_head(TENANT, "t") is None
        await kit.save("2")
        await kit.archive.certify_all(TENANT)
        head = (await kit.heads())["t"]
        assert (head.ended, head.incarnation, head.deleted_through) == (False, 2, "1")
        assert set(await kit.manifest()) == {"2"}


async def test_copy_refers_to_the_same_blobs(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1", label="named")
        await kit.archive.certify_all(TENANT)
        await kit.save_writes("1", write(b"late"))
        await kit.archive.certify_all(TENANT)
        await kit.journal.copy_thread(TENANT, "t", "copy", "")
        await kit.archive.certify_all(TENANT)
        original, copied = await kit.entry("1"), await kit.entry("1", "copy")
        assert copied.envelopes == original.envelopes
        assert copied.certified_revision == copied.revision
        assert (await kit.stored("1", "copy")).writes == (await kit.stored("1")).writes
        entry = (await kit.manifest("copy"))["1"]
        assert (entry.envelope, *entry.addenda) == copied.envelopes
        assert entry.label == "named"
        await kit.save_writes("1", write(b"later", idx=1), thread_id="copy")
        await kit.archive.certify_all(TENANT)
        read = await kit.stored("1", "copy")
        assert [item.value.data for item in read.writes] == [b"late", b"later"]
        assert len((await kit.stored("1")).writes) == 1


async def test_tampered_blob_is_refused_with_both_hashes(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1")
        await kit.archive.certify_all(TENANT)
        [location] = (await kit.entry("1")).envelopes
        name = location.blob_id
        path = tmp_path / "blobs" / name[:2] / name
        tampered = bytearray(path.read_bytes())
        tampered[-1] ^= 1
        path.write_bytes(tampered)
        with pytest.raises(Refusal) as refused:
            await kit.stored("1")
        assert refused.value.reason is Reason.BLOB_HASH_MISMATCH
        assert refused.value.metadata["expected"] == location.sha256.hex()
        assert refused.value.metadata["actual"] == sha256(tampered).hexdigest()


async def test_tampered_manifest_is_reported(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        for number in range(70):
            await kit.save(f"{number:03}")
        await kit.archive.certify_all(TENANT)
        assert await kit.archive.chain_problem(TENANT, "t") == ""
        head = await kit.archive.manifest_head(TENANT, "t")
        assert head is not None
        assert head.segment == 1
        assert head.records == 70
        sealed = decode_segment(await kit.blobs.get(head.location), "").previous
        assert sealed is not None
        (tmp_path / "blobs" / sealed.blob_id[:2] / sealed.blob_id).write_bytes(b"{}")
        assert sealed.sha256.hex() in await kit.archive.chain_problem(TENANT, "t")


@pytest.mark.parametrize("moment", ["before_put", "after_put"])
async def test_outage_is_survived_with_the_same_bytes(tmp_path: Path, moment: str) -> None:
    async with open_kit(tmp_path) as kit:
        failures = iter([fail, fail])
        setattr(kit.blobs, moment, lambda: next(failures, lambda: None)())
        saved = await kit.save("1")
        await kit.archive.certify(TENANT, saved.key, saved.revision)
        first, *others = kit.blobs.puts
        assert len(others) == 2
        assert others == [first, first]


async def test_nothing_is_certified_that_was_not_read_back(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        damaged = iter([True])
        kit.blobs.change_read = lambda _, data: b"other" if next(damaged, False) else data
        saved = await kit.save("1")
        with pytest.raises(Refusal) as refused:
            await kit.archive.certify_all(TENANT)
        assert refused.value.reason is Reason.BLOB_HASH_MISMATCH
        await kit.archive.certify(TENANT, saved.key, saved.revision)
        assert kit.blobs.puts[0] == kit.blobs.puts[1]


async def test_failed_flush_is_told_to_those_who_asked_for_all(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        kit.blobs.before_put = fail
        await kit.save("1")
        with pytest.raises(Refusal) as refused:
            await kit.archive.certify_all(TENANT)
        assert refused.value.reason is Reason.BLOB_UNAVAILABLE
        status = await kit.archive.status(TENANT)
        assert "on purpose" in status.last_error
        assert status.backlog_checkpoints == 1
        assert status.spool_bytes > 0
        kit.blobs.before_put = lambda: None
        await kit.archive.certify_all(TENANT)
        assert (await kit.archive.status(TENANT)).last_error == ""


async def test_pack_left_by_an_earlier_run_is_stored_as_it_was(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        kit.blobs.before_put = fail
        await kit.save("1")
        with pytest.raises(Refusal):
            await kit.archive.certify_all(TENANT)
        packed = kit.blobs.puts[0]
    (tmp_path / "spool" / "orphan.pack").write_bytes(b"left by a crash")
    async with open_kit(tmp_path) as kit:
        await kit.archive.certify_all(TENANT)
        assert kit.blobs.puts == [packed]
        assert list((tmp_path / "spool").iterdir()) == []
        assert (await kit.stored("1")).state == (await kit.journaled("1")).state


@pytest.mark.parametrize("damage", ["missing", "cut"])
async def test_pack_whose_spool_file_is_damaged_is_packed_anew(tmp_path: Path, damage: str) -> None:
    async with open_kit(tmp_path) as kit:
        kit.blobs.before_put = fail
        await kit.save("1")
        with pytest.raises(Refusal):
            await kit.archive.certify_all(TENANT)
    [spooled] = (tmp_path / "spool").iterdir()
    if damage == "missing":
        spooled.unlink()
    else:
        spooled.write_bytes(spooled.read_bytes()[:-1])
    async with open_kit(tmp_path) as kit:
        outcome = await kit.archive.certify_all(TENANT)
        assert outcome.catalog is not None
        assert (await kit.stored("1")).state == (await kit.journaled("1")).state


async def test_another_catalog_voids_a_pack(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1")
        await kit.archive.certify_all(TENANT)
        kit.blobs.before_put = fail
        await kit.save("2")
        with pytest.raises(Refusal):
            await kit.archive.certify_all(TENANT)
        # As if another server had certified a catalog in the meantime.
        await kit.journal.transact(
            lambda connection: connection.exec_driver_sql("UPDATE catalogs SET seq = seq + 1")
        )
        kit.blobs.before_put = lambda: None
        saved = await kit.entry("2")
        await kit.archive.certify(TENANT, saved.key, saved.revision)
        assert kit.blobs.puts[-1] != kit.blobs.puts[-2]
        assert (await kit.archive.status(TENANT)).catalog_seq == 3
        assert set(await kit.manifest()) == {"1", "2"}


async def test_limits_of_the_backlog(tmp_path: Path) -> None:
    async with open_kit(tmp_path, soft_limit_bytes=1500, hard_limit_bytes=2500) as kit:
        kit.blobs.before_put = fail
        await kit.save("1", content=b"x" * 1000)
        assert not kit.archive.warning(TENANT)
        await kit.save("2", content=b"y" * 1000)
        assert kit.archive.warning(TENANT)
        kit.archive.admit(TENANT)
        await kit.save("3", content=b"z" * 1000)
        with pytest.raises(Refusal) as refused:
            kit.archive.admit(TENANT)
        assert refused.value.reason is Reason.BACKLOG_FULL
        kit.blobs.before_put = lambda: None
        await kit.archive.certify_all(TENANT)
        kit.archive.admit(TENANT)
        assert not kit.archive.warning(TENANT)
        assert kit.archive.backlog_bytes(TENANT) == 0


async def test_backlog_is_known_after_a_restart(tmp_path: Path) -> None:
    async with open_kit(tmp_path, start=False) as kit:
        await kit.save("1", content=b"x" * 1000)
    async with open_kit(tmp_path) as kit:
        kit.blobs.before_put = fail
        await first_error(kit)
        assert (await kit.archive.status(TENANT)).backlog_bytes >= 1000
        assert kit.archive.backlog_bytes(TENANT) >= 1000


async def test_unwritable_pointer_does_not_hold_up_certification(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        (tmp_path / "catalog").mkdir()
        saved = await kit.save("1")
        await kit.archive.certify(TENANT, saved.key, saved.revision)
        await kit.archive.certify_all(TENANT)
        (tmp_path / "catalog").rmdir()
        await kit.save("2")
        outcome = await kit.archive.certify_all(TENANT)
        assert outcome.catalog is not None
        assert (tmp_path / "catalog").read_text() == f"{outcome.catalog.blob_id}\n"


async def test_tenants_are_packed_apart(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1", content=b"mine")
        await kit.save("1", content=b"theirs", tenant="a/b")
        await kit.archive.certify_all(TENANT)
        await kit.archive.certify_all("a/b")
        assert len(kit.blobs.puts) == 2
        assert set(await kit.heads("a/b")) == {"t"}
        assert (tmp_path / "catalog.a%2Fb").exists()


async def test_spool_does_not_grow_while_the_journal_cannot_be_written(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("1")
        transact = kit.journal.transact

        async def refuse(work: object, **_: object) -> None:
            raise Refusal(Reason.JOURNAL_UNAVAILABLE, problem="on purpose")

        kit.journal.transact = refuse  # type: ignore[method-assign, assignment]
        for _ in range(3):
            with pytest.raises(Refusal):
                await kit.archive.certify_all(TENANT)
        assert os.listdir(tmp_path / "spool") == []
        kit.journal.transact = transact  # type: ignore[method-assign]
        await kit.archive.certify_all(TENANT)
        assert len(kit.blobs.puts) == 1


async def test_waiters_give_up_when_the_archive_stops(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        kit.blobs.before_put = fail
        saved = await kit.save("1")
        waiting = asyncio.create_task(kit.archive.certify(TENANT, saved.key, saved.revision))
        await first_error(kit)
        await kit.archive.stop()
        with pytest.raises(Refusal) as refused:
            await waiting
        assert refused.value.reason is Reason.DRAINING


async def test_flush_of_a_long_thread_writes_no_more_than_of_a_short_one(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        sizes = []
        for flush in range(96):
            for number in range(4):
                await kit.save(f"{flush * 4 + number:036}")
            await kit.archive.certify_all(TENANT)
            sizes.append(sum(len(member.data) for member in kit.blobs.puts[-1]))
        two_segments = 32
        assert max(sizes[-two_segments:]) <= 1.1 * max(sizes[:two_segments])
        assert await kit.archive.chain_problem(TENANT, "t") == ""
        assert len(await kit.manifest()) == 384


def fail() -> None:
    raise Refusal(Reason.BLOB_UNAVAILABLE, backend="test", problem="on purpose")


async def first_error(kit: Kit) -> None:
    """Wait until a flush has failed."""
    status = await kit.archive.status(TENANT)
    while not status.last_error:
        status = await kit.archive.status(TENANT)
