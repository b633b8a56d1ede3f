"""Work in threads beside the test, whose errors the test raises."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self


class Background:
    """Runs work in threads until it is closed.

    Attributes:
        over: Set once the work is to end.
    """

    def __init__(self) -> None:
        self.over = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=16)
        self._works: list[Callable[[], None]] = []

    def add(self, work: Callable[[], None]) -> None:
        """Add work, which begins when this is entered and ends soon after `over` is set."""
        self._works.append(work)

    def __enter__(self) -> Self:
        self._begun = [self._pool.submit(work) for work in self._works]
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.over.set()
        self._pool.shutdown()
        if error is None:
            self.check()

    def check(self) -> None:
        """Raise the error of work that has ended."""
        for task in self._begun:
            if task.done():
                task.result()
