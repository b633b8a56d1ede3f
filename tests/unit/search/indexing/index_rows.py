"""An index in dictionaries that fails on demand."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

from tuskpoint_server.core.model import CheckpointKey, Value
from tuskpoint_server.search.change_feed import Advance, IndexBacklog, Stretch
from tuskpoint_server.search.index import IndexRows, UnembeddedDocument
from tuskpoint_server.search.searched_values import Document

TENANT = "default"


def due(number: int, thread: int = 1, tenant: str = TENANT) -> Document:
    """Return a checkpoint that is due; its number is also the number of its change."""
    plan = Value("json", json.dumps(f"step {number}").encode())
    key = CheckpointKey(f"t{thread}", "", str(number))
    return Document(
        *(number, thread, tenant, key, number, f"summary {number}"),
        channels=(("current_plan", plan),),
    )


def accept(_: Sequence[object]) -> None:
    """Accept a call."""


@dataclass
class Rows(IndexRows):
    """Waiting changes of threads, and texts without vectors; each `before_` function may raise."""

    waiting: list[Document] = field(default_factory=list)
    stored: list[Document] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    watermarks: dict[int, int] = field(default_factory=dict)
    texts: list[UnembeddedDocument] = field(default_factory=list)
    vectors: dict[int, bytes] = field(default_factory=dict)
    adopted: list[tuple[str, int]] = field(default_factory=list)
    before_take: Callable[[Sequence[object]], None] = accept
    before_store: Callable[[Sequence[Document]], None] = accept
    before_adopt: Callable[[Sequence[object]], None] = accept
    before_embed: Callable[[Sequence[object]], None] = accept
    remembered: bool = False
    takes: int = 0
    looks: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def take(self, limit: int) -> Stretch:
        """Return the first waiting changes."""
        self.takes += 1
        await self.report()
        self.before_take(())
        batch = tuple(self.waiting[:limit])
        advances = tuple(
            Advance(
                thread,
                TENANT,
                f"t{thread}",
                self.watermarks.get(thread, 0),
                through := max(
                    checkpoint.seq for checkpoint in batch if checkpoint.thread == thread
                ),
                through,
            )
            for thread in {checkpoint.thread: None for checkpoint in batch}
        )
        return Stretch(batch, advances, complete=len(batch) == len(self.waiting))

    async def store(self, stretch: Stretch, made: Sequence[Document], *, remember: bool) -> int:
        """Store all documents or none."""
        self.before_store(made)
        self.remembered = remember
        self.stored += made
        if made:
            self.batches.append(len(made))
        for advance in stretch.advances:
            self.watermarks[advance.thread] = advance.through
        self.waiting = [
            checkpoint
            for checkpoint in self.waiting
            if checkpoint.seq > self.watermarks.get(checkpoint.thread, 0)
        ]
        await self.report()
        return len(made)

    async def now(self, tenant: str) -> dict[int, int]:
        """Return the greatest waiting number of each thread."""
        mine = [checkpoint for checkpoint in self.waiting if checkpoint.tenant == tenant]
        return {
            checkpoint.thread: checkpoint.seq
            for checkpoint in sorted(mine, key=lambda checkpoint: checkpoint.seq)
        }

    def is_damaged(self, thread: int, seq: int) -> bool:
        """Return that the thread is not damaged."""
        return False

    async def backlog(self) -> list[IndexBacklog]:
        """Count the waiting changes."""
        tenants = {checkpoint.tenant: None for checkpoint in self.waiting}
        return [
            IndexBacklog(
                tenant,
                sum(checkpoint.tenant == tenant for checkpoint in self.waiting),
                min(checkpoint.seq for checkpoint in self.waiting if checkpoint.tenant == tenant),
            )
            for tenant in tenants
        ]

    async def unembedded(
        self, limit: int, but: Collection[tuple[int, int]] = ()
    ) -> list[UnembeddedDocument]:
        """Return the oldest documents without a vector."""
        self.looks += 1
        await self.report()
        owed = [text for text in self.texts if text.number not in self.vectors]
        return [text for text in owed if text.place not in but][:limit]

    async def embed(self, embedder: str, made: Sequence[tuple[UnembeddedDocument, bytes]]) -> None:
        """Store vectors."""
        assert embedder == self.adopted[-1][0]
        self.before_embed(made)
        self.vectors.update((text.number, vector) for text, vector in made)
        await self.report()

    async def adopt_embedder(self, embedder: str, dimension: int) -> int:
        """Record the embedder."""
        self.before_adopt(())
        self.adopted.append((embedder, dimension))
        return 0

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition, which is checked after each call."""
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(condition)

    async def report(self) -> None:
        """Let waiters check their conditions again."""
        async with self.changed:
            self.changed.notify_all()
