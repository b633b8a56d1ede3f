"""Background threads of a test; the test raises their errors."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Self


class Background:
    """Runs functions in threads until it is closed.

    Attributes:
        over: Set once the functions must end.
    """

    def __init__(self) -> None:
        self.over = threading.Event()
        self._pool = ThreadPoolExecutor(max_workers=16)
        self._works: list[Callable[[], None]] = []

    def add(self, work: Callable[[], None]) -> None:
        """Add a function; it starts when the context is entered and must end soon after `over` is
        set."""
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
        """Raise the error of a function that has ended."""
        for task in self._begun:
            if task.done():
                task.result()
