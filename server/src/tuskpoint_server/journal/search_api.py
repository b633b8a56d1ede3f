"""What a journal does for search, whatever database it is.

The search index follows the checkpoints: what is saved is *due* until its document is
stored, in the same database and the same order of transactions. So nothing is lost between
the two, and what is found is looked up among the checkpoints that live at that moment.

All calls are coroutines and safe to use at the same time. `JOURNAL_UNAVAILABLE` can come
from every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from ..domain.memories import Memory, MemoryState
from ..domain.model import CheckpointKey, Value
from ..domain.search import Found, SearchScope
from ..domain.search_words import Words
from .search.records import (
    Candidate,
    Candidates,
    IndexStanding,
    MemoriesStanding,
    MemoryTally,
    Recalled,
    Unembedded,
    VectorRow,
)

__all__ = [
    "Candidate",
    "Candidates",
    "Document",
    "Due",
    "Embeddable",
    "Finding",
    "IndexStanding",
    "Indexing",
    "Memories",
    "MemoriesStanding",
    "MemoryTally",
    "Recalled",
    "Unembedded",
    "VectorRow",
]


@dataclass(frozen=True, slots=True)
class Due:
    """A checkpoint whose document is missing or out of date.

    Attributes:
        tenant: Whose it is.
        key: The checkpoint.
        since_us: Time of the content. A clock may stand or go back: it only orders.
        content: Digest of what the document is made of; tells whether it changed meanwhile.
        shown: Search may find it. Otherwise it is only to be crossed off: it is hidden, its
            thread is not searchable, or is the server's own.
        summary: Its summary.
        channels: Name and value of channels, those that this checkpoint changed first, as
            far as they are small and in the journal.
    """

    tenant: str
    key: CheckpointKey
    since_us: int
    content: bytes
    shown: bool
    summary: str = ""
    channels: tuple[tuple[str, Value], ...] = ()


@dataclass(frozen=True, slots=True)
class Document:
    """What is indexed of a checkpoint.

    Attributes:
        due: The checkpoint it was made for.
        body: Searchable text of the state.
        planned: The body is a plan in words, not JSON.
    """

    due: Due
    body: str = ""
    planned: bool = False


class Embeddable(Protocol):
    """The index as an embedder writes it."""

    async def unembedded(self, limit: int) -> list[Unembedded]:
        """Return documents without a vector, the oldest first."""

    async def embed(self, embedder: str, made: Sequence[tuple[Unembedded, bytes]]) -> None:
        """Store vectors of documents that are still as they were and have none."""

    async def adopt_embedder(self, embedder: str, dimension: int) -> int:
        """Drop vectors that do not go with an embedder; return how many.

        From now on only vectors of its dimension are stored, whoever sends them. Those that go
        are the ones that another embedder made and those of another dimension. What they were
        made of is embedded again.
        """

    async def forget_embedder(self) -> None:
        """Begin to do without an embedder: vectors stay, and nothing is asked of others."""

    async def sweep(self) -> int:
        """Remove what belongs to no checkpoint that search may find; return how many rows."""


class Indexing(Embeddable, Protocol):
    """The index being written: by one task."""

    async def due(self, limit: int) -> list[Due]:
        """Return checkpoints that are due, of all tenants, the oldest first."""

    async def due_before(self, tenant: str, before_us: int) -> int:
        """Return how many checkpoints of a tenant are due since before a time."""

    async def due_now(self, tenant: str) -> tuple[int, int]:
        """Return how many checkpoints of a tenant are due, and a time that is after them all.

        That time is not the clock's: what was journaled before the clock was set back is due
        since a time to come.
        """

    async def store(self, documents: Sequence[Document], *, remember: bool) -> int:
        """Store documents and cross their checkpoints off; return how many were stored.

        A checkpoint that changed meanwhile, or went, is left as it is. One that is not to
        be shown loses its document. A checkpoint without a vector that has the ID of one
        with a caller's vector (it was copied from it) gets the same.

        Args:
            documents: The documents.
            remember: Also note the summaries that MemWal is to be told: once for each
                pointer and text.
        """


class Finding(Protocol):
    """The index being read."""

    async def lexical(
        self, tenant: str, words: Words, scope: SearchScope, limit: int
    ) -> list[Found]:
        """Return checkpoints by words, best first; distance is 1 / (1 + BM25)."""

    async def by_vectors(
        self, tenant: str, candidates: Candidates, scope: SearchScope, limit: int
    ) -> list[Found]:
        """Return the first candidates that are live and in scope, in their order.

        Args:
            tenant: The tenant.
            candidates: Read only as far as needed, in a thread.
            scope: Which checkpoints may be found.
            limit: At most so many.
        """

    async def by_pointers(
        self, tenant: str, recalled: Sequence[Recalled], scope: SearchScope, limit: int
    ) -> list[Found]:
        """Return live checkpoints in scope that memories point to, in their order, each once.

        A memory counts only if its summary is the checkpoint's own, each run of white space
        as one space. Of checkpoints with one pointer all count, by thread.
        """

    async def dimension(self, tenant: str) -> int:
        """Return the dimension that the tenant's vectors must have; 0 if it may be any."""

    async def scan(self, tenant: str, after: int, limit: int) -> list[VectorRow]:
        """Return vectors with a greater number, by number."""

    async def scan_thread(self, tenant: str, thread_id: str) -> list[VectorRow]:
        """Return all vectors of a thread."""

    async def standing(self, tenant: str) -> IndexStanding:
        """Return how the index stands."""


class Memories(Protocol):
    """What MemWal is to be told: written by one task."""

    async def take(self, limit: int, *, unsure_first: bool = False) -> list[Memory]:
        """Return memories that are to be sent now, and note that a call begins to send them.

        Those that point to no checkpoint which search may find are removed instead. The
        longest due comes first, with others of its tenant; one that is unsure comes alone.

        Args:
            limit: At most so many.
            unsure_first: Rather one that is unsure than the longest due.
        """

    async def sent(self, jobs: Sequence[tuple[int, str]], due_us: int) -> None:
        """Note the jobs of memories by number, and when to ask for them."""

    async def again(
        self, numbers: Sequence[int], due_us: int, *, unsure: bool, failed: bool
    ) -> None:
        """Note that memories are to be sent again.

        Args:
            numbers: The memories.
            due_us: Not before this time.
            unsure: The call may have stored them; what was unsure stays so in any case.
            failed: It counts as an attempt.
        """

    async def underway(self, limit: int) -> list[Memory]:
        """Return memories that were sent and are to be asked for now, the longest due first."""

    async def ask_again(self, numbers: Sequence[int], due_us: int) -> None:
        """Note when to ask for sent memories again."""

    async def delivered(self, blobs: Sequence[tuple[int, str]]) -> None:
        """Note that memories can be recalled, by number, with their blobs."""

    async def refused(self, numbers: Sequence[int]) -> None:
        """Note that MemWal will not take memories."""

    async def take_up(self) -> int:
        """After a start: what was being sent is to be sent again, unsure; return how many."""

    async def next_due_us(self, states: Sequence[MemoryState]) -> int | None:
        """Return the time of the next step of memories in these states; `None`: no step."""

    async def standing(self, tenant: str) -> MemoriesStanding:
        """Return how the memories of a tenant stand."""

    async def pending(self, tenant: str) -> int:
        """Return how many memories of a tenant cannot be recalled yet, as far as is known."""

    async def tallies(self) -> list[MemoryTally]:
        """Return how many memories there are, by tenant and state; states without any left out."""
