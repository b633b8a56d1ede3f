"""Tells of the warnings that come with answers, by logging, and not too often."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from .v1.errors_pb2 import Warning as ServiceWarning
from .v1.errors_pb2 import WarningKind

LOGGER = logging.getLogger("tuskpoint")
PAUSE_S = 60.0


class WarningLog:
    """Logs each kind of warning of each server at most once a minute. Thread-safe.

    Args:
        clock: Returns a monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._told: dict[tuple[str, int], float] = {}

    def tell(self, target: str, warnings: Iterable[ServiceWarning]) -> None:
        """Log the warnings of an answer, those left out that were logged a moment ago.

        Args:
            target: The server that warns.
            warnings: What it warns of.
        """
        for warning in warnings:
            if self._is_due(target, warning.kind):
                LOGGER.warning(
                    "%s warns (%s): %s", target, kind_name(warning.kind), warning.message
                )

    def _is_due(self, target: str, kind: int) -> bool:
        now = self._clock()
        with self._lock:
            last = self._told.get((target, kind))
            if last is not None and now - last < PAUSE_S:
                return False
            self._told[target, kind] = now
            return True


def kind_name(kind: int) -> str:
    """Return the name of a kind of warning; one that a newer server has is its number."""
    known = WarningKind.values()
    if kind not in known:
        return str(kind)
    return WarningKind.Name(WarningKind.ValueType(kind)).removeprefix("WARNING_KIND_").lower()


WARNINGS = WarningLog()
