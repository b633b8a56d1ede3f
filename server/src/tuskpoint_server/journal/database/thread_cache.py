"""The thread cache: recent threads that the writer decides against.

The threads stay in memory between batches, bounded in bytes; a failed commit drops all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping

from ...core.model import ThreadName
from ...core.webhooks import Subscriptions
from .heads import Heads
from .pending_writes import RecentWrites
from .thread_rows import Place, ThreadCacheEntry

CACHED_BYTES = 64 * 1024 * 1024


def _is_bound_elsewhere(entry: ThreadCacheEntry, now: ThreadCacheEntry) -> bool:
    """Return whether another server has bound the rows of a thread; the entry lacks their MACs."""
    return entry.row.bound_rows is None and now.row.bound_rows is not None


class ThreadCache:
    """Recent threads by (tenant, thread), the most recently used last.

    A commit costs work for the threads that it changed, not for all threads in the cache.

    Attributes:
        full: Tenants that have as many threads as they may have, with that limit.
        heads: Checkpoints that loads read without the database.
        subscriptions: The webhooks that get events of threads.
    """

    def __init__(self, limit_bytes: int = CACHED_BYTES) -> None:
        self.full: dict[str, int] = {}
        self.heads = Heads()
        self.subscriptions = Subscriptions()
        self._limit = limit_bytes
        self._logs: OrderedDict[tuple[str, str], ThreadCacheEntry] = OrderedDict()
        self._used: set[tuple[str, str]] = set()
        self._size = 0

    def get(self, tenant: str, thread_id: str) -> ThreadCacheEntry | None:
        """Return a thread from the cache."""
        key = (tenant, thread_id)
        log = self._logs.get(key)
        if log is not None:
            self._logs.move_to_end(key)
            self._used.add(key)
        return log

    def put(self, log: ThreadCacheEntry) -> None:
        """Add a thread, in place of its old entry."""
        key = (log.row.tenant, log.row.thread_id)
        self.forget(*key)
        self._logs[key] = log
        self._used.add(key)

    def keep_heads(self, changed: Mapping[ThreadName, Place]) -> None:
        """Keep checkpoints that a commit saved, for loads."""
        for name, place in changed.items():
            if (log := self._logs.get(name)) is not None:
                self.heads.add(log, place)

    def refresh(self, name: ThreadName, now: ThreadCacheEntry | None) -> None:
        """Keep the entry of a thread if the thread's current row is the row that the entry knows.

        `now`: a new entry from the current row; `None`: the thread has no row.
        """
        entry = self._logs.get(name)
        if now is None:
            self.forget(*name)
        elif entry is None or entry.row.number != now.row.number:
            self.put(now)
        elif entry.row.version != now.row.version or _is_bound_elsewhere(entry, now):
            if entry.row.seq != now.row.seq:
                now.writes, now.shared_seq = entry.writes, now.row.seq
            self.put(now)
        else:  # other servers may have moved the thread's watermarks
            if entry.row.bound_rows != now.row.bound_rows:
                # early writes expired, which does not count as a change
                entry.writes = RecentWrites()
            entry.row, entry.early = now.row, now.early
            entry.damage, entry.put_back = now.damage, now.put_back
            entry.stored_through = now.stored_through

    def forget(self, tenant: str, thread_id: str) -> None:
        """Drop a thread."""
        log = self._logs.pop((tenant, thread_id), None)
        if log is not None:
            self._size -= log.counted

    def clear(self) -> None:
        """Drop all threads."""
        self._logs.clear()
        self._used.clear()
        self._size = 0

    def trim(self) -> None:
        """Drop the least recently used threads beyond the bound."""
        for key in self._used:
            log = self._logs.get(key)
            if log is not None:
                before, log.counted = log.counted, log.size + log.writes.size_bytes
                self._size += log.counted - before
        self._used.clear()
        while self._size > self._limit:
            self.forget(*next(iter(self._logs)))
