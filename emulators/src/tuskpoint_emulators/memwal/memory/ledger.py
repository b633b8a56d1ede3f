"""The memories: permanent blobs, and an index of the blobs that can be dropped."""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from ..clock import Clock
from .blob_ids import blob_id_of
from .embedding import Vector, embed

Shelf = tuple[str, str]
"""Owner and namespace; a search looks at one shelf only."""


@dataclass(slots=True)
class Memory:
    """A blob and its entry in the index.

    Attributes:
        blob_id: Its ID on Walrus.
        owner: The owner of the memory.
        namespace: The owner's namespace that has the memory.
        text: The text; `None`: bytes that the relayer cannot decrypt.
        vector: The vector that searches compare.
        size: Bytes of content.
        created_at: First time at which a recall finds the memory, in seconds since 1970.
        expires_at: When the blob expires; `None`: never.
    """

    blob_id: str
    owner: str
    namespace: str
    text: str | None
    vector: Vector
    size: int
    created_at: float
    expires_at: float | None


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory, and its cosine distance from the searched vector: 0 to 2."""

    memory: Memory
    distance: float


@dataclass(frozen=True, slots=True)
class RestoreCounts:
    """Result of indexing a shelf again: counts of blobs."""

    restored: int
    skipped: int
    failed: int
    total: int
    truncated: bool


@dataclass(frozen=True, slots=True)
class Namespace:
    """A namespace, and the index's counts of its memories."""

    name: str
    memories: int
    size: int
    updated_at: float


