"""What goes between the index and those who write and read it."""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Protocol

from ...domain.model import CheckpointKey, Value
from ...domain.search import MemoryState


@dataclass(frozen=True, slots=True)
class Due:
    """A checkpoint whose document is missing or says something else.

    Attributes:
        number: Of the checkpoint's row.
        thread: Number of its thread.
        tenant: Whose it is.
        key: The checkpoint.
        seq: Change that made its row as it was read.
        summary: Its summary.
        channels: Name and value of channels, its plan first, then those that it changed.
            Of a long value they hold the latest part.
        truncated: More belongs to its state than `channels` holds.
    """

    number: int
    thread: int
    tenant: str
    key: CheckpointKey
    seq: int
    summary: str = ""
    channels: tuple[tuple[str, Value], ...] = ()
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Walk:
    """A thread whose checkpoints are gone through by key, because its log says too little.

    Attributes:
        through: All changes up to here are indexed once it is done.
        after: Namespace and ID of the last checkpoint that was looked at.
        done: None is left.
    """

    through: int
    after: tuple[str, str] = ("", "")
    done: bool = False


@dataclass(frozen=True, slots=True)
class Advance:
    """How far the index of a thread comes with a batch.

    Attributes:
        thread: Number of the thread.
        tenant: Whose it is.
        thread_id: The thread.
        before: Its watermark when it was read.
        through: Its watermark once the batch is stored.
        walk: It is gone through by key; the watermark moves at the end of that.
    """

    thread: int
    tenant: str
    thread_id: str
    before: int
    through: int
    walk: Walk | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """The next changes of some threads' logs, as far as the index has to know of them.

    Attributes:
        due: Checkpoints to be indexed.
        advances: How far the threads come.
        complete: No thread is left that has more.
    """

    due: tuple[Due, ...] = ()
    advances: tuple[Advance, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class Document:
    """What is indexed of a checkpoint.

    Attributes:
        due: The checkpoint it was made for.
        body: Searchable text of the state.
        planned: The body is a plan in words, not JSON.
        truncated: The state holds more text than the body.
    """

    due: Due
    body: str = ""
    planned: bool = False
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class Unembedded:
    """A document that has no vector yet.

    Attributes:
        number: Of the document.
        tenant: Whose it is.
        text: What to embed.
    """

    number: int
    tenant: str
    text: str


@dataclass(frozen=True, slots=True)
class VectorRow:
    """A vector as a scan reads it."""

    number: int
    vector: bytes


@dataclass(frozen=True, slots=True)
class Candidate:
    """A vector that a scan found near; `number` is that of its row."""

    number: int
    distance: float


class Candidates(Protocol):
    """Candidates, nearest first. What compares vectors makes them, and is no part of a journal."""

    def __iter__(self) -> Iterator[Candidate]:
        """Go through all."""

    def among(self, numbers: AbstractSet[int]) -> Iterator[Candidate]:
        """Go through those that have one of these numbers, doing no work for others."""


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory that MemWal returned, parsed and not yet believed."""

    pointer: bytes
    summary: str
    distance: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """What the index of a tenant lacks: checkpoints, and since when the oldest waits."""

    tenant: str
    checkpoints: int
    since_us: int


@dataclass(frozen=True, slots=True)
class IndexStanding:
    """How the index of a tenant stands; times in microseconds since the Unix epoch.

    `truncated`: checkpoints of whose state only a part is indexed.
    """

    unindexed: int = 0
    oldest_unindexed_us: int | None = None
    indexed: int = 0
    vectors: int = 0
    truncated: int = 0


@dataclass(frozen=True, slots=True)
class MemoriesStanding:
    """How the memories of a tenant stand; refused ones are left out."""

    waiting: int = 0
    underway: int = 0
    delivered: int = 0
    oldest_waiting_us: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryTally:
    """How many memories of a tenant are in a state."""

    tenant: str
    state: MemoryState
    memories: int
