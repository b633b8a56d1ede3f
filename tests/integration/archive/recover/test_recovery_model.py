"""After any history of a journal, the newest catalog brings back all certified checkpoints."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tests.contract.effects.kit import Agent
from tests.integration.archive.recover.recovered import compare, recovered_house
from tests.kit.archives import House, check_certified, keys_of
from tests.kit.drafts import TENANT, Reference, channel, draft, write
from tests.kit.histories import STEPS, History, live, store_of
from tuskpoint.v1 import checkpoint_pb2
from tuskpoint_server.core.effects.decisions import AttemptOutcome, OnUnknown
from tuskpoint_server.core.items import ItemChange
from tuskpoint_server.core.model import View
from tuskpoint_server.core.threads import is_reserved
from tuskpoint_server.features.lineage.snapshot_rows import (
    SnapshotDraft,
    SnapshotQuery,
    SnapshotRows,
)

DELTA = checkpoint_pb2.CheckpointState(delta_channels=("log",)).SerializeToString()
KINDS = (
    *(step for step in STEPS if step not in ("fail", "forget", "reject")),
    *("delta", "inside", "wait", "settings", "snapshot", "restore", "adopt", "drop_run", "items"),
    "effects",
)


async def go_on(home: House, thread_id: str) -> None:
    """Save a checkpoint that inherits all values from the head of a thread."""
    checkpoint = await home.journal.load(TENANT, (await keys_of(home, thread_id))[-1], View.FULL)
    assert checkpoint is not None
    assert checkpoint.state is not None
    key = checkpoint.entry.key
    await home.journal.save_checkpoint(
        TENANT,
        draft(
            key.checkpoint_id + "x",
            key.checkpoint_id,
            tuple(
                channel(loaded_channel.name, Reference.INHERIT, loaded_channel.version)
                for loaded_channel in checkpoint.state.channels
            ),
            thread_id=thread_id,
            ns=key.checkpoint_ns,
        ),
    )


async def check(home: House, directory: Path) -> None:
    """Recover, compare, continue, and recover the continued journal."""
    async with recovered_house(directory / "second", home) as second:
        await compare(home, second)
        names = [str(name) for [name] in await second.ask("SELECT thread_id FROM threads")]
        for name in names:
            if not is_reserved(name) and await keys_of(second, name):
                await go_on(second, name)
        await second.flush()
        await check_certified(second)
        if await second.archive.catalog(TENANT) is not None:
            async with recovered_house(directory / "third", second) as third:
                await compare(second, third)


class Recovering(History):
    """Recovers after each flush, and adds steps for further kinds of recovered data."""

    async def latest(self, thread_id: str, ns: str = "") -> str:
        names = [key.checkpoint_id for key in await keys_of(self.house, thread_id)]
        return max(names, default="") if not ns else ""

    async def grow(self, thread_id: str, **more: Any) -> None:
        """Append a checkpoint with more fields than the checkpoints of `save`."""
        self.made += 1
        parent_id = await self.latest(thread_id, more.get("ns", ""))
        made = draft(f"{self.made:06d}", parent_id, thread_id=thread_id, **more)
        await self.house.journal.save_checkpoint(TENANT, made)

    async def delta(self) -> None:
        whole: dict[str, bytes] = {"log": self.content()} if self.random.random() < 0.2 else {}
        written = (write("log", self.content()),)
        channels = {"a": self.content(), **whole}
        await self.grow(
            self.thread(), channels=channels, frame=DELTA, delta=("log",), writes=written
        )

    async def inside(self) -> None:
        thread_id = self.thread()
        parents = {"parents": {"": await self.latest(thread_id)}, "run_id": "inner"}
        channels = {"a": self.content()}
        await self.grow(thread_id, channels=channels, ns="inner", metadata=parents)

    async def wait(self) -> None:
        channel_name = self.random.choice(("__interrupt__", "__error__", "__resume__"))
        await self.grow(self.thread(), channels={"a": b"x"}, writes=(write(channel_name, b"?"),))

    async def settings(self) -> None:
        thread_id = self.thread()
        if await keys_of(self.house, thread_id):
            await self.removal.set_retention(TENANT, thread_id, self.random.choice((0, 9999)))
            await self.removal.set_searchable(TENANT, thread_id, self.random.random() < 0.5)

    async def snapshot(self) -> None:
        await SnapshotRows(self.house.journal.database).create_snapshot(
            TENANT, SnapshotDraft((self.thread(),), "session"), ""
        )

    async def restore(self) -> None:
        snapshots = SnapshotRows(self.house.journal.database)
        for snapshot in await snapshots.list_snapshots(TENANT, SnapshotQuery(), "", 1):
            how = self.random.choice(("rollback", "threads", "delete"))
            if how == "delete":
                await snapshots.delete_snapshot(TENANT, snapshot.snapshot_id)
            else:
                await snapshots.restore_snapshot(
                    TENANT, snapshot.snapshot_id, rollback=how == "rollback", request_id=""
                )

    async def adopt(self) -> None:
        key = await self.some_key()
        if key is not None:
            closure = await self.lineage.closure(TENANT, key)
            if closure is not None:
                target = f"adopted-{self.thread()}"
                await self.lineage.adopt(TENANT, closure, "hash", target, "adopter", "")

    async def drop_run(self) -> None:
        await self.removal.delete_runs(TENANT, ["inner"])

    async def items(self) -> None:
        """Put and delete items; some items expire before the next step."""
        items, changes = self.house.journal.items, []
        for key in self.random.choices("abc", k=2):
            value = b'{"x":"%b"}' % self.content().hex().encode()
            ttl_us = self.random.choice((0, 1, 10**12))
            texts = ("one", "two", "three")[: self.random.randrange(4)]
            change = ItemChange(("of", self.thread()), key, value, ttl_us, texts)
            gone = ItemChange(change.namespace, key)
            changes.append(self.random.choice((change, change, gone)))
        await items.put(TENANT, changes)
        self.house.clock.advance(1)
        await items.sweep()

    async def effects(self) -> None:
        """Begin an effect of a thread, and report what became of it."""
        agent = Agent(self.house.journal, self.thread())
        thread = await self.house.journal.thread(TENANT, agent.thread_id)
        if thread is None:
            return
        key, on_unknown = self.random.choice("xyz"), self.random.choice([*OnUnknown])
        answer = await agent.begin(key, on_unknown=on_unknown)
        match self.random.randrange(4):
            case 0:
                await agent.complete(answer, self.content())
            case 1:
                await agent.fail(answer, self.random.choice([*AttemptOutcome]))
            case 2:
                self.house.clock.advance(60)

    async def flush(self) -> None:
        await self.house.flush()
        if await self.house.archive.catalog(TENANT) is not None:
            with tempfile.TemporaryDirectory() as directory:
                await check(self.house, Path(directory))


def recover(seed: int, steps: Sequence[str], way: str) -> None:
    asyncio.run(
        live(Recovering(seed, store_of(way)), [*steps, "flush"], standalone=way == "standalone")
    )


histories = st.lists(st.sampled_from(KINDS), min_size=5, max_size=25)
thorough = settings(deadline=None, suppress_health_check=list(HealthCheck))


@settings(thorough, max_examples=12)
@example(2670637, ["save", "delta", "delete", "flush", "wait", "inside", "drop_run"])
@example(
    2670637,
    [
        *("save", "delta", "delete", "flush", "inherit", "save", "inside", "writes", "drop_run"),
        *("save", "save", "early"),
    ],
)
@given(seed=st.integers(0, 1 << 30), steps=histories)
def test_certified_checkpoints_are_recovered(seed: int, steps: list[str]) -> None:
    recover(seed, steps, "whole")


@pytest.mark.parametrize("way", ["small puts", "standalone"])
@settings(thorough, max_examples=6)
@given(seed=st.integers(0, 1 << 30), steps=histories)
def test_certified_checkpoints_are_recovered_however_they_are_stored(
    way: str, seed: int, steps: list[str]
) -> None:
    recover(seed, steps, way)


@pytest.mark.usefixtures("database")
def test_a_long_history_is_recovered() -> None:
    steps = ["save", "writes", "inherit", "prune", "items", "effects", "save", "fork", "evict"] * 6
    recover(0, [*steps, "flush", *steps], "whole")
    recover(1, [*steps, "flush", *steps], "whole")
