"""Every number of a thread's sequence is one event, and who waits is woken for it."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

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
from sqlalchemy import Connection, select, update

from tests.kit.archives import House, house
from tests.kit.drafts import TENANT, draft, key, refused, write
from tests.kit.journal import Clock, Journal, made
from tests.kit.stores import MemoryStore
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.limits import LIMITS
from tuskpoint_server.domain.model import CheckpointKey, View
from tuskpoint_server.domain.threads import Event, EventKind, PruneStrategy
from tuskpoint_server.journal.archiving.eviction import evict_family
from tuskpoint_server.journal.changes import EventsCompacted, News
from tuskpoint_server.journal.checkpoints.sent import SentCheckpoint
from tuskpoint_server.journal.database import schema, sqlite
from tuskpoint_server.journal.database.overlay import Batch
from tuskpoint_server.journal.lineage.copies import ValuesEvicted
from tuskpoint_server.journal.lineage.lineage import Lineage
from tuskpoint_server.journal.removal.removal import Removal

T = TypeVar("T")
SAVED, WRITES, LABEL = EventKind.CHECKPOINT_SAVED, EventKind.WRITES_SAVED, EventKind.LABEL_SET
DELETED, ENDED = EventKind.CHECKPOINTS_DELETED, EventKind.THREAD_DELETED
RETENTION, SEARCHABLE = EventKind.RETENTION_SET, EventKind.SEARCHABLE_SET
FOREVER = 1e9


async def save(journal: Journal, *drafts: SentCheckpoint) -> None:
    for one in drafts:
        await journal.save_checkpoint(TENANT, one)


async def events(journal: Journal, thread_id: str = "t", after: int = 0) -> list[Event]:
    return list((await journal.events.after(TENANT, thread_id, after, 1000)).events)


async def logged(journal: Journal, thread_id: str = "t") -> list[tuple[EventKind, str, int]]:
    """Return kind, checkpoint and number of the deleted of each event."""
    found = await events(journal, thread_id)
    return [(one.kind, one.key.checkpoint_id, one.deleted) for one in found]


class Extent(NamedTuple):
    """What is kept of a thread's log, as its row says."""

    incarnation: int
    deleted: bool
    begun_seq: int
    compacted_seq: int
    certified_seq: int
    seq: int


async def extent(journal: Journal, thread_id: str = "t") -> Extent:
    found = await journal.events.kept(TENANT, thread_id)
    assert found is not None
    return Extent(*(getattr(found, name) for name in Extent._fields))


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


