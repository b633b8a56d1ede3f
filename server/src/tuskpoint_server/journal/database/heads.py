"""Checkpoints in memory, as their last saves left them: loads read them without the database.

An agent that has just saved a checkpoint often loads it next. The content of the answer is kept
here for a second, or until a commit that does more than save, such as a flush. Later loads read the
database, and so notice damage in it. In a journal that several servers share, a load first compares
the `binding` of the thread's row, which each change of the thread replaces.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import NamedTuple

from ...core.limits import KIB, MIB
from ...core.model import CheckpointEntry, CheckpointKey, Lineage, ThreadName, Value
from .pending_writes import StoredWrite
from .thread_rows import Place, ThreadCacheEntry

HEAD_BYTES = 64 * KIB
"""Largest content of a kept checkpoint."""

_KEPT_S = 1.0
_ALL_BYTES = 16 * MIB
_MAX_WRITES = 64  # most writes of a kept checkpoint; each commit copies them
_VALUE_BYTES = 200  # estimate for a value, without its data
_ENTRY_BYTES = 1000  # estimate for a head, without its state and metadata

HeadContent = Value | StoredWrite
"""A value as the call sent it, or as the packed data of a write."""


class Head(NamedTuple):
    """The latest checkpoint of a namespace, not certified in any part.

    `writes` have no data: their values, like the values of the state, are found by their digests.
    `until_s`: time by `Heads.now_s` at which the head is too old. `binding`: the binding of the
    thread's row, as the commit left it.
    """

    thread: int
    place: Place
    entry: CheckpointEntry
    state: bytes
    writes: tuple[StoredWrite, ...]
    until_s: float
    binding: bytes | None


class Heads:
    """The last saved checkpoint of each thread, if it is the latest of its namespace.

    The writer's thread adds and withdraws heads; any thread reads them. A head is withdrawn before
    a commit that changes its thread starts, and is added again once that commit is durable. So a
    read returns what the last commit of this server left, at the moment of the read.

    Args:
        now_s: A clock that never goes back.
    """

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self.now_s = now_s
        self._heads: dict[ThreadName, Head] = {}
        self._values: dict[ThreadName, dict[bytes, HeadContent]] = {}
        self._size = 0

    def bring(self, name: ThreadName, digest: bytes, value: HeadContent) -> None:
        """Keep a value of a thread for the thread's next head, which may name the value."""
        data = value.data or b""
        if len(data) <= HEAD_BYTES:
            values = self._values.get(name)
            if values is None:
                values = self._values.setdefault(name, {})
            if digest not in values:
                values[digest] = value
                self._grow(_VALUE_BYTES + len(data))

    def withdraw(self, names: Iterable[ThreadName]) -> None:
        """Drop the heads of threads whose changes are about to be committed."""
        for name in names:
            self._heads.pop(name, None)

    def drop(self, tenant: str, head: Head) -> None:
        """Drop a head that is no longer the latest, and the values of its thread."""
        name = (tenant, head.entry.key.thread_id)
        if self._heads.get(name) is head:
            self._heads.pop(name, None)
            self._values.pop(name, None)

    def clear(self) -> None:
        """Drop all heads and values."""
        self._heads, self._values, self._size = {}, {}, 0

    def has(self, name: ThreadName) -> bool:
        """Return whether a checkpoint of a thread is in memory, with or without its values."""
        return name in self._heads

    def add(self, log: ThreadCacheEntry, place: Place) -> None:
        """Keep a committed checkpoint, if it is the latest and all of its content is known."""
        row, checkpoint, pending = log.row, log.known.get(place), log.writes.get(place)
        if checkpoint is None or pending is None or place[1] != log.greatest.get(place[0]):
            return
        if pending.count > _MAX_WRITES or pending.seq < log.shared_seq:
            return  # another server may have stored writes that this server does not know
        writes = tuple(pending.all())
        seqs = [checkpoint.seq, *(write.seq for write in writes)]
        if row.deleted or checkpoint.held is not None or min(seqs) <= row.certified_seq:
            return  # segments may contain parts of the checkpoint, and an answer names segments
        entry = CheckpointEntry(
            key=CheckpointKey(row.thread_id, *place),
            parent_id=checkpoint.parent_id,
            incarnation=row.incarnation,
            seq=max(seqs),
            certified=False,
            created_us=checkpoint.created_us,
            metadata=checkpoint.metadata,
            label=checkpoint.label,
            summary=checkpoint.summary,
            lineage=Lineage(
                checkpoint.forked_from, checkpoint.rolled_back_from, checkpoint.adopted_from
            ),
            agent_id=row.agent_id,
        )
        self._heads[row.tenant, row.thread_id] = Head(
            *(row.number, place, entry, checkpoint.state, writes, self.now_s() + _KEPT_S),
            row.binding,
        )
        # A head that replaces another head is counted too, so memory is freed sooner, not later.
        self._grow(_ENTRY_BYTES + len(checkpoint.state) + len(checkpoint.metadata))

    def find(self, tenant: str, key: CheckpointKey) -> tuple[Head, dict[bytes, HeadContent]] | None:
        """Return a head, and values of its thread; an empty `checkpoint_id` means the latest."""
        name = (tenant, key.thread_id)
        head = self._heads.get(name)
        if head is None or key.checkpoint_ns != head.place[0] or self.now_s() > head.until_s:
            return None
        if key.checkpoint_id and key.checkpoint_id != head.place[1]:
            return None
        return head, self._values.get(name, {})

    def _grow(self, size_bytes: int) -> None:
        self._size += size_bytes
        if self._size > _ALL_BYTES:
            self.clear()
