"""Saving and loading, as the service calls it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from ...domain.model import (
    Checkpoint,
    CheckpointDraft,
    CheckpointKey,
    CheckpointQuery,
    DeltaHistory,
    Saved,
    View,
    Write,
)
from ...domain.threads import Thread, ThreadDetail
from ...domain.value_groups import Keyframes
from ..database.database import Database
from . import delta_history, load, save, threads
from .drafts import checkpoint_change, prepare_writes, written_bytes
from .load import ListPosition, Page
from .threads import ThreadQuery

_T = TypeVar("_T")

LARGE_BYTES = 64 * 1024
"""Content from which on a draft is prepared, or a checkpoint read, in a thread."""


class Checkpoints:
    """Checkpoints of a journal.

    All calls are coroutines and safe to use at the same time. A mutation returns after its
    commit is fsynced; cancelling the caller does not undo it. `JOURNAL_UNAVAILABLE` can come
    from every call.

    Attributes:
        keyframes: What the next values of channels are stored as patches on.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.keyframes = Keyframes()

    async def save_checkpoint(self, tenant: str, draft: CheckpointDraft) -> Saved:
        """Insert or replace a checkpoint.

        Raises:
            Refusal: `VALUES_MISSING`, `HEAD_MOVED`, `THREAD_DELETED`,
                `VERSION_TYPE_CHANGED`, `INVALID_FIELD` (no ID can be minted).
        """
        # Only a minted ID needs randomness; asking the system for it takes as long as the SQL.
        entropy = 0 if draft.key.checkpoint_id else self._database.random_bits()
        carried = sum(len(getattr(one.content, "data", b"")) for one in draft.channels)
        change = await _prepared(
            partial(checkpoint_change, tenant, draft, self.keyframes, entropy),
            carried + sum(len(write.value.data) for write in draft.writes),
        )
        return await self._database.change(
            lambda batch: save.save_checkpoint(batch, change), change.size_bytes
        )

    async def save_writes(self, tenant: str, key: CheckpointKey, writes: Sequence[Write]) -> Saved:
        """Insert pending writes: the first wins at `idx` 0 and above, the last below.

        Raises:
            Refusal: `THREAD_DELETED`, `LIMIT_EXCEEDED`.
        """
        carried = sum(len(write.value.data) for write in writes)
        prepared = await _prepared(partial(prepare_writes, writes), carried)
        return await self._database.change(
            lambda batch: save.save_writes(batch, tenant, key, prepared),
            written_bytes(prepared),
        )

    async def set_label(self, tenant: str, key: CheckpointKey, label: str) -> Saved:
        """Set or clear a label; an empty `checkpoint_id` means the latest.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`.
        """
        return await self._database.change(lambda batch: save.set_label(batch, tenant, key, label))

    async def load(self, tenant: str, key: CheckpointKey, view: View) -> Checkpoint | None:
        """Return a checkpoint, or `None`; see `load.load`."""
        asked = partial(load.load, tenant=tenant, key=key, view=view)
        try:
            return self._database.glance(partial(asked, max_bytes=LARGE_BYTES))
        except load.TooLargeError:
            return await self._database.query(asked)

    async def read_page(
        self,
        tenant: str,
        query: CheckpointQuery,
        view: View,
        after: ListPosition | None,
        *,
        max_count: int,
        max_bytes: int,
    ) -> Page:
        """Return the next checkpoints of a listing or a replay; see `load.read_page`."""
        bounds = {"max_count": max_count, "max_bytes": max_bytes}
        return await self._database.query(
            lambda connection: load.read_page(connection, tenant, query, view, after, **bounds)
        )

    async def delta_history(
        self, tenant: str, key: CheckpointKey, channels: Sequence[str]
    ) -> tuple[DeltaHistory, ...]:
        """Return the history of each channel, in the order asked."""
        return await self._database.query(
            lambda connection: delta_history.delta_history(connection, tenant, key, channels)
        )

    async def thread(self, tenant: str, thread_id: str) -> ThreadDetail | None:
        """Return a thread, or `None` if it does not exist (any more)."""
        return await self._database.query(
            lambda connection: threads.thread(connection, tenant, thread_id)
        )

    async def list_threads(
        self, tenant: str, query: ThreadQuery, after: str, limit: int
    ) -> list[Thread]:
        """Return threads whose ID is above `after`, by ID."""
        return await self._database.query(
            lambda connection: threads.list_threads(connection, tenant, query, after, limit)
        )


async def _prepared(prepare: Callable[[], _T], size_bytes: int) -> _T:
    return await asyncio.to_thread(prepare) if size_bytes >= LARGE_BYTES else prepare()
