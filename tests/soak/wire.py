"""A connection between two processes that stalls, slows down and breaks at random bytes."""

from __future__ import annotations

import random
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from tests.crash.faults.breaking_proxy import BreakingProxy

SLOW_SECONDS = 0.05  # delay of each piece


class Wire(BreakingProxy):
    """Carries connections unchanged, except while a fault lasts."""

    def __init__(self, target: str, source: random.Random) -> None:
        super().__init__(target, source)
        self._breaks_now = False
        self._slow_s = 0.0
        self._flows = threading.Event()
        self._flows.set()

    def cut(self) -> None:
        """Break all open connections."""
        with self._lock:
            open_now = [*self._open]
        for connection in open_now:
            connection.reset()

    @contextmanager
    def breaking(self) -> Iterator[None]:
        """Break all connections, and most new connections at random bytes."""
        self._breaks_now = True
        self.cut()
        yield
        self._breaks_now = False
        self.cut()

    @contextmanager
    def stalled(self) -> Iterator[None]:
        """Carry nothing; bytes in flight arrive afterwards."""
        self._flows.clear()
        yield
        self._flows.set()

    @contextmanager
    def slow(self) -> Iterator[None]:
        """Carry each piece with a delay."""
        self._slow_s = SLOW_SECONDS
        yield
        self._slow_s = 0.0

    def _allowed(self) -> int:
        return super()._allowed() if self._breaks_now else sys.maxsize

    def _pace(self) -> None:
        if self._slow_s:
            time.sleep(self._slow_s)
        self._flows.wait()
