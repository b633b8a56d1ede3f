"""Saves that arrive after the deletion of their thread do not bring the thread back."""

from __future__ import annotations

import pytest

from tests.contract.removal.rows import ids
from tests.kit.drafts import TENANT, draft, refused
from tests.kit.journal import Clock, Journal, bind_again, rows_of, save
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.lineage import mint_checkpoint_id
from tuskpoint_server.features.checkpoints.checkpoint_rows import CheckpointRows
from tuskpoint_server.features.removal.removal_rows import RemovalRows
from tuskpoint_server.journal.sql.schema import changes


def generated(now_us: int) -> str:
    return mint_checkpoint_id(now_us, now_us, "")


async def forget_changes(journal: Journal, clock: Clock) -> None:
    """Drop the events of the past, as the server does after a week."""
    rows = await rows_of(journal, changes, "seq")

    def certify(batch: object) -> None:
        from sqlalchemy import update

        from tuskpoint_server.journal.sql.schema import threads
        from tuskpoint_server.journal.sql.statements import Statement

        set_all = update(threads).values(certified_seq=threads.c.seq, indexed_seq=threads.c.seq)
        Statement(set_all).run(batch.connection).close()  # type: ignore[attr-defined]
        batch.logs.clear()  # type: ignore[attr-defined]

    await journal.database.transact(certify)
    await bind_again(journal.database)
    clock.advance(LIMITS.event_ttl_s + 1)
    await journal.removal.sweep(early_write_ttl_s=LIMITS.early_write_ttl_s)
    assert len(rows) > len(await rows_of(journal, changes, "seq"))


@pytest.mark.parametrize("continues", [False, True])
@pytest.mark.parametrize("named", ["a", ""])
@pytest.mark.parametrize("after_s", [0, 3600, 30 * 86400])
async def test_the_first_save_again_does_not_bring_a_thread_back(
    journal: Journal,
    removal: RemovalRows,
    clock: Clock,
    named: str,
    after_s: int,
    *,
    continues: bool,
) -> None:
    first = draft(named or generated(clock()), continues=continues, raises_id=False)
    await save(journal, first)
    clock.advance(60)
    await removal.delete_thread(TENANT, "t")
    clock.advance(after_s)
    refusal = await refused(journal.save_checkpoint(TENANT, first), Reason.THREAD_DELETED)
    assert refusal.metadata == {"thread_id": "t", "incarnation": "1"}
    assert await journal.thread(TENANT, "t") is None


async def test_it_does_not_once_the_events_of_the_thread_were_dropped(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    first = draft(generated(clock()))
    await save(journal, first)
    await removal.delete_thread(TENANT, "t")
    await forget_changes(journal, clock)
    await refused(journal.save_checkpoint(TENANT, first), Reason.THREAD_DELETED)


async def test_it_does_not_get_into_the_run_that_began_since(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    first = draft(generated(clock()))
    following = draft(generated(clock() + 1), continues=True, raises_id=True)
    await save(journal, first, following)
    await removal.delete_thread(TENANT, "t")
    clock.advance(1)
    await save(journal, draft(generated(clock())))
    await refused(journal.save_checkpoint(TENANT, first), Reason.THREAD_DELETED)
    await refused(journal.save_checkpoint(TENANT, following), Reason.THREAD_DELETED)
    assert len(await ids(journal)) == 1


async def test_a_save_that_got_another_id_is_recognised(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    raised = draft(generated(clock()), continues=True, raises_id=True)
    await save(journal, draft(generated(clock() + 5)), raised)
    await removal.delete_thread(TENANT, "t")
    await refused(journal.save_checkpoint(TENANT, raised), Reason.THREAD_DELETED)


@pytest.mark.parametrize("behind_s", [-60, 0, 30])
async def test_a_new_run_of_a_deleted_thread_begins_at_once(
    journal: Journal, removal: RemovalRows, clock: Clock, behind_s: int
) -> None:
    """The clock of the new client may be behind the clock of the deleted run."""
    await save(journal, draft(generated(clock())), draft(generated(clock() + 10_000_000)))
    await removal.delete_thread(TENANT, "t")
    saved = await journal.save_checkpoint(TENANT, draft(generated(clock() + 1 - behind_s * 10**6)))
    assert saved.incarnation == 2


async def test_a_new_run_of_an_old_thread_begins_at_once(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    """A program chose the thread's greatest ID, which sorts after all generated IDs."""
    await save(journal, draft("z"))
    await removal.delete_thread(TENANT, "t")
    await forget_changes(journal, clock)
    saved = await journal.save_checkpoint(TENANT, draft(generated(clock())))
    assert saved.incarnation == 2


async def test_ids_are_used_again_within_the_grace(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    lenient = CheckpointRows(journal.database, late_save_grace_s=10)
    await save(journal, draft("a"))
    for seconds in (9, 9):
        await removal.delete_thread(TENANT, "t")
        clock.advance(seconds)
        await lenient.save_checkpoint(TENANT, draft("a"))
    await removal.delete_thread(TENANT, "t")
    clock.advance(10)
    await refused(lenient.save_checkpoint(TENANT, draft("a")), Reason.THREAD_DELETED)
