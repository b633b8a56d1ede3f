"""Every number of a thread's sequence is one event, and whoever waits is woken for it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection, Engine, event, select

from tests.contract.conftest import Clock
from tests.contract.eviction_house import House, open_house
from tests.contract.journal_drafts import TENANT, draft, key, refused, write
from tests.integration.archive_kit import open_kit
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.limits import LIMITS
from tuskpoint_server.domain.lineage import Event, EventKind
from tuskpoint_server.domain.model import (
    CheckpointDraft,
    CheckpointKey,
    PruneStrategy,
    Removed,
    View,
)
from tuskpoint_server.journal import schema, sweeping
from tuskpoint_server.journal.event_log import EventLog
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.lineage_api import EventsCompacted, Extent, ValuesEvicted
from tuskpoint_server.journal.lineage_calls import Lineage

T = TypeVar("T")
SAVED, WRITES, LABEL = EventKind.CHECKPOINT_SAVED, EventKind.WRITES_SAVED, EventKind.LABEL_SET
DELETED, ENDED = EventKind.CHECKPOINTS_DELETED, EventKind.THREAD_DELETED
CERTIFIED, RETENTION = EventKind.CERTIFIED, EventKind.RETENTION_SET
SEARCHABLE = EventKind.SEARCHABLE_SET
FOREVER = 1e9


async def save(journal: SqlJournal, *drafts: CheckpointDraft) -> None:
    for one in drafts:
        await journal.save_checkpoint(TENANT, one)


async def events(journal: SqlJournal, thread_id: str = "t", after: int = 0) -> list[Event]:
    return await EventLog(journal).events(TENANT, thread_id, after, 1000)


async def told(journal: SqlJournal, thread_id: str = "t") -> list[tuple[EventKind, str, int, int]]:
    """Return kind, checkpoint, revision and number of the deleted of each event."""
    return [
        (one.kind, one.key.checkpoint_id, one.revision, one.deleted)
        for one in await events(journal, thread_id)
    ]


async def extent(journal: SqlJournal, thread_id: str = "t") -> Extent:
    found = await EventLog(journal).extent(TENANT, thread_id)
    assert found is not None
    return found


def check_log(found: Sequence[Event], kept: Extent) -> None:
    """Check what holds for the events of every thread at every time."""
    numbers = [one.seq for one in found]
    assert numbers == list(range(kept.compacted_seq + 1, kept.seq + 1))
    for earlier, later in pairwise(found):
        assert later.incarnation >= earlier.incarnation
        assert (later.incarnation > earlier.incarnation) == (earlier.kind is ENDED)
    if found and found[-1].kind is ENDED:
        # A copy of a thread without checkpoints begins an incarnation without events.
        assert kept.deleted or kept.begun_seq == kept.seq
    for one in found:
        begun = one.seq > kept.begun_seq
        assert (one.incarnation == kept.incarnation + kept.deleted) == begun


# --- one number, one event -----------------------------------------------------------------


async def test_each_kind_of_change_is_an_event(journal: SqlJournal, clock: Clock) -> None:
    await journal.save_writes(TENANT, key("b"), [write("x", b"early")])
    await save(journal, draft("a"), draft("b", "a", writes=(write("y", b"1", idx=1),)))
    await save(journal, draft("b", "a", {"x": b"anew"}))
    clock.advance(5)
    await journal.save_writes(TENANT, key("b"), [write("z", b"late", idx=2)])
    await journal.set_label(TENANT, key(""), "good")
    await journal.set_retention(TENANT, "t", 60)
    await journal.set_searchable(TENANT, "t", False)
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await journal.delete_thread(TENANT, "t")
    assert await told(journal) == [
        (WRITES, "b", 0, 0),
        (SAVED, "a", 1, 0),
        (SAVED, "b", 1, 0),
        (SAVED, "b", 2, 0),
        (WRITES, "b", 3, 0),
        (LABEL, "b", 4, 0),
        (RETENTION, "", 0, 0),
        (SEARCHABLE, "", 0, 0),
        (DELETED, "", 0, 1),
        (ENDED, "", 0, 1),
    ]
    found = await events(journal)
    assert [one.seq for one in found] == list(range(1, 11))
    assert {one.incarnation for one in found} == {1}
    assert [clock.now_us - one.created_us for one in found] == [5_000_000] * 4 + [0] * 6


async def test_what_changes_nothing_is_none(journal: SqlJournal) -> None:
    writes = [write("x", b"1")]
    await save(journal, draft("a", label="good"))
    await journal.save_writes(TENANT, key("a"), writes)
    before = await events(journal)
    await save(journal, draft("a", label="good"), draft("a", agent_id="named"))
    await journal.save_writes(TENANT, key("a"), writes)
    await journal.set_label(TENANT, key("a"), "good")
    await journal.prune_thread(TENANT, "t", PruneStrategy.KEEP_LATEST)
    await journal.delete_runs(TENANT, ["none"])
    await journal.delete_thread(TENANT, "never was")
    await journal.set_searchable(TENANT, "t", True)
    await refused(journal.set_retention(TENANT, "never was", 1), Reason.THREAD_NOT_FOUND)
    await refused(journal.save_checkpoint(TENANT, draft("b", expected_head="z")), Reason.HEAD_MOVED)
    assert await events(journal) == before
    assert await EventLog(journal).extent(TENANT, "never was") is None


async def test_a_repeated_save_that_brings_more_is_a_save(journal: SqlJournal) -> None:
    await save(journal, draft("a"), draft("a", label="good"))
    await save(journal, draft("a", writes=(write("x", b"1"),)))
    assert await told(journal) == [(SAVED, "a", revision, 0) for revision in (1, 2, 3)]


async def test_a_removal_is_one_event_however_much_goes(journal: SqlJournal) -> None:
    await save(
        journal,
        draft("a", "", {"x": b"seed"}, metadata={"run_id": "r"}, delta=("x",)),
        draft("b", "a", metadata={"run_id": "r"}),
        draft("c", "a", delta=("x",)),
    )
    assert await journal.delete_runs(TENANT, ["r"]) == Removed(1, 1)
    assert (await told(journal))[3:] == [(DELETED, "", 0, 2)]
    await journal.save_writes(TENANT, key("a"), [write("x", b"to the hidden one")])
    assert (await told(journal))[4:] == [(WRITES, "a", 0, 0)]


async def test_writes_that_overtake_the_next_incarnation_belong_to_it(
    journal: SqlJournal,
) -> None:
    await save(journal, draft("a"))
    await journal.delete_thread(TENANT, "t")
    await journal.save_writes(TENANT, key("b"), [write("x", b"early")])
    assert await extent(journal) == Extent(1, deleted=True, begun_seq=2, compacted_seq=0, seq=3)
    await save(journal, draft("b"))
    assert await extent(journal) == Extent(2, deleted=False, begun_seq=2, compacted_seq=0, seq=4)
    assert [one.incarnation for one in await events(journal)] == [1, 1, 2, 2]


async def test_retention_ends_an_incarnation_as_a_deletion_does(
    journal: SqlJournal, clock: Clock
) -> None:
    await save(journal, draft("a"))
    await journal.set_retention(TENANT, "t", 1)
    clock.advance(2)
    assert await journal.delete_if_past(TENANT, "t") == Removed(1)
    assert (await told(journal))[2:] == [(ENDED, "", 0, 1)]


async def test_threads_have_logs_of_their_own(journal: SqlJournal) -> None:
    await save(journal, draft("a"), draft("a", thread_id="other"), draft("b", "a"))
    assert [one.seq for one in await events(journal)] == [1, 2]
    assert await told(journal, "other") == [(SAVED, "a", 1, 0)]
    assert await EventLog(journal).events("another tenant", "t", 0, 9) == []


# --- copies --------------------------------------------------------------------------------


async def test_each_copied_checkpoint_is_an_event(journal: SqlJournal) -> None:
    await save(journal, draft("b"), draft("a"), draft("a", "", {"x": b"again"}))
    await journal.save_writes(TENANT, key("z"), [write("x", b"early")])
    await journal.copy_thread(TENANT, "t", "copy", "")
    assert await told(journal, "copy") == [
        (SAVED, "b", 1, 0),
        (SAVED, "a", 1, 0),
        (WRITES, "z", 0, 0),
    ]
    loaded = await journal.load(TENANT, key("a", "copy"), View.ENTRY)
    assert loaded is not None
    assert loaded.entry.seq == 2


async def test_hidden_copies_take_no_numbers(journal: SqlJournal) -> None:
    await save(
        journal,
        draft("a", "", {"x": b"seed"}, metadata={"run_id": "r"}, delta=("x",)),
        draft("b", "a", delta=("x",)),
        draft("c", "b", metadata={"run_id": "r"}, delta=("x",)),
        draft("d", "c", delta=("x",)),
    )
    assert await journal.delete_runs(TENANT, ["r"]) == Removed(0, 2)
    assert await journal.copy_thread(TENANT, "t", "copy", "") == 2
    assert await told(journal, "copy") == [(SAVED, "b", 1, 0), (SAVED, "d", 1, 0)]
    assert (await extent(journal, "copy")).seq == 2


async def test_a_copy_over_an_empty_thread_ends_its_incarnation(journal: SqlJournal) -> None:
    await save(journal, draft("a"))
    await journal.save_writes(TENANT, key("z", "copy"), [write("x", b"early")])
    await journal.copy_thread(TENANT, "t", "copy", "")
    assert await told(journal, "copy") == [
        (WRITES, "z", 0, 0),
        (ENDED, "", 0, 0),
        (SAVED, "a", 1, 0),
    ]
    assert [one.incarnation for one in await events(journal, "copy")] == [1, 1, 2]
    assert (await extent(journal, "copy")).begun_seq == 2


async def test_a_retried_copy_is_told_once(journal: SqlJournal) -> None:
    await save(journal, draft("a"))
    for _ in range(2):
        await journal.copy_thread(TENANT, "t", "copy", "request")
    assert len(await events(journal, "copy")) == 1


async def test_a_copy_of_nothing_is_none(journal: SqlJournal) -> None:
    await save(journal, draft("a", metadata={"run_id": "r"}))
    await journal.delete_runs(TENANT, ["r"])
    await journal.save_writes(TENANT, key("z", "copy"), [write("x", b"early")])
    assert await journal.copy_thread(TENANT, "t", "copy", "") == 0
    assert await told(journal, "copy") == [(WRITES, "z", 0, 0), (ENDED, "", 0, 0)]
    assert await extent(journal, "copy") == Extent(
        2, deleted=False, begun_seq=2, compacted_seq=0, seq=2
    )


# --- certification -------------------------------------------------------------------------


async def test_certified_revisions_are_events(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        saved = await kit.save("a")
        await kit.save("b", "a")
        await kit.save("a", thread_id="other")
        before = await kit.journal.thread(TENANT, "t")
        await kit.archive.certify_all(TENANT)
        after = await kit.journal.thread(TENANT, "t")
        assert before is not None
        assert after is not None
        assert (before.thread.seq, after.thread.seq) == (2, 4)
        assert after.thread.updated_us == before.thread.updated_us
        assert (await kit.entry("a")).seq == saved.seq
        assert sorted((await told(kit.journal))[2:]) == [
            (CERTIFIED, "a", 1, 0),
            (CERTIFIED, "b", 1, 0),
        ]
        assert (await told(kit.journal, "other"))[1:] == [(CERTIFIED, "a", 1, 0)]
        await kit.save("a", content=b"anew")
        await kit.archive.certify_all(TENANT)
        await kit.archive.certify_all(TENANT)
        assert (await told(kit.journal))[4:] == [(SAVED, "a", 2, 0), (CERTIFIED, "a", 2, 0)]


async def test_what_readers_do_not_see_is_certified_in_silence(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await save(
            kit.journal,
            draft("a", "", {"x": b"seed"}, metadata={"run_id": "r"}, delta=("x",)),
            draft("b", "a", delta=("x",)),
        )
        await kit.journal.delete_runs(TENANT, ["r"])
        kit.archive.changed(TENANT, 0)
        await kit.archive.certify_all(TENANT)
        assert (await told(kit.journal))[3:] == [(CERTIFIED, "b", 1, 0)]
        assert (await extent(kit.journal)).seq == 4


async def test_a_thread_deleted_while_it_is_stored_is_not_certified(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        await kit.save("a")
        await kit.save("a", thread_id="other")
        loop, deleting = asyncio.get_running_loop(), []

        def delete() -> None:
            kit.blobs.after_put = lambda: None
            deleting.append(loop.create_task(kit.journal.delete_thread(TENANT, "t")))

        kit.blobs.after_put = delete
        await kit.archive.certify_all(TENANT)
        await asyncio.gather(*deleting)
        assert (await told(kit.journal))[:2] == [(SAVED, "a", 1, 0), (ENDED, "", 0, 1)]
        assert (await extent(kit.journal)).seq == 2
        assert (await told(kit.journal, "other"))[1:] == [(CERTIFIED, "a", 1, 0)]


# --- compaction ----------------------------------------------------------------------------


async def sweep(journal: SqlJournal) -> int:
    swept = await journal.sweep(content_grace_s=FOREVER, early_write_ttl_s=FOREVER)
    return swept.events


async def test_old_events_are_dropped(
    journal: SqlJournal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweeping, "EVENTS_AT_ONCE", 3)
    for number in range(5):
        await save(journal, draft(f"{number}"), draft("a", thread_id=f"{number}"))
    await journal.delete_thread(TENANT, "0")
    clock.advance(60)
    await save(journal, draft("5"))
    clock.advance(LIMITS.event_ttl_s - 60)
    assert await sweep(journal) == 0
    clock.advance(1)
    assert await sweep(journal) == 11
    assert [one.seq for one in await events(journal, after=5)] == [6]
    assert await extent(journal) == Extent(1, deleted=False, begun_seq=0, compacted_seq=5, seq=6)
    assert await extent(journal, "0") == Extent(
        1, deleted=True, begun_seq=2, compacted_seq=2, seq=2
    )
    await save(journal, draft("b", thread_id="0"))
    assert (await extent(journal, "0")).begun_seq == 2
    assert await sweep(journal) == 0


async def test_a_clock_that_was_set_back_leaves_no_gap(journal: SqlJournal, clock: Clock) -> None:
    await save(journal, draft("a"))
    clock.advance(-60)
    await save(journal, draft("b"))
    clock.advance(60)
    await save(journal, draft("c"))
    clock.advance(LIMITS.event_ttl_s)
    assert await sweep(journal) == 2
    assert [one.seq for one in await events(journal, after=2)] == [3]


async def test_dropping_events_is_no_change_of_the_thread(
    journal: SqlJournal, clock: Clock
) -> None:
    await save(journal, draft("a"))
    before = await journal.thread(TENANT, "t")
    clock.advance(LIMITS.event_ttl_s + 1)
    assert await sweep(journal) == 1
    assert await journal.thread(TENANT, "t") == before


async def test_a_read_past_dropped_events_says_so(journal: SqlJournal, clock: Clock) -> None:
    await save(journal, draft("a"), draft("b", "a"))
    clock.advance(LIMITS.event_ttl_s + 1)
    await sweep(journal)
    for _ in range(2):
        with pytest.raises(EventsCompacted) as caught:
            await events(journal, after=1)
        assert caught.value.extent.compacted_seq == 2
        await save(journal, draft("c", "b"))
    assert [one.seq for one in await events(journal, after=2)] == [3]


# --- waking --------------------------------------------------------------------------------


async def test_who_waits_is_woken_once_it_is_committed(journal: SqlJournal) -> None:
    log = EventLog(journal)
    with log.subscribe(TENANT, "t") as waiter:
        waiting = asyncio.create_task(waiter.wait(60))
        await save(journal, draft("a"))
        assert await waiting
        assert [one.seq for one in await events(journal)] == [1]
        await save(journal, draft("b", "a"))
        assert await waiter.wait(0), "what happened before the wait counts"
        assert not await waiter.wait(0)


async def test_others_sleep_on(journal: SqlJournal) -> None:
    log = EventLog(journal)
    with log.subscribe(TENANT, "t") as waiter, log.subscribe("another", "t") as foreign:
        await save(journal, draft("a", thread_id="other"))
        assert not await waiter.wait(0)
        await save(journal, draft("a"))
        assert not await foreign.wait(0)
        assert await waiter.wait(0)


async def test_all_changes_of_a_batch_wake(journal: SqlJournal) -> None:
    log = EventLog(journal)
    with log.subscribe(TENANT, "one") as one, log.subscribe(TENANT, "two") as two:
        saves = [save(journal, draft("a", thread_id=name)) for name in ("one", "two")]
        await asyncio.gather(*saves)
        assert await one.wait(0)
        assert await two.wait(0)


async def test_a_copy_and_a_certification_wake(tmp_path: Path) -> None:
    async with open_kit(tmp_path) as kit:
        log = EventLog(kit.journal)
        await kit.save("a")
        with log.subscribe(TENANT, "t") as waiter, log.subscribe(TENANT, "copy") as of_copy:
            await kit.journal.copy_thread(TENANT, "t", "copy", "")
            assert await of_copy.wait(0)
            await kit.archive.certify_all(TENANT)
            assert await waiter.wait(0)


async def test_a_commit_that_failed_wakes_nobody(journal: SqlJournal) -> None:
    failing = True

    def fail(_connection: Connection) -> None:
        if failing:
            raise RuntimeError("as if")

    event.listen(Engine, "commit", fail)
    try:
        with EventLog(journal).subscribe(TENANT, "t") as waiter:
            await refused(save(journal, draft("a")), Reason.JOURNAL_UNAVAILABLE)
            failing = False
            await save(journal, draft("a", thread_id="other"))
            assert not await waiter.wait(0)
    finally:
        event.remove(Engine, "commit", fail)


async def test_who_has_gone_is_forgotten(journal: SqlJournal) -> None:
    log = EventLog(journal)
    with log.subscribe(TENANT, "t"):
        with log.subscribe(TENANT, "t") as second:
            assert len(journal.waiters) == 2
        await save(journal, draft("a"))
        assert not await second.wait(0)
    assert len(journal.waiters) == 0


# --- whatever happens ----------------------------------------------------------------------

THREADS = ("one", "two", "three")
NAMESPACES = ("", "inner")
IDS = tuple(f"1e000000-0000-6000-8000-00000000000{n}" for n in range(5))  # the server's are above
RUNS = "pq"
a_thread, a_namespace, an_id = map(st.sampled_from, (THREADS, NAMESPACES, IDS))


class World:
    """A journal with its archive and event loop, shared by all examples."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._examples = 0
        root = Path(self._directory.name)
        self.house: House = self.run(self._open.enter_async_context(open_house(root)))

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def next_prefix(self) -> str:
        """Return a prefix of thread names that no other example has."""
        self._examples += 1
        return f"{self._examples}-"

    def close(self) -> None:
        self.run(self._open.aclose())
        self._runner.close()
        self._directory.cleanup()


