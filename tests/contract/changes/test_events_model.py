"""Every number of a log is one event, whatever changes threads in any order."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Sequence
from itertools import pairwise
from typing import Any

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
from sqlalchemy import Connection, select

from tests.contract.changes.kit import Extent, settle_index
from tests.kit.archives import House, house
from tests.kit.blobs.stores import MemoryStore
from tests.kit.databases import examples
from tests.kit.drafts import TENANT, draft, key, write
from tests.kit.journal import Journal, World, made
from tuskpoint_server.core.errors import Refusal
from tuskpoint_server.core.limits import LIMITS
from tuskpoint_server.core.model import CheckpointKey
from tuskpoint_server.core.threads import Event, EventKind, PruneStrategy
from tuskpoint_server.features.checkpoints.missing_values import ValuesEvictedError
from tuskpoint_server.journal.sql import schema

ENDED = EventKind.THREAD_DELETED
THREADS = ("one", "two", "three")
NAMESPACES = ("", "inner")
# IDs of the server sort after these
IDS = tuple(f"1e000000-0000-6000-8000-00000000000{n}" for n in range(5))
RUNS = "pq"
a_thread, a_namespace, an_id = map(st.sampled_from, (THREADS, NAMESPACES, IDS))


class WatchedWorld(World):
    """A journal with its archive, shared by all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.house: House = self.enter(house(self.directory, MemoryStore()))


def check_log(events: Sequence[Event], kept: Extent) -> None:
    """Check the rules for the events of every thread at every time."""
    numbers = [event.seq for event in events]
    assert numbers == list(range(kept.compacted_seq + 1, kept.seq + 1))
    for earlier, later in pairwise(events):
        assert later.incarnation >= earlier.incarnation
        assert (later.incarnation > earlier.incarnation) == (earlier.kind is ENDED)
    if events and events[-1].kind is ENDED:
        # A copy of a thread without checkpoints starts an incarnation without events.
        assert kept.deleted or kept.begun_seq == kept.seq
    for event in events:
        begun = event.seq > kept.begun_seq
        assert (event.incarnation == kept.incarnation + kept.deleted) == begun


class Lives(RuleBasedStateMachine):
    """Changes threads in every possible way."""

    world: WatchedWorld

    @initialize()
    def begin(self) -> None:
        self.prefix = self.world.next_prefix()

    @property
    def journal(self) -> Journal:
        return self.world.house.journal

    def name(self, thread: str) -> str:
        return self.prefix + thread

    def make(self, call: Coroutine[Any, Any, object]) -> None:
        """Make a change, which may be refused."""
        try:
            self.world.run(call)
        except (Refusal, ValuesEvictedError):
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
        checkpoint = draft(
            checkpoint_id,
            parent_id,
            {"x": data} if not delta or not parent_id else {},
            ns=ns,
            thread_id=self.name(thread),
            metadata={"run_id": self.prefix + run},
            delta=("x",) if delta else (),
            label=label,
        )
        self.make(made(self.journal.save_checkpoint, TENANT, checkpoint))

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
        self.make(self.journal.removal.set_retention(TENANT, self.name(thread), retention_s))

    @rule(thread=a_thread, searchable=st.booleans())
    def set_searchable(self, thread: str, searchable: bool) -> None:
        self.make(self.journal.removal.set_searchable(TENANT, self.name(thread), searchable))

    @rule(thread=a_thread, strategy=st.sampled_from(PruneStrategy))
    def prune(self, thread: str, strategy: PruneStrategy) -> None:
        self.make(self.journal.removal.prune_thread(TENANT, self.name(thread), strategy))

    @rule(run=st.sampled_from(RUNS))
    def delete_run(self, run: str) -> None:
        self.make(self.journal.removal.delete_runs(TENANT, [self.prefix + run]))

    @rule(thread=a_thread)
    def delete(self, thread: str) -> None:
        self.make(self.journal.removal.delete_thread(TENANT, self.name(thread)))

    @rule(source=a_thread, goal=a_thread)
    def copy(self, source: str, goal: str) -> None:
        self.make(self.journal.lineage.copy_thread(TENANT, self.name(source), self.name(goal), ""))

    @rule(source=a_thread, checkpoint_id=an_id, goal=a_thread)
    def fork(self, source: str, checkpoint_id: str, goal: str) -> None:
        origin = key(checkpoint_id, self.name(source))
        self.make(self.journal.lineage.fork(TENANT, origin, self.name(goal), ""))

    @rule(thread=a_thread, checkpoint_id=an_id)
    def roll_back(self, thread: str, checkpoint_id: str) -> None:
        target = key(checkpoint_id, self.name(thread))
        self.make(self.journal.lineage.rollback(TENANT, target, "", None))

    @rule(thread=a_thread)
    def expire(self, thread: str) -> None:
        self.make(self.journal.removal.delete_if_past(TENANT, self.name(thread)))

    @rule()
    def certify(self) -> None:
        self.make(self.world.house.flush())

    @rule()
    def index(self) -> None:
        self.world.run(settle_index(self.journal))

    @rule()
    def evict(self) -> None:
        self.world.run(self.world.house.evict())

    @rule(days=st.sampled_from((0, 4)))
    def sweep(self, days: int) -> None:
        self.world.house.clock.advance(days * 24 * 3600)
        self.world.run(self.journal.removal.sweep(early_write_ttl_s=LIMITS.early_write_ttl_s))

    @invariant()
    def every_number_is_one_event(self) -> None:
        for thread in THREADS:
            events, kept, _ = self.world.run(self.journal.database.query(all_of(self.name(thread))))
            if kept is None:
                assert events == []
            else:
                check_log(events, kept)
                assert kept.begun_seq <= kept.seq
                assert kept.certified_seq <= kept.seq

    @invariant()
    def what_is_seen_was_logged(self) -> None:
        """The number of a row belongs to an event about its checkpoint, or of a dropped event."""
        for thread in THREADS:
            events, kept, rows = self.world.run(
                self.journal.database.query(all_of(self.name(thread)))
            )
            named = {
                (event.seq, event.key.checkpoint_ns, event.key.checkpoint_id) for event in events
            }
            for seq, *place in rows:
                assert kept is not None
                assert (seq, *place) in named or seq <= kept.compacted_seq


Everything = tuple[list[Event], Extent | None, list[tuple[int, str, str]]]


def all_of(thread_id: str) -> Callable[[Connection], Everything]:
    """Return a function that reads a thread's events, log extent, and numbers of rows."""

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
        events = [
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
        return events, Extent(*thread[1:]), numbers

    return work


@pytest.fixture(scope="module")
def world(database: str) -> Iterator[WatchedWorld]:
    opened = WatchedWorld()
    yield opened
    opened.close()


def test_whatever_happens_every_number_is_one_event(world: WatchedWorld, database: str) -> None:
    class Machine(Lives):
        pass

    Machine.world = world
    count = examples(database, 12)
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=count, stateful_step_count=30, deadline=None)
    )
