"""Whatever is saved, pruned, forked, adopted and rolled back: journal and model are equal."""

from __future__ import annotations

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

from tests.contract.conftest import JOURNALS
from tests.contract.journal_drafts import TENANT, draft, key, write
from tests.contract.lineage_kit import Place, history, seen, told
from tests.contract.test_journal_properties import World
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.domain.checkpoint_ids import mint_checkpoint_id
from tuskpoint_server.domain.model import PruneStrategy
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.lineage_calls import Lineage

T = TypeVar("T")
ROOT, KEEPER, CALLS = "", "keeper", ("node:a", "node:b")
RUNS = ("one", "two")
ANY = st.integers(0, 1 << 16)


@dataclass(frozen=True)
class Node:
    """A checkpoint as the model has it; `seed` is what its delta channel stores."""

    parent_id: str
    root_id: str
    run: str
    data: bytes
    seed: bytes | None
    lists: bool
    writes: tuple[tuple[str, bytes], ...] = ()
    hidden: bool = False


@dataclass
class Thread:
    """A thread as plain dictionaries."""

    name: str
    nodes: dict[Place, Node] = field(default_factory=dict)

    def visible(self, *namespaces: str) -> list[Place]:
        return sorted(
            place
            for place, node in self.nodes.items()
            if not node.hidden and (not namespaces or place[0] in namespaces)
        )

    def ancestors(self, place: Place) -> Iterator[Place]:
        above = (place[0], self.nodes[place].parent_id)
        while above in self.nodes:
            yield above
            above = (place[0], self.nodes[above].parent_id)

    def rebuilt_from(self, place: Place) -> list[Place]:
        """Say which ancestors the delta channel of a checkpoint is rebuilt from."""
        if not self.nodes[place].lists or self.nodes[place].seed is not None:
            return []
        found = []
        for ancestor in self.ancestors(place):
            found.append(ancestor)
            if self.nodes[ancestor].seed is not None:
                break
        return found

    def history(self, place: Place) -> tuple[bytes | None, tuple[tuple[str, bytes], ...]]:
        seed: bytes | None = None
        written: tuple[tuple[str, bytes], ...] = ()
        for ancestor in self.ancestors(place):
            written = tuple(sorted(self.nodes[ancestor].writes)) + written
            seed = self.nodes[ancestor].seed
            if seed is not None:
                break
        return seed, written

    def left_at(self, root_id: str) -> str:
        """Say where the runs on the path to a root checkpoint left the stateful subgraph."""
        path, end = set(), root_id
        while (ROOT, end) in self.nodes:
            path.add(end)
            end = self.nodes[ROOT, end].parent_id

        def counts(root: str) -> bool:
            return root in path or ((ROOT, root) not in self.nodes and root <= end)

        runs = [place for place in self.visible(KEEPER) if counts(self.nodes[place].root_id)]
        return max(runs)[1] if runs else ""

    def closure(self, root_id: str) -> dict[Place, Node]:
        tops = {(ROOT, root_id)}
        for call in CALLS:
            ran = [one for one in self.visible(call) if self.nodes[one].root_id == root_id]
            tops |= {max(ran)} if ran else set()
        parent_id = self.nodes[ROOT, root_id].parent_id
        for root in (root_id, *([parent_id] if parent_id else ())):
            left = self.left_at(root)
            tops |= {(KEEPER, left)} if left else set()
        found = {place: self.nodes[place] for place in tops}
        for place in tops:
            for ancestor in self.rebuilt_from(place):
                found.setdefault(ancestor, replace(self.nodes[ancestor], hidden=True))
        return found

    def remove(self, doomed: set[Place]) -> None:
        """Delete checkpoints, but hide what the others are rebuilt from."""
        if not doomed:
            return
        kept = [place for place in self.visible() if place not in doomed]
        needed = {ancestor for place in kept for ancestor in self.rebuilt_from(place)}
        self.nodes = {
            place: replace(node, hidden=node.hidden or place in doomed)
            for place, node in self.nodes.items()
            if place in kept or place in needed
        }

    def superseded(self) -> set[Place]:
        heads = {ns: max(self.visible(ns)) for ns in {ns for ns, _ in self.visible()}}
        doomed = set(self.visible()) - set(heads.values())
        for ns, head in heads.items():
            root = (ROOT, self.nodes[head].root_id)
            gone = root in self.nodes and (root in doomed or self.nodes[root].hidden)
            if ns in CALLS and gone:
                doomed.add(head)
        return doomed


