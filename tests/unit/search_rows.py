"""What is due and what was stored, in dictionaries, failing as a test wants it to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tuskpoint_server.domain.model import CheckpointKey, Value
from tuskpoint_server.journal.search_api import Document, Due, Unembedded

TENANT = "default"


def due(number: int, *, tenant: str = TENANT, shown: bool = True, since_us: int = 0) -> Due:
    """Return a checkpoint that is due; by its number if no time is given."""
    plan = Value("json", json.dumps(f"step {number}").encode())
    return Due(
        tenant,
        CheckpointKey("t", "", str(number)),
        since_us or number,
        b"content %d since %d" % (number, since_us),
        shown,
        f"summary {number}",
        (("current_plan", plan),),
    )


def accept(_: Sequence[object]) -> None:
    """Let a call pass."""


@dataclass
class Rows:
    """Satisfies `search_api.Indexing`; `before_store` and the like may raise."""

    waiting: list[Due] = field(default_factory=list)
    stored: list[Document] = field(default_factory=list)
    texts: list[Unembedded] = field(default_factory=list)
    vectors: dict[int, bytes] = field(default_factory=dict)
    adopted: list[tuple[str, int]] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    before_due: Callable[[Sequence[object]], None] = accept
    before_store: Callable[[Sequence[Document]], None] = accept
    before_adopt: Callable[[Sequence[object]], None] = accept
    before_embed: Callable[[Sequence[object]], None] = accept
    remembered: bool = False
    looks: int = 0
    changed: asyncio.Condition = field(default_factory=asyncio.Condition)

    async def due(self, limit: int) -> list[Due]:
        """Return the oldest."""
        self.looks += 1
        await self.tell()
        self.before_due(())
        return sorted(self.waiting, key=lambda one: one.since_us)[:limit]

    async def due_before(self, tenant: str, before_us: int) -> int:
        """Count."""
        return sum(one.tenant == tenant and one.since_us < before_us for one in self.waiting)

    async def due_now(self, tenant: str) -> tuple[int, int]:
        """Count all."""
        times = [one.since_us for one in self.waiting if one.tenant == tenant]
        return len(times), max(times, default=-1) + 1

    async def store(self, documents: Sequence[Document], *, remember: bool) -> int:
        """Store all or nothing."""
        self.before_store(documents)
        self.batches.append(len(documents))
        self.remembered = remember
        for document in documents:
            self.waiting.remove(document.due)
        self.stored += documents
        await self.tell()
        return sum(document.due.shown for document in documents)

    async def unembedded(self, limit: int) -> list[Unembedded]:
        """Return the oldest without a vector."""
        self.looks += 1
        await self.tell()
        return [text for text in self.texts if text.number not in self.vectors][:limit]

    async def embed(self, embedder: str, made: Sequence[tuple[Unembedded, bytes]]) -> None:
        """Store vectors."""
        assert embedder == self.adopted[-1][0]
        self.before_embed(made)
        self.vectors.update((text.number, vector) for text, vector in made)
        await self.tell()

    async def adopt_embedder(self, embedder: str, dimension: int) -> int:
        """Note who embeds."""
        self.before_adopt(())
        self.adopted.append((embedder, dimension))
        return 0

    async def forget_embedder(self) -> None:
        raise AssertionError("nobody forgets here")

    async def sweep(self) -> int:
        raise AssertionError("nobody sweeps here")

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until something is so; it is looked at after each call."""
        async with asyncio.timeout(30), self.changed:
            await self.changed.wait_for(condition)

    async def tell(self) -> None:
        """Have those who wait look again."""
        async with self.changed:
            self.changed.notify_all()
