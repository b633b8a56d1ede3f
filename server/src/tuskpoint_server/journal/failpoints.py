"""Failpoints, where a crash test may kill the process.

`TUSKPOINT_FAILPOINT=name` (or `name:n`) kills the process with SIGKILL when it reaches the named
failpoint for the first (or the n-th) time. Without it every failpoint is a no-op.
"""

from __future__ import annotations

import os
import signal
from itertools import count

_place, _, _at = os.environ.get("TUSKPOINT_FAILPOINT", "").partition(":")
_visits = count(1)


def _visit(name: str) -> None:
    if name == _place and next(_visits) == int(_at or "1"):
        os.kill(os.getpid(), signal.SIGKILL)


def failpoint(name: str) -> None:
    """Kill this process if the environment names this failpoint; `name` is "package.place"."""
    _visit(name)
