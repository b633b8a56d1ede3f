"""Leases in the transaction of each change: who may change a thread, and who never again."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from tests.contract.changes.kit import events
from tests.contract.leases.kit import TTL_S, acquire, keep, release
from tests.kit.drafts import TENANT, draft, key, refused, write
from tests.kit.journal import Clock, Journal, row_of, save, thread_of
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.threads import EventKind
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotDraft
from tuskpoint_server.features.removal.removal_rows import RemovalRows
from tuskpoint_server.journal.database.binding import RowDamagedError, binder_of
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.migrations import LATEST
from tuskpoint_server.journal.sql.schema import threads


async def test_only_the_holder_changes_a_thread(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("1", "", {"x": b"1"}))
    lease = await acquire(journal, "Zoë ☂")
    for change in (
        lambda named: journal.save_checkpoint(TENANT, draft("2", "1", lease_id=named)),
        lambda named: journal.save_writes(TENANT, key("1"), [write("c", b"w")], named),
        lambda named: lineage.rollback(TENANT, key("1"), "", None, {}, lease_id=named),
    ):
        busy = await refused(change(""), Reason.THREAD_BUSY)
        assert busy.metadata["owner"] == "Zoë ☂"
        assert busy.retry_after_s == TTL_S
        lost = await refused(change("1-000000000000"), Reason.LEASE_LOST)
        assert lost.metadata["owner"] == "Zoë ☂"
        await change(lease.lease_id)
    assert [event.kind for event in await events(journal)] == [
        EventKind.CHECKPOINT_SAVED,
        EventKind.LEASE_CHANGED,
        EventKind.CHECKPOINT_SAVED,
        EventKind.WRITES_SAVED,
        EventKind.CHECKPOINT_SAVED,
    ]


async def test_a_snapshot_rolls_no_leased_thread_back(journal: Journal) -> None:
    await save(journal, draft("1"))
    snapshot = await journal.snapshots.create_snapshot(TENANT, SnapshotDraft(("t",)), "")
    await acquire(journal)

    async def restore(*, rollback: bool) -> None:
        await journal.snapshots.restore_snapshot(
            TENANT, snapshot.snapshot_id, rollback=rollback, request_id=""
        )

    await refused(restore(rollback=True), Reason.THREAD_BUSY)
    await restore(rollback=False)


async def test_what_is_stored_already_is_answered_whoever_drives(journal: Journal) -> None:
    """A retry whose first answer was lost must not fail because the lease ended meanwhile."""
    mine = await acquire(journal)
    first = await journal.save_checkpoint(TENANT, draft("1", lease_id=mine.lease_id))
    writes = [write("c", b"w")]
    await journal.save_writes(TENANT, key("1"), writes, mine.lease_id)
    await acquire(journal, "other", takes_over=True)
    again = await journal.save_checkpoint(TENANT, draft("1", lease_id=mine.lease_id))
    assert (again.key, again.seq) == (first.key, first.seq)
    await journal.save_writes(TENANT, key("1"), writes, mine.lease_id)
    agent = draft("1", lease_id=mine.lease_id, agent_id="writer")
    await refused(journal.save_checkpoint(TENANT, agent), Reason.LEASE_LOST)


async def test_time_ends_a_lease_for_good_once_another_change_was_accepted(
    journal: Journal, clock: Clock
) -> None:
    lease = await acquire(journal)
    clock.advance(TTL_S - 0.000_001)
    await save(journal, draft("1", lease_id=lease.lease_id))
    clock.advance(0.000_001)
    late = draft("2", "1", lease_id=lease.lease_id)
    await refused(journal.save_checkpoint(TENANT, late), Reason.LEASE_LOST)
    await refused(keep(journal, lease), Reason.LEASE_LOST)
    await save(journal, draft("3", "1"))
    clock.advance(-TTL_S)  # another server's clock is behind
    await refused(journal.save_checkpoint(TENANT, late), Reason.LEASE_LOST)
    await refused(keep(journal, lease), Reason.LEASE_LOST)
    assert not await release(journal, lease)


async def test_a_refused_change_leaves_an_ended_lease_in_its_row(
    journal: Journal, clock: Clock
) -> None:
    await save(journal, draft("1"))
    await acquire(journal)
    clock.advance(TTL_S)
    before = await row_of(journal)
    moved = journal.save_checkpoint(TENANT, draft("2", "1", expected_head="0"))
    await refused(moved, Reason.HEAD_MOVED)
    assert (await row_of(journal)).lease == before.lease is not None
    assert (await thread_of(journal)).lease is None


async def test_heartbeats_extend_a_lease_and_take_no_number(journal: Journal, clock: Clock) -> None:
    lease = await acquire(journal)
    seq = (await row_of(journal)).seq
    for _ in range(3):
        clock.advance(TTL_S - 1)
        lease = await keep(journal, lease)
        await refused(journal.save_checkpoint(TENANT, draft("1")), Reason.THREAD_BUSY)
    shorter = await keep(journal, lease, 1)
    assert (shorter.ttl_us, shorter.until_us) == (1_000_000, clock.now_us + 1_000_000)
    assert (await thread_of(journal)).lease == shorter
    assert (await row_of(journal)).seq == seq
    clock.advance(-0.5)  # another server's clock is behind
    assert (await keep(journal, lease)).until_us == shorter.until_us
    clock.advance(1.5)
    await refused(keep(journal, lease), Reason.LEASE_LOST)


async def test_a_take_over_ends_the_lease_of_the_holder(journal: Journal) -> None:
    mine = await acquire(journal)
    await refused(acquire(journal, "other"), Reason.THREAD_BUSY)
    other = await acquire(journal, "other", takes_over=True)
    assert other.fence > mine.fence
    await refused(
        journal.save_checkpoint(TENANT, draft("1", lease_id=mine.lease_id)), Reason.LEASE_LOST
    )
    lost = await refused(keep(journal, mine), Reason.LEASE_LOST)
    assert lost.metadata["owner"] == "other"
    assert not await release(journal, mine)
    assert await release(journal, other)
    assert not await release(journal, other)
    await save(journal, draft("1"))


async def test_a_repeat_gets_the_same_lease_as_long_as_it_holds(
    journal: Journal, clock: Clock
) -> None:
    lease = await acquire(journal, request_id="r")
    clock.advance(1)
    assert await acquire(journal, request_id="r") == lease
    await refused(acquire(journal, "other", request_id="r"), Reason.THREAD_BUSY)
    assert await acquire(journal, request_id="r", takes_over=True) == lease
    clock.advance(TTL_S)
    assert (await acquire(journal, request_id="r")).fence > lease.fence


async def test_an_advisory_lease_keeps_only_other_leases_out(
    journal: Journal, clock: Clock
) -> None:
    lease = await acquire(journal, advisory=True)
    await save(journal, draft("1"), draft("2", "1", lease_id=lease.lease_id))
    await refused(acquire(journal, "other", advisory=True), Reason.THREAD_BUSY)
    await refused(
        journal.save_checkpoint(TENANT, draft("3", "2", lease_id="1-0")), Reason.LEASE_LOST
    )
    clock.advance(TTL_S)
    await save(journal, draft("3", "2"))
    assert (await row_of(journal)).lease is None


async def test_a_deletion_ends_the_lease_and_a_lease_starts_the_next_incarnation(
    journal: Journal, removal: RemovalRows
) -> None:
    first = await acquire(journal)
    await save(journal, draft("1", lease_id=first.lease_id))
    await removal.delete_thread(TENANT, "t")
    late = draft("2", lease_id=first.lease_id)
    await refused(journal.save_checkpoint(TENANT, late), Reason.LEASE_LOST)
    assert not await release(journal, first)
    second = await acquire(journal)
    assert second.fence > first.fence
    row = await row_of(journal)
    assert (row.incarnation, row.deleted) == (2, False)
    child = draft("2", "1", lease_id=second.lease_id)
    await refused(journal.save_checkpoint(TENANT, child), Reason.THREAD_DELETED)
    again = draft("1", lease_id=second.lease_id)
    await refused(journal.save_checkpoint(TENANT, again), Reason.THREAD_DELETED)
    saved = await journal.save_checkpoint(TENANT, draft("2", lease_id=second.lease_id))
    assert saved.incarnation == 2


async def test_a_fork_into_a_leased_thread_keeps_the_lease(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("1", thread_id="source"))
    lease = await acquire(journal)
    await lineage.fork(TENANT, key("1", "source"), "t", "")
    await refused(journal.save_checkpoint(TENANT, draft("2", "1")), Reason.THREAD_BUSY)
    await save(journal, draft("2", "1", lease_id=lease.lease_id))


async def test_a_lease_is_bound_to_its_row(journal: Journal) -> None:
    """So an older server, whose MACs know no lease, refuses a leased thread as damaged."""
    await acquire(journal)
    row = await row_of(journal)
    row.lease = row.lease_until_us = None  # as an older server reads the row
    binder = await journal.database.query(binder_of)
    with pytest.raises(RowDamagedError):
        row.check(binder)

    def edit(batch: UnitOfWork) -> None:
        batch.connection.execute(update(threads).values(lease_until_us=1))
        batch.logs.clear()

    await journal.database.transact(edit)
    await refused(journal.save_checkpoint(TENANT, draft("1")), Reason.JOURNAL_DAMAGED)
    journal.is_edited = True


async def test_a_lease_is_refused_while_an_older_server_is_here(
    journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal.database, "oldest_writer", lambda *_: LATEST - 1)
    await refused(acquire(journal), Reason.OLDER_SERVERS)
    monkeypatch.undo()
    await acquire(journal)


async def test_a_thread_beyond_the_quota_gets_no_lease(journal: Journal) -> None:
    journal.database.full[TENANT] = 1
    with pytest.raises(Refusal) as refusal:
        await acquire(journal)
    assert refusal.value.reason is Reason.QUOTA_EXCEEDED
