"""Two servers live the same life, and one of them evicts: nobody can tell which."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Connection

from tests.contract.eviction_house import House, open_house
from tests.contract.journal_drafts import TENANT, by_digest, channel, draft, key, write
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.lineage import Snapshot
from tuskpoint_server.domain.model import (
    ChannelDraft,
    Checkpoint,
    CheckpointDraft,
    CheckpointQuery,
    DeltaHistory,
    Durability,
    PruneStrategy,
    Reference,
    Source,
    Value,
    View,
)
from tuskpoint_server.journal.lineage_api import SnapshotDraft

T = TypeVar("T")
THREADS = ("one", "two")
NAMESPACES = ("", "inner")
IDS = ("0a", "0b", "0c", "0d", "0e")
"""They sort before every ID that the server makes."""

NAMES = ("x", "y")
RUNS = "pq"
KEEP = PruneStrategy.KEEP_LATEST
CONTENTS = st.one_of(
    st.sampled_from([Reference.INHERIT, Reference.EMPTY]),
    st.binary(max_size=2),
    st.binary(max_size=2).map(lambda data: ("digest", data)),
)


UNMARKED = (
    "SELECT count(*) FROM content_references r LEFT JOIN contents c USING (tenant, digest) "
    "JOIN checkpoints k USING (tenant, thread_id, checkpoint_ns, checkpoint_id) "
    "WHERE c.data IS NULL AND k.evicted_revision = 0",
    "SELECT count(*) FROM writes w "
    "JOIN checkpoints k USING (tenant, thread_id, checkpoint_ns, checkpoint_id) "
    "WHERE w.data IS NULL AND k.evicted_revision = 0",
)


class Twins:
    """Two servers with their event loop; only the second evicts."""

    def __init__(self) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner()
        self._open = AsyncExitStack()
        self._examples = 0
        self.plain = self._house("plain")
        self.evicting = self._house("evicting")

    @property
    def both(self) -> tuple[House, House]:
        return self.plain, self.evicting

    def _house(self, name: str) -> House:
        root = Path(self._directory.name) / name
        root.mkdir()
        return self.run(self._open.enter_async_context(open_house(root)))

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def next_prefix(self) -> str:
        self._examples += 1
        return f"{self._examples}-"

    def close(self) -> None:
        self.run(self._open.aclose())
        self._runner.close()
        self._directory.cleanup()


class Lives(RuleBasedStateMachine):
    """Changes both servers in the same way and compares what can be read."""

    twins: Twins

    @initialize()
    def begin(self) -> None:
        self.name_of = {name: self.twins.next_prefix() + name for name in THREADS}
        self.taken: list[Snapshot] = []
        for thread in THREADS:
            for number, checkpoint_id in enumerate(IDS[:4]):
                contents = {"y": (1, Reference.INHERIT)} if number else {"y": (1, b"shared")}
                self.save(
                    thread,
                    "",
                    checkpoint_id,
                    IDS[number - 1] if number else "",
                    "p",
                    {"x": (number, b"%d" % number), **contents},
                    delta=number > 1,
                    written=[(0, b"w%d" % number), (-1, b"special")],
                )
        self.evict()

    def fresh(self, thread: str) -> str:
        self.name_of[thread] = self.twins.next_prefix() + thread
        return self.name_of[thread]

    def outcomes(self, call: Callable[[House], Coroutine[Any, Any, T]]) -> list[T | Reason]:
        """Make a call on both servers; return the two results or reasons of refusal."""

        async def made(house: House) -> T | Reason:
            try:
                return await call(house)
            except Refusal as refusal:
                return refusal.reason
            finally:
                house.kit.archive.changed(TENANT, 0)

        return [self.twins.run(made(house)) for house in self.twins.both]

    def alike(self, call: Callable[[House], Coroutine[Any, Any, T]]) -> T | Reason:
        """Make a call that makes IDs or names, at the same time on both servers."""
        now_us = max(house.clock.now_us for house in self.twins.both) + 1_000
        for house in self.twins.both:
            house.clock.now_us, house.clock.held = now_us, True
        plain, evicting = self.outcomes(call)
        for house in self.twins.both:
            house.clock.held = False
        assert plain == evicting
        return plain

    # --- changes that both live through ----------------------------------------------

    @rule(
        thread=st.sampled_from(THREADS),
        ns=st.sampled_from(NAMESPACES),
        checkpoint_id=st.sampled_from(IDS),
        parent_id=st.sampled_from(("", *IDS)),
        run=st.sampled_from(RUNS),
        contents=st.dictionaries(
            st.sampled_from(NAMES), st.tuples(st.integers(1, 2), CONTENTS), min_size=1
        ),
        delta=st.booleans(),
        written=st.lists(st.tuples(st.integers(-1, 1), st.binary(max_size=2)), max_size=2),
    )
    def save(
        self,
        thread: str,
        ns: str,
        checkpoint_id: str,
        parent_id: str,
        run: str,
        contents: dict[str, tuple[int, Any]],
        delta: bool,
        written: list[tuple[int, bytes]],
    ) -> None:
        sent = draft(
            checkpoint_id,
            parent_id,
            tuple(self.channel(name, *content) for name, content in contents.items()),
            thread_id=self.name_of[thread],
            ns=ns,
            metadata={"run_id": self.name_of[thread] + run},
            delta=NAMES if delta else (),
            writes=tuple(write("x", data, idx=idx) for idx, data in written),
        )
        self.save_both(sent)

    def save_both(self, sent: CheckpointDraft) -> None:
        """Save; what only the one that evicts lacks is sent to it again, as clients do."""
        saved, twin = self.outcomes(lambda house: house.service.save(TENANT, sent))
        if twin is Reason.VALUES_MISSING and saved is not Reason.VALUES_MISSING:
            whole = self.with_values(sent)
            [twin] = [self.twins.run(self.twins.evicting.service.save(TENANT, whole))]
        assert isinstance(saved, Reason) == isinstance(twin, Reason)

    @rule(
        thread=st.sampled_from(THREADS),
        checkpoint_id=st.sampled_from(IDS),
        parent_id=st.sampled_from(IDS),
        by_digest=st.booleans(),
    )
    def go_on(self, thread: str, checkpoint_id: str, parent_id: str, by_digest: bool) -> None:
        """Save a checkpoint that sends nothing of what its parent has."""
        parent = key(parent_id, self.name_of[thread])
        call = self.twins.plain.journal.load(TENANT, parent, View.FULL)
        loaded = self.twins.run(call)
        if loaded is None or loaded.state is None:
            return
        channels = tuple(
            ChannelDraft(
                one.name,
                one.version,
                one.digest if by_digest and one.digest else Reference.INHERIT,
            )
            for one in loaded.state.channels
        )
        self.save_both(draft(checkpoint_id, parent_id, channels, thread_id=self.name_of[thread]))

    def channel(self, name: str, version: int, content: Any) -> ChannelDraft:
        if isinstance(content, tuple):
            return by_digest(name, content[1], version)
        return channel(name, content, version)

    def with_values(self, sent: CheckpointDraft) -> CheckpointDraft:
        """Return a save with the values that the plain server took for its references."""
        call = self.twins.plain.service.load(TENANT, sent.key, View.FULL, Source.ANY)
        state = self.twins.run(call).state
        assert state is not None
        stored = {one.name: one.value for one in state.channels}
        return replace(
            sent,
            channels=tuple(
                one
                if isinstance(one.content, Value) or one.content is Reference.EMPTY
                else ChannelDraft(one.name, one.version, stored[one.name] or Reference.EMPTY)
                for one in sent.channels
            ),
        )

    @rule(
        thread=st.sampled_from(THREADS),
        ns=st.sampled_from(NAMESPACES),
        checkpoint_id=st.sampled_from(IDS),
        sent=st.lists(
            st.tuples(
                st.sampled_from("mn"),
                st.integers(-2, 1),
                st.sampled_from(NAMES),
                st.binary(max_size=2),
            ),
            min_size=1,
            max_size=3,
        ),
    )
    def save_writes(
        self, thread: str, ns: str, checkpoint_id: str, sent: list[tuple[str, int, str, bytes]]
    ) -> None:
        drafts = [write(name, data, task=task, idx=idx) for task, idx, name, data in sent]
        target = key(checkpoint_id, self.name_of[thread], ns)
        saved, twin = self.outcomes(
            lambda house: house.service.save_writes(TENANT, target, drafts, Durability.JOURNALED)
        )
        assert not isinstance(saved, Reason)
        assert not isinstance(twin, Reason)
        assert saved.saved.stored_bytes == twin.saved.stored_bytes

    @rule(
        thread=st.sampled_from(THREADS),
        checkpoint_id=st.sampled_from(IDS),
        label=st.sampled_from(("", "name")),
    )
    def set_label(self, thread: str, checkpoint_id: str, label: str) -> None:
        target = key(checkpoint_id, self.name_of[thread])
        saved, twin = self.outcomes(lambda house: house.service.set_label(TENANT, target, label))
        assert isinstance(saved, Reason) == isinstance(twin, Reason)

    @rule(thread=st.sampled_from(THREADS))
    def prune(self, thread: str) -> None:
        name = self.name_of[thread]
        saved, twin = self.outcomes(lambda house: house.journal.prune_thread(TENANT, name, KEEP))
        assert saved == twin

    @rule(thread=st.sampled_from(THREADS), run=st.sampled_from(RUNS))
    def delete_run(self, thread: str, run: str) -> None:
        runs = [self.name_of[thread] + run]
        saved, twin = self.outcomes(lambda house: house.journal.delete_runs(TENANT, runs))
        assert saved == twin

    @rule(thread=st.sampled_from(THREADS), delete=st.booleans())
    def copy(self, thread: str, delete: bool) -> None:
        """Go on with a copy instead of the thread itself."""
        source = self.name_of[thread]
        target = self.fresh(thread)
        saved, twin = self.outcomes(
            lambda house: house.journal.copy_thread(TENANT, source, target, "")
        )
        assert saved == twin
        if delete:
            self.outcomes(lambda house: house.journal.delete_thread(TENANT, source))

    # --- lineage and snapshots -------------------------------------------------------

    @rule(
        thread=st.sampled_from(THREADS),
        ns=st.sampled_from(NAMESPACES),
        checkpoint_id=st.sampled_from(("", *IDS)),
    )
    def fork(self, thread: str, ns: str, checkpoint_id: str) -> None:
        """Go on with a fork instead of the thread itself."""
        source, target = self.name_of[thread], self.twins.next_prefix() + thread
        forked = self.alike(
            lambda house: house.lineages.fork(
                TENANT, key(checkpoint_id, source, ns), target, "", Durability.JOURNALED
            )
        )
        if not isinstance(forked, Reason):
            self.name_of[thread] = target

    @rule(
        thread=st.sampled_from(THREADS),
        ns=st.sampled_from(NAMESPACES),
        checkpoint_id=st.sampled_from(IDS),
    )
    def roll_back(self, thread: str, ns: str, checkpoint_id: str) -> None:
        earlier = key(checkpoint_id, self.name_of[thread], ns)
        self.alike(
            lambda house: house.lineages.rollback(TENANT, earlier, "", None, Durability.JOURNALED)
        )

    @rule(threads=st.sets(st.sampled_from(THREADS), min_size=1))
    def take_snapshot(self, threads: set[str]) -> None:
        names = tuple(self.name_of[thread] for thread in sorted(threads))
        taken = self.alike(
            lambda house: house.snapshots.create(
                TENANT, SnapshotDraft(names), "", Durability.JOURNALED
            )
        )
        if not isinstance(taken, Reason):
            self.taken.append(taken)

    @precondition(lambda self: self.taken)
    @rule(data=st.data(), rollback=st.booleans())
    def restore(self, data: st.DataObject, rollback: bool) -> None:
        """Go on with what a snapshot is restored to."""
        snapshot = data.draw(st.sampled_from(self.taken))
        restored = self.alike(
            lambda house: house.snapshots.restore(
                TENANT,
                snapshot.snapshot_id,
                rollback=rollback,
                request_id="",
                wanted=Durability.JOURNALED,
            )
        )
        if not isinstance(restored, Reason):
            for thread, made in zip(THREADS, restored, strict=False):
                self.name_of[thread] = made.thread_id

    @rule()
    def sweep(self) -> None:
        self.outcomes(lambda house: house.journal.sweep(content_grace_s=-1, early_write_ttl_s=1e9))

    # --- what only one of them does --------------------------------------------------

    @rule()
    def flush(self) -> None:
        self.twins.run(self.twins.evicting.flush())

    @rule()
    def evict(self) -> None:
        self.twins.run(self.twins.evicting.evict())

    @rule()
    def evict_what_is_certified(self) -> None:
        self.twins.run(self.twins.evicting.evictor.evict_now())

    # --- nobody can tell -------------------------------------------------------------

    @invariant()
    def both_answer_alike(self) -> None:
        for name in self.name_of.values():
            plain, evicting = (
                self.twins.run(self.everything(house, name)) for house in self.twins.both
            )
            assert plain == evicting
        for snapshot in self.taken:
            assert self.alike(lambda house: house.snapshots.get(TENANT, snapshot.snapshot_id))  # noqa: B023 - called at once

    @invariant()
    def what_lacks_values_is_marked(self) -> None:
        """Saves trust a parent that is not marked."""

        def unmarked(connection: Connection) -> list[int]:
            return [connection.exec_driver_sql(query).scalar_one() for query in UNMARKED]

        assert self.twins.run(self.twins.evicting.journal.query(unmarked)) == [0, 0]

    def teardown(self) -> None:
        """What the one stored on its way is whole, too."""
        self.twins.run(self.twins.evicting.evict())
        for name in getattr(self, "name_of", {}).values():
            plain = self.twins.run(self.everything(self.twins.plain, name))
            blobs = self.twins.run(self.everything(self.twins.evicting, name, Source.BLOB))
            assert plain[0] == blobs[0]

    async def everything(
        self, house: House, name: str, source: Source = Source.ANY
    ) -> tuple[list[object], list[tuple[DeltaHistory, ...]]]:
        query = CheckpointQuery(thread_id=name)
        listed = house.service.list(TENANT, query, View.FULL, source, None)
        found = [one async for one in listed]
        histories = [
            await house.service.delta_history(TENANT, one.entry.key, NAMES) for one in found
        ]
        return [visible(one) for one in found], histories


def visible(checkpoint: Checkpoint) -> object:
    """Return what no eviction may change; revisions of copies may differ."""
    entry = checkpoint.entry
    return (
        entry.key,
        entry.parent_id,
        entry.metadata,
        entry.label,
        entry.summary,
        entry.lineage,
        checkpoint.state,
        checkpoint.writes,
    )


@pytest.fixture(scope="module")
def twins() -> Iterator[Twins]:
    opened = Twins()
    yield opened
    opened.close()


def test_nobody_can_tell_that_values_were_evicted(twins: Twins) -> None:
    class Machine(Lives):
        pass

    Machine.twins = twins
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=10, stateful_step_count=25, deadline=None)
    )
