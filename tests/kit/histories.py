"""Random histories of a journal and its archive."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from tests.kit.archives import House, check_certified, house, keys_of
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, Reference, channel, draft, write
from tests.kit.journal import Clock
from tuskpoint_server.archive.formats.segment_reading import decode_segment
from tuskpoint_server.archive.formats.stored_json import Kind
from tuskpoint_server.blobs.api import BlobMember, StoreLimits
from tuskpoint_server.core.errors import Reason, Refusal
from tuskpoint_server.core.model import CheckpointKey
from tuskpoint_server.core.threads import PruneStrategy
from tuskpoint_server.features.checkpoints.missing_values import ValuesEvictedError
from tuskpoint_server.features.lineage.lineage import LineageRows
from tuskpoint_server.features.removal.removal_rows import RemovalRows

THREADS = ("t", "u", "v")


STEPS = (
    "save", "save", "save", "inherit", "inherit", "again", "writes", "writes", "early", "label",
    "delete", "prune", "fork", "copy", "rollback", "evict", "flush", "flush", "fail", "forget",
    "reject", "restart",
)  # fmt: skip

EXPECTED = {
    Reason.THREAD_DELETED,
    Reason.VALUES_MISSING,
    Reason.THREAD_EXISTS,
    Reason.THREAD_NOT_FOUND,
    Reason.CHECKPOINT_NOT_FOUND,
    Reason.VERSION_TYPE_CHANGED,
    Reason.INVALID_FIELD,
}

WAYS = ("whole", "small puts", "standalone")
"""Ways to store a history: in as few puts as possible, in small puts, or as standalone blobs."""


def store_of(way: str) -> MemoryStore:
    """Return an empty store with the limits of a way."""
    small = StoreLimits(max_members=4, max_put_bytes=40_000, max_member_bytes=6_000, puts_at_once=3)
    return MemoryStore(small if way == "small puts" else None)


class History:
    """Random calls to a journal and its archive."""

    def __init__(self, seed: int, store: MemoryStore) -> None:
        self.random = random.Random(seed)
        self.store = store
        self.house: House
        self.removal: RemovalRows
        self.lineage: LineageRows
        self.made = 0
        self.blocked: set[str] = set()
        store.verdict = self.judge

    def enter(self, house: House) -> None:
        """Use a journal that was just opened."""
        self.house = house
        self.removal = house.journal.removal
        self.lineage = house.journal.lineage

    def judge(self, members: Sequence[BlobMember]) -> Reason | None:
        """Reject members with a blocked checkpoint."""
        for member in members if self.blocked else ():
            if member.kind == Kind.SEGMENT:
                segment = decode_segment(member.data, "")
                if any(
                    checkpoint.checkpoint_id in self.blocked for checkpoint in segment.checkpoints
                ):
                    return Reason.BLOB_REJECTED
        return None

    def thread(self) -> str:
        return self.random.choice(THREADS)

    def content(self) -> bytes:
        size = self.random.choice((3, 200, 5000, 9000))
        self.made += 1
        text = b"%d " % self.made + self.random.randbytes(40)
        return (text * (1 + size // len(text)))[:size]

    async def some_key(self) -> CheckpointKey | None:
        keys = await keys_of(self.house, self.thread())
        return self.random.choice(keys) if keys else None

    async def save(self) -> None:
        thread_id = self.thread()
        keys = [key for key in await keys_of(self.house, thread_id) if not key.checkpoint_ns]
        self.made += 1
        parent = keys[-1].checkpoint_id if keys and self.random.random() < 0.9 else ""
        await self.house.journal.save_checkpoint(
            TENANT,
            draft(
                f"{self.made:06d}",
                parent,
                {"a": self.content(), "b": b"same", "c": self.content()},
                thread_id=thread_id,
                writes=(write("w", self.content()),) if self.random.random() < 0.3 else (),
                agent_id=self.random.choice(("", "one", "two")),
                metadata={"n": self.made},
            ),
        )

    async def inherit(self) -> None:
        thread_id = self.thread()
        keys = await keys_of(self.house, thread_id)
        if not keys:
            return
        self.made += 1
        await self.house.journal.save_checkpoint(
            TENANT,
            draft(
                f"{self.made:06d}",
                keys[-1].checkpoint_id,
                (
                    channel("a", Reference.INHERIT),
                    channel("b", Reference.INHERIT),
                    channel("c", self.content(), 1),
                ),
                thread_id=thread_id,
            ),
        )

    async def again(self) -> None:
        key = await self.some_key()
        if key is not None:
            await self.house.journal.save_checkpoint(
                TENANT,
                draft(
                    key.checkpoint_id,
                    "",
                    {"a": self.content(), "b": b"other"},
                    thread_id=key.thread_id,
                    ns=key.checkpoint_ns,
                ),
            )

    async def writes(self) -> None:
        key = await self.some_key()
        if key is not None:
            idx = self.random.choice((-1, 0, 1, 2))
            await self.house.journal.save_writes(
                TENANT, key, [write("late", self.content(), idx=idx)]
            )

    async def early(self) -> None:
        key = CheckpointKey(self.thread(), "", f"{self.made + 1:06d}")
        await self.house.journal.save_writes(TENANT, key, [write("early", b"before")])

    async def label(self) -> None:
        key = await self.some_key()
        if key is not None:
            await self.house.journal.set_label(TENANT, key, f"l{self.random.randrange(3)}")

    async def delete(self) -> None:
        await self.removal.delete_thread(TENANT, self.thread())

    async def prune(self) -> None:
        await self.removal.prune_thread(TENANT, self.thread(), PruneStrategy.KEEP_LATEST)

    async def fork(self) -> None:
        key = await self.some_key()
        if key is not None:
            await self.lineage.fork(TENANT, key, self.thread(), "")

    async def copy(self) -> None:
        await self.lineage.copy_thread(TENANT, self.thread(), self.thread(), "")

    async def rollback(self) -> None:
        key = await self.some_key()
        if key is not None and not key.checkpoint_ns:
            await self.lineage.rollback(TENANT, key, "", None)

    async def evict(self) -> None:
        await self.house.evict()

    async def flush(self) -> None:
        gaps = False
        try:
            await self.house.flush()
        except Refusal as refusal:
            if refusal.reason is not Reason.CERTIFICATION_FAILED:
                raise
            assert self.blocked
            gaps = True
        await check_certified(self.house, gaps=gaps)

    async def fail(self) -> None:
        self.store.verdict = lambda members: Reason.BLOB_UNAVAILABLE
        await self.failing()
        self.store.verdict = self.judge

    async def forget(self) -> None:
        self.store.after_put = lambda members: Reason.BLOB_UNAVAILABLE
        await self.failing()
        self.store.after_put = lambda members: None

    async def failing(self) -> None:
        with suppress(Refusal):
            await self.house.flush()

    async def reject(self) -> None:
        """Let the store reject the checkpoint of a later step, or accept all checkpoints again."""
        self.blocked = set() if self.blocked else {f"{self.made + 1:06d}", f"{self.made + 2:06d}"}

    async def settle(self) -> None:
        """Let the store accept all puts; then nothing waits and nothing is missing."""
        self.blocked = set()
        await self.flush()
        assert await self.house.ask("SELECT * FROM holes") == []
        assert (await self.house.waiting()).threads == 0

    async def do(self, step: str) -> None:
        """Do a step, if the step is possible."""
        self.house.clock.advance(1)
        try:
            await getattr(self, step)()
        except ValuesEvictedError:
            return
        except Refusal as refusal:
            if refusal.reason not in EXPECTED:
                raise


async def live(history: History, steps: Sequence[str], *, standalone: bool = False) -> None:
    """Run a history; `restart` opens the journal again."""
    clock = Clock()
    left = list(steps)
    with tempfile.TemporaryDirectory() as directory:
        while left:
            folder = Path(directory)
            async with house(folder, history.store, clock, standalone=standalone) as opened:
                history.enter(opened)
                while left and (step := left.pop(0)) != "restart":
                    await history.do(step)
