"""Rows of deleted threads are removed after the documented time, and no such thread comes back."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import delete as delete_from
from sqlalchemy import update

from tests.integration.archive.recover.recovered import recovered_house
from tests.kit.archives import House, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, data_of, draft, key, refused
from tests.kit.journal import Journal, thread_of
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.archive.rows import lifetimes
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.lineage import mint_checkpoint_id
from tuskpoint_server.core.model import View
from tuskpoint_server.core.threads import VerdictKind, is_reserved
from tuskpoint_server.journal.database.floor import FLOOR_THREAD
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.removal.forgetting import KEPT_DAYS
from tuskpoint_server.journal.sql.schema import threads

DAY_S = 86_400
THREADS = "SELECT thread_id FROM threads WHERE thread_id <> ? ORDER BY thread_id"


async def grow(home: House, count: int, thread_id: str = "t") -> None:
    for n in range(count):
        parent = f"{n - 1:04}" if n else ""
        checkpoint = draft(f"{n:04}", parent, {"text": b"%d" % n}, thread_id=thread_id)
        await home.journal.save_checkpoint(TENANT, checkpoint)


async def sweep(home: House) -> None:
    await home.journal.removal.sweep(early_write_ttl_s=LIMITS.early_write_ttl_s, indexing=False)


async def delete(home: House, thread_id: str = "t") -> None:
    """Delete a thread, certify the deletion, and run the sweeps of the next days."""
    await home.journal.removal.delete_thread(TENANT, thread_id)
    await home.flush()
    await sweep(home)


async def wait(home: House, days: float) -> None:
    """Let days pass, with a sweep after the events are gone, and a second sweep at the end."""
    home.clock.advance(days * DAY_S)
    await sweep(home)
    await sweep(home)


async def names(home: House) -> list[str]:
    """Return the names of the threads that have rows, deleted or not."""
    return [row[0] for row in await home.ask(THREADS, FLOOR_THREAD)]


async def test_rows_of_deleted_threads_go_after_the_time(home: House) -> None:
    await grow(home, 3)
    await grow(home, 1, "other")
    await delete(home)
    await wait(home, KEPT_DAYS - 1)
    assert await names(home) == ["other", "t"]
    await wait(home, 1.1)
    assert await names(home) == ["other"]
    assert await home.journal.thread(TENANT, "t") is None


async def test_a_late_retry_is_refused_until_then(home: House) -> None:
    first = draft(mint_checkpoint_id(home.clock(), home.clock(), ""))
    await home.journal.save_checkpoint(TENANT, first)
    await grow(home, 1, "other")
    await delete(home)
    await wait(home, KEPT_DAYS - 1)
    await refused(home.journal.save_checkpoint(TENANT, first), Reason.THREAD_DELETED)
    await wait(home, 1.1)
    assert await names(home) == ["other"]


async def test_incarnations_and_numbers_do_not_go_back(home: House) -> None:
    for run in "abc":
        parent = ""
        for n in range(4):
            checkpoint = draft(f"{run}{n}", parent, {"text": b"%d" % n})
            await home.journal.save_checkpoint(TENANT, checkpoint)
            parent = f"{run}{n}"
        incarnation, seq = (await thread_of(home.journal)).incarnation, (await home.watermark())[0]
        await delete(home)
    assert incarnation == 3
    await grow(home, 1, "other")
    await home.flush()
    await wait(home, KEPT_DAYS + 1)
    assert await names(home) == ["other"]
    await grow(home, 2)
    assert (await thread_of(home.journal)).incarnation > incarnation
    assert (await home.watermark())[0] > seq
    assert (await home.journal.save_checkpoint(TENANT, draft("1", thread_id="x"))).incarnation > 1


async def test_other_tenants_learn_nothing_of_the_floor(home: House) -> None:
    await grow(home, 2)
    await grow(home, 1, "other")
    await delete(home)
    await wait(home, KEPT_DAYS + 1)
    saved = await home.journal.save_checkpoint("stranger", draft("1"))
    assert (saved.incarnation, saved.seq) == (1, 1)


async def test_a_row_stays_while_something_needs_it(home: House) -> None:
    """Reasons: an uncertified change, values that a fork shares, the greatest number."""
    await grow(home, 2, "uncertified")
    await grow(home, 2, "forked")
    await home.flush()
    await home.journal.lineage.fork(TENANT, key("0001", "forked"), "fork", "")
    await home.flush()
    await delete(home, "forked")
    await grow(home, 1, "last")
    await delete(home, "last")
    await home.journal.removal.delete_thread(TENANT, "uncertified")
    await wait(home, KEPT_DAYS + 1)
    assert await names(home) == ["fork", "forked", "last", "uncertified"]
    checkpoint = await home.journal.load(TENANT, key("0001", "fork"), View.FULL)
    assert data_of(checkpoint)["text"] == b"1"
    await home.flush()
    await delete(home, "fork")
    await wait(home, KEPT_DAYS + 1)
    assert "uncertified" not in await names(home)


@pytest.mark.parametrize("again", [False, True])
async def test_a_recovered_journal_does_not_bring_the_thread_back(
    home: House, tmp_path: Path, *, again: bool
) -> None:
    await grow(home, 3)
    await grow(home, 1, "other")
    await home.flush()
    await delete(home)
    await wait(home, KEPT_DAYS + 1)
    assert await names(home) == ["other"]
    if again:
        await home.journal.save_checkpoint(TENANT, draft("0000", "", {"text": b"again"}))
    await grow(home, 1, "later")
    await home.flush()
    async with recovered_house(tmp_path / "second", home) as second:
        checkpoint = await second.journal.load(TENANT, key("0000"), View.FULL)
        assert (checkpoint is not None) is again
        if again:
            assert data_of(checkpoint)["text"] == b"again"
        assert await second.journal.load(TENANT, key("0002"), View.FULL) is None
        assert await second.journal.load(TENANT, key("0000", "other"), View.FULL) is not None


async def test_what_is_stored_of_the_thread_still_counts_as_deleted(home: House) -> None:
    """A collection has to remove the packs with bytes of the thread."""
    await grow(home, 1)
    await grow(home, 1, "other")
    await home.flush()
    await delete(home)
    await wait(home, KEPT_DAYS + 1)
    blobs = [row[0] for row in await home.ask("SELECT DISTINCT blob_id FROM members")]
    facts = await home.journal.database.query(
        lambda connection: lifetimes.facts(connection, TENANT, blobs)
    )
    held = [member for members in facts.held.values() for member in members]
    assert sorted(member.ended for member in held if member.kind is Kind.SEGMENT) == [False, True]


async def test_a_restart_and_a_new_thread_follow(tmp_path: Path, store: MemoryStore) -> None:
    """The witness finds no older journal, and no number of a thread is used again."""
    async with house(tmp_path, store) as home:
        await grow(home, 2)
        await grow(home, 1, "other")
        await delete(home)
        await delete(home, "other")
        await wait(home, KEPT_DAYS + 1)
        [[greatest]] = await home.ask("SELECT max(number) FROM threads")
        clock = home.clock
    async with house(tmp_path, store, clock) as home:
        await grow(home, 1)
        [[number]] = await home.ask("SELECT number FROM threads WHERE thread_id = ?", "t")
        assert number > greatest
        assert (await thread_of(home.journal)).incarnation == 2


async def test_the_floor_is_bound_like_any_thread(home: House) -> None:
    await grow(home, 1)
    await grow(home, 1, "other")
    await delete(home)
    await wait(home, KEPT_DAYS + 1)
    await lower_floor(home.journal)
    home.journal.is_edited = True
    await refused(home.journal.save_checkpoint(TENANT, draft("1")), Reason.JOURNAL_DAMAGED)
    await grow(home, 2, "other")


async def lower_floor(journal: Journal) -> None:
    """Change the row behind the server's back."""
    statement = update(threads).where(threads.c.thread_id == FLOOR_THREAD).values(incarnation=0)
    await journal.database.transact(lambda batch: batch.connection.execute(statement).close())


