"""Each tenant of an archive gets the same results as if it were alone."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.kit.archives import House, house, shown
from tests.kit.blobs.stores import MemoryStore
from tests.kit.drafts import TENANT, draft, write
from tests.kit.journal import Clock
from tuskpoint_server.core.model import CheckpointKey, View
from tuskpoint_server.core.threads import PruneStrategy

# The database makes no difference to what is stored for a tenant.
pytestmark = pytest.mark.sqlite

THREADS = ("t", "u")
_LEFT_OUT = {"spool_bytes", "cache_bytes", "evicted_bytes", "billed_bytes", "stored_bytes"}
"""Figures that cover all tenants together, or whose size depends on the journal's random ID."""


class StillClock(Clock):
    """A clock that only tests advance: equal steps leave equal rows."""

    def __call__(self) -> int:
        return self.now_us


@dataclass(frozen=True)
class Tenant:
    """One tenant of a journal; its threads have the same names as the threads of other tenants."""

    home: House
    name: str
    content: bytes

    async def save(self, thread_id: str, name: str, parent: str = "") -> None:
        await self.home.journal.save_checkpoint(
            self.name,
            draft(
                name,
                parent,
                {"x": self.content + name.encode(), "same": b"y" * 5000},
                thread_id=thread_id,
                writes=(write("w", self.content),),
            ),
        )

    async def flush(self) -> None:
        await self.home.archive.certify_all(self.name)

    async def begin(self) -> None:
        await self.save("t", "1")
        await self.save("t", "2", "1")
        await self.save("u", "1")
        await self.flush()

    async def go_on(self) -> None:
        await self.save("t", "3", "2")
        key = CheckpointKey("u", "", "1")
        await self.home.journal.save_writes(self.name, key, [write("w", b"late", idx=1)])
        await self.flush()

    async def prune(self) -> None:
        removal = self.home.journal.removal
        await removal.prune_thread(self.name, "t", PruneStrategy.KEEP_LATEST)

    async def bury(self) -> None:
        await self.home.journal.removal.delete_thread(self.name, "u")
        await self.flush()

    async def be_busy(self) -> None:
        """Flush until runs are merged."""
        for number in range(10):
            await self.save("t" if number % 2 else "u", f"4{number}")
            await self.flush()

    async def leave(self) -> None:
        await self.save("t", "5")


STAGES: tuple[Callable[[Tenant], Awaitable[None]], ...] = (
    Tenant.begin,
    Tenant.go_on,
    Tenant.prune,
    Tenant.bury,
    Tenant.be_busy,
    Tenant.leave,
)


async def looked_at(home: House) -> dict[str, Any]:
    """Return the stored records of the tenant, and its status."""
    status = await home.archive.status(TENANT)
    facts: dict[str, Any] = {
        name: value for name, value in asdict(status).items() if name not in _LEFT_OUT
    }
    for thread_id in THREADS:
        manifest = await home.manifest(thread_id)
        facts[f"manifest of {thread_id}"] = [
            (record.incarnation, record.rank, record.identity) for record in manifest.records
        ]
        facts[f"blobs of {thread_id}"] = [
            shown(await home.from_blobs(CheckpointKey(thread_id, *place)))
            for place in manifest.entries
            if await home.journal.load(TENANT, CheckpointKey(thread_id, *place), View.ENTRY)
        ]
    del facts["catalog"]  # every journal has its own ID
    known = await home.archive.catalog(TENANT)
    assert known is not None
    catalog = known.catalog
    levels = [
        [(run.first, run.last, run.records) for run in level] for level in catalog.runs.levels
    ]
    facts["catalog"] = (catalog.generation, catalog.number, levels)
    return facts


async def lived(
    directory: Path, neighbours: Sequence[tuple[str, bytes, int]]
) -> list[dict[str, Any]]:
    """Return the state of one tenant after each stage.

    Args:
        directory: Directory of the journal.
        neighbours: Name and content of other tenants, and their lead in stages.
    """
    async with house(directory, MemoryStore(), StillClock()) as home:
        tenant = Tenant(home, TENANT, b"state")
        along = [(lead, Tenant(home, name, content)) for name, content, lead in neighbours]
        for lead, neighbour in along:
            for stage in STAGES[: max(0, lead)]:
                await stage(neighbour)
        seen = []
        for number, stage in enumerate(STAGES):
            await stage(tenant)
            for lead, neighbour in along:
                if 0 <= number + lead < len(STAGES):
                    await STAGES[number + lead](neighbour)
            seen.append(await looked_at(home))
            home.clock.advance(1)
        return seen


async def test_a_tenant_lives_as_if_it_were_alone(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    neighbours = (("ahead", b"ahead", 1), ("behind", b"behind", -1), ("equal", b"state", 0))
    alone = await lived(tmp_path, ())
    beside = await lived(tmp_path_factory.mktemp("beside"), neighbours)
    for stage, expected, actual in zip(STAGES, alone, beside, strict=True):
        for name, value in expected.items():
            assert actual[name] == value, (stage.__name__, name)
