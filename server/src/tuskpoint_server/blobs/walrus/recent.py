"""Which blobs this process stored a moment ago."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

_KEPT_S = 600.0
_KEPT = 10_000


class RecentBlobs:
    """IDs of blobs that aggregators may not know yet: bounded in number and age.

    Args:
        clock: Monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._stored: OrderedDict[str, float] = OrderedDict()

    def add(self, blob_id: str) -> None:
        """Note that a blob was stored just now."""
        self._stored[blob_id] = self._clock()
        self._stored.move_to_end(blob_id)
        while len(self._stored) > _KEPT:
            self._stored.popitem(last=False)

    def __contains__(self, blob_id: str) -> bool:
        stored = self._stored.get(blob_id)
        return stored is not None and self._clock() - stored < _KEPT_S