async def test_threads_of_users_are_no_floor_whatever_their_names(home: House) -> None:
    assert is_reserved(FLOOR_THREAD)
    await grow(home, 3)
    for name in ("$floor/", "$floor/threads", "$floor"):
        assert not is_reserved(name)
        await grow(home, 2, name)
    await delete(home)
    await wait(home, KEPT_DAYS + 1)
    assert await names(home) == ["$floor", "$floor/", "$floor/threads"]
    for name in ("$floor/", "$floor/threads"):
        assert (await thread_of(home.journal, name)).incarnation == 1
        loaded = await home.journal.load(TENANT, key("0001", thread_id=name), View.FULL)
        assert loaded is not None
        assert loaded.entry.seq == 2
    await grow(home, 1)
    assert (await thread_of(home.journal)).incarnation == 2


async def test_a_floor_that_somebody_deleted_shows_in_a_verification(home: House) -> None:
    await grow(home, 3)
    await grow(home, 1, "other")
    await delete(home)
    await wait(home, KEPT_DAYS + 1)

    def drop(batch: UnitOfWork) -> None:
        dropped = delete_from(threads).where(threads.c.thread_id == FLOOR_THREAD)
        assert batch.connection.execute(dropped).rowcount == 1

    await home.journal.database.transact(drop)
    await grow(home, 1)
    await home.flush()
    assert (await thread_of(home.journal)).incarnation == 1
    verification = await home.archive.verification(TENANT, "t")
    assert verification is not None
    verdicts = [verdict async for verdict in verification.verdicts()]
    assert [verdict.kind for verdict in verdicts] == [VerdictKind.FAIL]
    [problem] = await verification.journal_problems()
    assert "an older state of it was put in its place" in problem
