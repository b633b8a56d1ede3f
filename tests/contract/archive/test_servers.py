"""The leader flushes for two servers that share a journal and a blob store."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.kit.archives import EAGER, House, check_certified, grow, house
from tests.kit.blobs.stores import MemoryStore, rejecting
from tests.kit.drafts import TENANT, draft, refused
from tests.kit.journal import Clock, Ticks, expire
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import BlobLocation, CheckpointKey
from tuskpoint_server.journal.database.database import Database
from tuskpoint_server.journal.lease import Lease

pytestmark = pytest.mark.postgresql

Opening = Callable[..., Awaitable[House]]


@pytest.fixture
async def open_server(tmp_path: Path, store: MemoryStore, clock: Clock) -> AsyncIterator[Opening]:
    """Yield a function that opens a server by name; `ticks` is its clock. The first one leads."""
    async with AsyncExitStack() as stack:

        async def opening(name: str, ticks: Ticks | None = None, **changed: Any) -> House:
            directory = tmp_path / name
            directory.mkdir(exist_ok=True)

            def lease_of(database: Database) -> Lease:
                return Lease(database, 10, ticks or Ticks())

            opened = house(
                directory, store, clock, journal_of=tmp_path, lease_of=lease_of, **changed
            )
            return await stack.enter_async_context(opened)

        yield opening


async def saved(home: House, name: str, thread_id: str = "t") -> tuple[CheckpointKey, int]:
    made = await home.journal.save_checkpoint(
        TENANT, draft(name, "", {"x": name.encode() * 500}, thread_id=thread_id)
    )
    return made.key, made.seq


async def take_over(leader: House, ticks: Ticks, other: House) -> None:
    """Stop the leader's clock, as if its process was stopped, and let another server take over.

    Then the clock shows the time that has passed, but the leader has not read the clock yet.
    """
    await expire(other.journal.database)
    await other.took_over.wait()
    ticks.now += 3600


async def test_the_leader_certifies_what_another_server_saves(open_server: Opening) -> None:
    leader, other = await open_server("a"), await open_server("b")
    key, seq = await saved(other, "one")
    catalog = await other.archive.certify(TENANT, key, seq)
    assert catalog == await leader.archive.certify(TENANT, key, seq)
    pointer = (leader.archive._parts.pointer.path(TENANT)).read_text("utf-8").strip()
    assert pointer == catalog.blob_id
    assert await check_certified(other) == 1


async def test_everything_is_certified_for_another_server(open_server: Opening) -> None:
    leader, other = await open_server("a"), await open_server("b")
    await grow(leader, 3, "of-leader")
    await grow(other, 2, "of-other")
    outcome = await other.archive.certify_all(TENANT)
    assert outcome.certified == 5
    assert outcome.catalog == (await leader.archive.certify_all(TENANT)).catalog
    assert (await other.archive.certify_all(TENANT)).certified == 0


async def test_polling_finds_what_no_notification_brings(
    open_server: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tuskpoint_server.journal.database.database.POLL_S", 0.05)
    monkeypatch.setattr("tuskpoint_server.archive.flush.remote_flush.POLL_S", 0.05)
    monkeypatch.setattr(Database, "announce", lambda *_: None)
    _, other = await open_server("a"), await open_server("b")
    key, seq = await saved(other, "one")
    await other.archive.certify(TENANT, key, seq)
    await saved(other, "two", "u")
    assert (await other.archive.certify_all(TENANT)).certified == 1


async def test_another_server_hears_why_the_leader_fails(
    open_server: Opening, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    leader, other = await open_server("a"), await open_server("b")
    key, seq = await saved(other, "one")
    store.verdict = lambda members: Reason.BLOB_UNAVAILABLE
    with pytest.raises(Refusal) as failed:
        await other.archive.certify_all(TENANT)
    assert failed.value.reason is Reason.BLOB_UNAVAILABLE
    assert failed.value.message == (await leader.archive.status(TENANT)).last_error
    waiting = asyncio.create_task(other.archive.certify(TENANT, key, seq))
    while not (await other.archive.status(TENANT)).last_error:  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0.01)
    here, there = await leader.archive.status(TENANT), await other.archive.status(TENANT)
    assert (here.last_error, here.last_error_us) == (there.last_error, there.last_error_us)
    assert not waiting.done(), "a wait for one change continues through failures"
    store.verdict = lambda members: None
    await other.archive.certify_all(TENANT)
    await waiting


async def test_what_cannot_be_stored_is_refused_on_each_server(
    open_server: Opening, store: MemoryStore
) -> None:
    _, other = await open_server("a"), await open_server("b")
    key, seq = await saved(other, "bad")
    rejecting(store, "bad")
    await refused(other.archive.certify_all(TENANT), Reason.CERTIFICATION_FAILED)
    await refused(other.archive.certify(TENANT, key, seq), Reason.CERTIFICATION_FAILED)
    store.verdict = lambda members: None
    await other.archive.certify_all(TENANT)
    await other.archive.certify(TENANT, key, seq)


async def test_the_leader_flushes_in_time_what_another_server_saves(open_server: Opening) -> None:
    leader, other = await open_server("a", flush_interval_s=0.01), await open_server("b")
    await saved(other, "one")
    with leader.journal.database.waiters.subscribe(TENANT, "t") as changes:
        while (await leader.watermark())[1] == 0:
            await changes.wait(60)


async def test_each_server_keeps_within_the_limits_of_the_backlog(open_server: Opening) -> None:
    leader = await open_server("a", hard_limit_bytes=1000, soft_limit_bytes=900)
    await saved(leader, "one")
    await saved(leader, "two", "u")
    other = await open_server("b", hard_limit_bytes=1000, soft_limit_bytes=900)
    with pytest.raises(Refusal) as full:
        other.archive.backlog(TENANT).admit()
    assert full.value.reason is Reason.BACKLOG_FULL
    await leader.flush()
    while other.archive.backlog(TENANT).warning():  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0.01)
    other.archive.backlog(TENANT).admit()
    await saved(other, "three", "v")
    await saved(other, "four", "w")
    while not leader.archive.backlog(TENANT).warning():  # noqa: ASYNC110 - no event says so
        await asyncio.sleep(0.01)


async def test_a_leader_that_wakes_after_a_takeover_certifies_nothing(
    open_server: Opening, store: MemoryStore
) -> None:
    """The leader was stopped in the middle of a put; its own clock does not show the pause."""
    ticks = Ticks()
    leader, other = await open_server("a", ticks), await open_server("b")
    key, seq = await saved(leader, "one")
    put = asyncio.Event()

    async def stopped(members: Sequence[object]) -> None:
        put.set()
        await expire(other.journal.database)
        await other.took_over.wait()
        await other.flush()

    store.on_put = stopped
    catalog = await leader.archive.certify(TENANT, key, seq)
    assert put.is_set()
    known = await other.archive.catalog(TENANT)
    assert known is not None
    assert known.location == catalog
    assert known.catalog.number == 1, "it was certified once"
    assert await leader.ask("SELECT count(*) FROM packs") == [(0,)]
    assert await check_certified(other) == 1
    assert not leader.lease.held


async def test_a_leader_whose_time_is_over_does_nothing_more(
    open_server: Opening, store: MemoryStore
) -> None:
    ticks = Ticks()
    leader, other = await open_server("a", ticks), await open_server("b")
    await saved(leader, "one")
    ticks.now += 3600
    puts: list[object] = []

    def counted(members: Sequence[object]) -> None:
        puts.append(members)

    store.verdict = counted
    flusher = leader.archive._flusher(TENANT)
    flusher.flush_soon()
    assert flusher._task is not None
    await flusher._task
    assert not puts
    await expire(other.journal.database)
    await other.took_over.wait()
    await other.flush()
    assert await check_certified(other) == 1


async def test_a_pack_on_the_way_of_a_dead_server_is_built_again(
    open_server: Opening, store: MemoryStore, tmp_path: Path
) -> None:
    ticks = Ticks()
    leader, other = await open_server("a", ticks), await open_server("b")
    await saved(leader, "one")
    store.verdict = lambda members: Reason.BLOB_UNAVAILABLE
    await refused(leader.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
    [spooled] = (tmp_path / "a" / "spool").iterdir()
    store.verdict = lambda members: None
    await take_over(leader, ticks, other)
    await other.flush()
    assert await other.ask("SELECT count(*) FROM packs") == [(0,)]
    assert not [*(tmp_path / "b" / "spool").iterdir()]
    assert await check_certified(other) == 1
    await other.leader.stop()
    await leader.took_over.wait()
    assert not spooled.exists(), "the old leader comes back and removes it"
    assert await leader.flush() == 0


async def test_a_server_that_is_not_the_leader_leaves_no_files_of_a_life_before(
    open_server: Opening, tmp_path: Path
) -> None:
    await open_server("a")
    spool = tmp_path / "b" / "spool"
    spool.mkdir(parents=True)
    (spool / "certified-by-another-server.pack").touch()
    await open_server("b")
    assert list(spool.iterdir()) == []


async def test_callers_go_on_waiting_when_the_leader_changes(
    open_server: Opening, store: MemoryStore
) -> None:
    ticks = Ticks()
    leader, other = await open_server("a", ticks), await open_server("b", **EAGER)
    first, second = await saved(leader, "one"), await saved(other, "two", "u")
    failed = asyncio.Event()

    def failing(members: Sequence[object]) -> Reason:
        failed.set()
        return Reason.BLOB_UNAVAILABLE

    store.verdict = failing
    here = asyncio.create_task(leader.archive.certify(TENANT, *first))
    there = asyncio.create_task(other.archive.certify(TENANT, *second))
    await failed.wait()
    await take_over(leader, ticks, other)
    store.verdict = lambda members: None
    catalogs: list[BlobLocation] = [await here, await there]
    assert all(catalogs)
    assert not leader.lease.held


async def test_who_waits_on_another_server_gets_a_defect(
    open_server: Opening, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, other = await open_server("a"), await open_server("b")
    key, seq = await saved(other, "one")
    with monkeypatch.context() as broken:
        broken.setattr("tuskpoint_server.archive.flush.flush_requests.of_tenant", None)
        for call in (other.archive.certify(TENANT, key, seq), other.archive.certify_all(TENANT)):
            with pytest.raises(TypeError):
                await call
    await other.archive.certify(TENANT, key, seq)


async def test_the_next_leader_writes_the_pointer_to_the_newest_catalog(
    open_server: Opening,
) -> None:
    leader, other = await open_server("a"), await open_server("b")
    await saved(leader, "one")
    catalog = (await leader.archive.certify_all(TENANT)).catalog
    assert catalog is not None
    pointer = other.archive._parts.pointer.path(TENANT)
    assert not pointer.exists()
    await leader.leader.stop()
    await other.took_over.wait()
    assert pointer.read_text("utf-8").strip() == catalog.blob_id


async def test_waits_on_another_server_end_with_it(
    open_server: Opening, store: MemoryStore
) -> None:
    _, other = await open_server("a"), await open_server("b")
    key, seq = await saved(other, "one")
    store.verdict = lambda members: Reason.BLOB_UNAVAILABLE
    waiting = asyncio.create_task(other.archive.certify(TENANT, key, seq))
    await asyncio.sleep(0)
    stopping = asyncio.create_task(other.archive.stop())
    await refused(waiting, Reason.DRAINING)
    await stopping
