"""Flushes to a store that bounds its puts: one put if that holds it, else several stages."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from tests.integration.archive_kit import TENANT, Kit, open_kit, write
from tests.integration.quilt_store import LIMITS, QuiltStore
from tuskpoint_server.blobs.api import Member
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import PruneStrategy
from tuskpoint_server.domain.parts import is_part_list
from tuskpoint_server.journal import archive_packs


async def stored_everywhere(kit: Kit, contents: dict[tuple[str, str], bytes]) -> None:
    """Every checkpoint is certified, found from the catalog alone, and reads as saved."""
    heads = await kit.heads()
    for thread_id in {thread_id for thread_id, _ in contents}:
        assert thread_id in heads
        entries = await kit.manifest(thread_id)
        for (of, checkpoint_id), content in contents.items():
            if of != thread_id:
                continue
            entry = await kit.entry(checkpoint_id, thread_id)
            assert entry.certified_revision == entry.revision
            assert (entries[checkpoint_id].envelope, *entries[checkpoint_id].addenda) == (
                entry.envelopes
            )
            stored = await kit.stored(checkpoint_id, thread_id)
            assert stored.state is not None
            value = stored.state.channels[0].value
            assert value is not None
            assert value.data == content
            assert stored.writes == (await kit.journaled(checkpoint_id, thread_id)).writes


async def test_small_flush_of_many_threads_is_one_put(tmp_path: Path) -> None:
    store = QuiltStore()
    async with open_kit(tmp_path, store=store) as kit:
        contents = {(f"t{n}", "1"): b"content %d" % n for n in range(4)}
        for (thread_id, checkpoint_id), content in contents.items():
            await kit.save(checkpoint_id, thread_id=thread_id, content=content)
        await kit.archive.certify_all(TENANT)
        assert store.puts == [9]  # four envelopes, four segments, the catalog
        await stored_everywhere(kit, contents)


async def test_large_flush_stores_envelopes_beside_one_another_then_one_pack(
    tmp_path: Path,
) -> None:
    store = QuiltStore()
    async with open_kit(tmp_path, store=store) as kit:
        contents = {("t", f"{n:03}"): b"content %d" % n for n in range(60)}
        for _, checkpoint_id in contents:
            await kit.save(checkpoint_id, content=contents["t", checkpoint_id])
        outcome = await kit.archive.certify_all(TENANT)
        assert outcome.certified == 60
        assert store.puts == [12, 12, 12, 12, 12, 2]
        assert store.most_at_once == LIMITS.puts_at_once
        await stored_everywhere(kit, contents)
        assert await kit.journal.query(archive_packs.unfinished) == []
        assert list((tmp_path / "spool").iterdir()) == []


async def test_more_threads_than_a_put_holds(tmp_path: Path) -> None:
    """Envelopes, then the segments of the manifests, then the catalog."""
    store = QuiltStore()
    async with open_kit(tmp_path, store=store) as kit:
        contents = {(f"t{n:02}", "1"): b"content %d" % n for n in range(40)}
        for (thread_id, checkpoint_id), content in contents.items():
            await kit.save(checkpoint_id, thread_id=thread_id, content=content)
        await kit.archive.certify_all(TENANT)
        await stored_everywhere(kit, contents)
        more = {(f"t{n:02}", "2"): b"later %d" % n for n in range(40)}
        for (thread_id, checkpoint_id), content in more.items():
            await kit.save(checkpoint_id, "1", thread_id=thread_id, content=content)
        await kit.archive.certify_all(TENANT)
        await stored_everywhere(kit, contents | more)


async def test_envelope_larger_than_a_member_is_stored_in_parts(tmp_path: Path) -> None:
    store = QuiltStore()
    large = random.Random(7).randbytes(50_000)
    async with open_kit(tmp_path, store=store) as kit:
        await kit.save("1", content=large)
        await kit.save("2", "1", content=b"small")
        await kit.archive.certify_all(TENANT)
        contents = {("t", "1"): large, ("t", "2"): b"small"}
        await stored_everywhere(kit, contents)
        listed = await store.get((await kit.entry("1")).envelopes[0])
        assert is_part_list(listed)
        await kit.save_writes("1", write(b"late"), write(large, task="other"))
        await kit.archive.certify_all(TENANT)
        assert len((await kit.entry("1")).envelopes) == 2
        await stored_everywhere(kit, contents)


async def test_damaged_part_is_refused_with_both_hashes(tmp_path: Path) -> None:
    store = QuiltStore()
    async with open_kit(tmp_path, store=store) as kit:
        await kit.save("1", content=random.Random(7).randbytes(20_000))
        await kit.archive.certify_all(TENANT)
        for patches in store.blobs.values():
            for identifier, (data, kind) in patches.items():
                if kind == "part":
                    patches[identifier] = (b"x" + data[1:], kind)
        with pytest.raises(Refusal) as refused:
            await kit.stored("1")
        assert refused.value.reason is Reason.BLOB_HASH_MISMATCH
        assert {"expected", "actual"} <= refused.value.metadata.keys()


async def test_blob_packing_stores_each_checkpoint_as_a_blob_of_its_own(tmp_path: Path) -> None:
    store = QuiltStore()
    async with open_kit(tmp_path, store=store, apart=True) as kit:
        contents = {("t", f"{n}"): b"content %d" % n for n in range(5)}
        for _, checkpoint_id in contents:
            await kit.save(checkpoint_id, content=contents["t", checkpoint_id])
        await kit.archive.certify_all(TENANT)
        assert store.puts == [1, 1, 1, 1, 1, 2]
        located = {(await kit.entry(checkpoint_id)).envelopes[0] for _, checkpoint_id in contents}
        assert len({location.blob_id for location in located}) == 5
        assert {location.identifier for location in located} == {""}
        await stored_everywhere(kit, contents)


async def test_failed_put_of_envelopes_sends_the_same_bytes_again(tmp_path: Path) -> None:
    store = QuiltStore()
    sent: list[tuple[bytes, ...]] = []
    refused: list[tuple[bytes, ...]] = []

    def refuse_each_once(members: Sequence[Member]) -> bool:
        named = tuple(member.sha256 for member in members)
        sent.append(named)
        if named in refused:
            return False
        refused.append(named)
        return True

    async with open_kit(tmp_path, store=store) as kit:
        for number in range(30):
            await kit.save(f"{number:02}", content=b"%d" % number)
        store.refuse = refuse_each_once
        with pytest.raises(Refusal):
            await kit.archive.certify_all(TENANT)
        await kit.archive.certify(TENANT, (await kit.entry("00")).key, 1)
        assert sorted(sent) == sorted(refused * 2)


async def test_late_writes_between_the_stages_are_told(tmp_path: Path) -> None:
    store = QuiltStore()
    async with open_kit(tmp_path, store=store) as kit:
        contents = {("t", f"{n:02}"): b"content %d" % n for n in range(30)}
        for _, checkpoint_id in contents:
            await kit.save(checkpoint_id, content=contents["t", checkpoint_id])
        late: list[asyncio.Task[object]] = []

        def write_late(members: Sequence[Member]) -> bool:
            if not late:
                late.append(asyncio.ensure_future(kit.save_writes("07", write(b"late"))))
            return False

        store.refuse = write_late
        await kit.archive.certify_all(TENANT)
        await asyncio.gather(*late)
        await kit.archive.certify_all(TENANT)
        await stored_everywhere(kit, contents)
        assert len((await kit.stored("07")).writes) == 1


async def test_packs_on_their_way_are_taken_up_after_a_restart(tmp_path: Path) -> None:
    store = QuiltStore()
    contents = {("t", f"{n:02}"): b"content %d" % n for n in range(30)}
    async with open_kit(tmp_path, store=store) as kit:
        for _, checkpoint_id in contents:
            await kit.save(checkpoint_id, content=contents["t", checkpoint_id])
        store.refuse = lambda members: len(members) < 12
        with pytest.raises(Refusal):
            await kit.archive.certify_all(TENANT)
        assert await kit.journal.query(archive_packs.unfinished) != []
    store.refuse = lambda members: False
    before = list(store.puts)
    async with open_kit(tmp_path, store=store) as kit:
        await kit.archive.certify_all(TENANT)
        await stored_everywhere(kit, contents)
        assert before.count(12) == store.puts.count(12)  # those were not sent again


async def test_flush_of_everything_ends_although_more_keeps_coming(tmp_path: Path) -> None:
    store = QuiltStore()
    async with open_kit(tmp_path, store=store) as kit:
        for number in range(30):
            await kit.save(f"0-{number:02}", content=b"%d" % number)
        rounds = 0

        def more(members: Sequence[Member]) -> bool:
            nonlocal rounds
            rounds += 1
            for number in range(15):
                checkpoint_id = f"{rounds}-{number:02}"
                coming.append(asyncio.ensure_future(kit.save(checkpoint_id, content=b"more")))
            return False

        coming: list[asyncio.Task[object]] = []
        store.refuse = more
        await kit.archive.certify_all(TENANT)
        store.refuse = lambda members: False
        await asyncio.gather(*coming)
        for number in range(30):
            entry = await kit.entry(f"0-{number:02}")
            assert entry.certified_revision == entry.revision


async def test_deletions_of_a_long_thread_are_told_in_few_flushes(tmp_path: Path) -> None:
    store = QuiltStore()
    async with open_kit(tmp_path, store=store) as kit:
        for number in range(200):
            await kit.save(f"{number:03}", f"{number - 1:03}" if number else "")
        await kit.archive.certify_all(TENANT)
        before = len(store.puts)
        await kit.journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
        await kit.archive.certify_all(TENANT)
        assert set(await kit.manifest()) == {"199"}
        assert len(store.puts) - before <= 6


async def test_pack_that_the_store_rejects_does_not_stand_in_the_way(tmp_path: Path) -> None:
    """With smaller limits after a restart, the same checkpoints are packed into less."""
    store = QuiltStore()
    contents = {("t", f"{n:02}"): b"content %d" % n for n in range(10)}
    async with open_kit(tmp_path, store=store) as kit:
        for _, checkpoint_id in contents:
            await kit.save(checkpoint_id, content=contents["t", checkpoint_id])
        store.reject = lambda members: len(members) > 6
        with pytest.raises(Refusal) as refused:
            await kit.archive.certify_all(TENANT)
        assert refused.value.reason is Reason.BLOB_REJECTED
    smaller = QuiltStore(replace(LIMITS, max_members=6))
    smaller.reject = store.reject
    async with open_kit(tmp_path, store=smaller) as kit:
        await kit.archive.certify_all(TENANT)
        await stored_everywhere(kit, contents)