class Lineages(RuleBasedStateMachine):
    """Applies the same changes to the journal and to dictionaries."""

    world: World

    @initialize()
    def begin(self) -> None:
        self.prefix = self.world.next_prefix()
        self.names = 0
        self.contents = 0
        self.threads = [self.new_thread()]
        self.lineage = Lineage(self.journal)

    @property
    def journal(self) -> SqlJournal:
        return self.world.journal

    def run(self, call: Coroutine[Any, Any, T]) -> T:
        return self.world.run(call)

    def new_thread(self) -> Thread:
        self.names += 1
        return Thread(f"{self.prefix}{self.names}")

    def some(self, which: int) -> Thread:
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
        self.run(self.journal.save_checkpoint(TENANT, saved))
        thread.nodes[ns, checkpoint_id] = node
        return checkpoint_id

    def write(self, thread: Thread, place: Place, task: str) -> None:
        node, data = thread.nodes[place], self.content()
        sent = [write("log", data, task=task)]
        self.run(self.journal.save_writes(TENANT, key(place[1], thread.name, place[0]), sent))
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
        thread = self.some(which)
        roots = thread.visible(ROOT)
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
        thread = self.some(which)
        roots = thread.visible(ROOT)
        if not roots:
            return
        under = roots[root % len(roots) if root % 3 == 2 else -1][1]
        if ns == KEEPER:
            above = thread.left_at(under)
        else:
            ran = [one for one in thread.visible(ns) if thread.nodes[one].root_id == under]
            above = max(ran, default=("", ""))[1]
        for _ in range(2):
            above = self.save(thread, ns, self.node(above, under, run, True, stores))
            self.write(thread, (ns, above), "a")

    @rule(which=ANY, at=ANY, task=st.sampled_from("abc"))
    def write_late(self, which: int, at: int, task: str) -> None:
        thread = self.some(which)
        if places := thread.visible():
            self.write(thread, places[at % len(places)], task)

    @rule(which=ANY, how=st.sampled_from(["prune", *RUNS, "delete"]), really=st.booleans())
    def remove(self, which: int, how: str, really: bool) -> None:
        thread = self.some(which)
        if not really:
            return
        if how == "prune":
            self.run(self.journal.prune_thread(TENANT, thread.name, PruneStrategy.KEEP_LATEST))
            thread.remove(thread.superseded())
        elif how == "delete":
            self.threads.remove(thread)
            self.threads.append(self.new_thread())
            self.run(self.journal.delete_thread(TENANT, thread.name))
            self.run(self.journal.sweep(content_grace_s=-1, early_write_ttl_s=1e9))
        else:
            self.run(self.journal.delete_runs(TENANT, [self.prefix + how]))
            for one in self.threads:
                one.remove({place for place in one.visible() if one.nodes[place].run == how})

    @rule(which=ANY, at=ANY, adopts=st.booleans())
    def descend(self, which: int, at: int, adopts: bool) -> None:
        """Fork, or adopt what a hand-off would hold."""
        thread = self.some(which)
        roots = thread.visible(ROOT)
        if not roots or len(self.threads) > 4:
            return
        made, (_, root_id) = self.new_thread(), roots[at % len(roots)]
        made.nodes = thread.closure(root_id)
        source = key(root_id, thread.name)
        if adopts:
            closure = self.run(self.lineage.closure(TENANT, source))
            assert closure is not None
            self.run(self.lineage.adopt(TENANT, closure, "ab" * 32, made.name, "", ""))
            made.nodes = {
                place: replace(node, run="") if node.hidden else node
                for place, node in made.nodes.items()
            }
        else:
            self.run(self.lineage.fork(TENANT, source, made.name, ""))
        self.threads.append(made)

    @rule(which=ANY, at=ANY)
    def roll_back(self, which: int, at: int) -> None:
        thread = self.some(which)
        roots = thread.visible(ROOT)
        if not roots:
            return
        place = roots[at % len(roots)]
        node = thread.nodes[place]
        left = thread.left_at(node.parent_id) if node.parent_id else ""
        keeper = thread.visible(KEEPER)
        before = set(thread.nodes)
        rollback = self.lineage.rollback(TENANT, key(place[1], thread.name), "", None, {})
        new = self.run(rollback).key.checkpoint_id
        thread.nodes[ROOT, new] = replace(node, run="", writes=())
        if keeper and keeper[-1][1] != left:
            (inner,) = set(self.run(seen(self.journal, thread.name))) - before - {(ROOT, new)}
            assert keeper[-1] < inner < (KEEPER, new)
            nothing = Node("", "", "", b"", None, lists=False)
            found = thread.nodes[KEEPER, left] if left else nothing
            thread.nodes[inner] = replace(found, root_id=new, run="", writes=())

    @invariant()
    def journal_and_model_are_equal(self) -> None:
        for thread in self.threads:
            found = self.run(seen(self.journal, thread.name))
            assert sorted(found) == thread.visible()
            for place, one in found.items():
                node = thread.nodes[place]
                assert one.state is not None
                values = {c.name: c.value.data for c in one.state.channels if c.value}
                assert (one.parent_id, values.get("x", b""), values.get("log")) == (
                    node.parent_id,
                    node.data,
                    node.seed,
                )
                assert {w.task_id: w.value.data for w in one.writes} == dict(node.writes)
                if node.lists and node.seed is None:
                    there = key(place[1], thread.name, place[0])
                    assert self.run(history(self.journal, there)) == thread.history(place)

    @invariant()
    def every_number_is_told_once(self) -> None:
        for thread in self.threads:
            numbers = [number for number, *_ in self.run(told(self.journal, thread.name))]
            assert numbers == list(range(1, len(numbers) + 1))


@pytest.fixture(scope="module", params=JOURNALS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    opened = World(request.param)
    yield opened
    opened.close()


def test_lineage_equals_a_model(world: World) -> None:
    class Machine(Lineages):
        pass

    Machine.world = world
    run_state_machine_as_test(
        Machine, settings=settings(max_examples=15, stateful_step_count=25, deadline=None)
    )
