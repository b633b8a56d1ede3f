"""The cache of recent threads is bounded, at a cost that does not depend on their number."""

from __future__ import annotations

import pytest

from tuskpoint_server.journal.database.thread_cache import ThreadCache
from tuskpoint_server.journal.database.thread_rows import (
    CachedCheckpoint,
    ThreadCacheEntry,
    ThreadRow,
)


def _log(thread_id: str) -> ThreadCacheEntry:
    row = ThreadRow(1, "team", thread_id, 1, created_us=1, updated_us=1)
    return ThreadCacheEntry(row, new=False, early=False)


def _known(size: int) -> CachedCheckpoint:
    return CachedCheckpoint(1, "", b"", b"x" * size, "", "", b"", "", "", 1)


class _Counting(ThreadCacheEntry):
    """A log that counts the reads of its size."""

    size_reads = 0
    held = 0

    @property
    def size(self) -> int:
        type(self).size_reads += 1
        return self.held

    @size.setter
    def size(self, value: int) -> None:
        self.held = value


def test_a_trim_looks_only_at_the_logs_used_since_the_last_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    logs = ThreadCache()
    for number in range(1000):
        row = ThreadRow(1, "team", f"t-{number}", 1, created_us=1, updated_us=1)
        logs.put(_Counting(row, new=False, early=False))
    logs.trim()
    monkeypatch.setattr(_Counting, "size_reads", 0)
    assert logs.get("team", "t-7") is not None
    logs.trim()
    assert 0 < _Counting.size_reads <= 2


def test_the_least_recently_used_logs_are_dropped_beyond_the_bound() -> None:
    logs = ThreadCache(limit_bytes=100_000)
    for name in ("a", "b", "c"):
        log = _log(name)
        log.add(("", "1"), _known(40_000))
        logs.put(log)
        if name == "b":
            assert logs.get("team", "a") is not None
    logs.trim()
    kept = [name for name in ("a", "b", "c") if logs.get("team", name) is not None]
    assert kept == ["a", "c"]


def test_a_log_that_grows_after_it_was_counted_is_counted_again() -> None:
    logs = ThreadCache(limit_bytes=100_000)
    for name in ("a", "b"):
        logs.put(_log(name))
    logs.trim()
    grown = logs.get("team", "b")
    assert grown is not None
    grown.add(("", "1"), _known(96_000))
    logs.trim()
    assert logs.get("team", "a") is None
    assert logs.get("team", "b") is not None
    logs.forget("team", "b")
    for name in ("c", "d"):
        log = _log(name)
        log.add(("", "1"), _known(40_000))
        logs.put(log)
    logs.trim()
    assert logs.get("team", "c") is not None


def test_a_checkpoint_that_is_saved_again_is_counted_once() -> None:
    log = _log("a")
    log.add(("", "1"), _known(1000))
    once = log.size
    log.add(("", "1"), _known(1000))
    assert log.size == once
    for number in range(100):
        log.add(("", f"{number:03}"), _known(1000))
    bounded = log.size
    log.add(("", "100"), _known(1000))
    assert log.size == bounded
