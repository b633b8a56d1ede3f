"""Threads can change during their verification, and concurrent reads are bounded."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.kit.archives import House, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, key, write
from tests.kit.verdicts import FAIL, PASS, RETRACTED, UNVERIFIED, intact, verify
from tuskpoint_server.archive.formats.stored_json import decode_parts, is_part_list
from tuskpoint_server.archive.verify import verify as verification
from tuskpoint_server.blobs.api import StoreLimits
from tuskpoint_server.core.model import BlobLocation, View
from tuskpoint_server.core.threads import PruneStrategy, VerdictKind
from tuskpoint_server.features.removal.removal_rows import RemovalRows


class InterruptedStore(MemoryStore):
    """A store that calls a hook right before a read."""

    def __init__(self, limits: StoreLimits | None = None) -> None:
        super().__init__(limits)
        self.pending: dict[bytes, Callable[[], Awaitable[object]]] = {}
        self.batches: list[Sequence[BlobLocation]] = []

    async def get_many(self, locations: Sequence[BlobLocation]) -> list[bytes]:
        self.batches.append(locations)
        for location in locations:
            happens = self.pending.pop(location.sha256, None)
            if happens is not None:
                await happens()
        return await super().get_many(locations)


@asynccontextmanager
async def three(root: Path) -> AsyncIterator[tuple[House, InterruptedStore]]:
    """A journal and its archive with three certified checkpoints, each in its own segment."""
    store = InterruptedStore()
    async with house(root, store) as home:
        for number in (1, 2, 3):
            await save(home, str(number))
            await home.flush()
        yield home, store


async def save(home: House, name: str, data: bytes = b"x") -> None:
    await home.journal.save_checkpoint(TENANT, draft(name, "", {"x": data + name.encode()}))


async def place(home: House, name: str) -> BlobLocation:
    checkpoint = await home.journal.load(TENANT, key(name), View.ENTRY)
    assert checkpoint is not None
    return checkpoint.entry.segments[0]


async def test_a_catalog_that_was_followed_and_lapsed_is_no_broken_chain(tmp_path: Path) -> None:
    async with three(tmp_path) as (home, store):
        known = await home.archive.catalog(TENANT)
        assert known is not None

        async def go_on() -> None:
            await save(home, "4")
            await home.flush()
            store.lost.add(known.location.sha256)

        store.pending[known.location.sha256] = go_on
        assert await intact(home) == {"1": PASS, "2": PASS, "3": PASS, "4": PASS}


async def test_a_checkpoint_that_is_stored_anew_meanwhile(tmp_path: Path) -> None:
    async with three(tmp_path) as (home, store):
        segment = await place(home, "2")

        async def save_anew() -> None:
            await save(home, "2", b"anew")
            await home.flush()
            store.lost.add(segment.sha256)

        store.pending[segment.sha256] = save_anew
        assert await intact(home) == {"1": PASS, "2": PASS, "3": PASS}


async def test_a_checkpoint_that_changes_meanwhile(tmp_path: Path) -> None:
    async with three(tmp_path) as (home, store):
        segment = await place(home, "2")

        async def save_anew() -> None:
            await save(home, "2", b"anew")

        store.pending[segment.sha256] = save_anew
        assert await intact(home) == {"1": PASS, "2": PASS, "3": PASS}, "as when they were read"
        assert await intact(home) == {"1": PASS, "2": UNVERIFIED, "3": PASS}


@pytest.mark.parametrize("flushed", [False, True])
async def test_a_checkpoint_that_is_removed_meanwhile(tmp_path: Path, flushed: bool) -> None:
    async with three(tmp_path) as (home, store):
        segment = await place(home, "1")

        async def prune() -> None:
            removal = RemovalRows(home.journal.database)
            await removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
            if flushed:
                await home.flush()
            store.lost.add(segment.sha256)

        store.pending[segment.sha256] = prune
        kinds = await intact(home)
        assert (kinds["1"], kinds["3"]) == (RETRACTED, PASS)
        assert FAIL not in kinds.values()


async def test_a_thread_that_is_deleted_meanwhile(tmp_path: Path) -> None:
    async with three(tmp_path) as (home, store):
        segments = [await place(home, name) for name in "123"]

        async def delete() -> None:
            await RemovalRows(home.journal.database).delete_thread(TENANT, "t")
            await save(home, "9")
            await home.flush()
            store.lost.update(segment.sha256 for segment in segments)

        store.pending[segments[0].sha256] = delete
        assert await intact(home) == dict.fromkeys("123", RETRACTED)
        assert await intact(home) == {"9": PASS}


async def test_bytes_that_moved_are_read_where_they_lie_now(tmp_path: Path) -> None:
    """Locations in catalogs, runs and segments are hints; the journal has the current location."""
    async with three(tmp_path) as (home, store):
        segment = await place(home, "1")
        store.packs["moved"] = store.packs.pop(segment.blob_id)
        outcome = await verify(home)
        assert segment.blob_id in outcome.chain_problem, "the first run lies there too"
        assert outcome.counts == {FAIL: 1, PASS: 2}
        await home.journal.database.transact(
            lambda batch: batch.connection.connection.cursor().execute(
                "UPDATE members SET blob_id = 'moved' WHERE blob_id = ?", (segment.blob_id,)
            )
        )
        assert await intact(home) == {"1": PASS, "2": PASS, "3": PASS}


async def test_a_segment_in_parts(tmp_path: Path) -> None:
    store = InterruptedStore(StoreLimits(max_member_bytes=5000))
    async with house(tmp_path, store) as home:
        await save(home, "1", random.Random(1).randbytes(30_000))
        await home.flush()
        await save(home, "2")
        await home.flush()
        assert await intact(home) == {"1": PASS, "2": PASS}
        segment = await place(home, "1")
        listed = await store.get(segment)
        assert is_part_list(listed)
        part = decode_parts(listed, segment, 1 << 20).parts[2]
        store.lost = {part.sha256}
        outcome = await verify(home)
        assert outcome.kinds == {"1": FAIL, "2": PASS}
        verdict = outcome.of("1")
        assert (verdict.location, verdict.actual_sha256) == (part, b"")


async def test_nothing_fails_while_a_writer_and_flushes_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "PAGE_CHECKPOINTS", 3)
    monkeypatch.setattr(verification, "BATCH_CHECKPOINTS", 2)
    done = asyncio.Event()

    async def change(home: House) -> None:
        removal = RemovalRows(home.journal.database)
        number = 100
        while not done.is_set():
            number += 1
            await save(home, f"{number}")
            await home.journal.save_writes(
                TENANT, key(f"{number - 1}"), [write("w", b"%d" % number, idx=number)]
            )
            if number % 7 == 0:
                await save(home, "100", b"%d" % number)
            if number % 41 == 0:
                await removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)

    async def certify(home: House) -> None:
        while not done.is_set():
            await home.flush()

    async with house(tmp_path, MemoryStore()) as home:
        await save(home, "100")
        await home.flush()
        working = [asyncio.create_task(change(home)), asyncio.create_task(certify(home))]
        seen: list[VerdictKind] = []
        try:
            looks = 0
            while looks < 15 or PASS not in seen:
                outcome = await verify(home)
                assert outcome.chain_problem == ""
                seen += outcome.kinds.values()
                looks += 1
        finally:
            done.set()
            await asyncio.gather(*working)
        assert FAIL not in seen
        await home.flush()
        assert set((await intact(home)).values()) <= {PASS, RETRACTED}


async def test_concurrent_reads_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verification, "BATCH_CHECKPOINTS", 4)
    monkeypatch.setattr(verification, "BATCH_BYTES", 3_000)
    store = InterruptedStore()
    async with house(tmp_path, store) as home:
        for number in range(20):
            content = random.Random(number).randbytes(4_000 if number == 9 else 400)
            await save(home, f"{number:02}", content)
            await home.flush()
        segments = {member.sha256 for member in store.members("segment")}
        store.batches.clear()
        assert (await verify(home)).counts == {PASS: 20}
        batches = [
            batch for batch in store.batches if any(member.sha256 in segments for member in batch)
        ]
        assert len(batches) > 5
        for batch in batches:
            assert len(batch) <= 4
            assert len(batch) == 1 or sum(member.size for member in batch) <= 3_000
