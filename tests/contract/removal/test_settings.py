"""Settings of threads are stored, and threads past their retention are found."""

from __future__ import annotations

from tests.contract.removal.rows import certify_all, logged
from tests.kit.drafts import TENANT, draft, key, refused, write
from tests.kit.journal import Clock, Journal, row_of, save
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.features.removal.removal_rows import RemovalRows


async def test_a_thread_is_deleted_once_it_is_past_its_retention(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    await save(journal, draft("a"), draft("a", thread_id="kept"))
    await removal.set_retention(TENANT, "t", 60)
    clock.advance(59)
    assert await removal.past_retention(10) == []
    assert await removal.delete_if_past(TENANT, "t") is None
    clock.advance(1)
    assert await removal.past_retention(10) == [(TENANT, "t")]
    assert await removal.delete_if_past(TENANT, "t") == 1
    assert await removal.past_retention(10) == []
    for thread_id in ("t", "kept", "never was"):
        assert await removal.delete_if_past(TENANT, thread_id) is None


async def test_a_change_begins_the_time_anew(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    await save(journal, draft("a"))
    await removal.set_retention(TENANT, "t", 60)
    clock.advance(50)
    await journal.save_writes(TENANT, key("a"), [write("x", b"1")])
    clock.advance(50)
    assert await removal.past_retention(10) == []
    assert await removal.delete_if_past(TENANT, "t") is None
    await removal.set_retention(TENANT, "t", 60)
    clock.advance(50)
    assert await removal.past_retention(10) == []
    clock.advance(10)
    assert await removal.past_retention(10) == [(TENANT, "t")]
    await removal.set_retention(TENANT, "t", 0)
    assert await removal.past_retention(10) == []


async def test_those_longest_past_come_first(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    for thread_id, seconds in (("a", 30), ("b", 10), ("c", 20)):
        await save(journal, draft("1", thread_id=thread_id))
        await removal.set_retention(TENANT, thread_id, seconds)
    clock.advance(30)
    assert await removal.past_retention(2) == [(TENANT, "b"), (TENANT, "c")]


async def test_a_deleted_thread_forgets_its_retention(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    await save(journal, draft("a"))
    await removal.set_retention(TENANT, "t", 60)
    await removal.delete_thread(TENANT, "t")
    await journal.save_writes(TENANT, key("b"), [write("x", b"early")])
    clock.advance(3600)
    assert await removal.past_retention(10) == []
    await save(journal, draft("b"))
    clock.advance(3600)
    assert await removal.past_retention(10) == []


async def test_a_setting_is_a_change_to_be_stored(journal: Journal, removal: RemovalRows) -> None:
    await save(journal, draft("a"))
    await certify_all(journal)
    await removal.set_retention(TENANT, "t", 60)
    row = await row_of(journal)
    assert (row.seq, row.settings_seq, row.retention_s) == (2, 2, 60)
    assert row.dirty_since_us is not None
    assert row.unindexed_since_us is None
    await removal.set_searchable(TENANT, "t", True)
    assert (await row_of(journal)).seq == 2
    await removal.set_searchable(TENANT, "t", False)
    row = await row_of(journal)
    assert (row.seq, row.settings_seq, bool(row.unsearchable)) == (3, 3, True)
    assert row.unindexed_since_us is None
    await removal.set_searchable(TENANT, "t", False)
    await removal.set_searchable(TENANT, "t", True)
    row = await row_of(journal)
    assert (row.seq, bool(row.unsearchable)) == (4, False)
    assert row.unindexed_since_us is not None
    assert [kind for kind, _, _ in await logged(journal)] == [
        "CHECKPOINT_SAVED",
        "RETENTION_SET",
        "SEARCHABLE_SET",
        "SEARCHABLE_SET",
    ]


async def test_there_must_be_a_thread(removal: RemovalRows) -> None:
    for setting in (
        removal.set_retention(TENANT, "t", 1),
        removal.set_searchable(TENANT, "t", False),
    ):
        await refused(setting, Reason.THREAD_NOT_FOUND)
