"""Places where a crash test may kill the process.

`TUSKPOINT_FAILPOINT=name` (or `name:n`) kills the process with SIGKILL when it reaches
the named place for the first (or the n-th) time. Without it every place is a no-op.
"""

from __future__ import annotations

import os
import signal
import threading


class _Target:
    """Counts the visits to one named place and kills at the chosen one."""

    def __init__(self, setting: str) -> None:
        name, _, visits = setting.partition(":")
        self.name = name
        self._left = int(visits or "1")
        self._lock = threading.Lock()

    def visit(self) -> None:
        with self._lock:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


_setting = os.environ.get("TUSKPOINT_FAILPOINT", "")
_target = _Target(_setting) if _setting else None


def failpoint(name: str) -> None:
    """Kill this process here if the environment says so; `name` is "room.place"."""
    if _target is not None and _target.name == name:
        _target.visit()
