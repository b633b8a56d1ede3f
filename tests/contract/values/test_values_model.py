"""Every value stays as it was, whatever is saved, forked, removed, evicted and read back.

Passes run in steps, and other changes happen between any two steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy import delete, select

from tests.kit.databases import examples
from tests.kit.drafts import TENANT, Reference, by_digest, channel, digest
from tests.kit.heads import check_heads
from tests.kit.journal import World
from tests.kit.values import LATER_US, PLENTY, Home, home_in, text
from tuskpoint_server.archive.evict.eviction import evict_family
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.features.checkpoints.checkpoint_rows import CheckpointRows
from tuskpoint_server.journal.database.unit_of_work import UnitOfWork
from tuskpoint_server.journal.removal.garbage_collection import remove_unneeded
from tuskpoint_server.journal.sql.schema import contents, members

Step = tuple[str, int, int, int]
CHANGES = (
    *("save",) * 6,
    *("certify",) * 3,
    *("evict",) * 2,
    "mark",
    "save_again",
    "remove",
    "remove",
    "delete",
    "fork",
    "read_back",
    "collect",
    "restart",
)
STEPS = st.tuples(
    st.sampled_from(CHANGES), st.integers(0, 3), st.integers(0, 7), st.integers(0, 29)
)
PASSES = st.tuples(
    st.sampled_from(("mark", "evict")),
    st.integers(0, 8).map(lambda quiet: (None,) * quiet),
    st.lists(STEPS, min_size=1, max_size=4).map(tuple),
)
HISTORIES = st.lists(st.one_of(STEPS, STEPS, PASSES), min_size=20, max_size=40)
BASES = [text(seed, 4_200) for seed in range(3)]


def content(number: int) -> bytes:
    """Return one of a few values; many of them are similar."""
    return BASES[number % 3] + b"%d" % (number // 3)


class Model:
    """Expected results of one history, beside its journal."""

    def __init__(self, home: Home, prefix: str) -> None:
        self.home = home
        self.prefix = prefix
        self.threads = [prefix + "0"]
        self.live: dict[str, dict[str, dict[str, bytes]]] = {name: {} for name in self.threads}
        self.begun: set[str] = set()
        self.whole: set[str] = set()
        self.families: set[int] = set()
        self.sent: list[bytes] = []
        self.count = 0

    def thread(self, which: int) -> str:
        return self.threads[which % len(self.threads)]

    def pick(self, thread: str, which: int) -> str | None:
        checkpoint_ids = sorted(self.live[thread])
        return checkpoint_ids[which % len(checkpoint_ids)] if checkpoint_ids else None

    async def run(self, step: Step) -> None:
        name, which, other, number = step
        await getattr(self, name)(self.thread(which), other, number)

    async def run_pass(self, name: str, quiet: Sequence[None], changes: Sequence[Step]) -> None:
        """Run a pass with a change before each of its steps, after some steps without a change."""
        left = [*quiet, *changes]

        async def change() -> None:
            step = left.pop(0) if left else None
            if step is not None:
                await self.run(step)

        thread = self.threads[0]
        if thread not in self.begun:
            return
        family = await self.home.family(thread)
        self.home.database.between = change
        try:
            if name == "mark":
                await remove_unneeded(self.home.database, family)
            else:
                await self.evict_family(family)
        finally:
            self.home.database.between = None

    # --- changes -----------------------------------------------------------------------

    async def save(self, thread: str, other: int, number: int) -> None:
        self.count += 1
        checkpoint_id = f"{self.count:04}"
        head = max(self.live[thread], default="")
        if not head:
            self.whole.add(thread)
        await self._save(thread, checkpoint_id, head, other, number)

    async def save_again(self, thread: str, other: int, number: int) -> None:
        checkpoint_id = self.pick(thread, number)
        if checkpoint_id is not None:
            if checkpoint_id == max(self.live[thread]):
                self.whole.discard(thread)
            await self._save(thread, checkpoint_id, "", other | 1, number)

    async def _save(
        self, thread: str, checkpoint_id: str, parent: str, how: int, number: int
    ) -> None:
        """Save; a value that was sent before is named by digest or inherited, if possible."""
        before = self.live[thread].get(parent, {})
        data = {"x": content(number)}
        sent = [channel("x", data["x"])]
        if how & 1 or "y" not in before:
            data["y"] = self.sent[number % len(self.sent)] if self.sent else content(how)
            sent.append(by_digest("y", data["y"]))
        else:
            data["y"] = before["y"]
            sent.append(channel("y", Reference.INHERIT))
        try:
            await self.home.save(checkpoint_id, tuple(sent), parent=parent, thread=thread)
        except Refusal as refusal:
            if refusal.reason is not Reason.VALUES_MISSING:
                raise
            await self.home.save(checkpoint_id, data, parent=parent, thread=thread)
        self.sent.append(data["x"])
        self.live[thread][checkpoint_id] = data
        self.begun.add(thread)
        self.families.add(await self.home.family(thread))

    async def remove(self, thread: str, other: int, number: int) -> None:
        checkpoint_id = self.pick(thread, number)
        if checkpoint_id is not None:
            await self.home.remove(checkpoint_id, thread)
            if checkpoint_id == max(self.live[thread]):
                self.whole.discard(thread)
            del self.live[thread][checkpoint_id]

    async def delete(self, thread: str, other: int, number: int) -> None:
        if number % 3 == 0:
            await self.home.delete(thread)
            self.live[thread] = {}

    async def fork(self, thread: str, other: int, number: int) -> None:
        checkpoint_id = self.pick(thread, number)
        if checkpoint_id is None or len(self.threads) > 3:
            return
        target = f"{self.prefix}{len(self.threads)}"
        await self.home.fork(thread, checkpoint_id, target)
        self.threads.append(target)
        self.begun.add(target)
        self.live[target] = {checkpoint_id: self.live[thread][checkpoint_id]}

    # --- concurrent changes ------------------------------------------------------------

    async def certify(self, thread: str, other: int, number: int) -> None:
        if thread in self.begun:
            await self.home.certify(thread)

    async def read_back(self, thread: str, other: int, number: int) -> None:
        checkpoint_id = self.pick(thread, number)
        if checkpoint_id is not None:
            await self.home.read_back(checkpoint_id, thread)

    async def mark(self, thread: str, other: int, number: int) -> None:
        if thread in self.begun:
            await self.home.remove_unneeded(thread)

    async def evict(self, thread: str, other: int, number: int) -> None:
        if thread in self.begun:
            await self.evict_family(await self.home.family(thread), number)

    async def evict_family(self, family: int, number: int = 0) -> None:
        wanted = number * 20 if number % 2 else PLENTY
        home = self.home
        await evict_family(home.database, family, LATER_US, wanted)

    async def collect(self, thread: str, other: int, number: int) -> None:
        """Drop the segments of a thread without checkpoints that no evicted value needs."""
        if self.live[thread] or thread not in self.begun:
            return

        def drop(batch: UnitOfWork) -> list[bytes]:
            log = batch.find("default", thread)
            assert log is not None
            unused = members.c.sha256.not_in(
                select(contents.c.segment).where(contents.c.segment.is_not(None))
            )
            of_thread = members.c.thread == log.row.number
            gone = batch.connection.execute(
                select(members.c.sha256).where(of_thread, unused)
            ).scalars()
            digests = list(gone)
            batch.connection.execute(delete(members).where(members.c.sha256.in_(digests)))
            return digests

        for sha256 in await self.home.database.transact(drop):
            del self.home.segments[sha256]

    async def restart(self, thread: str, other: int, number: int) -> None:
        """Forget all keyframes, in front of the queue and in the writer."""
        self.home.checkpoints = CheckpointRows(self.home.database)
        await self.home.database.transact(lambda batch: batch.logs.clear())

    # --- checks ------------------------------------------------------------------------

    async def check(self) -> None:
        await check_heads(self.home.database, TENANT, [(name, "") for name in self.threads])
        for thread, live in self.live.items():
            if thread not in self.begun:
                continue
            await self.home.check_groups(thread)
            for checkpoint_id, data in live.items():
                assert await self.home.data(checkpoint_id, thread) == data
            if live and thread in self.whole:
                assert await self.home.here(max(live), thread) == set(live[max(live)])

    async def check_nothing_is_left(self) -> None:
        """Check that a pass over each family leaves only needed values and their keyframes."""
        needed: dict[int, set[bytes]] = {family: set() for family in self.families}
        for thread, live in self.live.items():
            for data in live.values():
                needed[await self.home.family(thread)].update(map(digest, data.values()))
        for family, digests in needed.items():
            await remove_unneeded(self.home.database, family)
            rows = {row["digest"]: row for row in await self.home.rows_of(family)}
            keyframes = {rows[digest]["keyframe"] for digest in digests} - {None}
            assert rows.keys() == digests | keyframes


@pytest.fixture(scope="module")
def shared(database: str) -> Iterator[tuple[World, Home]]:
    world = World()
    yield world, world.enter(home_in(world.directory))
    world.close()


def test_every_value_is_read_as_it_was_saved(shared: tuple[World, Home], database: str) -> None:
    world, home = shared

    @settings(max_examples=examples(database, 12))
    @given(history=HISTORIES)
    def check(history: list[Step | tuple[str, tuple[None, ...], tuple[Step, ...]]]) -> None:
        world.run(live_through(Model(home, world.next_prefix()), history))

    check()


async def live_through(
    model: Model, history: list[Step | tuple[str, tuple[None, ...], tuple[Step, ...]]]
) -> None:
    for step in history:
        if len(step) == 3:
            await model.run_pass(*step)
        else:
            await model.run(step)
        await model.check()
    await model.check_nothing_is_left()
    await model.check()
