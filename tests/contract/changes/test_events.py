"""Each change of a thread has the next number of its log, and is one event."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.contract.changes.kit import Extent, events, settle_index
from tests.kit.archives import house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, key, refused, write
from tests.kit.journal import Clock, Journal, save
from tuskpoint_server.core.errors import Reason
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import View
from tuskpoint_server.core.threads import EventKind, PruneStrategy
from tuskpoint_server.features.history.changes import EventsCompactedError, NewEvents
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.features.removal.removal_rows import RemovalRows

SAVED, WRITES, LABEL = EventKind.CHECKPOINT_SAVED, EventKind.WRITES_SAVED, EventKind.LABEL_SET
DELETED, ENDED = EventKind.CHECKPOINTS_DELETED, EventKind.THREAD_DELETED
RETENTION, SEARCHABLE = EventKind.RETENTION_SET, EventKind.SEARCHABLE_SET
FOREVER = 1e9


async def logged(journal: Journal, thread_id: str = "t") -> list[tuple[EventKind, str, int]]:
    """Return kind, checkpoint and number of deleted checkpoints of each event."""
    thread_events = await events(journal, thread_id)
    return [(event.kind, event.key.checkpoint_id, event.deleted) for event in thread_events]


async def extent(journal: Journal, thread_id: str = "t") -> Extent:
    log_extent = await journal.events.kept(TENANT, thread_id)
    assert log_extent is not None
    return Extent(*(getattr(log_extent, name) for name in Extent._fields))


# --- one number, one event -----------------------------------------------------------------


async def test_each_kind_of_change_is_an_event(
    journal: Journal, removal: RemovalRows, clock: Clock
) -> None:
    await journal.save_writes(TENANT, key("b"), [write("x", b"early")])
    await save(journal, draft("a"), draft("b", "a", writes=(write("y", b"1", idx=1),)))
    await save(journal, draft("b", "a", {"x": b"anew"}))
    clock.advance(5)
    await journal.save_writes(TENANT, key("b"), [write("z", b"late", idx=2)])
    await journal.set_label(TENANT, key(""), "good")
    await removal.set_retention(TENANT, "t", 60)
    await removal.set_searchable(TENANT, "t", False)
    await removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await removal.delete_thread(TENANT, "t")
    assert await logged(journal) == [
        (WRITES, "b", 0),
        (SAVED, "a", 0),
        (SAVED, "b", 0),
        (SAVED, "b", 0),
        (WRITES, "b", 0),
        (LABEL, "b", 0),
        (RETENTION, "", 0),
        (SEARCHABLE, "", 0),
        (DELETED, "", 1),
        (ENDED, "", 1),
    ]
    thread_events = await events(journal)
    assert [event.seq for event in thread_events] == list(range(1, 11))
    assert {event.incarnation for event in thread_events} == {1}
    assert [clock.now_us - event.created_us for event in thread_events] == [5_000_000] * 4 + [0] * 6


async def test_a_call_that_changes_nothing_is_no_event(
    journal: Journal, removal: RemovalRows
) -> None:
    writes = [write("x", b"1")]
    await save(journal, draft("a", label="good"))
    await journal.save_writes(TENANT, key("a"), writes)
    before = await events(journal)
    await save(journal, draft("a", label="good"))
    await journal.save_writes(TENANT, key("a"), writes)
    await journal.set_label(TENANT, key("a"), "good")
    await removal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await removal.delete_runs(TENANT, ["none"])
    await removal.delete_thread(TENANT, "never was")
    await removal.set_searchable(TENANT, "t", True)
    await refused(removal.set_retention(TENANT, "never was", 1), Reason.THREAD_NOT_FOUND)
    await refused(journal.save_checkpoint(TENANT, draft("b", expected_head="z")), Reason.HEAD_MOVED)
    assert await events(journal) == before
    assert await journal.events.kept(TENANT, "never was") is None


async def test_a_repeated_save_that_brings_more_is_a_save(journal: Journal) -> None:
    await save(journal, draft("a"), draft("a", label="good"))
    await save(journal, draft("a", writes=(write("x", b"1"),)))
    assert await logged(journal) == [(SAVED, "a", 0)] * 3
    await save(journal, draft("a", agent_id="named"), draft("a", agent_id="named"), draft("a"))
    assert await logged(journal) == [(SAVED, "a", 0)] * 4


async def test_a_removal_is_one_event_however_much_goes(
    journal: Journal, removal: RemovalRows
) -> None:
    await save(
        journal,
        draft("a", "", {"x": b"seed"}, metadata={"run_id": "r"}, delta=("x",)),
        draft("b", "a", metadata={"run_id": "r"}),
        draft("c", "a"),
    )
    assert await removal.delete_runs(TENANT, ["r"]) == 2
    assert (await logged(journal))[3:] == [(DELETED, "", 2)]
    await journal.save_writes(TENANT, key("a"), [write("x", b"to a removed one")])
    assert (await logged(journal))[4:] == [(WRITES, "a", 0)]


async def test_writes_that_overtake_the_next_incarnation_belong_to_it(
    journal: Journal,
    removal: RemovalRows,
) -> None:
    await save(journal, draft("a"))
    await removal.delete_thread(TENANT, "t")
    await journal.save_writes(TENANT, key("b"), [write("x", b"early")])
    assert await extent(journal) == Extent(
        1, deleted=True, begun_seq=2, compacted_seq=0, certified_seq=0, seq=3
    )
    await save(journal, draft("b"))
    assert await extent(journal) == Extent(
        2, deleted=False, begun_seq=2, compacted_seq=0, certified_seq=0, seq=4
    )
    assert [event.incarnation for event in await events(journal)] == [1, 1, 2, 2]


# --- copies --------------------------------------------------------------------------------


async def test_each_copied_checkpoint_is_an_event(journal: Journal, lineage: LineageRows) -> None:
    await save(journal, draft("b"), draft("a"), draft("a", "", {"x": b"again"}))
    await journal.save_writes(TENANT, key("z"), [write("x", b"early")])
    await lineage.copy_thread(TENANT, "t", "copy", "")
    assert await logged(journal, "copy") == [
        (SAVED, "b", 0),
        (SAVED, "a", 0),
        (WRITES, "z", 0),
    ]
    loaded = await journal.load(TENANT, key("a", "copy"), View.ENTRY)
    assert loaded is not None
    assert loaded.entry.seq == 2


async def test_a_copy_over_an_empty_thread_ends_its_incarnation(
    journal: Journal, lineage: LineageRows
) -> None:
    await save(journal, draft("a"))
    await journal.save_writes(TENANT, key("z", "copy"), [write("x", b"early")])
    await lineage.copy_thread(TENANT, "t", "copy", "")
    assert await logged(journal, "copy") == [
        (WRITES, "z", 0),
        (ENDED, "", 0),
        (SAVED, "a", 0),
    ]
    assert [event.incarnation for event in await events(journal, "copy")] == [1, 1, 2]
    assert (await extent(journal, "copy")).begun_seq == 2


async def test_a_copy_of_nothing_is_none(
    journal: Journal, removal: RemovalRows, lineage: LineageRows
) -> None:
    await save(journal, draft("a", metadata={"run_id": "r"}))
    await removal.delete_runs(TENANT, ["r"])
    await journal.save_writes(TENANT, key("z", "copy"), [write("x", b"early")])
    assert await lineage.copy_thread(TENANT, "t", "copy", "") == 0
    assert await logged(journal, "copy") == [(WRITES, "z", 0), (ENDED, "", 0)]
    assert await extent(journal, "copy") == Extent(
        2, deleted=False, begun_seq=2, compacted_seq=0, certified_seq=0, seq=2
    )


# --- certification -------------------------------------------------------------------------


async def test_certification_moves_the_watermark_and_is_no_event(tmp_path: Path) -> None:
    async with house(tmp_path, MemoryStore()) as home:
        journal = home.journal
        await save(journal, draft("a"), draft("b", "a"), draft("a", thread_id="other"))
        before = await journal.thread(TENANT, "t")
        assert (await journal.events.after(TENANT, "t", 0, 9)).certified_seq == 0
        await home.flush()
        assert await journal.events.after(TENANT, "t", 2, 9) == NewEvents((), 2)
        assert [event.seq for event in await events(journal)] == [1, 2]
        after = await journal.thread(TENANT, "t")
        assert before is not None
        assert after is not None
        assert after.thread == before.thread
        assert (before.uncertified_count, after.uncertified_count) == (2, 0)
        await save(journal, draft("c", "b"))
        news = await journal.events.after(TENANT, "t", 2, 9)
        assert ([event.seq for event in news.events], news.certified_seq) == ([3], 2)


async def test_a_read_of_events_is_bounded(journal: Journal) -> None:
    await save(journal, draft("a"), draft("b", "a"), draft("c", "b"))
    first = await journal.events.after(TENANT, "t", 0, 2)
    assert [event.seq for event in first.events] == [1, 2]
    rest = await journal.events.after(TENANT, "t", 2, 2)
    assert [event.seq for event in rest.events] == [3]


# --- compaction ----------------------------------------------------------------------------


async def test_a_read_past_dropped_events_raises(tmp_path: Path) -> None:
    async with house(tmp_path, MemoryStore()) as home:
        journal, removal = home.journal, home.journal.removal
        await save(journal, draft("a"), draft("b", "a"))
        await home.flush()
        await settle_index(journal)
        home.clock.advance(LIMITS.event_ttl_s + 1)
        assert (await removal.sweep(early_write_ttl_s=FOREVER)).changes == 2
        for _ in range(2):
            with pytest.raises(EventsCompactedError) as caught:
                await events(journal, after=1)
            assert caught.value.kept.compacted_seq == 2
            await save(journal, draft("c", "b"))
        assert [event.seq for event in await events(journal, after=2)] == [3]
