"""An archive over a store whose blobs expire, and a clock that tests advance."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.kit.archives import House, house, shown
from tests.kit.blobs.epoch_store import EpochStore
from tests.kit.drafts import TENANT, draft, key, write
from tests.kit.journal import Clock
from tuskpoint_server.archive.renew.repair import Round
from tuskpoint_server.blobs.api import BlobStore
from tuskpoint_server.core.model import View

EPOCH_S = 86_400.0
EPOCH_US = 86_400_000_000


class Years:
    """An archive over a store with epochs, and the steps of a test with it."""

    def __init__(self, home: House, store: EpochStore) -> None:
        self.home = home
        self.store = store
        self.removal = home.journal.removal

    def advance(self, epochs: float) -> None:
        self.home.clock.now_us += round(epochs * EPOCH_US)

    async def save(
        self,
        checkpoint_id: str,
        parent_id: str = "",
        *,
        thread_id: str = "t",
        content: bytes = b"content",
        question: bytes = b"",
    ) -> None:
        writes = (write("asked", question),) if question else ()
        await self.home.journal.save_checkpoint(
            TENANT,
            draft(checkpoint_id, parent_id, {"x": content}, thread_id=thread_id, writes=writes),
        )

    async def flush(self) -> None:
        await self.home.flush()

    async def look(self) -> Round:
        return await self.home.archive.lifetime.check_now()

    async def keep(self) -> Round:
        """Check the blobs, and wait until all values that are due are stored again."""
        done = await self.look()
        await self.flush()
        return done

    async def delete(self, thread_id: str) -> None:
        await self.removal.delete_thread(TENANT, thread_id)
        await self.flush()

    async def evict(self) -> int:
        """Evict all values that may go; return the number of their bytes."""
        return await self.home.evict()

    async def load(self, checkpoint_id: str, thread_id: str = "t") -> object:
        """Load a checkpoint from the journal, in the form of `shown`."""
        checkpoint = await self.home.journal.load(TENANT, key(checkpoint_id, thread_id), View.FULL)
        assert checkpoint is not None
        return shown(checkpoint)

    async def stored(self, checkpoint_id: str, thread_id: str = "t") -> object:
        """Read a certified checkpoint from the blob store alone, in the form of `shown`."""
        return shown(await self.home.from_blobs(key(checkpoint_id, thread_id)))

    async def blob_of(self, checkpoint_id: str, thread_id: str = "t") -> str:
        checkpoint = await self.home.journal.load(TENANT, key(checkpoint_id, thread_id), View.ENTRY)
        assert checkpoint is not None
        return checkpoint.entry.segments[0].blob_id

    async def blobs(self) -> set[str]:
        """Return the blobs that contain members of the journal."""
        return {str(row[0]) for row in await self.home.ask("SELECT blob_id FROM members")}


@asynccontextmanager
async def years(
    directory: Path,
    *,
    epochs: int = 3,
    store: EpochStore | None = None,
    blobs: BlobStore | None = None,
    clock: Clock | None = None,
    max_put_bytes: int | None = None,
    background: bool = False,
    **changed: Any,
) -> AsyncIterator[Years]:
    """Open an archive, which checks for due blobs when a test asks for the check.

    Args:
        directory: Directory of the journal and the spool.
        epochs: Epochs that a put lasts.
        store: The store of an earlier archive.
        blobs: A store to use instead of a store in memory, or a cache in front of it.
        clock: The clock of an earlier archive.
        max_put_bytes: Most bytes of a put.
        background: Whether to check in the background too.
        **changed: Settings of the archive, as for `house`.
    """
    clock = clock or Clock()
    store = store or EpochStore(clock, EPOCH_S, epochs, max_put_bytes)
    async with house(directory, blobs or store, clock, epochs=store.epochs, **changed) as home:
        if not background:
            await home.archive.lifetime.stop()
        yield Years(home, store)
