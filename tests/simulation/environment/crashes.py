"""Lives of a server: each may end in a crash, at a place that the server visits.

Places are the server's failpoints and both sides of every put. From the crash on nothing that
still runs of a life has any effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pytest

from tuskpoint_server.journal import failpoints


class Crash(BaseException):
    """The process is gone; no handler of errors sees this."""


@dataclass
class Life:
    """One run of the process.

    Attributes:
        ends_after: Places to visit before the crash; `None`: it does not end by itself.
        alive: It has not crashed.
        visited: Places visited so far.
        on_end: Called at the crash.
    """

    ends_after: int | None = None
    alive: bool = True
    visited: list[str] = field(default_factory=list)
    on_end: Callable[[], None] = lambda: None

    def check(self) -> None:
        """Let nothing that is left of a dead process have an effect."""
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
    """Call `visit` with the name of every failpoint that is reached."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(failpoints, "_visit", visit)
        yield
