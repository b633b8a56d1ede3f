"""What the writer knows of recent threads: row, greatest IDs and some recent checkpoints.

Logs stay in memory between batches, bounded in bytes; a commit that fails forgets all of them.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from ...domain import thread_state
from ...domain.model import ThreadState, Version
from ...domain.state import decode_channels, encode_channel
from .thread_rows import ThreadRow

CACHED_BYTES = 64 * 1024 * 1024
_RECENT = 8
_LOG_BYTES = 1500
_KNOWN_BYTES = 1500

Place = tuple[str, str]
"""Namespace and checkpoint ID, inside a thread."""


class KnownChannel(NamedTuple):
    """A channel of a stored checkpoint; `encoded` is its part of the stored state."""

    version: Version | None
    digest: bytes | None
    size: int
    encoded: bytes


class KnownWrite(NamedTuple):
    """A stored pending write, without its value."""

    task_path: str
    channel: str
    type: str
    digest: bytes
    size: int
    seq: int


@dataclass(slots=True)
class Known:
    """A stored checkpoint as far as saves ask for it; `pending` is `None` until it is read."""

    seq: int
    parent_id: str
    state: bytes
    metadata: bytes
    run_id: str
    root_id: str
    delta_channels: bytes
    label: str
    summary: str
    created_us: int
    pending: dict[tuple[str, int], KnownWrite] | None = None
    _channels: dict[str, KnownChannel] | None = None

    @property
    def size_bytes(self) -> int:
        """About how many bytes of memory it takes, its writes left out."""
        return _KNOWN_BYTES + 2 * len(self.state) + len(self.metadata)

    @property
    def channels(self) -> dict[str, KnownChannel]:
        """Its channels by name."""
        if self._channels is None:
            self._channels = {
                channel.name: KnownChannel(
                    channel.version, channel.digest, channel.size, encode_channel(channel)
                )
                for channel in decode_channels(self.state)
            }
        return self._channels

    def set_channels(self, channels: dict[str, KnownChannel]) -> None:
        """Give the channels that `state` holds, where they are at hand."""
        self._channels = channels


class Log:
    """A thread as the writer knows it."""

    __slots__ = (
        "counted",
        "early",
        "fresh",
        "greatest",
        "keyframes",
        "known",
        "new",
        "row",
        "size",
        "whole",
    )

    def __init__(self, row: ThreadRow, *, new: bool, early: bool) -> None:
        self.row = row
        self.new = new
        self.early = early
        self.fresh = new
        self.keyframes: set[bytes] = set()
        self.greatest: dict[str, str] = {}
        self.whole: set[str] = set()
        self.known: OrderedDict[Place, Known] = OrderedDict()
        self.size = _LOG_BYTES
        self.counted = 0

    def add(self, place: Place, known: Known) -> None:
        """Remember a checkpoint as the most recent one, and forget those long ago."""
        before = self.known.pop(place, None)
        self.size += known.size_bytes - (before.size_bytes if before is not None else 0)
        self.known[place] = known
        while len(self.known) > _RECENT:
            _, old = self.known.popitem(last=False)
            self.size -= old.size_bytes

    def set_head(self, head_id: str, pending: Mapping[tuple[str, int], KnownWrite]) -> None:
        """Set the latest root checkpoint, whose writes say what the thread waits for."""
        self.row.head_id = head_id
        self.row.state = ThreadState.IDLE
        if pending:
            self.row.state = thread_state.judge(
                (task_id, write.channel, write.seq) for (task_id, _), write in pending.items()
            )

    def forget_checkpoints(self) -> None:
        """Read checkpoints again when they are asked for."""
        self.known.clear()
        self.greatest.clear()
        self.whole.clear()
        self.fresh = False
        self.size = _LOG_BYTES


class Logs:
    """Recent threads by (tenant, thread), the most recently used last.

    What a commit costs here depends on the threads that it touched, not on how many are kept.
    """

    def __init__(self, limit_bytes: int = CACHED_BYTES) -> None:
        self._limit = limit_bytes
        self._logs: OrderedDict[tuple[str, str], Log] = OrderedDict()
        self._used: set[tuple[str, str]] = set()
        self._size = 0

    def get(self, tenant: str, thread_id: str) -> Log | None:
        """Return a thread that is here."""
        key = (tenant, thread_id)
        log = self._logs.get(key)
        if log is not None:
            self._logs.move_to_end(key)
            self._used.add(key)
        return log

    def put(self, log: Log) -> None:
        """Keep a thread."""
        key = (log.row.tenant, log.row.thread_id)
        self.forget(*key)
        self._logs[key] = log
        self._used.add(key)

    def forget(self, tenant: str, thread_id: str) -> None:
        """Drop one thread."""
        log = self._logs.pop((tenant, thread_id), None)
        if log is not None:
            self._size -= log.counted
            log.counted = 0

    def clear(self) -> None:
        """Drop all."""
        for log in self._logs.values():
            log.counted = 0
        self._logs.clear()
        self._used.clear()
        self._size = 0

    def trim(self) -> None:
        """Drop the least recently used ones beyond the bound."""
        for key in self._used:
            log = self._logs.get(key)
            if log is not None:
                self._size += log.size - log.counted
                log.counted = log.size
        self._used.clear()
        while self._size > self._limit:
            _, log = self._logs.popitem(last=False)
            self._size -= log.counted
            log.counted = 0