async def test_each_kind_of_change_is_an_event(
    journal: Journal, removal: Removal, clock: Clock
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
    found = await events(journal)
    assert [one.seq for one in found] == list(range(1, 11))
    assert {one.incarnation for one in found} == {1}
    assert [clock.now_us - one.created_us for one in found] == [5_000_000] * 4 + [0] * 6


async def test_what_changes_nothing_is_none(journal: Journal, removal: Removal) -> None:
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


async def test_a_removal_is_one_event_however_much_goes(journal: Journal, removal: Removal) -> None:
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


async def test_what_a_removed_one_hands_over_is_a_change_of_who_gets_it(
    journal: Journal, removal: Removal
) -> None:
    await save(
        journal,
        draft("a", "", {"x": b"seed"}, metadata={"run_id": "r"}, delta=("x",)),
        draft("b", "a", delta=("x",)),
        draft("c", "b", delta=("x",)),
    )
    assert await removal.delete_runs(TENANT, ["r"]) == 1
    assert (await logged(journal))[3:] == [(SAVED, "b", 0), (DELETED, "", 1)]


async def test_writes_that_overtake_the_next_incarnation_belong_to_it(
    journal: Journal,
    removal: Removal,
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
    assert [one.incarnation for one in await events(journal)] == [1, 1, 2, 2]


async def test_retention_ends_an_incarnation_as_a_deletion_does(
    journal: Journal, removal: Removal, clock: Clock
) -> None:
    await save(journal, draft("a"))
    await removal.set_retention(TENANT, "t", 1)
    clock.advance(2)
    assert await removal.delete_if_past(TENANT, "t") == 1
    assert (await logged(journal))[2:] == [(ENDED, "", 1)]


async def test_threads_have_logs_of_their_own(journal: Journal) -> None:
    await save(journal, draft("a"), draft("a", thread_id="other"), draft("b", "a"))
    assert [one.seq for one in await events(journal)] == [1, 2]
    assert await logged(journal, "other") == [(SAVED, "a", 0)]
    assert await journal.events.after("another tenant", "t", 0, 9) == News((), 0)


# --- copies --------------------------------------------------------------------------------


async def test_each_copied_checkpoint_is_an_event(journal: Journal, lineage: Lineage) -> None:
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
    journal: Journal, lineage: Lineage
) -> None:
    await save(journal, draft("a"))
    await journal.save_writes(TENANT, key("z", "copy"), [write("x", b"early")])
    await lineage.copy_thread(TENANT, "t", "copy", "")
    assert await logged(journal, "copy") == [
        (WRITES, "z", 0),
        (ENDED, "", 0),
        (SAVED, "a", 0),
    ]
    assert [one.incarnation for one in await events(journal, "copy")] == [1, 1, 2]
    assert (await extent(journal, "copy")).begun_seq == 2


async def test_a_retried_copy_is_made_once(journal: Journal, lineage: Lineage) -> None:
    await save(journal, draft("a"))
    for _ in range(2):
        await lineage.copy_thread(TENANT, "t", "copy", "request")
    assert len(await events(journal, "copy")) == 1


async def test_a_copy_of_nothing_is_none(
    journal: Journal, removal: Removal, lineage: Lineage
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
        assert await journal.events.after(TENANT, "t", 2, 9) == News((), 2)
        assert [one.seq for one in await events(journal)] == [1, 2]
        after = await journal.thread(TENANT, "t")
        assert before is not None
        assert after is not None
        assert after.thread == before.thread
        assert (before.uncertified_count, after.uncertified_count) == (2, 0)
        await save(journal, draft("c", "b"))
        news = await journal.events.after(TENANT, "t", 2, 9)
        assert ([one.seq for one in news.events], news.certified_seq) == ([3], 2)


async def test_what_is_read_at_once_is_bounded(journal: Journal) -> None:
    await save(journal, draft("a"), draft("b", "a"), draft("c", "b"))
    first = await journal.events.after(TENANT, "t", 0, 2)
    assert [one.seq for one in first.events] == [1, 2]
    rest = await journal.events.after(TENANT, "t", 2, 2)
    assert [one.seq for one in rest.events] == [3]


# --- compaction ----------------------------------------------------------------------------


async def test_a_read_past_dropped_events_says_so(tmp_path: Path) -> None:
    async with house(tmp_path, MemoryStore()) as home:
        journal, removal = home.journal, Removal(home.journal.database)
        await save(journal, draft("a"), draft("b", "a"))
        await home.flush()
        await settle_index(journal)
        home.clock.advance(LIMITS.event_ttl_s + 1)
        assert (await removal.sweep(early_write_ttl_s=FOREVER)).changes == 2
        for _ in range(2):
            with pytest.raises(EventsCompacted) as caught:
                await events(journal, after=1)
            assert caught.value.kept.compacted_seq == 2
            await save(journal, draft("c", "b"))
        assert [one.seq for one in await events(journal, after=2)] == [3]


async def settle_index(journal: Journal) -> None:
    """Pretend that search knows every change."""
    threads = schema.threads

    def settle(batch: Batch) -> None:
        batch.connection.execute(
            update(threads).values(indexed_seq=threads.c.seq, unindexed_since_us=None)
        )
        batch.logs.clear()

    await journal.database.transact(settle)


# --- waking --------------------------------------------------------------------------------


async def test_who_waits_is_woken_once_it_is_committed(journal: Journal) -> None:
    with journal.events.subscribe(TENANT, "t") as waiter:
        waiting = asyncio.create_task(waiter.wait(60))
        await save(journal, draft("a"))
        assert await waiting
        assert [one.seq for one in await events(journal)] == [1]
        await save(journal, draft("b", "a"))
        assert await waiter.wait(0), "what happened before the wait counts"
        assert not await waiter.wait(0)


async def test_who_waits_for_any_thread_is_woken_by_each(journal: Journal) -> None:
    with journal.database.waiters.subscribe() as waiter:
        for thread_id in ("t", "u"):
            await save(journal, draft("a", thread_id=thread_id))
            assert await waiter.wait(0)
        await save(journal, draft("a"))
        assert not await waiter.wait(0), "nothing changed"
    await save(journal, draft("b"))
    assert not await waiter.wait(0)


async def test_others_sleep_on(journal: Journal) -> None:
    subscribe = journal.events.subscribe
    with subscribe(TENANT, "t") as waiter, subscribe("another", "t") as foreign:
        await save(journal, draft("a", thread_id="other"))
        assert not await waiter.wait(0)
        await save(journal, draft("a"))
        assert not await foreign.wait(0)
        assert await waiter.wait(0)


async def test_all_changes_of_a_batch_wake(journal: Journal) -> None:
    subscribe = journal.events.subscribe
    with subscribe(TENANT, "one") as one, subscribe(TENANT, "two") as two:
        saves = [save(journal, draft("a", thread_id=name)) for name in ("one", "two")]
        await asyncio.gather(*saves)
        assert await one.wait(0)
        assert await two.wait(0)


async def test_a_copy_and_a_certification_wake(tmp_path: Path) -> None:
    async with house(tmp_path, MemoryStore()) as home:
        subscribe = home.journal.events.subscribe
        await save(home.journal, draft("a"))
        with subscribe(TENANT, "t") as waiter, subscribe(TENANT, "copy") as of_copy:
            await Lineage(home.journal.database).copy_thread(TENANT, "t", "copy", "")
            assert await of_copy.wait(0)
            assert not await waiter.wait(0)
            await home.flush()
            assert await waiter.wait(0)


async def test_a_commit_that_failed_wakes_nobody(journal: Journal) -> None:
    def fail(_connection: Connection) -> None:
        raise RuntimeError("as if")

    with journal.events.subscribe(TENANT, "t") as waiter:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sqlite, "commit", fail)
            await refused(save(journal, draft("a")), Reason.JOURNAL_UNAVAILABLE)
        await save(journal, draft("a", thread_id="other"))
        assert not await waiter.wait(0)


async def test_who_has_gone_is_forgotten(journal: Journal) -> None:
    waiters, subscribe = journal.database.waiters, journal.events.subscribe
    with subscribe(TENANT, "t"):
        with subscribe(TENANT, "t") as second:
            assert len(waiters) == 2
        await save(journal, draft("a"))
        assert not await second.wait(0)
    assert len(waiters) == 0


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
        self.house: House = self.run(self._open.enter_async_context(house(root, MemoryStore())))
        self.removal = Removal(self.house.journal.database)
        self.lineage = Lineage(self.house.journal.database)

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def next_prefix(self) -> str:
        """Return a prefix of thread names that no other example has."""
        self._examples += 1
        return f"{self._examples}-"

    async def evict(self) -> None:
        """Give up all values that the journal can spare."""
        self.house.clock.advance(1)
        for [family] in await self.house.ask("SELECT DISTINCT family FROM threads"):
            await evict_family(
                self.house.journal.database,
                self.removal.passes,
                int(str(family)),
                self.house.clock.now_us,
                1 << 40,
            )

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
    def journal(self) -> Journal:
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
        self.make(made(self.journal.save_checkpoint, TENANT, one))

    @rule(thread=a_thread, ns=a_namespace, checkpoint_id=an_id, data=st.binary(max_size=1))
    def save_writes(self, thread: str, ns: str, checkpoint_id: str, data: bytes) -> None:
        target = CheckpointKey(self.name(thread), ns, checkpoint_id)
        self.make(made(self.journal.save_writes, TENANT, target, [write("x", data, idx=-1)]))

    @rule(thread=a_thread, checkpoint_id=an_id, label=st.sampled_from(("", "bad")))
    def set_label(self, thread: str, checkpoint_id: str, label: str) -> None:
        target = key(checkpoint_id, self.name(thread))
        self.make(made(self.journal.set_label, TENANT, target, label))

    @rule(thread=a_thread, retention_s=st.sampled_from((0, 1)))
    def set_retention(self, thread: str, retention_s: int) -> None:
        self.make(self.world.removal.set_retention(TENANT, self.name(thread), retention_s))

    @rule(thread=a_thread, searchable=st.booleans())
    def set_searchable(self, thread: str, searchable: bool) -> None:
        self.make(self.world.removal.set_searchable(TENANT, self.name(thread), searchable))

    @rule(thread=a_thread, strategy=st.sampled_from(PruneStrategy))
    def prune(self, thread: str, strategy: PruneStrategy) -> None:
        self.make(self.world.removal.prune_thread(TENANT, self.name(thread), strategy))

    @rule(run=st.sampled_from(RUNS))
    def delete_run(self, run: str) -> None:
        self.make(self.world.removal.delete_runs(TENANT, [self.prefix + run]))

    @rule(thread=a_thread)
    def delete(self, thread: str) -> None:
        self.make(self.world.removal.delete_thread(TENANT, self.name(thread)))

    @rule(source=a_thread, goal=a_thread)
    def copy(self, source: str, goal: str) -> None:
        self.make(self.world.lineage.copy_thread(TENANT, self.name(source), self.name(goal), ""))

    @rule(source=a_thread, checkpoint_id=an_id, goal=a_thread)
    def fork(self, source: str, checkpoint_id: str, goal: str) -> None:
        origin = key(checkpoint_id, self.name(source))
        self.make(self.world.lineage.fork(TENANT, origin, self.name(goal), ""))

    @rule(thread=a_thread, checkpoint_id=an_id)
    def roll_back(self, thread: str, checkpoint_id: str) -> None:
        target = key(checkpoint_id, self.name(thread))
        self.make(self.world.lineage.rollback(TENANT, target, "", None))

    @rule(thread=a_thread)
    def expire(self, thread: str) -> None:
        self.make(self.world.removal.delete_if_past(TENANT, self.name(thread)))

    @rule()
    def certify(self) -> None:
        self.make(self.world.house.flush())

    @rule()
    def index(self) -> None:
        self.world.run(settle_index(self.journal))

    @rule()
    def evict(self) -> None:
        self.world.run(self.world.evict())

    @rule(days=st.sampled_from((0, 4)))
    def sweep(self, days: int) -> None:
        self.world.house.clock.advance(days * 24 * 3600)
        self.world.run(self.world.removal.sweep(early_write_ttl_s=LIMITS.early_write_ttl_s))

    @invariant()
    def every_number_is_one_event(self) -> None:
        for thread in THREADS:
            found, kept, _ = self.world.run(self.journal.database.query(all_of(self.name(thread))))
            if kept is None:
                assert found == []
            else:
                check_log(found, kept)
                assert kept.begun_seq <= kept.seq
                assert kept.certified_seq <= kept.seq

    @invariant()
    def what_is_seen_was_logged(self) -> None:
        """The number of a row is that of an event that names its checkpoint, or is gone."""
        for thread in THREADS:
            found, kept, rows = self.world.run(
                self.journal.database.query(all_of(self.name(thread)))
            )
            named = {(one.seq, one.key.checkpoint_ns, one.key.checkpoint_id) for one in found}
            for seq, *place in rows:
                assert kept is not None
                assert (seq, *place) in named or seq <= kept.compacted_seq


Everything = tuple[list[Event], Extent | None, list[tuple[int, str, str]]]


def all_of(thread_id: str) -> Callable[[Connection], Everything]:
    """Return what reads all events of a thread, what is kept of them, and its rows' numbers."""

    def work(connection: Connection) -> Everything:
        threads, changes = schema.threads.c, schema.changes.c
        thread = connection.execute(
            select(threads.number, *(threads[name] for name in Extent._fields)).where(
                threads.thread_id == thread_id
            )
        ).one_or_none()
        if thread is None:
            return [], None, []
        rows = connection.execute(
            select(schema.changes).where(changes.thread == thread[0]).order_by(changes.seq)
        )
        found = [
            Event(
                EventKind(row.kind),
                row.seq,
                row.incarnation,
                CheckpointKey(thread_id, row.checkpoint_ns, row.checkpoint_id),
                row.deleted,
                row.created_us,
            )
            for row in rows
        ]
        numbers = [
            tuple(row)
            for table in (schema.checkpoints.c, schema.writes.c)
            for row in connection.execute(
                select(table.seq, table.checkpoint_ns, table.checkpoint_id).where(
                    table.thread == thread[0]
                )
            )
        ]
        return found, Extent(*thread[1:]), numbers

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
