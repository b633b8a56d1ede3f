"""What a journal does beyond saving and loading: lineage, hand-offs, snapshots, events.

As in `api`: all calls are coroutines, a mutation returns after its transaction is
fsynced, and `JOURNAL_UNAVAILABLE` can come from every call. A mutation with a
`request_id` gives a retry the first answer; `REQUEST_ID_REUSED` refuses another request
with the same ID.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from ..domain.lineage import Closure, Event, LineageTree, Snapshot
from ..domain.model import BlobLocation, CheckpointKey, Entry, Saved, StoredBlob, Value
from .waking import Waiter


class ValuesEvicted(Exception):
    """Values that are needed were evicted; nothing is stored.

    Attributes:
        entries: Checkpoints whose envelopes hold them.
    """

    def __init__(self, entries: Sequence[Entry]) -> None:
        self.entries = tuple(entries)
        super().__init__(f"values of {len(self.entries)} checkpoints were evicted")


Supplied = Mapping[bytes, Value]
"""Values by digest that were read from envelopes after `ValuesEvicted`."""


class LineageJournal(Protocol):
    """Where checkpoints come from, and making new ones from others."""

    async def closure(self, tenant: str, key: CheckpointKey) -> Closure | None:
        """Return what is needed to go on from a checkpoint; an empty ID means the latest.

        Where a value was evicted stands `EVICTED`; the entry has the envelopes then.
        `None`: there is no such checkpoint.

        Raises:
            Refusal: `LIMIT_EXCEEDED` if it is larger than a bundle.
        """

    async def fork(self, tenant: str, key: CheckpointKey, target: str, request_id: str) -> Saved:
        """Make a thread that begins with a checkpoint; an empty ID means the latest.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`, `THREAD_EXISTS`, `REQUEST_ID_REUSED`.
        """

    async def rollback(
        self,
        tenant: str,
        key: CheckpointKey,
        request_id: str,
        expected_head: str | None,
        supplied: Supplied,
    ) -> Saved:
        """Append a checkpoint with the state of an earlier one.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND`, `HEAD_MOVED`, `REQUEST_ID_REUSED`,
                `INVALID_FIELD` (no ID can be minted).
            ValuesEvicted: It needs values that are not here.
        """

    async def adopt(
        self,
        tenant: str,
        closure: Closure,
        sha256: str,
        target: str,
        agent_id: str,
        request_id: str,
    ) -> Saved:
        """Make a thread of a closure from elsewhere, with all its values.

        The lineage of its checkpoint says `adopted_from`. `sha256` is the descriptor's.

        Raises:
            Refusal: `THREAD_EXISTS`, `REQUEST_ID_REUSED`.
        """

    async def adopted(
        self,
        tenant: str,
        source: CheckpointKey,
        sha256: str,
        target: str,
        agent_id: str,
        request_id: str,
    ) -> Saved | None:
        """Return the first answer of `adopt` under this `request_id`; `None` if it is new.

        So that a retry fetches nothing. The arguments are those that make the request
        what it is.

        Raises:
            Refusal: `REQUEST_ID_REUSED`; `THREAD_EXISTS` if it is new and the target has
                checkpoints.
        """

    async def lineage(self, tenant: str, thread_id: str, max_steps: int) -> LineageTree | None:
        """Return the steps that lead to a thread and from it; `None` if there is none."""


class HandoffJournal(Protocol):
    """Bundles that were handed off."""

    async def handed_off(self, tenant: str, request_id: str, fingerprint: bytes) -> bytes | None:
        """Return the first answer of a hand-off under this `request_id`; `None` if it is new.

        Raises:
            Refusal: `REQUEST_ID_REUSED`.
        """

    async def keep_handoff(
        self,
        tenant: str,
        key: CheckpointKey,
        bundle: BlobLocation,
        parts: Sequence[BlobLocation],
        blobs: Sequence[StoredBlob],
        request_id: str,
        fingerprint: bytes,
        answer: bytes,
    ) -> bytes:
        """Keep a bundle's blobs as long as its thread lives, and the answer for a retry.

        Returns:
            The answer; the first one if the same request was answered meanwhile.

        Raises:
            Refusal: `CHECKPOINT_NOT_FOUND` if the thread was deleted meanwhile;
                `REQUEST_ID_REUSED`.
        """


@dataclass(frozen=True, slots=True)
class SnapshotQuery:
    """Which snapshots; empty means: do not ask."""

    session_id: str = ""
    hostname: str = ""
    working_directory: str = ""


@dataclass(frozen=True, slots=True)
class SnapshotDraft:
    """A snapshot to be made; fields as in `domain.lineage.Snapshot`."""

    thread_ids: tuple[str, ...]
    session_id: str = ""
    hostname: str = ""
    working_directory: str = ""
    metadata: bytes = b"{}"


class SnapshotJournal(Protocol):
    """Snapshots of several threads."""

    async def create_snapshot(self, tenant: str, draft: SnapshotDraft, request_id: str) -> Snapshot:
        """Capture the heads of threads at one instant.

        Raises:
            Refusal: `THREAD_NOT_FOUND`, `REQUEST_ID_REUSED`.
        """

    async def snapshot(self, tenant: str, snapshot_id: str) -> Snapshot | None:
        """Return a snapshot, or `None`."""

    async def list_snapshots(
        self, tenant: str, query: SnapshotQuery, below: str, limit: int
    ) -> list[Snapshot]:
        """Return snapshots, newest first, whose ID is below `below` if that is not empty."""

    async def restore_snapshot(
        self, tenant: str, snapshot_id: str, *, rollback: bool, request_id: str, supplied: Supplied
    ) -> tuple[Saved, ...]:
        """Make each member a new thread, or roll its own thread back to it; all or none.

        Raises:
            Refusal: `SNAPSHOT_NOT_FOUND`, `THREAD_NOT_FOUND`, `REQUEST_ID_REUSED`.
            ValuesEvicted: It needs values that are not here.
        """

    async def delete_snapshot(self, tenant: str, snapshot_id: str) -> bool:
        """Delete a snapshot; tell whether there was one."""


@dataclass(frozen=True, slots=True)
class Extent:
    """What is kept of a thread's events.

    Attributes:
        incarnation: The thread's incarnation.
        deleted: It was deleted.
        begun_seq: Sequence before the first change of the incarnation.
        compacted_seq: Events up to here are gone.
        seq: The last event.
    """

    incarnation: int
    deleted: bool
    begun_seq: int
    compacted_seq: int
    seq: int


class EventsCompacted(Exception):
    """Events after the position asked for are gone.

    Attributes:
        extent: What is kept.
    """

    def __init__(self, extent: Extent) -> None:
        self.extent = extent
        super().__init__(f"events up to {extent.compacted_seq} are gone")


class EventJournal(Protocol):
    """What happened on threads, in the order of their sequences."""

    @property
    def journal_id(self) -> str:
        """Identity of the journal."""

    async def extent(self, tenant: str, thread_id: str) -> Extent | None:
        """Return what is kept of a thread's events; `None` if it never was."""

    async def events(self, tenant: str, thread_id: str, after: int, limit: int) -> list[Event]:
        """Return the events after a position, the first of them first.

        Raises:
            EventsCompacted: Some of them are gone.
        """

    def subscribe(self, tenant: str, thread_id: str) -> AbstractContextManager[Waiter]:
        """Be woken by the events of a thread that are committed inside the context.

        Whoever reads after entering, and again after each wake, misses none.
        """
