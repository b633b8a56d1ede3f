"""Each checkpoint that stays is rebuilt as before, whatever is removed in any order."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.contract.removal.rows import FOREVER
from tests.kit.drafts import TENANT, channel, draft, key, write
from tests.kit.journal import Journal, JournalWorld
from tuskpoint_server.core.threads import PruneStrategy

NAMES = ("a", "b")
RUNS = ("r0", "r1", "r2")
NAMESPACES = ("", "inner")
IDS = st.text("abcdef", min_size=1, max_size=4)


@dataclass(frozen=True)
class Grown:
    """A checkpoint to save below the checkpoint that was saved `back` steps before."""

    checkpoint_id: str
    namespace: str
    back: int
    run: str
    delta: frozenset[str]
    stored: frozenset[str]
    written: tuple[tuple[str, int], ...]


@dataclass
class Node:
    """A checkpoint of the model; it stays in the tree after its removal."""

    grown: Grown
    parent: tuple[str, str] | None
    written: list[tuple[str, int]]
    here: bool = True


@dataclass
class Model:
    """A tree of checkpoints that never loses a node."""

    nodes: dict[tuple[str, str], Node] = field(default_factory=dict)

    def history(self, place: tuple[str, str], name: str) -> tuple[bytes | None, list[bytes]]:
        """Return the seed and the writes that rebuild a channel."""
        newest_first: list[bytes] = []
        parent = self.nodes[place].parent
        while parent is not None:
            node = self.nodes[parent]
            newest_first += [b"%d" % number for at, number in reversed(node.written) if at == name]
            if name in node.grown.stored:
                return b"seed of %s" % parent[1].encode(), newest_first[::-1]
            parent = node.parent
        return None, newest_first[::-1]

    def remove(self, places: set[tuple[str, str]]) -> int:
        here = [place for place in places if self.nodes[place].here]
        for place in here:
            self.nodes[place].here = False
        return len(here)

    def superseded(self) -> set[tuple[str, str]]:
        here = [place for place, node in self.nodes.items() if node.here]
        latest = {namespace: max(p for p in here if p[0] == namespace) for namespace, _ in here}
        return set(here) - set(latest.values())


BOTH = frozenset(NAMES)
GROWN = st.builds(
    Grown,
    IDS,
    st.sampled_from(("", "", "", "inner")),
    st.one_of(st.just(0), st.just(0), st.just(0), st.integers(0, 8)),
    st.sampled_from(RUNS),
    st.sampled_from((BOTH, BOTH, frozenset("a"), frozenset("b"), frozenset[str]())),
    st.sampled_from((*[frozenset[str]()] * 4, frozenset("a"), frozenset("b"), BOTH)),
    # Few values, so that several writes have the same value.
    st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 12)), max_size=3).map(tuple),
)
REMOVAL = st.one_of(
    st.just("prune"),
    st.just("sweep"),
    st.sampled_from([frozenset([run]) for run in RUNS]),
    st.frozensets(st.sampled_from(RUNS), min_size=1, max_size=2),
)
LATE = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from(NAMES), st.integers(0, 12)), max_size=3
)
PHASES = st.lists(
    st.tuples(st.lists(GROWN, min_size=4, max_size=12), LATE, REMOVAL), min_size=1, max_size=5
)
Phase = tuple[list[Grown], list[tuple[int, str, int]], str | frozenset[str]]


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(phases=PHASES)
def test_every_checkpoint_that_stays_is_rebuilt_as_before(
    world: JournalWorld, phases: list[Phase]
) -> None:
    model = Model()
    thread_id = world.next_prefix()
    for grown, late, removal in phases:
        world.run(grow_all(world.journal, model, thread_id, grown, late))
        if removal == "sweep":
            world.run(world.journal.removal.sweep(early_write_ttl_s=FOREVER))
        elif removal == "prune":
            removed = world.run(
                world.journal.removal.prune_thread(TENANT, thread_id, PruneStrategy.KEEP_LATEST)
            )
            assert removed == model.remove(model.superseded())
        else:
            gone = {place for place, node in model.nodes.items() if node.grown.run in removal}
            run_ids = [f"{thread_id} {run}" for run in removal]
            removed = world.run(world.journal.removal.delete_runs(TENANT, run_ids))
            assert removed == model.remove(gone)
        world.run(compare(world.journal, model, thread_id))
    world.run(world.journal.removal.delete_thread(TENANT, thread_id))


async def grow_all(
    journal: Journal,
    model: Model,
    thread_id: str,
    grown: list[Grown],
    late: list[tuple[int, str, int]],
) -> None:
    """Save checkpoints and late writes, in few commits."""
    await asyncio.gather(*(grow(journal, model, thread_id, checkpoint) for checkpoint in grown))
    await asyncio.gather(
        *(add_late_write(journal, model, thread_id, *late_write) for late_write in late)
    )


async def grow(journal: Journal, model: Model, thread_id: str, grown: Grown) -> None:
    """Save a checkpoint below an existing checkpoint, unless its name is taken."""
    place = (grown.namespace, grown.checkpoint_id)
    if place in model.nodes:
        return
    here = [
        other for other, node in model.nodes.items() if node.here and other[0] == grown.namespace
    ]
    parent = here[-1 - grown.back] if grown.back < len(here) else None
    # A channel that no checkpoint had while its ancestors existed cannot be asked for later.
    delta = set(grown.delta)
    if parent is not None and not all(node.here for node in model.nodes.values()):
        delta &= model.nodes[parent].grown.delta | model.nodes[parent].grown.stored
    known = Grown(
        grown.checkpoint_id,
        grown.namespace,
        grown.back,
        grown.run,
        frozenset(delta),
        grown.stored,
        grown.written,
    )
    model.nodes[place] = Node(known, parent, list(grown.written))
    await journal.save_checkpoint(
        TENANT,
        draft(
            grown.checkpoint_id,
            parent[1] if parent else "",
            tuple(
                channel(name, b"seed of %s" % grown.checkpoint_id.encode())
                for name in sorted(grown.stored)
            ),
            thread_id=thread_id,
            ns=grown.namespace,
            metadata={"run_id": f"{thread_id} {grown.run}"},
            delta=tuple(sorted(delta)),
            writes=tuple(
                write(name, b"%d" % number, idx=idx)
                for idx, (name, number) in enumerate(grown.written)
            ),
        ),
    )


async def add_late_write(
    journal: Journal, model: Model, thread_id: str, back: int, name: str, number: int
) -> None:
    """Write to a checkpoint that may have children already."""
    here = [place for place, node in model.nodes.items() if node.here]
    if back >= len(here):
        return
    place = here[-1 - back]
    written = model.nodes[place].written
    late = write(name, b"%d" % number, idx=len(written))
    written.append((name, number))
    await journal.save_writes(TENANT, key(place[1], thread_id, place[0]), [late])


async def compare(journal: Journal, model: Model, thread_id: str) -> None:
    for place, node in model.nodes.items():
        if not node.here:
            continue
        names = sorted(node.grown.delta - node.grown.stored)
        histories = await journal.delta_history(TENANT, key(place[1], thread_id, place[0]), names)
        for name, history in zip(names, histories, strict=True):
            seed = history.seed.value.data if history.seed and history.seed.value else None
            assert (seed, [w.value.data for w in history.writes]) == model.history(place, name)
