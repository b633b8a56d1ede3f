"""The journal equals a model, whatever is saved, pruned, forked, adopted and rolled back."""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Iterator
from dataclasses import dataclass, field, replace
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

from tests.contract.lineage.kit import History, Place, certify, history, logged, seen
from tests.kit.databases import examples
from tests.kit.drafts import TENANT, draft, key, write
from tests.kit.journal import Journal, JournalWorld, made
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.core.lineage import mint_checkpoint_id
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.lineage.snapshot_rows import SnapshotDraft

T = TypeVar("T")
ROOT, KEEPER, CALLS = "", "keeper", ("node:a", "node:b")
RUNS = ("one", "two")
Written = tuple[tuple[str, bytes], ...]
ANY = st.integers(0, 1 << 16)


@dataclass(frozen=True)
class Node:
    """A checkpoint of the model.

    `seed` is the stored value of its delta channel. `base` rebuilds the channel if its ancestors
    were removed or left behind, up to the checkpoint `above`, if that checkpoint stays.
    """

    parent_id: str
    root_id: str
    run: str
    data: bytes
    seed: bytes | None
    lists: bool
    writes: tuple[tuple[str, bytes], ...] = ()
    base: History | None = None
    above: str = ""

    @property
    def up(self) -> str:
        """ID at which the path of its delta channel continues."""
        return self.above or self.parent_id


@dataclass
class Thread:
    """A thread in plain dictionaries."""

    name: str
    nodes: dict[Place, Node] = field(default_factory=dict)

    def places(self, *namespaces: str) -> list[Place]:
        return sorted(place for place in self.nodes if not namespaces or place[0] in namespaces)

    def history(self, place: Place) -> History:
        seed, written, _ = self.through(place, set(self.nodes))
        return seed, written

    def through(self, place: Place, places: set[Place]) -> tuple[bytes | None, Written, str]:
        """Follow the path of a delta channel through some checkpoints.

        Returns the seed, the writes, and the ID at which the path leaves these checkpoints; empty
        if the channel starts within them.
        """
        node = self.nodes[place]
        seed, written = node.base or (None, ())
        if node.base is not None and not node.above:
            return seed, written, ""
        above = (place[0], node.up)
        while above in places:
            node = self.nodes[above]
            written = tuple(sorted(node.writes)) + written
            if node.seed is not None:
                return node.seed, written, ""
            if node.base is not None:
                written = node.base[1] + written
                if not node.above:
                    return node.base[0], written, ""
            above = (place[0], node.up)
        return None, written, above[1] if above in self.nodes else ""

    def alone(self, place: Place) -> Node:
        """Return a checkpoint in the form that it has without its ancestors."""
        node = self.nodes[place]
        history = self.history(place)
        if not node.lists or node.seed is not None or history == (None, ()):
            return replace(node, base=None, above="")
        return replace(node, base=history, above="")

    def left_at(self, root_id: str) -> str:
        """Return the last checkpoint of the stateful subgraph by the runs on a root path."""
        path, end = set(), root_id
        while (ROOT, end) in self.nodes:
            path.add(end)
            end = self.nodes[ROOT, end].parent_id

        def counts(root: str) -> bool:
            return root in path or ((ROOT, root) not in self.nodes and root <= end)

        runs = [place for place in self.places(KEEPER) if counts(self.nodes[place].root_id)]
        return max(runs)[1] if runs else ""

    def closure(self, root_id: str) -> dict[Place, Node]:
        tops = {(ROOT, root_id)}
        # A later run under an ancestor hides a stateful subgraph's own run under the root.
        for namespace in (*CALLS, KEEPER):
            runs = self.places(namespace)
            ran = [place for place in runs if self.nodes[place].root_id == root_id]
            tops |= {max(ran)} if ran else set()
        parent_id = self.nodes[ROOT, root_id].parent_id
        for root in (root_id, *([parent_id] if parent_id else ())):
            left = self.left_at(root)
            tops |= {(KEEPER, left)} if left else set()
        return {place: self.alone(place) for place in tops}

    def remove(self, doomed: set[Place]) -> None:
        """Delete checkpoints; a child gets the base that delta channels below it need."""
        kept = {place: node for place, node in self.nodes.items() if place not in doomed}
        delta_places = [place for place, node in kept.items() if node.lists]
        walked: set[Place] = set()
        while delta_places:
            wanted = {
                next_place
                for place in delta_places
                if (next_place := self.first(place, doomed, walked))
            }
            delta_places = []
            for place in wanted:
                seed, written, above = self.through(place, doomed)
                if above:
                    delta_places.append((place[0], above))
                if seed is not None or written or above:
                    kept[place] = replace(kept[place], base=(seed, written), above=above)
        self.nodes = kept

    def first(self, place: Place, doomed: set[Place], walked: set[Place]) -> Place | None:
        """Return the checkpoint at which the path of a channel enters the removed checkpoints."""
        while place in self.nodes and place not in walked:
            node = self.nodes[place]
            if node.seed is not None or (node.base is not None and not node.above):
                return None
            walked.add(place)
            if (place[0], node.up) in doomed:
                return place
            place = (place[0], node.up)
        return None

    def superseded(self) -> set[Place]:
        heads = {ns: max(self.places(ns)) for ns in {ns for ns, _ in self.places()}}
        doomed = set(self.places()) - set(heads.values())
        for ns, head in heads.items():
            if ns in CALLS and (ROOT, self.nodes[head].root_id) in doomed:
                doomed.add(head)
        return doomed


