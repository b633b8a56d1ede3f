"""The values that the journal needs outlast their blobs, after any steps in any order."""

from __future__ import annotations

import random
from contextlib import suppress
from pathlib import Path

import pytest

from tests.integration.archive.recover.recovered import newest, recover
from tests.kit.archives import check_certified, keys_of, shown
from tests.kit.blobs.epoch_store import EpochStore
from tests.kit.drafts import TENANT, key, write
from tests.kit.epochs import EPOCH_S, Years, years
from tests.kit.journal import Clock
from tuskpoint_server.blobs.cache import CachedStore
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import View
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.checkpoints.completing import Completer

# The database makes no difference to lifetimes.
pytestmark = pytest.mark.sqlite


class Walk:
    """Random steps over a few threads."""

    def __init__(self, time: Years, seed: int) -> None:
        self.time = time
        self.random = random.Random(seed)
        self.heads: dict[str, str] = {}
        self.contents: dict[str, bytes] = {}
        self.count = 0
        self.forks = 0

    async def step(self, *, lose: bool, evict: bool) -> None:
        steps = [self.save] * 6 + [self.late, self.delete, self.fork, self.prune]
        steps += [self.time.flush] * 3 + [self.pass_time] * 3
        if lose:
            steps.append(self.lose)
        if evict:
            steps += [self.evict] * 2
        await self.random.choice(steps)()

    def thread(self) -> str | None:
        return self.random.choice(sorted(self.heads)) if self.heads else None

    async def save(self) -> None:
        name = f"t{self.random.randrange(3)}"
        if self.heads and self.random.random() < 0.5:
            name = self.random.choice(sorted(self.heads))
        self.count += 1
        checkpoint_id = f"{self.count:04}"
        content = self.contents.get(name, self.random.randbytes(5000))
        self.contents[name] = content + self.random.randbytes(100)
        parent = self.heads.get(name, "")
        await self.time.save(checkpoint_id, parent, thread_id=name, content=self.contents[name])
        self.heads[name] = checkpoint_id

    async def late(self) -> None:
        if name := self.thread():
            self.count += 1
            sent = write("late", self.random.randbytes(300), idx=self.count)
            await self.time.home.journal.save_writes(TENANT, key(self.heads[name], name), (sent,))

    async def delete(self) -> None:
        if name := self.thread():
            await self.time.removal.delete_thread(TENANT, name)
            self.heads.pop(name)
            self.contents.pop(name)

    async def fork(self) -> None:
        if name := self.thread():
            self.forks += 1
            new = f"fork{self.forks}"
            with suppress(Refusal):  # a lost checkpoint cannot be forked
                lineage = self.time.home.journal.lineage
                await lineage.fork(TENANT, key(self.heads[name], name), new, "")
                self.heads[new] = self.heads[name]
                self.contents[new] = self.contents[name]

    async def prune(self) -> None:
        if name := self.thread():
            await self.time.removal.prune_thread(TENANT, name, PruneStrategy.KEEP_LATEST)

    async def evict(self) -> None:
        await self.time.evict()

    async def pass_time(self) -> None:
        self.time.advance(self.random.choice((0.2, 0.6, 0.9)))
        await self.time.look()

    async def lose(self) -> None:
        names = sorted(self.time.store.live())
        if names:
            self.time.store.lose(self.random.choice(names))


async def rest(time: Years, rounds: int = 10) -> None:
    for _ in range(rounds):
        time.advance(0.5)
        await time.look()
        with suppress(Refusal):
            await time.flush()


@pytest.mark.parametrize("seed", range(4))
async def test_nothing_is_lost_that_is_renewed_in_time(tmp_path: Path, seed: int) -> None:
    put_bytes = None if seed % 2 else 200_000
    async with years(tmp_path, epochs=3, max_put_bytes=put_bytes) as time:
        walk = Walk(time, seed)
        for _ in range(60):
            await walk.step(lose=False, evict=True)
        await time.flush()
        await rest(time)
        status = await time.home.archive.status(TENANT)
        assert (status.failing_renewals, status.gaps, status.backlog_checkpoints) == (0, 0, 0)
        assert await every_value(time) == 0
        directory = tmp_path / "recovered"
        done = await recover(directory, time.store, await newest(time.home), time.home.clock)
        assert done.left_out == []
        [[count]] = await time.home.ask("SELECT count(*) FROM checkpoints")
        assert done.checkpoints == count
        assert len(await time.blobs()) <= 16


@pytest.mark.parametrize("seed", range(4))
async def test_checkpoints_in_the_journal_survive_the_loss_of_any_blobs(
    tmp_path: Path, seed: int
) -> None:
    async with years(tmp_path, epochs=3) as time:
        walk = Walk(time, seed)
        for _ in range(50):
            with suppress(Refusal):  # a flush that needs a lost run is retried
                await walk.step(lose=True, evict=False)
        await rest(time)
        assert await check_certified(time.home) >= 0
        status = await time.home.archive.status(TENANT)
        assert (status.failing_renewals, status.gaps, status.backlog_checkpoints) == (0, 0, 0)
        directory = tmp_path / "recovered"
        done = await recover(directory, time.store, await newest(time.home), time.home.clock)
        assert done.left_out == []


@pytest.mark.parametrize("seed", range(4))
async def test_lost_evicted_values_are_reported_and_nothing_else_fails(
    tmp_path: Path, seed: int
) -> None:
    clock = Clock()
    store = EpochStore(clock, EPOCH_S, 3)
    cached = CachedStore(store, tmp_path / "cache", 20_000)
    async with years(tmp_path, store=store, blobs=cached, clock=clock) as time:
        walk = Walk(time, seed)
        for _ in range(50):
            with suppress(Refusal):
                await walk.step(lose=True, evict=True)
        await rest(time)
        lost = await every_value(time)
        status = await time.home.archive.status(TENANT)
        assert bool(lost) == bool(status.gaps)
        assert bool(lost) == bool(status.failing_renewals)
        await time.save("9999", thread_id="after")
        with suppress(Refusal):
            await time.flush()
        checkpoint = await time.home.from_blobs(key("9999", "after"))
        assert checkpoint.state is not None
        directory = tmp_path / "recovered"
        await recover(directory, time.store, await newest(time.home), time.home.clock)


async def every_value(time: Years) -> int:
    """Load each checkpoint from the journal and the blob store; return the number of lost ones."""
    completer = Completer(time.home.journal, time.home.archive)
    lost = 0
    for [thread_id] in await time.home.ask("SELECT thread_id FROM threads WHERE NOT deleted"):
        for name in await keys_of(time.home, str(thread_id)):
            loaded = await time.home.journal.load(TENANT, name, View.FULL)
            assert loaded is not None
            try:
                whole = await completer.checkpoint(TENANT, loaded)
                assert shown(await time.home.from_blobs(name)) == shown(whole)
            except Refusal as refusal:
                if refusal.reason is not Reason.BLOB_NOT_FOUND:
                    raise
                lost += 1
    return lost
