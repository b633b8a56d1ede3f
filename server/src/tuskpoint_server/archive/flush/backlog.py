"""How much of a tenant waits for certification, and when that is due."""

from __future__ import annotations

from ...domain.errors import Reason, Refusal
from ...journal.archiving.status import Backlog as Counted
from .settings import ArchiveSettings


class Backlog:
    """What waits, as far as this process knows; set right by the journal at every flush.

    Times are seconds of a monotonic clock.
    """

    def __init__(self, settings: ArchiveSettings) -> None:
        self._settings = settings
        self._size = 0
        self._fresh_bytes = 0
        self._fresh_changes = 0
        self._since: float | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of values and writes that wait."""
        return self._size

    def age_s(self, now: float) -> float:
        """Seconds since the oldest change that no flush has read."""
        return 0.0 if self._since is None else now - self._since

    def changed(self, stored_bytes: int, now: float) -> None:
        """Note a change."""
        self._size += stored_bytes
        self._fresh_bytes += stored_bytes
        self._fresh_changes += 1
        if self._since is None:
            self._since = now

    def due_at(self) -> float | None:
        """Return the time at which a flush is due, 0 for now, `None` for not at all."""
        if self._since is None:
            return None
        settings = self._settings
        if (
            self._fresh_bytes >= settings.max_pack_bytes
            or self._fresh_changes >= settings.max_pack_checkpoints
        ):
            return 0.0
        return self._since + settings.flush_interval_s

    def collecting(self) -> None:
        """Note that a flush reads everything noted so far."""
        self._fresh_bytes = 0
        self._fresh_changes = 0
        self._since = None

    def certified(self, size_bytes: int) -> None:
        """Note that this much no longer waits, and that more is left."""
        self._size = max(0, self._size - size_bytes)

    def counted(self, found: Counted, now: float) -> None:
        """Take over what the journal counted."""
        self._size = found.size_bytes
        if found.threads and self._since is None:
            self._since = now

    def admit(self) -> None:
        """Refuse if the hard limit is passed.

        Raises:
            Refusal: `BACKLOG_FULL`.
        """
        if self._size > self._settings.hard_limit_bytes:
            raise Refusal(
                Reason.BACKLOG_FULL,
                backlog_bytes=self._size,
                maximum=self._settings.hard_limit_bytes,
            )

    def warning(self) -> bool:
        """Return whether the soft limit is passed."""
        return self._size > self._settings.soft_limit_bytes