class Lives(RuleBasedStateMachine):
    """Changes threads in every way there is."""

    world: World

    @initialize()
    def begin(self) -> None:
        self.prefix = self.world.next_prefix()

    @property
    def journal(self) -> SqlJournal:
        return self.world.house.journal

    def name(self, thread: str) -> str:
        return self.prefix + thread

    def make(self, call: Coroutine[Any, Any, object]) -> None:
        """Make a change, or be refused."""
        try:
            self.world.run(call)
        except (Refusal, ValuesEvicted):
            return

    @rule(
        thread=a_thread,
        ns=a_namespace,
        checkpoint_id=an_id,
        parent_id=st.sampled_from(("", *IDS)),
        run=st.sampled_from(RUNS),
        data=st.binary(max_size=1),
        delta=st.booleans(),
        label=st.sampled_from(("", "good")),
    )
    def save(
        self,
        thread: str,
        ns: str,
        checkpoint_id: str,
        parent_id: str,
        run: str,
        data: bytes,
        delta: bool,
        label: str,
    ) -> None:
        one = draft(
            checkpoint_id,
            parent_id,
            {"x": data} if not delta or not parent_id else {},
            ns=ns,
            thread_id=self.name(thread),
            metadata={"run_id": self.prefix + run},
            delta=("x",) if delta else (),
            label=label,
        )
        self.make(self.world.house.service.save(TENANT, one))

    @rule(thread=a_thread, ns=a_namespace, checkpoint_id=an_id, data=st.binary(max_size=1))
    def save_writes(self, thread: str, ns: str, checkpoint_id: str, data: bytes) -> None:
        target = CheckpointKey(self.name(thread), ns, checkpoint_id)
        self.make(self.journal.save_writes(TENANT, target, [write("x", data, idx=-1)]))

    @rule(thread=a_thread, checkpoint_id=an_id, label=st.sampled_from(("", "bad")))
    def set_label(self, thread: str, checkpoint_id: str, label: str) -> None:
        target = key(checkpoint_id, self.name(thread))
        self.make(self.journal.set_label(TENANT, target, label))

    @rule(thread=a_thread, retention_s=st.sampled_from((0, 1)))
    def set_retention(self, thread: str, retention_s: int) -> None:
        self.make(self.journal.set_retention(TENANT, self.name(thread), retention_s))

    @rule(thread=a_thread, searchable=st.booleans())
    def set_searchable(self, thread: str, searchable: bool) -> None:
        self.make(self.journal.set_searchable(TENANT, self.name(thread), searchable))

    @rule(thread=a_thread, strategy=st.sampled_from(PruneStrategy))
    def prune(self, thread: str, strategy: PruneStrategy) -> None:
        self.make(self.journal.prune_thread(TENANT, self.name(thread), strategy))

    @rule(run=st.sampled_from(RUNS))
    def delete_run(self, run: str) -> None:
        self.make(self.journal.delete_runs(TENANT, [self.prefix + run]))

    @rule(thread=a_thread)
    def delete(self, thread: str) -> None:
        self.make(self.journal.delete_thread(TENANT, self.name(thread)))

    @rule(source=a_thread, goal=a_thread)
    def copy(self, source: str, goal: str) -> None:
        self.make(self.journal.copy_thread(TENANT, self.name(source), self.name(goal), ""))

    @rule(source=a_thread, checkpoint_id=an_id, goal=a_thread)
    def fork(self, source: str, checkpoint_id: str, goal: str) -> None:
        origin = key(checkpoint_id, self.name(source))
        self.make(Lineage(self.journal).fork(TENANT, origin, self.name(goal), ""))

    @rule(thread=a_thread, checkpoint_id=an_id)
    def roll_back(self, thread: str, checkpoint_id: str) -> None:
        target = key(checkpoint_id, self.name(thread))
        self.make(Lineage(self.journal).rollback(TENANT, target, "", None, {}))

    @rule(thread=a_thread)
    def expire(self, thread: str) -> None:
        self.make(self.journal.delete_if_past(TENANT, self.name(thread)))

    @rule()
    def certify(self) -> None:
        async def certify() -> None:
            self.world.house.kit.archive.changed(TENANT, 0)
            await self.world.house.flush()

        self.world.run(certify())

    @rule()
    def evict(self) -> None:
        self.world.run(self.world.house.evict())

    @rule(days=st.sampled_from((0, 4)))
    def sweep(self, days: int) -> None:
        self.world.house.clock.now_us += days * 24 * 3600 * 1_000_000
        early_write_ttl_s = LIMITS.early_write_ttl_s
        self.world.run(self.journal.sweep(content_grace_s=-1, early_write_ttl_s=early_write_ttl_s))

    @invariant()
    def every_number_is_one_event(self) -> None:
        for thread in THREADS:
            found, kept = self.world.run(self.journal.query(everything(self.name(thread))))
            if kept is None:
                assert found == []
            else:
                check_log(found, kept)

    @invariant()
    def what_is_seen_was_told(self) -> None:
        """The last number of a checkpoint is that of an event that names it, or is gone."""
        for thread in THREADS:
            found, kept = self.world.run(self.journal.query(everything(self.name(thread))))
            named = {(one.seq, one.key) for one in found}
            page = self.world.run(self.listed(thread))
            for place, seq in page.items():
                assert kept is not None
                assert (seq, place) in named or seq <= kept.compacted_seq

    async def listed(self, thread: str) -> dict[CheckpointKey, int]:
        rows = await self.journal.query(
            lambda connection: connection.execute(
                select(
                    schema.checkpoints.c.checkpoint_ns,
                    schema.checkpoints.c.checkpoint_id,
                    schema.checkpoints.c.seq,
                ).where(
                    schema.checkpoints.c.thread_id == self.name(thread),
                    schema.checkpoints.c.hidden.is_(False),
                )
            ).all()
        )
        return {CheckpointKey(self.name(thread), ns, name): seq for ns, name, seq in rows}


def everything(thread_id: str) -> Callable[[Connection], tuple[list[Event], Extent | None]]:
    """Return what reads all events of a thread, and what is kept of them, at one moment."""

    def work(connection: Connection) -> tuple[list[Event], Extent | None]:
        table = schema.events.c
        rows = connection.execute(
            select(schema.events).where(table.thread_id == thread_id).order_by(table.seq)
        )
        found = [
            Event(
                EventKind(row.kind),
                row.seq,
                row.incarnation,
                CheckpointKey(thread_id, row.checkpoint_ns, row.checkpoint_id),
                row.revision,
                row.deleted,
                row.created_us,
            )
            for row in rows
        ]
        thread = connection.execute(
            select(*(schema.threads.c[name] for name in Extent.__slots__)).where(
                schema.threads.c.thread_id == thread_id
            )
        ).one_or_none()
        return found, Extent(*thread) if thread is not None else None

    return work


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    opened = World()
    yield opened
    opened.close()


def test_whatever_happens_every_number_is_one_event(world: World) -> None:
    class Machine(Lives):
        pass

    Machine.world = world
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=12, stateful_step_count=30, deadline=None)
    )
