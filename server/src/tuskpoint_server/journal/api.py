"""What a journal does for the rooms above it, whatever database it is.

All calls are coroutines and safe to use at the same time. A mutation returns after its
transaction is fsynced; it is never half-applied, and cancelling the caller does not
undo it. Refusals (`domain.errors.Refusal`) come with the reasons named here;
`JOURNAL_UNAVAILABLE` can come from every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..domain.model import (
    Checkpoint,
    CheckpointDraft,
    CheckpointKey,
    CheckpointQuery,
    DeltaHistory,
    Entry,
    PruneStrategy,
    Removed,
    Saved,
    Thread,
    ThreadDetail,
    ThreadState,
    View,
    Write,
)


@dataclass(frozen=True, slots=True)
class ListPosition:
    """Where a listing stands: past this ID, or at it and past this thread and namespace."""

    checkpoint_id: str
    thread_id: str
    checkpoint_ns: str


@dataclass(frozen=True, slots=True)
class Page:
    """Some checkpoints, in the order of their listing; `next` is `None` on the last page."""

    checkpoints: tuple[Checkpoint, ...]
    next: ListPosition | None


@dataclass(frozen=True, slots=True)
class ReplayQuery:
    """Which checkpoints of a thread to replay.

    Attributes:
        thread_id: The thread.
        checkpoint_ns: Only this namespace, if not `None`.
        first: Least ID; empty: from the beginning.
        last: Greatest ID; empty: to the end.
    """

    thread_id: str
    checkpoint_ns: str | None = None
    first: str = ""
    last: str = ""


@dataclass(frozen=True, slots=True)
class ThreadQuery:
    """Which threads to list; empty or `None` means: do not ask."""

    agent_id: str = ""
    label: str = ""
    state: ThreadState | None = None


@dataclass(frozen=True, slots=True)
class Swept:
    """Numbers of what a sweep removed."""

    contents: int = 0
    early_writes: int = 0
    requests: int = 0
    events: int = 0


class WritesEvicted(Exception):
    """A checkpoint cannot be replaced before its evicted writes are here again.

    Attributes:
        entry: The checkpoint, with the envelopes that hold them.
    """

    def __init__(self, entry: Entry) -> None:
        self.entry = entry
        super().__init__(f"writes of checkpoint {entry.key} were evicted")


class Journal(Protocol):
    """Durable record of what was acknowledged."""

    @property
    def backend(self) -> str:
        """Kind of database, such as "sqlite"."""

    @property
    def journal_id(self) -> str:
        """Identity of this journal; a recovered one has another."""

    async def close(self) -> None:
        """Finish running transactions and release the database."""

    async def size_bytes(self) -> int:
        """Return the bytes that the database takes."""

    # --- mutations -----------------------------------------------------------------

    async def save_checkpoint(
        self, tenant: str, draft: CheckpointDraft, restored: Sequence[Write] = ()
    ) -> Saved:
        """Insert or replace a checkpoint.

        Args:
            tenant: The tenant.
            draft: The checkpoint.
            restored: Its evicted writes, after `WritesEvicted`.

        Raises:
            Refusal: `VALUES_MISSING`, `HEAD_MOVED`, `THREAD_DELETED`,
                `VERSION_TYPE_CHANGED`, `INVALID_FIELD` (no ID can be minted).
            WritesEvicted: It replaces one whose writes the next envelope needs and that are
                not here; nothing is stored.
        """

    async def save_writes(self, tenant: str, key: CheckpointKey, writes: Sequence[Write]) -> Saved:
        """Insert pending writes: first wins at `idx` 0 and above, last wins below.

        Raises:
            Refusal: `THREAD_DELETED`.
        """

    async def set_label(self, tenant: str, key: CheckpointKey, label: str) -> Saved:
        """Set or clear a label; an empty `checkpoint_id` means the latest.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`.
        """

    async def delete_thread(self, tenant: str, thread_id: str) -> Removed:
        """Delete a thread and end its incarnation; nothing if there is none."""

    async def copy_thread(self, tenant: str, source: str, target: str, request_id: str) -> int:
        """Copy all checkpoints of a thread and return how many.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, `THREAD_EXISTS`, `REQUEST_ID_REUSED`.
        """

    async def prune_thread(self, tenant: str, thread_id: str, strategy: PruneStrategy) -> Removed:
        """Delete old checkpoints of a thread; nothing if there is none."""

    async def delete_runs(self, tenant: str, run_ids: Sequence[str]) -> Removed:
        """Delete the checkpoints of runs, over all threads."""

    async def set_retention(self, tenant: str, thread_id: str, retention_s: int) -> None:
        """Set the seconds without a change after which a thread is deleted; 0: never.

        It counts as a change of the thread.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """

    async def set_searchable(self, tenant: str, thread_id: str, searchable: bool) -> None:
        """Set whether search finds the checkpoints of a thread.

        It counts as a change of the thread if it is one.

        Raises:
            Refusal: `THREAD_NOT_FOUND`.
        """

    async def past_retention(self, limit: int) -> list[tuple[str, str]]:
        """Return tenant and name of threads that are past their retention."""

    async def delete_if_past(self, tenant: str, thread_id: str) -> Removed | None:
        """Delete a thread that is past its retention; `None` if it is not (any more)."""

    async def sweep(self, *, content_grace_s: float, early_write_ttl_s: float) -> Swept:
        """Remove contents that no checkpoint refers to, and what has expired."""

    # --- reads ---------------------------------------------------------------------

    async def load(self, tenant: str, key: CheckpointKey, view: View) -> Checkpoint | None:
        """Return a checkpoint, or `None`; an empty `checkpoint_id` means the latest.

        Where a value was evicted stands `EVICTED`; the entry then has the envelopes that
        hold it. So it is with all reads.
        """

    async def list_page(
        self,
        tenant: str,
        query: CheckpointQuery,
        view: View,
        after: ListPosition | None,
        *,
        max_count: int,
        max_bytes: int,
    ) -> Page:
        """Return the next checkpoints, greatest ID first (then thread and namespace).

        A page ends at `max_count` checkpoints or when their content passes `max_bytes`,
        but holds at least one if there is one. It may hold fewer than both allow, even
        none, and still have a `next`.
        """

    async def replay_page(
        self,
        tenant: str,
        query: ReplayQuery,
        view: View,
        after: ListPosition | None,
        *,
        max_count: int,
        max_bytes: int,
    ) -> Page:
        """Return the next checkpoints of a thread, least (ID, namespace) first.

        Pages end as those of `list_page` do.
        """

    async def delta_history(
        self, tenant: str, key: CheckpointKey, channels: Sequence[str]
    ) -> tuple[DeltaHistory, ...]:
        """Return the history of each channel, in the order asked."""

    async def thread(self, tenant: str, thread_id: str) -> ThreadDetail | None:
        """Return a thread, or `None` if it does not exist (any more)."""

    async def list_threads(
        self, tenant: str, query: ThreadQuery, after: str, limit: int
    ) -> list[Thread]:
        """Return threads whose ID is above `after`, by ID."""

    async def list_certified(
        self, tenant: str, thread_id: str, after: tuple[str, str] | None, limit: int
    ) -> list[Entry]:
        """Return certified checkpoints by (namespace, ID), above `after`, with envelopes."""
