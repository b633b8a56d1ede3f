"""Due changes are indexed, and the watermark moves with their documents."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import func, update

from tests.contract.search.kit import (
    check_text,
    drain,
    due,
    due_keys,
    findable,
    indexed,
    look,
    make_searchable,
    save,
    watermarks,
)
from tests.kit.drafts import TENANT, by_digest, draft, key, refused, write
from tests.kit.journal import Clock, Journal, bind_again, opened, rows_of
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.threads import SNAPSHOTS
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotDraft
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.sql.schema import changes, threads
from tuskpoint_server.search.change_feed import IndexBacklog


async def test_saved_checkpoints_are_due_oldest_thread_first(
    journal: Journal, clock: Clock
) -> None:
    for thread_id, checkpoint_id in (("b", "02"), ("a", "01"), ("b", "03")):
        clock.advance(1)
        await save(journal, checkpoint_id, f"about {checkpoint_id}", thread_id=thread_id)
    assert await due_keys(journal) == ["b:02", "b:03", "a:01"]
    assert [checkpoint.summary for checkpoint in await due(journal)] == [
        "about 02",
        "about 03",
        "about 01",
    ]
    assert await due_keys(journal) == await due_keys(journal)
    assert [str(checkpoint.key) for checkpoint in await due(journal, 1)] == ["b:02"]
    [backlog] = await journal.index.backlog()
    assert backlog == IndexBacklog(TENANT, 3, clock.now_us - 2_000_000)
    numbers = {row[0]: row[1] for row in await rows_of(journal, threads, "number", "thread_id")}
    now = await journal.index.now(TENANT)
    assert {numbers[number]: seq for number, seq in now.items()} == {"a": 1, "b": 2}
    assert await journal.index.now("another") == {}


async def test_a_save_that_fails_leaves_nothing_due(journal: Journal) -> None:
    missing = draft("01", "", (by_digest("x", b"never sent"),))
    await refused(journal.save_checkpoint(TENANT, missing), Reason.VALUES_MISSING)
    assert await due_keys(journal) == []


async def test_only_changed_checkpoints_are_due_again(journal: Journal, clock: Clock) -> None:
    await save(journal, "01", "first", data=b"a")
    await save(journal, "02", "second", data=b"a")
    assert await drain(journal) == 2
    clock.advance(1)
    await save(journal, "01", "first", data=b"a")
    assert await due_keys(journal) == []
    await save(journal, "01", "first", data=b"b")
    await save(journal, "02", "changed", data=b"a")
    await save(journal, "02", "changed again", data=b"a")
    assert await due_keys(journal) == ["t:01", "t:02"]
    assert await drain(journal) == 2
    assert await look(journal, "again") == [key("02")]


async def test_a_label_leaves_a_checkpoint_findable(journal: Journal) -> None:
    await save(journal, "01", "first", data=b"a")
    await drain(journal)
    await journal.set_label(TENANT, key("01"), "named")
    assert await drain(journal) == 1
    assert await look(journal, "first") == [key("01")]
    await check_text(journal)


async def test_writes_move_the_watermark_and_make_no_document(journal: Journal) -> None:
    await save(journal, "01", "first")
    await drain(journal)
    await journal.save_writes(TENANT, key("01"), [write("a", b"late")])
    await journal.save_writes(TENANT, key("02"), [write("a", b"early")])
    assert await due_keys(journal) == []
    assert await drain(journal) == 0
    assert (await watermarks(journal))["t"] == (3, 3, None)


async def test_changes_that_search_need_not_know_are_passed_at_once(journal: Journal) -> None:
    await save(journal, "01", "first")
    await drain(journal)
    await journal.removal.set_retention(TENANT, "t", 3600)
    await journal.save_writes(TENANT, key("02"), [write("a", b"early")])
    assert (await watermarks(journal))["t"] == (3, 3, None)


async def test_the_watermark_moves_with_the_documents(journal: Journal, clock: Clock) -> None:
    for number in range(1, 4):
        await save(journal, f"0{number}", "saved")
    stretch = await journal.index.take(2)
    began_us = clock.now_us
    clock.advance(1)
    await save(journal, "04", "saved")
    assert await journal.index.store(stretch, stretch.due, remember=False) == 2
    assert (await watermarks(journal))["t"] == (2, 4, began_us)
    assert await due_keys(journal) == ["t:03", "t:04"]
    stretch = await journal.index.take(1)
    await journal.index.store(stretch, stretch.due, remember=False)
    assert (await watermarks(journal))["t"] == (3, 4, clock.now_us)
    await drain(journal)
    assert (await watermarks(journal))["t"] == (4, 4, None)
    assert await journal.index.backlog() == []


async def test_copies_are_due_in_the_transaction_that_makes_them(
    journal: Journal, clock: Clock
) -> None:
    await save(journal, "01", "saved one")
    await save(journal, "02", "saved two")
    await drain(journal)
    clock.advance(1)
    lineage, snapshots = journal.lineage, journal.snapshots
    await lineage.fork(TENANT, key("01"), "fork", "")
    clock.advance(1)
    await lineage.copy_thread(TENANT, "t", "copy", "")
    clock.advance(1)
    closure = await lineage.closure(TENANT, key("02"))
    assert closure is not None
    await lineage.adopt(TENANT, closure, "ab" * 32, "adopter", "", "")
    assert await due_keys(journal) == ["fork:01", "copy:01", "copy:02", "adopter:02"]
    await drain(journal)
    rolled = await lineage.rollback(TENANT, key("01"), "", None)
    assert await due_keys(journal) == [str(rolled.key)]
    snapshot = await snapshots.create_snapshot(TENANT, SnapshotDraft(("t",)), "")
    assert not any(name.startswith("$") for name in await due_keys(journal))
    [restored] = await snapshots.restore_snapshot(
        TENANT, snapshot.snapshot_id, rollback=False, request_id=""
    )
    assert str(restored.key) in await due_keys(journal)
    await drain(journal)
    assert await indexed(journal) == await findable(journal)
    assert await due_keys(journal) == []
    assert all(
        since is None
        for thread_id, (_, _, since) in (await watermarks(journal)).items()
        if not thread_id.startswith(SNAPSHOTS)
    )


async def test_checkpoints_due_before_a_crash_are_due_after_it(tmp_path: Path) -> None:
    clock = Clock()
    async with opened(tmp_path, clock) as journal:
        await save(journal, "01", "saved one")
        stretch = await journal.index.take(10)
        made = list(stretch.due)  # the journal is closed before the documents are stored
    async with opened(tmp_path, clock) as journal:
        assert await due_keys(journal) == ["t:01"]
        assert await look(journal, "saved") == []
        assert await journal.index.store(stretch, made, remember=False) == 1
        assert await journal.index.store(stretch, made, remember=False) == 0
    async with opened(tmp_path, clock) as journal:
        assert await look(journal, "saved") == [key("01")]
        assert await due_keys(journal) == []


async def test_a_thread_whose_log_was_swept_is_gone_through_by_key(journal: Journal) -> None:
    """A server without search sweeps changes that no index has read."""
    for number in range(10):
        await save(journal, f"0{number}", "saved", thread_id="long")
    await save(journal, "01", "saved", thread_id="short")

    def sweep(batch: UnitOfWork) -> None:
        batch.connection.execute(changes.delete().where(changes.c.seq <= 8))
        swept = (
            func.least(8, threads.c.seq)
            if batch.connection.dialect.name == "postgresql"
            else func.min(8, threads.c.seq)
        )
        batch.connection.execute(update(threads).values(compacted_seq=swept))
        batch.logs.clear()

    await journal.database.transact(sweep)
    await bind_again(journal.database)
    assert [tenant.checkpoints for tenant in await journal.index.backlog()] == [11]
    stretch = await journal.index.take(4)
    await journal.index.store(stretch, stretch.due, remember=False)
    await save(journal, "11", "saved meanwhile", thread_id="long")
    await save(journal, "00", "saved again", thread_id="long")
    await drain(journal, limit=4)
    assert await indexed(journal) == await findable(journal)
    assert await look(journal, "again") == [key("00", "long")]
    assert len(await look(journal, "saved", limit=100)) == 12
    assert {(low, since) for low, _, since in (await watermarks(journal)).values()} == {
        (12, None),
        (1, None),
    }


async def test_a_walk_that_a_restart_ends_begins_again(
    tmp_path: Path,
) -> None:
    clock = Clock()
    async with opened(tmp_path, clock) as journal:
        for number in range(6):
            await save(journal, f"0{number}", "saved")
        await make_searchable(journal, "t", False)
        await drain(journal)
        await make_searchable(journal, "t", True)
        stretch = await journal.index.take(2)
        assert 0 < len(stretch.due) < 6
        await journal.index.store(stretch, stretch.due, remember=False)
    async with opened(tmp_path, clock) as journal:
        assert await drain(journal) == 6
        assert len(await look(journal, "saved")) == 6


async def test_a_walk_keeps_no_other_thread_waiting(journal: Journal, clock: Clock) -> None:
    for number in range(20):
        await save(journal, f"{number:02d}", "saved", thread_id="walked")
    await make_searchable(journal, "walked", False)
    await drain(journal)
    await make_searchable(journal, "walked", True)
    clock.advance(1)
    await save(journal, "01", "saved", thread_id="other")
    stretch = await journal.index.take(4)
    assert "other:01" in [str(checkpoint.key) for checkpoint in stretch.due]
    assert len(stretch.due) <= 8
