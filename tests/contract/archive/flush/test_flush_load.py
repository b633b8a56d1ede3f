"""Flushes keep their bounds under new changes, with a full backlog, and on long threads."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path

import pytest

from tests.kit.archives import House, check_certified, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, key, refused, write
from tuskpoint_server.blobs.api import BlobMember, PutReceipt
from tuskpoint_server.core.errors import Reason, Refusal

# The database makes no difference to the amount that is stored.
pytestmark = pytest.mark.sqlite

ROUNDS = 12


class BusyStore(MemoryStore):
    """Calls a hook before each put, for a number of puts."""

    def __init__(self) -> None:
        super().__init__()
        self.meanwhile: Callable[[], Awaitable[object]] | None = None
        self.rounds = 0
        self.sizes: list[int] = []

    async def put(self, members: Sequence[BlobMember], *, standalone: bool = False) -> PutReceipt:
        self.rounds += 1
        self.sizes.append(sum(len(member.data) for member in members))
        if self.meanwhile is not None and self.rounds < ROUNDS:
            await self.meanwhile()
        return await super().put(members, standalone=standalone)


async def save(home: House, name: str, content: bytes = b"x", thread_id: str = "t") -> int:
    saved = await home.journal.save_checkpoint(
        TENANT, draft(name, "", {"x": content}, thread_id=thread_id)
    )
    return saved.seq


async def test_a_checkpoint_that_keeps_getting_writes_holds_nobody_up(tmp_path: Path) -> None:
    store = BusyStore()
    async with house(tmp_path, store) as home:
        hot = await save(home, "hot")
        quiet = await save(home, "quiet")

        async def write_more() -> None:
            more = write("task", b"%d" % store.rounds, idx=store.rounds)
            await home.journal.save_writes(TENANT, key("hot"), [more])

        store.meanwhile = write_more
        await home.archive.certify(TENANT, key("quiet"), quiet)
        await home.archive.certify(TENANT, key("hot"), hot)
        await home.archive.certify_all(TENANT)
        assert store.rounds < ROUNDS


async def test_a_checkpoint_that_keeps_being_saved_again_holds_nobody_up(tmp_path: Path) -> None:
    store = BusyStore()
    async with house(tmp_path, store) as home:
        await save(home, "hot")
        quiet = await save(home, "quiet")
        store.meanwhile = lambda: save(home, "hot", b"%d" % store.rounds)
        await home.archive.certify(TENANT, key("quiet"), quiet)
        await home.archive.certify_all(TENANT)
        assert store.rounds < ROUNDS
        store.meanwhile = None
        await home.flush()
        assert await check_certified(home) == 2


async def test_a_flush_of_everything_ends_although_more_keeps_coming(tmp_path: Path) -> None:
    store = BusyStore()
    async with house(tmp_path, store, max_pack_checkpoints=10) as home:
        for number in range(30):
            await save(home, f"0-{number:02}")

        async def save_more() -> None:
            for number in range(15):
                await save(home, f"{store.rounds}-{number:02}")

        store.meanwhile = save_more
        await home.flush()
        assert store.rounds < ROUNDS
        assert (await home.watermark())[1] >= 30


async def test_a_deletion_makes_room_in_a_full_backlog_while_the_store_is_down(
    tmp_path: Path,
) -> None:
    store = MemoryStore()
    store.verdict = lambda members: Reason.BLOB_UNAVAILABLE
    async with house(tmp_path, store, soft_limit_bytes=20_000, hard_limit_bytes=50_000) as home:
        for number in range(6):
            await save(home, f"{number}", random.Random(number).randbytes(10_000))
        with pytest.raises(Refusal) as caught:
            home.archive.backlog(TENANT).admit()
        assert caught.value.reason is Reason.BACKLOG_FULL
        await home.journal.removal.delete_thread(TENANT, "t")
        for _ in range(2):  # the first flush may have started before the deletion
            await refused(home.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
        home.archive.backlog(TENANT).admit()


async def test_the_backlog_is_known_after_a_restart(tmp_path: Path) -> None:
    store = MemoryStore()
    store.verdict = lambda members: Reason.BLOB_UNAVAILABLE
    async with house(tmp_path, store) as home:
        await save(home, "1", b"x" * 10_000)
        waiting = home.archive._flusher(TENANT).backlog.size_bytes
        assert waiting > 0
    async with house(tmp_path, store) as home:
        await refused(home.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
        assert home.archive._flusher(TENANT).backlog.size_bytes >= waiting > 0


async def test_tenants_are_packed_apart(tmp_path: Path) -> None:
    store = MemoryStore()
    async with house(tmp_path, store) as home:
        for tenant in (TENANT, "a/b"):
            await home.journal.save_checkpoint(tenant, draft("1", "", {"x": tenant.encode()}))
            await home.archive.certify_all(tenant)
        assert [len(pack) for pack in store.packs.values()] == [3, 3]
        assert (tmp_path / "catalog.a%2Fb").read_text().strip() == list(store.packs)[1]


async def test_a_flush_of_a_long_thread_beside_many_stores_no_more_than_of_a_short_one(
    tmp_path: Path,
) -> None:
    store = BusyStore()
    async with house(tmp_path, store) as home:
        await save(home, "first")
        for flush in range(96):
            for number in range(2):
                await save(home, f"{flush * 2 + number:036}")
                await save(home, "only", thread_id=f"{flush}-{number}")
            await home.flush()
        # Merges happen from time to time: they write each record once more for each level.
        assert sum(store.sizes[-32:]) <= 1.5 * sum(store.sizes[16:48])
