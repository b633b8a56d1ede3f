"""Whatever is saved, forked, deleted, pruned and copied: the journal equals a plain model."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    rule,
    run_state_machine_as_test,
)

from tests.contract.conftest import JOURNALS, Clock
from tests.contract.journal_drafts import TENANT, channel, draft, key, write
from tuskpoint_server.domain.errors import Reason, Refusal
from tuskpoint_server.domain.model import (
    ChannelDraft,
    CheckpointQuery,
    PruneStrategy,
    Reference,
    Removed,
    View,
    Write,
    write_order,
)
from tuskpoint_server.journal.journal import SqlJournal

Place = tuple[str, str]
T = TypeVar("T")
THREADS = ("one", "two")
NAMESPACES = ("", "inner")
IDS = tuple("abcdef")
NAMES = ("x", "y")


@dataclass
class Stored:
    """A checkpoint as the model has it."""

    parent_id: str
    channels: dict[str, tuple[int, bytes | None]]
    revision: int = 1
    writes: dict[tuple[str, int], Write] = field(default_factory=dict)


class World:
    """A journal with its event loop, shared by all examples."""

    def __init__(self, name: str) -> None:
        self._directory = tempfile.TemporaryDirectory()
        self._runner = asyncio.Runner()
        self.clock = Clock()
        self.journal: SqlJournal = self.run(JOURNALS[name](Path(self._directory.name), self.clock))
        self._examples = 0

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(call)

    def next_prefix(self) -> str:
        """Return a prefix of thread names that no other example has."""
        self._examples += 1
        return f"{self._examples}-"

    def close(self) -> None:
        self.run(self.journal.close())
        self._runner.close()
        self._directory.cleanup()


class Threads(RuleBasedStateMachine):
    """Applies the same changes to the journal and to dictionaries."""

    world: World

    @initialize()
    def begin(self) -> None:
        self.prefix_of = {name: self.world.next_prefix() for name in THREADS}
        self.model: dict[str, dict[Place, Stored]] = {name: {} for name in THREADS}
        self.early: dict[str, dict[Place, dict[tuple[str, int], Write]]] = {
            name: {} for name in THREADS
        }

    @property
    def journal(self) -> SqlJournal:
        return self.world.journal

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.world.run(call)

    def fresh(self, thread: str) -> None:
        """Forget a deleted thread under its name and go on under another."""
        self.model[thread], self.early[thread] = {}, {}
        self.prefix_of[thread] = self.world.next_prefix()

    def thread_id(self, thread: str) -> str:
        return self.prefix_of[thread] + thread

    @rule(
        thread=st.sampled_from(THREADS),
        ns=st.sampled_from(NAMESPACES),
        checkpoint_id=st.sampled_from(IDS),
        parent_id=st.sampled_from(("", *IDS)),
        contents=st.dictionaries(
            st.sampled_from(NAMES),
            st.tuples(
                st.integers(1, 2),
                st.one_of(
                    st.sampled_from([Reference.INHERIT, Reference.EMPTY]),
                    st.binary(max_size=3),
                ),
            ),
        ),
    )
    def save(
        self,
        thread: str,
        ns: str,
        checkpoint_id: str,
        parent_id: str,
        contents: dict[str, tuple[int, bytes | Reference]],
    ) -> None:
        place = (ns, checkpoint_id)
        stored = self.model[thread]
        parent = stored.get((ns, parent_id))
        channels: dict[str, tuple[int, bytes | None]] = {}
        missing = []
        drafts: list[ChannelDraft] = []
        for name, (version, content) in contents.items():
            drafts.append(channel(name, content, version))
            if content is Reference.INHERIT:
                if parent is None or parent.channels.get(name, (0, None))[0] != version:
                    missing.append(name)
                else:
                    channels[name] = parent.channels[name]
            else:
                channels[name] = (version, content if isinstance(content, bytes) else None)
        saved = draft(
            checkpoint_id, parent_id, tuple(drafts), ns=ns, thread_id=self.thread_id(thread)
        )
        if missing:
            with pytest.raises(Refusal) as caught:
                self.run(self.journal.save_checkpoint(TENANT, saved))
            assert caught.value.reason is Reason.VALUES_MISSING
            assert [violation.field for violation in caught.value.violations] == missing
            return
        outcome = self.run(self.journal.save_checkpoint(TENANT, saved))
        before = stored.get(place)
        same = before is not None and (before.parent_id, list(before.channels.items())) == (
            parent_id,
            list(channels.items()),
        )
        if before is None:
            early = self.early[thread].pop(place, {})
            stored[place] = Stored(parent_id, channels, 1, early)
        elif not same:
            stored[place] = Stored(parent_id, channels, before.revision + 1, before.writes)
        assert outcome.revision == stored[place].revision

    @rule(
        thread=st.sampled_from(THREADS),
        ns=st.sampled_from(NAMESPACES),
        checkpoint_id=st.sampled_from(IDS),
        sent=st.lists(
            st.tuples(st.sampled_from("mn"), st.integers(-2, 1), st.binary(max_size=2)),
            min_size=1,
            max_size=4,
        ),
    )
    def save_writes(
        self, thread: str, ns: str, checkpoint_id: str, sent: list[tuple[str, int, bytes]]
    ) -> None:
        place = (ns, checkpoint_id)
        drafts = [write("x", data, task=task, idx=idx) for task, idx, data in sent]
        target = key(checkpoint_id, self.thread_id(thread), ns)
        outcome = self.run(self.journal.save_writes(TENANT, target, drafts))
        stored = self.model[thread].get(place)
        writes = stored.writes if stored is not None else self.early[thread].setdefault(place, {})
        changed = False
        for one in drafts:
            slot = (one.task_id, one.idx)
            if slot not in writes or (one.idx < 0 and writes[slot] != one):
                writes[slot] = one
                changed = True
        if stored is not None and changed:
            stored.revision += 1
        assert outcome.revision == (stored.revision if stored is not None else 0)
        assert (outcome.stored_bytes == 0) or changed

    @rule(thread=st.sampled_from(THREADS))
    def prune(self, thread: str) -> None:
        stored = self.model[thread]
        latest = {ns: max(i for n, i in stored if n == ns) for ns in {n for n, _ in stored}}
        kept = {place: one for place, one in stored.items() if latest[place[0]] == place[1]}
        removed = self.run(
            self.journal.prune_thread(TENANT, self.thread_id(thread), PruneStrategy.KEEP_LATEST)
        )
        assert removed == Removed(len(stored) - len(kept))
        self.model[thread] = kept

    @rule(thread=st.sampled_from(THREADS))
    def delete(self, thread: str) -> None:
        removed = self.run(self.journal.delete_thread(TENANT, self.thread_id(thread)))
        assert removed == Removed(len(self.model[thread]))
        self.fresh(thread)

    @rule(thread=st.sampled_from(THREADS))
    def copy(self, thread: str) -> None:
        """Go on with a copy instead of the thread itself."""
        if not self.model[thread] and not self.early[thread]:
            return
        source = self.thread_id(thread)
        self.prefix_of[thread] = self.world.next_prefix()
        copied = self.run(self.journal.copy_thread(TENANT, source, self.thread_id(thread), ""))
        assert copied == len(self.model[thread])
        self.run(self.journal.delete_thread(TENANT, source))
        for one in self.model[thread].values():
            one.revision = 1

    @rule()
    def sweep(self) -> None:
        self.run(self.journal.sweep(content_grace_s=-1, early_write_ttl_s=1e9))

    @invariant()
    def the_journal_equals_the_model(self) -> None:
        for thread, stored in self.model.items():
            page = self.run(
                self.journal.list_page(
                    TENANT,
                    CheckpointQuery(thread_id=self.thread_id(thread)),
                    View.FULL,
                    None,
                    max_count=100,
                    max_bytes=10**9,
                )
            )
            found = {}
            for checkpoint in page.checkpoints:
                entry = checkpoint.entry
                assert checkpoint.state is not None
                found[(entry.key.checkpoint_ns, entry.key.checkpoint_id)] = (
                    entry.parent_id,
                    [
                        (c.name, c.version, c.value.data if c.value else None)
                        for c in checkpoint.state.channels
                    ],
                    entry.revision,
                    checkpoint.writes,
                )
            assert found == {
                place: (
                    one.parent_id,
                    [(name, *content) for name, content in one.channels.items()],
                    one.revision,
                    tuple(sorted(one.writes.values(), key=write_order)),
                )
                for place, one in stored.items()
            }


@pytest.fixture(scope="module", params=JOURNALS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    opened = World(request.param)
    yield opened
    opened.close()


def test_the_journal_equals_a_model(world: World) -> None:
    class Machine(Threads):
        pass

    Machine.world = world
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=20, stateful_step_count=30, deadline=None)
    )


# --- delta channels ------------------------------------------------------------------------


@dataclass(frozen=True)
class Step:
    """A checkpoint of a random tree: parent, run, and which of two channels it stores."""

    parent: int | None
    run: str
    stores: frozenset[str]
    lists: frozenset[str]


@st.composite
def trees(draw: st.DrawFn) -> list[Step]:
    steps = []
    some = st.frozensets(st.sampled_from(NAMES))
    for n in range(draw(st.integers(1, 9))):
        parent = draw(st.one_of(st.just(n - 1), st.integers(0, n - 1))) if n else None
        steps.append(Step(parent, draw(st.sampled_from("pqr")), draw(some), draw(some)))
    return steps


def needed_by_hand(steps: list[Step], alive: set[int]) -> set[int]:
    """Say, slowly and plainly, which ancestors the living need."""
    needed = set()
    for n in alive:
        for name in steps[n].lists - steps[n].stores:
            ancestor = steps[n].parent
            while ancestor is not None:
                needed.add(ancestor)
                if name in steps[ancestor].stores:
                    break
                ancestor = steps[ancestor].parent
    return needed - alive


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(steps=trees(), runs=st.lists(st.sampled_from("pqr"), max_size=3), latest=st.booleans())
def test_removal_never_changes_a_history_that_can_be_asked_for(
    world: World, steps: list[Step], runs: list[str], latest: bool
) -> None:
    world.run(remove_and_compare(world, steps, runs, latest=latest))


async def remove_and_compare(
    world: World, steps: list[Step], runs: list[str], *, latest: bool
) -> None:
    journal, thread_id = world.journal, world.next_prefix()
    for n, step in enumerate(steps):
        await journal.save_checkpoint(
            TENANT,
            draft(
                str(n),
                "" if step.parent is None else str(step.parent),
                {name: f"{name}{n}".encode() for name in sorted(step.stores)},
                thread_id=thread_id,
                metadata={"run_id": thread_id + step.run},
                delta=tuple(sorted(step.lists)),
                writes=tuple(write(name, b"%d" % n, idx=idx) for idx, name in enumerate(NAMES)),
            ),
        )

    async def histories(n: int) -> dict[str, object]:
        names = sorted(steps[n].lists - steps[n].stores)
        found = await journal.delta_history(TENANT, key(str(n), thread_id), names)
        return {one.channel: (one.seed, one.writes) for one in found}

    alive = set(range(len(steps)))
    before = {n: await histories(n) for n in alive}
    hidden: set[int] = set()
    for run in runs:
        doomed = {n for n in alive if steps[n].run == run}
        alive -= doomed
        removed = await journal.delete_runs(TENANT, [thread_id + run])
        stay = needed_by_hand(steps, alive) & (doomed | hidden)
        assert removed == Removed(len(doomed - stay), len(doomed & stay))
        hidden = stay if doomed else hidden
    if latest and alive:
        doomed = alive - {max(alive)}
        alive -= doomed
        removed = await journal.prune_thread(TENANT, thread_id, PruneStrategy.KEEP_LATEST)
        stay = needed_by_hand(steps, alive) & (doomed | hidden)
        assert removed == Removed(len(doomed - stay), len(doomed & stay))
    for n in alive:
        assert await histories(n) == before[n]
