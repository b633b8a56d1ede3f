"""An archive over a store whose blobs expire, and a clock that tests advance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from opentelemetry.metrics import MeterProvider

from tests.integration.archive_kit import TENANT, Clock, Kit, WatchedStore
from tests.integration.epoch_store import EpochStore
from tuskpoint_server.archive import Archive, ArchiveSettings
from tuskpoint_server.blobs.api import BlobStore
from tuskpoint_server.journal import evicting, schema
from tuskpoint_server.journal.journal import SqlJournal

EPOCH_S = 86_400.0
EPOCH_US = 86_400_000_000


class EpochKit(Kit):
    """A kit over a store with epochs. Time stands still but for what tests advance."""

    store: EpochStore
    clock: Clock

    def advance(self, epochs: float) -> None:
        self.clock.now_us += round(epochs * EPOCH_US)

    async def certify(self) -> None:
        await self.archive.certify_all(TENANT)

    async def evict_all(self) -> int:
        """Give up all values that may go; return the bytes."""

        def evict(connection: object) -> int:
            size, position = 0, evicting.Position()
            later_us = self.clock.now_us + 1
            while batch := evicting.evictable(connection, position, later_us):  # type: ignore[arg-type]
                size += evicting.evict(connection, batch, later_us).size_bytes  # type: ignore[arg-type]
                position = batch[-1]
            return size

        return await self.journal.transact(evict)

    async def blob_of(self, checkpoint_id: str, thread_id: str = "t") -> str:
        return (await self.entry(checkpoint_id, thread_id)).envelopes[0].blob_id

    async def rows(self) -> set[str]:
        """IDs of the blobs that the journal has on record."""
        return set(
            await self.journal.query(
                lambda connection: (
                    connection.execute(
                        schema.blobs.select().with_only_columns(schema.blobs.c.blob_id)
                    )
                    .scalars()
                    .all()
                )
            )
        )


@asynccontextmanager
async def open_epochs(
    root: Path,
    *,
    epochs: int = 3,
    store: EpochStore | None = None,
    blobs: BlobStore | None = None,
    clock: Clock | None = None,
    meters: MeterProvider | None = None,
    background: bool = False,
) -> AsyncIterator[EpochKit]:
    """Open a kit; renewals run when a test asks for them, unless in the background too.

    Args:
        root: Where the journal and the spool lie.
        epochs: Epochs that a put lasts.
        store: The store of an earlier kit.
        blobs: Another store than one in memory.
        clock: The clock of an earlier kit.
        meters: Where to measure.
        background: Renew in the background too.
    """
    clock = clock or Clock()
    store = store or EpochStore(clock, EPOCH_S, epochs)
    journal = await SqlJournal.open(root / "journal.db", clock_us=clock)
    watched = WatchedStore(blobs or store)
    settings = ArchiveSettings(
        pointer=root / "catalog",
        flush_interval_s=3600,
        first_retry_s=0.001,
        longest_retry_s=0.01,
        epochs=store.epochs,
    )
    archive = Archive(
        journal, watched, root / "spool", settings=settings, clock_us=clock, meters=meters
    )
    await archive.start()
    if not background:
        await archive.renewer.stop()
    kit = EpochKit(root, journal, watched, archive, settings)
    kit.store, kit.clock = store, clock
    try:
        yield kit
    finally:
        await archive.stop()
        await journal.close()
