"""A sweep removes what has expired: early writes, answers of requests, old changes."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from tests.contract.removal.rows import FOREVER, certify_all, rows
from tests.kit.drafts import TENANT, by_digest, data_of, draft, key, refused, write, written
from tests.kit.journal import Clock, Journal, row_of, save
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import View
from tuskpoint_server.features.removal import sweep as sweeping
from tuskpoint_server.features.removal.removal_rows import RemovalRows, SweepCounts
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import changes, requests, writes
from tuskpoint_server.journal.sql.statements import Statement, insert_rows


async def swept(removal: RemovalRows) -> int:
    """Return the number of changes that a sweep removes."""
    return (await removal.sweep(early_write_ttl_s=FOREVER)).changes


async def left(journal: Journal, thread_id: str = "t") -> list[int]:
    number = (await row_of(journal, thread_id)).number
    return [
        seq for thread, seq in await rows(journal, changes, "thread", "seq") if thread == number
    ]


async def test_values_of_a_checkpoint_that_was_saved_anew_are_swept(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(journal, draft("a", "", {"x": b"0", "y": b"kept"}))
    for number in range(1, 9):
        await save(journal, draft("a", "", {"x": b"%d" % number, "y": b"kept"}))
        await save(journal, draft("a", "", {"x": b"%d" % number, "y": b"kept"}, summary="same"))
    assert (await removal.sweep(early_write_ttl_s=FOREVER)).contents == 8
    assert data_of(await journal.load(TENANT, key("a"), View.FULL)) == {"x": b"8", "y": b"kept"}
    gone = draft("b", "", (by_digest("x", b"7"), by_digest("y", b"kept")))
    refusal = await refused(journal.save_checkpoint(TENANT, gone), Reason.VALUES_MISSING)
    assert [violation.field for violation in refusal.violations] == ["x"]
    row = await row_of(journal)
    assert (row.removed_count, row.removed_bytes) == (0, 0)
    assert (await removal.sweep(early_write_ttl_s=FOREVER)).contents == 0


async def test_early_writes_expire(
    journal: Journal, removal: RemovalRows, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "ROWS_AT_ONCE", 2)
    await save(journal, draft("a"))
    await journal.save_writes(
        TENANT, key("b"), [write("x", b"%d" % idx, idx=idx) for idx in range(5)]
    )
    await journal.save_writes(TENANT, key("a"), [write("x", b"in time")])
    clock.advance(60)
    await journal.save_writes(TENANT, key("c"), [write("x", b"later")])
    assert (await removal.sweep(early_write_ttl_s=60)).early_writes == 0
    clock.advance(1)
    assert (await removal.sweep(early_write_ttl_s=60)).early_writes == 5
    await save(journal, draft("b", "a"), draft("c", "b"))
    writes = [
        written(await journal.load(TENANT, key(checkpoint_id), View.FULL))
        for checkpoint_id in "abc"
    ]
    assert [[row[-1] for row in rows] for rows in writes] == [[b"in time"], [], [b"later"]]
    clock.advance(3600)
    assert (await removal.sweep(early_write_ttl_s=60)).early_writes == 0


async def test_damage_of_early_writes_expires_with_them(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    """The check at the end of the journal finds all rows of the thread as they should be."""
    await save(journal, draft("a"))
    await journal.save_writes(TENANT, key("b"), [write("x", b"1"), write("x", b"2", idx=1)])

    def change(batch: UnitOfWork) -> None:
        batch.connection.execute(update(writes).values(mac=bytes(16)))
        batch.logs.clear()

    await journal.database.transact(change)
    clock.advance(61)
    assert (await removal.sweep(early_write_ttl_s=60)).early_writes == 2


async def test_answers_expire(
    journal: Journal, removal: RemovalRows, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "ROWS_AT_ONCE", 2)

    async def answer(request_id: str) -> None:
        await journal.database.transact(
            lambda batch: Statement(insert_rows(requests)).run(
                batch.connection,
                tenant=TENANT,
                request_id=request_id,
                method="m",
                fingerprint=b"",
                answer=b"",
                created_us=batch.now_us,
            )
        )

    for number in range(5):
        await answer(f"old {number}")
    clock.advance(1)
    await answer("new")
    clock.advance(LIMITS.request_id_ttl_s)
    assert await removal.sweep(early_write_ttl_s=FOREVER) == SweepCounts(requests=5)
    assert await rows(journal, requests, "request_id") == [("new",)]


async def test_old_changes_are_dropped(
    journal: Journal, removal: RemovalRows, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "ROWS_AT_ONCE", 3)
    monkeypatch.setattr(sweeping, "THREADS_AT_ONCE", 2)
    for number in range(5):
        await save(journal, draft(f"{number}"), draft("a", thread_id=f"{number}"))
    await removal.delete_thread(TENANT, "0")
    clock.advance(60)
    await save(journal, draft("5"))
    await certify_all(journal)
    clock.advance(LIMITS.event_ttl_s - 60)
    assert await swept(removal) == 0
    clock.advance(1)
    assert await swept(removal) == 11
    assert await left(journal) == [6]
    row = await row_of(journal)
    assert (row.begun_seq, row.compacted_seq, row.seq) == (0, 5, 6)
    row = await row_of(journal, "0")
    assert (row.begun_seq, row.compacted_seq, row.seq) == (2, 2, 2)
    await save(journal, draft("b", thread_id="0"))
    assert (await row_of(journal, "0")).begun_seq == 2
    assert await swept(removal) == 0


async def test_changes_swept_before_the_next_incarnation_are_not_of_it(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    await save(journal, draft("a"))
    await removal.delete_thread(TENANT, "t")
    await journal.save_writes(TENANT, key("b"), [write("x", b"early")])
    await certify_all(journal)
    clock.advance(LIMITS.event_ttl_s + 1)
    assert await swept(removal) == 3
    await save(journal, draft("b"))
    row = await row_of(journal)
    assert (row.begun_seq, row.seq) == (3, 4)


async def test_changes_above_the_watermarks_stay_however_old(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    await save(journal, draft("a"))
    await certify_all(journal)
    await save(journal, draft("b"))
    clock.advance(2 * LIMITS.event_ttl_s)
    assert await swept(removal) == 1
    await certify_all(journal, indexed=False)
    assert await swept(removal) == 0
    assert await left(journal) == [2]
    await certify_all(journal)
    assert await swept(removal) == 1
    assert await left(journal) == []


async def test_where_nothing_is_indexed_no_change_waits_for_search(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    await save(journal, draft("a"))
    await certify_all(journal, indexed=False)
    await save(journal, draft("b"))
    clock.advance(2 * LIMITS.event_ttl_s)
    assert await swept(removal) == 0
    assert (await removal.sweep(early_write_ttl_s=FOREVER, indexing=False)).changes == 1
    assert await left(journal) == [2]


async def test_changes_that_search_ignores_hold_nothing_up(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    await save(journal, draft("a"))
    await certify_all(journal)
    await removal.set_retention(TENANT, "t", LIMITS.max_retention_s)
    await certify_all(journal, indexed=False)
    clock.advance(LIMITS.event_ttl_s + 1)
    assert await swept(removal) == 2


async def test_a_clock_that_was_set_back_leaves_no_gap(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    await save(journal, draft("a"))
    clock.advance(-60)
    await save(journal, draft("b"))
    clock.advance(60)
    await save(journal, draft("c"))
    await certify_all(journal)
    clock.advance(LIMITS.event_ttl_s)
    assert await swept(removal) == 0
    clock.advance(1)
    assert await swept(removal) == 3
    assert await left(journal) == []


async def test_dropping_changes_is_no_change_of_the_thread(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    await save(journal, draft("a"))
    await certify_all(journal)
    before = await journal.thread(TENANT, "t")
    clock.advance(LIMITS.event_ttl_s + 1)
    assert await swept(removal) == 1
    assert await journal.thread(TENANT, "t") == before
    await save(journal, draft("b", "a"))
    row = await row_of(journal)
    assert (row.compacted_seq, row.seq) == (1, 2)