class Lineages(RuleBasedStateMachine):
    """Applies the same changes to the journal and to dictionaries."""

    world: JournalWorld

    @initialize()
    def begin(self) -> None:
        self.prefix = self.world.next_prefix()
        self.names = 0
        self.contents = 0
        self.threads = [self.new_thread()]
        self.lineage = self.journal.lineage
        self.captured: tuple[str, list[Thread]] | None = None

    @property
    def journal(self) -> Journal:
        return self.world.journal

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.world.run(call)

    def new_thread(self) -> Thread:
        self.names += 1
        return Thread(f"{self.prefix}{self.names}")

    def pick(self, which: int) -> Thread:
        return self.threads[which % len(self.threads)]

    def next_id(self, thread: Thread) -> str:
        greatest = max((checkpoint_id for _, checkpoint_id in thread.nodes), default="")
        return mint_checkpoint_id(self.world.clock.now_us, 0, greatest)

    def content(self) -> bytes:
        self.contents += 1
        return b"%d" % self.contents

    def node(self, parent_id: str, root_id: str, run: str, lists: bool, stores: bool) -> Node:
        data = self.content()
        return Node(parent_id, root_id, run, data, b"seed " + data if stores else None, lists)

    def save(self, thread: Thread, ns: str, node: Node) -> str:
        checkpoint_id = self.next_id(thread)
        delta = ("log",) if node.lists else ()
        metadata: dict[str, object] = {"run_id": self.prefix + node.run}
        if node.root_id:
            metadata["parents"] = {"": node.root_id}
        saved = draft(
            checkpoint_id,
            node.parent_id,
            {"x": node.data, **({"log": node.seed} if node.seed is not None else {})},
            thread_id=thread.name,
            ns=ns,
            frame=checkpoint_pb2.CheckpointState(delta_channels=delta).SerializeToString(),
            metadata=metadata,
            delta=delta,
        )
        self.run(made(self.journal.save_checkpoint, TENANT, saved))
        thread.nodes[ns, checkpoint_id] = node
        return checkpoint_id

    def write(self, thread: Thread, place: Place, task: str) -> None:
        node, data = thread.nodes[place], self.content()
        sent = [write("log", data, task=task)]
        self.run(made(self.journal.save_writes, TENANT, key(place[1], thread.name, place[0]), sent))
        if task not in dict(node.writes):
            thread.nodes[place] = replace(node, writes=(*node.writes, (task, data)))

    @rule(
        which=ANY,
        parent=ANY,
        stores=st.lists(st.sampled_from([False, False, False, True]), min_size=1, max_size=4),
        lists=st.sampled_from([True, True, True, False]),
        run=st.sampled_from(RUNS),
    )
    def go_on(self, which: int, parent: int, stores: list[bool], lists: bool, run: str) -> None:
        """Save steps of the root graph, mostly from the head, each with a write."""
        thread = self.pick(which)
        roots = thread.places(ROOT)
        above = "" if not roots else roots[parent % len(roots) if parent % 3 == 2 else -1][1]
        for stored in stores:
            above = self.save(thread, ROOT, self.node(above, "", run, lists, stored))
            self.write(thread, (ROOT, above), "a")

    @rule(
        which=ANY,
        root=ANY,
        ns=st.sampled_from((KEEPER, KEEPER, *CALLS)),
        stores=st.sampled_from([False, False, True]),
        run=st.sampled_from(RUNS),
    )
    def run_subgraph(self, which: int, root: int, ns: str, stores: bool, run: str) -> None:
        thread = self.pick(which)
        roots = thread.places(ROOT)
        if not roots:
            return
        under = roots[root % len(roots) if root % 3 == 2 else -1][1]
        if ns == KEEPER:
            above = thread.left_at(under)
        else:
            ran = [place for place in thread.places(ns) if thread.nodes[place].root_id == under]
            above = max(ran, default=("", ""))[1]
        for _ in range(2):
            above = self.save(thread, ns, self.node(above, under, run, True, stores))
            self.write(thread, (ns, above), "a")

    @rule(which=ANY, at=ANY, task=st.sampled_from("abc"))
    def write_late(self, which: int, at: int, task: str) -> None:
        thread = self.pick(which)
        if places := thread.places():
            self.write(thread, places[at % len(places)], task)

    @rule(which=ANY, how=st.sampled_from(["prune", *RUNS, "delete"]), really=st.booleans())
    def remove(self, which: int, how: str, really: bool) -> None:
        thread = self.pick(which)
        if not really:
            return
        if how == "prune":
            self.run(
                self.journal.removal.prune_thread(TENANT, thread.name, PruneStrategy.KEEP_LATEST)
            )
            thread.remove(thread.superseded())
        elif how == "delete":
            self.threads.remove(thread)
            self.threads.append(self.new_thread())
            self.run(self.journal.removal.delete_thread(TENANT, thread.name))
            self.run(self.journal.removal.sweep(early_write_ttl_s=1e9))
        else:
            self.run(self.journal.removal.delete_runs(TENANT, [self.prefix + how]))
            for model_thread in self.threads:
                model_thread.remove(
                    {
                        place
                        for place in model_thread.places()
                        if model_thread.nodes[place].run == how
                    }
                )

    @rule(which=ANY, at=ANY, adopts=st.booleans())
    def descend(self, which: int, at: int, adopts: bool) -> None:
        """Fork, or adopt the content of a hand-off."""
        thread = self.pick(which)
        roots = thread.places(ROOT)
        if not roots or len(self.threads) > 4:
            return
        made, (_, root_id) = self.new_thread(), roots[at % len(roots)]
        made.nodes = thread.closure(root_id)
        source = key(root_id, thread.name)
        if adopts:
            closure = self.run(self.lineage.closure(TENANT, source))
            assert closure is not None
            self.run(self.lineage.adopt(TENANT, closure, "ab" * 32, made.name, "", ""))
        else:
            self.run(self.lineage.fork(TENANT, source, made.name, ""))
        self.threads.append(made)

    @rule(which=ANY, at=ANY)
    def roll_back(self, which: int, at: int) -> None:
        thread = self.pick(which)
        roots = thread.places(ROOT)
        if not roots:
            return
        place = roots[at % len(roots)]
        parent_id = thread.nodes[place].parent_id
        left = thread.left_at(parent_id) if parent_id else ""
        rollback = self.lineage.rollback(TENANT, key(place[1], thread.name), "", None, {})
        new = self.run(rollback).key.checkpoint_id
        self.went_back(thread, thread, place, left, new)

    @rule(which=ANY, stored=st.booleans())
    def copy(self, which: int, stored: bool) -> None:
        thread = self.pick(which)
        if stored and thread.nodes:
            self.run(certify(self.journal, thread.name))
        if not thread.nodes or len(self.threads) > 4:
            return
        made = self.new_thread()
        count = self.run(self.lineage.copy_thread(TENANT, thread.name, made.name, ""))
        assert count == len(thread.nodes)
        made.nodes = dict(thread.nodes)
        self.threads.append(made)

    @rule()
    def capture(self) -> None:
        """Take a snapshot of all threads with a root checkpoint."""
        captured = [thread for thread in self.threads if thread.places(ROOT)]
        if not captured:
            return
        named = tuple(thread.name for thread in captured)
        made = self.run(self.journal.snapshots.create_snapshot(TENANT, SnapshotDraft(named), ""))
        self.captured = (
            made.snapshot_id,
            [
                Thread(thread.name, thread.closure(max(thread.places(ROOT))[1]))
                for thread in captured
            ],
        )

    @rule()
    def restore(self) -> None:
        """Create threads from the last snapshot."""
        if self.captured is None or len(self.threads) > 4:
            return
        snapshot_id, members = self.captured
        restored = self.run(
            self.journal.snapshots.restore_snapshot(
                TENANT, snapshot_id, rollback=False, request_id=""
            )
        )
        for saved, member in zip(restored, members, strict=True):
            self.threads.append(Thread(saved.key.thread_id, dict(member.nodes)))

    @rule()
    def go_back(self) -> None:
        """Roll the threads of the last snapshot back to it, whatever they have lost since."""
        threads = {thread.name: thread for thread in self.threads}
        if self.captured is None or any(
            thread.name not in threads or not threads[thread.name].nodes
            for thread in self.captured[1]
        ):
            return
        snapshot_id, members = self.captured
        restored = self.run(
            self.journal.snapshots.restore_snapshot(
                TENANT, snapshot_id, rollback=True, request_id=""
            )
        )
        for saved, member in zip(restored, members, strict=True):
            place = max(member.places(ROOT))
            parent_id = member.nodes[place].parent_id
            left = member.left_at(parent_id) if parent_id else ""
            self.went_back(threads[member.name], member, place, left, saved.key.checkpoint_id)

    def went_back(self, thread: Thread, at: Thread, place: Place, left: str, new: str) -> None:
        """Add the checkpoints that a rollback appended to a thread."""
        keeper = thread.places(KEEPER)
        before = set(thread.nodes)
        thread.nodes[ROOT, new] = replace(at.nodes[place], run="", writes=())
        if (keeper[-1][1] if keeper else "") != left:
            (inner,) = set(self.run(seen(self.journal, thread.name))) - before - {(ROOT, new)}
            assert inner < (KEEPER, new)
            assert not keeper or keeper[-1] < inner
            nothing = Node("", "", "", b"", None, lists=False)
            node = at.nodes[KEEPER, left] if left else nothing
            thread.nodes[inner] = replace(node, root_id=new, run="", writes=())

    @invariant()
    def journal_and_model_are_equal(self) -> None:
        for thread in self.threads:
            checkpoints = self.run(seen(self.journal, thread.name))
            assert sorted(checkpoints) == thread.places()
            for place, checkpoint in checkpoints.items():
                node = thread.nodes[place]
                assert checkpoint.state is not None
                values = {c.name: c.value.data for c in checkpoint.state.channels if c.value}
                assert (checkpoint.parent_id, values.get("x", b""), values.get("log")) == (
                    node.parent_id,
                    node.data,
                    node.seed,
                )
                assert {w.task_id: w.value.data for w in checkpoint.writes} == dict(node.writes)
                if node.lists and node.seed is None:
                    there = key(place[1], thread.name, place[0])
                    assert self.run(history(self.journal, there)) == thread.history(place)

    @invariant()
    def every_number_is_reported_once(self) -> None:
        for thread in self.threads:
            numbers = [number for number, *_ in self.run(logged(self.journal, thread.name))]
            assert numbers == list(range(1, len(numbers) + 1))


@pytest.fixture(scope="module")
def world(database: str) -> Iterator[JournalWorld]:
    opened = JournalWorld(itertools.count().__next__)
    yield opened
    opened.close()


def test_lineage_equals_a_model(world: JournalWorld, database: str) -> None:
    class Machine(Lineages):
        pass

    Machine.world = world
    count = examples(database, 15)
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=count, stateful_step_count=25, deadline=None)
    )