class Ledger:
    """All memories.

    Args:
        clock: Dates and expires the memories.
        lifetime_s: Seconds until a memory expires; `None`: never.
    """

    def __init__(self, clock: Clock, lifetime_s: float | None = None) -> None:
        self._clock = clock
        self._lifetime_s = lifetime_s
        self._blobs: dict[str, Memory] = {}
        self._index: dict[Shelf, dict[str, Memory]] = {}
        self._matrices: dict[Shelf, Vector] = {}
        self._sizes: Counter[str] = Counter()
        self.changes = 0
        """How often the index changed."""

    def store(
        self,
        owner: str,
        namespace: str,
        text: str | None,
        *,
        vector: Vector | None = None,
        size: int | None = None,
        blob_id: str | None = None,
        created_at: float | None = None,
    ) -> Memory:
        """Store a memory and index it.

        Args:
            owner: The owner of the memory.
            namespace: The owner's namespace for the memory.
            text: The text; `None`: bytes that the relayer cannot decrypt.
            vector: The vector that searches compare; by default the text's vector.
            size: Bytes of content; by default the size of the text.
            blob_id: By default a new ID.
            created_at: By default the present time.
        """
        stored_at = self._clock.now() if created_at is None else created_at
        memory = Memory(
            blob_id=blob_id_of(secrets.token_hex(16)) if blob_id is None else blob_id,
            owner=owner,
            namespace=namespace,
            text=text,
            vector=embed(text or "") if vector is None else vector,
            size=len((text or "").encode()) if size is None else size,
            created_at=stored_at,
            expires_at=None if self._lifetime_s is None else stored_at + self._lifetime_s,
        )
        self._blobs[memory.blob_id] = memory
        self._sizes[owner] += memory.size
        self._shelve(memory)
        return memory

    def memories(self, owner: str | None = None, namespace: str | None = None) -> Iterator[Memory]:
        """Iterate over the memories in the index, oldest first on each shelf."""
        for (shelf_owner, shelf_namespace), rows in self._index.items():
            if owner in (None, shelf_owner) and namespace in (None, shelf_namespace):
                yield from rows.values()

    def texts(self, namespace: str | None = None) -> list[str]:
        """Return the texts in the index."""
        return [
            memory.text for memory in self.memories(namespace=namespace) if memory.text is not None
        ]

    def stored_bytes(self, owner: str) -> int:
        """Return the bytes that an owner has stored."""
        return self._sizes[owner]

    def nearest(self, owner: str, namespace: str, vector: Vector, limit: int) -> list[Hit]:
        """Return the memories of a shelf that are nearest to a vector, nearest first."""
        shelf = (owner, namespace)
        rows = self._index.get(shelf)
        length = float(np.linalg.norm(vector))
        if not rows or limit < 1 or length == 0:
            return []
        matrix = self._matrices.get(shelf)
        if matrix is None:
            matrix = self._matrices[shelf] = np.stack(
                [_unit(memory.vector) for memory in rows.values()]
            )
        distances = 1.0 - matrix @ (vector / np.float32(length))
        memories = list(rows.values())
        order = np.argsort(distances, kind="stable")[:limit]
        return [
            Hit(memories[index], min(max(float(distances[index]), 0.0), 2.0)) for index in order
        ]

    def sift(self, hits: list[Hit]) -> tuple[list[Hit], int]:
        """Return the readable hits, and the number of unreadable ones.

        Hits whose blobs expired or cannot be decrypted leave the index, as in MemWal.
        """
        readable = []
        for hit in hits:
            if hit.memory.text is None or self._is_gone(hit.memory):
                self._unshelve(hit.memory)
            else:
                readable.append(hit)
        return readable, len(hits) - len(readable)

    def forget(self, owner: str, namespace: str) -> int:
        """Drop a shelf from the index and return how many memories it held; the blobs stay."""
        self._matrices.pop((owner, namespace), None)
        self.changes += 1
        return len(self._index.pop((owner, namespace), {}))

    def restore(self, owner: str, namespace: str, limit: int) -> RestoreCounts:
        """Index up to `limit` blobs of a shelf that the index lacks."""
        present = self._index.get((owner, namespace), {})
        blobs = [
            memory
            for memory in self._blobs.values()
            if (memory.owner, memory.namespace) == (owner, namespace) and not self._is_gone(memory)
        ]
        missing = [memory for memory in blobs if memory.blob_id not in present]
        skipped = len(blobs) - len(missing)
        page = missing[:limit]
        readable = [memory for memory in page if memory.text is not None]
        for memory in readable:
            self._shelve(memory)
        return RestoreCounts(
            restored=len(readable),
            skipped=skipped,
            failed=len(page) - len(readable),
            total=len(blobs),
            truncated=len(page) < len(missing),
        )

    def expire(self, owner: str | None = None, namespace: str | None = None) -> int:
        """Expire the blobs of all memories in the index, and return their number."""
        now = self._clock.now()
        expired = list(self.memories(owner, namespace))
        for memory in expired:
            memory.expires_at = now
        return len(expired)

    def namespaces(self, owner: str) -> list[Namespace]:
        """Return the namespaces in which an owner has memories, the longest unchanged first."""
        namespaces = [
            Namespace(
                name=name,
                memories=len(rows),
                size=sum(memory.size for memory in rows.values()),
                updated_at=max(memory.created_at for memory in rows.values()),
            )
            for (shelf_owner, name), rows in self._index.items()
            if shelf_owner == owner and rows
        ]
        return sorted(namespaces, key=lambda namespace: (namespace.updated_at, namespace.name))

    def _is_gone(self, memory: Memory) -> bool:
        return memory.expires_at is not None and memory.expires_at <= self._clock.now()

    def _shelve(self, memory: Memory) -> None:
        shelf = (memory.owner, memory.namespace)
        self._index.setdefault(shelf, {})[memory.blob_id] = memory
        self._matrices.pop(shelf, None)
        self.changes += 1

    def _unshelve(self, memory: Memory) -> None:
        shelf = (memory.owner, memory.namespace)
        self._index.get(shelf, {}).pop(memory.blob_id, None)
        self._matrices.pop(shelf, None)
        self.changes += 1


def _unit(vector: Vector) -> Vector:
    length = float(np.linalg.norm(vector))
    return vector / np.float32(length) if length else vector
