"""Quotas of tenants, and the counts that they bound.

Calls and bytes are bounded by token buckets. A bucket fills up at the rate of the quota, to the
tokens of one second. A call may overdraw a bucket, so a message larger than one second's bytes
passes, and nothing else until the bucket has a token again. Meanwhile unary calls are refused, and
messages of open streams are neither read nor written.

Threads and stored bytes are counted in the journal every few seconds, so a tenant can exceed these
quotas by its saves of that time. Each server counts calls, bytes and streams by itself.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from ...archive.archive import Archive
from ...core.credentials import EACH_OTHER_TENANT, UNLIMITED, Quota
from ...core.errors import quota_exceeded
from ...features.checkpoints.checkpoint_rows import CheckpointRows

COUNT_SECONDS = 5.0  # seconds between two counts of stored threads and bytes
_STREAM_SECONDS = 1.0  # seconds after which a client may open a stream again

Clock = Callable[[], float]  # monotonic clock, in seconds


@dataclass(slots=True)
class Bucket:
    """A token bucket that fills at a rate per second."""

    quota: str  # name of the quota
    rate: int
    at: float  # time at which `level` was right
    level: float

    def take(self, tokens: int, now: float) -> None:
        """Take tokens, also more than the bucket has."""
        self.level = min(self.rate, self.level + (now - self.at) * self.rate) - tokens
        self.at = now

    def wait_s(self, now: float) -> float:
        """Return the seconds until the bucket has a token; at most 0 if it has one."""
        return (1 - self.level) / self.rate - (now - self.at)


@dataclass(slots=True, eq=False)
class Usage:
    """Calls, bytes and streams of one tenant on this server."""

    tenant: str
    clock: Clock
    streams: int = 0
    quota: Quota = UNLIMITED
    _calls: Bucket | None = None
    _bytes: Bucket | None = None

    def limit(self, quota: Quota) -> None:
        """Replace the quota; buckets with an unchanged rate keep their level."""
        old, self.quota = self.quota, quota
        if quota.calls_per_second != old.calls_per_second:
            self._calls = self._bucket("calls_per_second")
        if quota.bytes_per_second != old.bytes_per_second:
            self._bytes = self._bucket("bytes_per_second")

    def _bucket(self, name: str) -> Bucket | None:
        rate = getattr(self.quota, name)
        return None if rate is None else Bucket(name, rate, self.clock(), rate)

    def take(self, calls: int, size: int) -> None:
        """Count calls, and bytes of their requests or answers."""
        if self._calls is not None and calls:
            self._calls.take(calls, self.clock())
        if self._bytes is not None:
            self._bytes.take(size, self.clock())

    def admit(self) -> None:
        """Refuse a call while a bucket has no token."""
        for bucket in (self._calls, self._bytes):
            if bucket is not None and (wait_s := bucket.wait_s(self.clock())) > 0:
                advice, limit = "call more slowly", bucket.rate
                raise quota_exceeded(self.tenant, bucket.quota, limit, advice, wait_s)

    async def room(self) -> None:
        """Wait until every bucket has a token."""
        for bucket in (self._calls, self._bytes):
            if bucket is not None and (wait_s := bucket.wait_s(self.clock())) > 0:
                await asyncio.sleep(wait_s)

    def open_stream(self) -> None:
        """Count a stream, or refuse it."""
        limit = self.quota.open_streams
        if limit is not None and self.streams >= limit:
            advice = "close a stream first"
            raise quota_exceeded(self.tenant, "open_streams", limit, advice, _STREAM_SECONDS)
        self.streams += 1


UNCOUNTED = Usage("", time.monotonic)


class Quotas:
    """The quotas in force, and the usage of tenants."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock = clock or time.monotonic
        self._quotas: Mapping[str, Quota] = {}
        self._usages: dict[str, Usage] = {}

    def replace(self, quotas: Mapping[str, Quota]) -> None:
        """Replace the quotas, by tenant or for `EACH_OTHER_TENANT`."""
        self._quotas = quotas
        for tenant, usage in self._usages.items():
            usage.limit(self._quota_of(tenant))

    def usage(self, tenant: str) -> Usage:
        """Return the usage of a tenant."""
        usage = self._usages.get(tenant)
        if usage is None:
            usage = self._usages[tenant] = Usage(tenant, self._clock)
            usage.limit(self._quota_of(tenant))
        return usage

    def _quota_of(self, tenant: str) -> Quota:
        return self._quotas.get(tenant) or self._quotas.get(EACH_OTHER_TENANT, UNLIMITED)

    async def count(self, journal: CheckpointRows, archive: Archive) -> None:
        """Count the stored data of calling tenants; full quotas stay full until the next count."""
        for tenant, usage in list(self._usages.items()):
            quota, threads, stored_bytes = usage.quota, 0, 0
            if quota.threads is not None or quota.stored_bytes is not None:
                threads, stored_bytes = await journal.stored_by(tenant)
            journal.limit_threads(tenant, quota.threads, threads)
            archive.backlog(tenant).limit_stored(tenant, quota.stored_bytes, stored_bytes)
