"""A journal with its archive, the service above them, and who evicts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.contract.journal_drafts import TENANT, key
from tests.integration.archive_kit import Clock, Kit, open_kit
from tuskpoint_server.archive.eviction import EvictionSettings, Evictor
from tuskpoint_server.domain.evicted import lacks_values
from tuskpoint_server.domain.model import (
    Checkpoint,
    CheckpointDraft,
    DeltaHistory,
    Saved,
    Source,
    View,
)
from tuskpoint_server.journal.evicting import Evicted
from tuskpoint_server.journal.journal import SqlJournal
from tuskpoint_server.journal.lineage_calls import Lineage
from tuskpoint_server.journal.snapshots import Snapshots as JournalSnapshots
from tuskpoint_server.service.checkpoints import Checkpoints
from tuskpoint_server.service.commits import Commits
from tuskpoint_server.service.lineage import Lineages
from tuskpoint_server.service.page_tokens import PageTokens
from tuskpoint_server.service.snapshots import Snapshots


class HeldClock(Clock):
    """A clock that can be held."""

    held = False

    def __call__(self) -> int:
        return self.now_us if self.held else super().__call__()


@dataclass
class House:
    """A journal, its archive, what the service makes of them, and who evicts.

    IDs and names are made of nothing but the time.
    """

    kit: Kit
    service: Checkpoints
    lineages: Lineages
    snapshots: Snapshots
    evictor: Evictor
    clock: HeldClock

    @property
    def journal(self) -> SqlJournal:
        return self.kit.journal

    async def save(self, *drafts: CheckpointDraft) -> Saved:
        for one in drafts:
            outcome = await self.service.save(TENANT, one)
        return outcome.saved

    async def flush(self) -> None:
        await self.kit.archive.certify_all(TENANT)

    async def evict(self) -> Evicted:
        """Certify everything and evict what may go."""
        await self.flush()
        return await self.evictor.evict_now()

    async def load(
        self, checkpoint_id: str, thread_id: str = "t", source: Source = Source.ANY
    ) -> Checkpoint:
        return await self.service.load(TENANT, key(checkpoint_id, thread_id), View.FULL, source)

    async def here(self, checkpoint_id: str, thread_id: str = "t") -> bool:
        """Tell whether the journal has all values of a checkpoint."""
        loaded = await self.journal.load(TENANT, key(checkpoint_id, thread_id), View.FULL)
        assert loaded is not None
        return not lacks_values(loaded)

    async def histories(self, checkpoint_id: str, *channels: str) -> tuple[DeltaHistory, ...]:
        return await self.service.delta_history(TENANT, key(checkpoint_id), channels)


@asynccontextmanager
async def open_house(root: Path, *, max_pack_checkpoints: int = 1000) -> AsyncIterator[House]:
    clock = HeldClock()
    async with open_kit(
        root,
        clock=clock,
        entropy=lambda: clock.now_us,
        max_pack_checkpoints=max_pack_checkpoints,
    ) as kit:
        archive, commits = kit.archive, Commits()
        yield House(
            kit,
            Checkpoints(kit.journal, archive, commits),
            Lineages(Lineage(kit.journal), archive, commits),
            Snapshots(JournalSnapshots(kit.journal), archive, commits, PageTokens("house")),
            Evictor(kit.journal, EvictionSettings(journal_bytes=0, grace_s=0), clock_us=clock),
            clock,
        )
