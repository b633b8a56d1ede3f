"""A flush that fails or is interrupted loses nothing, and the next flush continues its work."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
from sqlalchemy import update

from tests.kit.archives import House, check_certified, grow, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import (
    TENANT,
    refused,
)
from tuskpoint_server.archive.flush import certify, packs
from tuskpoint_server.archive.flush.certify import VoidPackError
from tuskpoint_server.archive.flush.waiting import FlushOutcome
from tuskpoint_server.archive.rows.plan import PlannedThread
from tuskpoint_server.blobs.api import BlobMember
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.journal.sql.schema import catalogs


def judged(reason: Reason | None, members: Sequence[BlobMember]) -> Reason | None:
    """Give the same verdict on every put."""
    return reason


async def test_a_flush_that_fails_leaves_no_gap(home: House, store: MemoryStore) -> None:
    for number in range(6):
        down = Reason.BLOB_UNAVAILABLE if number % 2 == 0 else None
        store.verdict = partial(judged, down)
        await grow(home, 1, start=number)
        if down:
            await refused(home.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
        else:
            await home.flush()
    rows = await home.ask(
        "SELECT first_seq, last_seq FROM members WHERE kind = 'segment' ORDER BY last_seq"
    )
    assert [row[0] for row in rows] == [1, *(int(str(row[1])) + 1 for row in rows[:-1])]
    assert await check_certified(home) == 6


async def test_an_answer_that_was_lost_sends_the_same_bytes_again(
    home: House, store: MemoryStore
) -> None:
    await grow(home, 3)
    store.after_put = lambda members: Reason.BLOB_UNAVAILABLE
    await refused(home.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
    await grow(home, 1, start=3)
    stored = set(store.packs)
    store.after_put = lambda members: None
    await home.flush()
    assert stored <= set(store.packs)
    assert len(store.packs) == 2, "what was stored already is not stored in other bytes"
    assert await check_certified(home) == 4


async def test_a_pack_that_is_forgotten_on_its_way_is_finished(
    home: House, store: MemoryStore
) -> None:
    """The flusher may stop like this while blobs are renewed."""
    await grow(home, 2)

    async def forget(_members: Sequence[BlobMember]) -> None:
        home.archive._flusher(TENANT).flush.forget()

    store.on_put = forget
    await home.flush()
    assert len(store.packs) == 1
    assert await check_certified(home) == 2


async def test_a_pack_that_cannot_be_read_back_is_put_again(
    home: House, store: MemoryStore
) -> None:
    await grow(home, 2)
    puts = []

    def judge(members: Sequence[BlobMember]) -> None:
        puts.append(len(members))
        store.lost = {members[0].sha256} if len(puts) == 1 else set()

    store.after_put = judge
    await refused(home.archive.certify_all(TENANT), Reason.BLOB_NOT_FOUND)
    assert await home.watermark() == (2, 0)
    await home.flush()
    assert len(set(puts)) == 1
    assert await check_certified(home) == 2


async def test_who_asks_while_a_flush_fails_waits_for_no_pause(
    home: House, store: MemoryStore
) -> None:
    await grow(home, 2)
    failures = [Reason.BLOB_UNAVAILABLE]
    store.verdict = lambda members: failures.pop() if failures else None
    late: list[asyncio.Task[FlushOutcome]] = []

    async def ask(members: Sequence[BlobMember]) -> None:
        late.append(asyncio.create_task(home.archive.certify_all(TENANT)))
        await home.archive._flusher(TENANT)._wake.wait()

    store.on_put = ask
    await refused(home.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
    assert (await late[0]).certified == 2
    assert await check_certified(home) == 2


async def test_a_spooled_pack_is_stored_by_the_next_run(tmp_path: Path, store: MemoryStore) -> None:
    sent: list[set[bytes]] = []

    def down(members: Sequence[BlobMember]) -> Reason:
        sent.append({member.sha256 for member in members})
        return Reason.BLOB_UNAVAILABLE

    store.verdict = down
    async with house(tmp_path, store) as home:
        await grow(home, 3)
        await refused(home.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
    assert store.packs == {}
    store.verdict = lambda members: None
    async with house(tmp_path, store) as home:
        await grow(home, 1, start=3)
        await home.flush()
        first = next(iter(store.packs.values()))
        assert set(first) == sent[0], "exactly the spooled bytes"
        assert len(store.members("segment")) == 2
        assert await check_certified(home) == 4
        assert list((tmp_path / "spool").iterdir()) == []


@pytest.mark.parametrize("tail", [b"", bytes(20)])
async def test_a_damaged_spool_file_is_packed_anew(
    tmp_path: Path, store: MemoryStore, tail: bytes
) -> None:
    store.verdict = lambda members: Reason.BLOB_UNAVAILABLE
    async with house(tmp_path, store) as home:
        await grow(home, 3)
        await refused(home.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
    [file] = (tmp_path / "spool").iterdir()
    file.write_bytes(file.read_bytes()[:-20] + tail)
    store.verdict = lambda members: None
    async with house(tmp_path, store) as home:
        await home.flush()
        assert await check_certified(home) == 3


async def test_a_pack_is_abandoned_once_another_catalog_was_certified(
    home: House, store: MemoryStore, caplog: pytest.LogCaptureFixture
) -> None:
    await grow(home, 1)
    await home.flush()
    store.verdict = lambda members: Reason.BLOB_UNAVAILABLE
    await grow(home, 1, start=1)
    await refused(home.archive.certify_all(TENANT), Reason.BLOB_UNAVAILABLE)
    other = bytes(32)
    await home.journal.database.transact(
        lambda batch: batch.connection.execute(update(catalogs).values(sha256=other))
    )
    store.verdict = lambda members: None
    assert await home.flush() == 1
    assert "abandoned: another catalog was certified first" in caplog.text
    known = await home.archive.catalog(TENANT)
    assert known is not None
    assert known.catalog.previous is not None
    assert known.catalog.previous.sha256 == other
    assert await check_certified(home) == 2


async def test_a_watermark_moves_only_from_where_the_flush_found_it(home: House) -> None:
    await grow(home, 3)
    await home.flush()
    stale = PlannedThread(1, "t", 0, 3, 0, ended=False, checkpoints=3)
    with pytest.raises(VoidPackError):
        await home.journal.database.transact(lambda batch: certify.move(batch, TENANT, [stale]))
    assert await home.watermark() == (3, 3)


async def test_nothing_is_certified_in_a_store_that_lost_its_blobs_during_a_long_put(
    home: House, store: MemoryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packs, "_LONG_PUT_S", 0.0)
    await grow(home, 1)
    await home.flush()
    before = await home.archive.catalog(TENANT)
    assert before is not None
    lost = dict(store.packs)

    async def lose(_members: Sequence[BlobMember]) -> None:
        store.packs.clear()

    store.on_put = lose
    await grow(home, 1, start=1)
    refusal = await refused(home.flush(), Reason.BLOB_UNAVAILABLE)
    assert f"it lacks catalog {before.location.blob_id}" in str(refusal)
    assert await home.archive.catalog(TENANT) == before
    store.packs |= lost
    assert await home.flush() == 1
