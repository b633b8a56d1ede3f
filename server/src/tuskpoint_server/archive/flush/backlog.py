"""Changes that wait for certification, and the time at which a flush is due."""

from __future__ import annotations

from collections import deque

from opentelemetry import trace

from ...core.errors import Reason, Refusal, quota_exceeded
from ..archive_settings import ArchiveSettings
from ..rows import status

MAX_LINKS = 128  # links from a flush to the latest calls whose changes it certifies


class FlushBacklog:
    """Uncertified changes, corrected from the journal at every flush; times are monotonic."""

    def __init__(self, settings: ArchiveSettings) -> None:
        self._settings = settings
        self.size_bytes = self._fresh_bytes = self._fresh_changes = 0
        self.since: float | None = None
        # set if the tenant has reached its limit of stored bytes
        self.full: tuple[str, int] | None = None
        # links to calls whose changes no flush has read
        self._spans: deque[trace.Link] = deque(maxlen=MAX_LINKS)

    def age_s(self, now: float) -> float:
        """Seconds since the oldest change that no flush has read."""
        return 0.0 if self.since is None else now - self.since

    def added(self, changes: int, added_bytes: int, now: float) -> None:
        """Note changes and the bytes of their new content."""
        self.size_bytes += added_bytes
        self._fresh_bytes += added_bytes
        self._fresh_changes += changes
        if self.since is None:
            self.since = now

    def due_at(self) -> float | None:
        """Return the time at which a flush is due, 0 for now, `None` for not at all."""
        if self.since is None:
            return None
        settings = self._settings
        is_large = self._fresh_bytes >= settings.max_pack_bytes
        if is_large or self._fresh_changes >= settings.max_pack_checkpoints:
            return 0.0
        return self.since + settings.flush_interval_s

    def collecting(self) -> list[trace.Link]:
        """Note that a flush reads everything noted so far; return links to the calls."""
        self._fresh_bytes = self._fresh_changes = 0
        self.since = None
        spans = list(self._spans)
        self._spans.clear()
        return spans

    def counted(self, backlog: status.CertificationBacklog, now: float) -> None:
        """Adopt the journal's numbers while no flush runs: other servers save too."""
        self.size_bytes = self._fresh_bytes = backlog.size_bytes
        if not backlog.threads:
            self.collecting()
        elif self.since is None:
            self.since = now

    def admit(self) -> None:
        """Refuse with `BACKLOG_FULL` above the hard limit, or with `QUOTA_EXCEEDED`."""
        maximum = self._settings.hard_limit_bytes
        if self.size_bytes > maximum:
            raise Refusal(Reason.BACKLOG_FULL, backlog_bytes=self.size_bytes, maximum=maximum)
        if self.full is not None:
            tenant, limit = self.full
            raise quota_exceeded(tenant, "stored_bytes", limit, "delete threads or prune them")
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            self._spans.append(trace.Link(span))

    def limit_stored(self, tenant: str, limit: int | None, stored_bytes: int) -> None:
        """Refuse further saves if the tenant has reached its limit of stored bytes."""
        self.full = (tenant, limit) if limit is not None and stored_bytes >= limit else None

    def warning(self) -> bool:
        """Return whether the backlog is above the soft limit."""
        return self.size_bytes > self._settings.soft_limit_bytes
