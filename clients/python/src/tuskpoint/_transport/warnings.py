"""Log of the warnings of answers, and of targets without an answer: each at most once a minute."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable

from .._messages.search import kind_name
from ..v1.errors_pb2 import Warning as ServiceWarning

LOGGER = logging.getLogger("tuskpoint")
PAUSE_S = 60.0


class WarningLog:
    """Logs each kind of warning of each server at most once a minute. Thread-safe.

    Args:
        clock: Returns monotonic time in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._logged: dict[tuple[str, int | None], float] = {}

    def log(self, target: str, warnings: Iterable[ServiceWarning]) -> None:
        """Log the warnings of an answer, except kinds that were logged less than a minute ago.

        Args:
            target: The server.
            warnings: Warnings of the answer.
        """
        for warning in warnings:
            if self._is_due(target, warning.kind):
                LOGGER.warning(
                    "%s warns (%s): %s", target, kind_name(warning.kind), warning.message
                )

    def log_silence(self, target: str, message: str) -> None:
        """Log that a target has not answered yet, unless logged less than a minute ago.

        Args:
            target: The target.
            message: The cause and the remedy.
        """
        if self._is_due(target, None):
            LOGGER.warning("still waiting: %s", message)

    def _is_due(self, target: str, kind: int | None) -> bool:
        now = self._clock()
        with self._lock:
            last = self._logged.get((target, kind))
            if last is not None and now - last < PAUSE_S:
                return False
            self._logged[target, kind] = now
            return True


WARNINGS = WarningLog()
