"""What search is asked and what it answers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from .model import CheckpointKey


class SearchMode(IntEnum):
    """How a search is made. Numbers are those of the contract."""

    LEXICAL = 1
    VECTOR = 2
    MEMWAL = 3


class Metric(IntEnum):
    """How far apart two vectors are. Numbers are those of the contract."""

    COSINE = 1
    L2 = 2


@dataclass(frozen=True, slots=True)
class SearchScope:
    """Which checkpoints a search may find.

    Attributes:
        thread_id: Only this thread, if not empty.
        agent_id: Only threads of this agent, if not empty.
        filter: Top-level keys that metadata must have, with typed equal values.
    """

    thread_id: str = ""
    agent_id: str = ""
    filter: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SearchQuery:
    """A search.

    Attributes:
        text: Words to search with; empty if `vector` is not.
        vector: Vector to search with, packed; empty if `text` is not.
        scope: Which checkpoints it may find.
        limit: At most so many results.
        mode: How to search; `None` leaves it to the service.
        metric: Of vectors.
    """

    text: str = ""
    vector: bytes = b""
    scope: SearchScope = SearchScope()
    limit: int = 5
    mode: SearchMode | None = None
    metric: Metric = Metric.COSINE


@dataclass(frozen=True, slots=True)
class Found:
    """One pointer.

    Attributes:
        key: The checkpoint; it was live when it was found.
        summary: Its summary.
        content: Its searchable text.
        metadata: A JSON object, as saved.
        distance: From the query; smaller is nearer.
        truncated: The state holds more than `content`: of what is long, the latest part.
    """

    key: CheckpointKey
    summary: str
    content: str
    metadata: bytes
    distance: float
    truncated: bool = False


@dataclass(frozen=True, slots=True)
class SearchAnswer:
    """What a search found.

    Attributes:
        results: Nearest first.
        mode: How it was made.
        metric: Name of the metric of distances.
        unindexed: Checkpoints of the tenant that the index does not know yet.
        truncated: More may exist that could not be looked at.
        fell_back: Why it was made in another mode than the server is set up for; empty if
            it was not.
        dropped: Memories that MemWal has and could not return.
    """

    results: tuple[Found, ...]
    mode: SearchMode
    metric: str
    unindexed: int = 0
    truncated: bool = False
    fell_back: str = ""
    dropped: int = 0
