"""Lives of a server: each may end in a crash, at a place that the server visits.

Places are the server's failpoints and both sides of every put. After the crash, no remaining task
of the life has any effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tuskpoint_server.journal import failpoints


class Crash(BaseException):
    """The crash of a process; no error handler catches it."""


@dataclass
class Life:
    """One run of the process.

    Attributes:
        ends_after: Places to visit before the crash; `None`: the life does not crash by itself.
        alive: Whether the life has not crashed.
        visited: Places visited so far.
        on_end: Called at the crash.
    """

    ends_after: int | None = None
    alive: bool = True
    visited: list[str] = field(default_factory=list)
    on_end: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Raise in a task of a dead process, so that the task has no effect."""
        if not self.alive:
            raise Crash

    def visit(self, place: str) -> None:
        """Visit a place, perhaps the last one."""
        self.check()
        self.visited.append(place)
        if self.ends_after is not None and len(self.visited) >= self.ends_after:
            self.end()
            raise Crash

    def end(self) -> None:
        """Crash."""
        if self.alive:
            self.alive = False
            self.on_end()


@contextmanager
def failpoints_visit(visit: Callable[[str], None]) -> Iterator[None]:
    """Call `visit` with the name of every failpoint that the server reaches."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "_visit", visit)
        yield
